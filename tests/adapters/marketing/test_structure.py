"""What a page offers to do is read from its HTML; what cannot be seen does not count."""

from __future__ import annotations

import re

from autoresearch.adapters.marketing.structure import read_structure


def test_links_need_something_to_click() -> None:
    """A link counts with text or a described picture in it, and not when it is empty or hidden."""
    found = read_structure(
        '<a href="/a">Go</a><a href="/a">Go</a><a href="/b"><img src="x" alt="Picture"></a><a href="/c"> </a>'
        '<div style="display: none"><a href="/d">Hidden</a></div><a href="/e" hidden>x</a><a name="f">no link</a>'
    )
    assert dict(found.links) == {"/a": 2, "/b": 1}
    assert found.empty_links == ["/c"]


def test_forms_need_a_button() -> None:
    """A form is known by method, address and fields, and counts only with a button that sends it."""
    found = read_structure(
        '<form action="/x" METHOD="POST"><input name="b"><select name="a"></select><button>Go</button></form>'
        '<form action="/y"><input name="q"><input type="submit"></form>'
        '<form action="/z"><input name="q"><button type="button">No</button></form>'
    )
    assert dict(found.forms) == {("post", "/x", ("a", "b")): 1, ("get", "/y", ("q",)): 1}


def test_visible_text_is_what_people_read() -> None:
    """Scripts, styles, titles and hidden parts are not seen; elements part words."""
    found = read_structure(
        "<title>T</title><style>p{}</style><p>One<br>two</p><p>three</p><script>x()</script>"
        '<p style="font-size:0">no</p><p style="opacity:0.5">four</p><p hidden>no</p>'
    )
    assert found.text == "One two three four"


def test_markers_tell_where_slots_went() -> None:
    """A slot belongs between tags or in texts for people, nowhere else."""
    marker = re.compile(r"zq(\w)qz")
    found = read_structure(
        '<p title="zqaqz">zqbqz</p><a href="zqcqz">x</a><script>zqdqz</script><!-- zqeqz --><p zqfqz>x</p>'
        "<style>zqgqz</style><meta content='zqhqz'>",
        marker,
    )
    assert found.misplaced == {
        "c": "in href of <a>",
        "d": "inside <script>",
        "e": "inside a comment",
        "f": "in the name of an attribute of <p>",
        "g": "inside <style>",
    }


def test_broken_html_is_read_as_far_as_it_goes() -> None:
    """Tags that nobody closes or opens end nothing that is still needed."""
    found = read_structure("<div></p><a href='/x'>text<p>more</div></a><br/></section><b")
    assert dict(found.links) == {"/x": 1}
