"""Templates are filled in a sandbox, everything escaped, and what is wrong is named with its line."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from autoresearch.adapters.marketing.render import Context, TemplateFault, paragraphs, render, slots_in
from autoresearch.core import EnvironmentNotReadyError
from tests.adapters.marketing.campaigns import campaign, copy_of, edit


def test_texts_are_escaped_in_html_and_not_in_text(tmp_path: Path) -> None:
    """A sign that HTML reserves shows as itself in both parts of a mail."""
    mail = campaign(tmp_path, "email")
    filled = render(mail, copy_of(mail, subject="Tea & cake", ask='Is 1 < 2, "really"?'))
    assert filled.subject == "Tea & cake"
    assert filled.html is not None
    assert "Is 1 &lt; 2, &#34;really&#34;?" in filled.html
    assert filled.text is not None
    assert 'Is 1 < 2, "really"?' in filled.text
    assert filled.mjml is not None
    assert "Tea &amp; cake" in filled.mjml


def test_the_context_names_the_addresses(tmp_path: Path) -> None:
    """Form address and hidden fields come from the context."""
    page = campaign(tmp_path)
    filled = render(page, copy_of(page), context=Context(action_url="/x?a=1&b=2", hidden={"unit": 'a"b'}))
    assert filled.html is not None
    assert 'action="/x?a=1&amp;b=2"' in filled.html
    assert 'name="unit" value="a&#34;b"' in filled.html
    assert (filled.subject, filled.text) == (None, None)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("{% if %}", r"page\.html\.j2 line 1 is no template"),
        ("{{ slot.missing }}", "has no attribute 'missing'"),
        ("{{ other }}", "'other' is undefined"),
        ("{{ slot.__class__.__mro__ }}", "cannot be filled"),
        ("{% include 'gone.j2' %}", r"gone\.j2 is missing|cannot be filled"),
        ("{{ 1 / 0 }}", "cannot be filled: division by zero"),
        ("{{ slot | nothing }}", "No filter named 'nothing'"),
        ("{% include 'page.html.j2' %}", "cannot be filled"),
        ("{% for x in range(9) %}{% endfor %}", "'range' is undefined"),
    ],
)
def test_a_broken_template_is_named(tmp_path: Path, new: str, said: str) -> None:
    """A template that does not parse, asks for what is not there or does too much names itself and the reason."""
    page = campaign(tmp_path)
    edit(tmp_path, "template/page.html.j2", "<!doctype html>", new)
    with pytest.raises(TemplateFault, match=said):
        render(page, copy_of(page))


def test_a_missing_template_is_named(tmp_path: Path) -> None:
    """A campaign without its template says which file is missing."""
    mail = campaign(tmp_path, "email")
    (tmp_path / "template" / "email.txt.j2").unlink()
    with pytest.raises(TemplateFault, match=r"email\.txt\.j2 is missing"):
        render(mail, copy_of(mail))
    (tmp_path / "template" / "email.mjml.j2").unlink()
    with pytest.raises(TemplateFault, match=r"email\.txt\.j2 is missing"):
        slots_in(mail)


def test_slots_are_found_in_every_file(tmp_path: Path) -> None:
    """Slots count wherever the templates ask for them, in included files too."""
    page = campaign(tmp_path)
    before = slots_in(page)
    edit(tmp_path, "template/page.html.j2", "<!doctype html>", "<!doctype html>{% include 'more.html.j2' %}")
    (tmp_path / "template" / "more.html.j2").write_text("{{ slot['extra'] }}{% include 'page.html.j2' %}")
    assert set(slots_in(page)) == {*before, "extra"}


def test_an_edited_template_is_read_again(tmp_path: Path) -> None:
    """What a person changes in a template shows at the next rendering."""
    page = campaign(tmp_path)
    render(page, copy_of(page))
    edit(tmp_path, "template/page.html.j2", "Try it with your own team", "Something quite new")
    assert "Something quite new" in (render(page, copy_of(page)).html or "")


def test_paragraphs_end_at_empty_lines() -> None:
    """A line break stays in its paragraph, an empty line ends it."""
    assert paragraphs("\none\ntwo\n \n\nthree\n") == ["one\ntwo", "three"]


def test_without_jinja_the_command_to_install_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is the machine's fault, and the message says how to mend it."""
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "jinja2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    page = campaign(tmp_path)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(EnvironmentNotReadyError, match=r"pip install 'autoresearch\[marketing\]'"):
        render(page, copy_of(page))
