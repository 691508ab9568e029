"""Values of TOML files are found where they stand, and turned without touching anything else."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.artifact import Artifact
from autoresearch.core.proposers.knobs import Knob, find_knobs, turn
from autoresearch.core.proposers.toml_values import find_values

TEXT = """\
# café
title = 'x'   # a comment

[slots]
headline = "Größe — zählt"  # why
body = \"\"\"
two
lines\"\"\"
rate = 0.02
on = true
mask = 0xff
list = ["a", "b"]
"""


def test_values_stand_where_they_are_found() -> None:
    """The bytes at the place of a value are its literal, whatever comes before."""
    raw = TEXT.encode()
    found = find_values(TEXT, ["slots.headline", "title", "slots.body", "slots.rate", "slots.on", "slots.mask"])
    assert {name: raw[at.start : at.end].decode() for name, at in found.items()} == {
        "title": "'x'",
        "slots.headline": '"Größe — zählt"',
        "slots.body": '"""\ntwo\nlines"""',
        "slots.rate": "0.02",
        "slots.on": "true",
        "slots.mask": "0xff",
    }
    assert [at.value for at in found.values()] == [None, None, None, 0.02, None, None]


def test_what_is_no_value_is_left_out() -> None:
    """Tables, lists and names that are not there are no knobs, and a broken text has none."""
    assert find_values(TEXT, ["slots", "slots.list", "slots.missing", "none.at", "title.x"]) == {}
    assert find_values("[slots", ["slots.headline"]) == {}


def test_declared_knobs_are_found_in_toml() -> None:
    """A knob that an adapter declares in a TOML file can be turned; other values there are left alone."""
    artifact = Artifact({"copy.toml": TEXT})
    knob = Knob("slots.headline", "copy.toml", choices=('"Größe — zählt"', '"Kurz"'))
    [found] = find_knobs(artifact, [knob])
    turned = turn(artifact, found, '"Kurz"')
    assert turned.files["copy.toml"] == TEXT.replace('"Größe — zählt"', '"Kurz"')
    assert find_knobs(artifact) == []
    assert find_knobs(artifact, [Knob("slots.headline", "other.toml", choices=("1",))]) == []
    assert find_knobs(artifact, [Knob("slots.headline", "copy.toml", choices=("1",), frozen=True)]) == []


@pytest.mark.parametrize("name", ["slots.on", "slots.mask", "title"])
def test_only_numbers_do_without_choices(name: str) -> None:
    """A value that is no number needs choices; a number has a ladder of its own."""
    artifact = Artifact({"copy.toml": TEXT})
    assert find_knobs(artifact, [Knob(name, "copy.toml")]) == []
    assert [knob.value for knob in find_knobs(artifact, [Knob("slots.rate", "copy.toml")])] == [0.02]


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40), st.text("ab'\"\\\n #=", max_size=9)
)
def test_any_text_is_found_and_replaced(first: str, second: str) -> None:
    """Turning a knob changes that value and no other, for any texts."""
    import tomlkit

    document = f"a = {tomlkit.string(first).as_string()} # é\nb = {tomlkit.string(second).as_string()}\n"
    artifact = Artifact({"x.toml": document})
    [found] = find_knobs(artifact, [Knob("b", "x.toml", choices=("0",))])
    turned = turn(artifact, found, '"new"').files["x.toml"]
    assert tomllib.loads(turned) == {"a": first, "b": "new"}
    assert turned.startswith(document[: document.index("\nb = ")])
