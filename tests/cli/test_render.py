"""Text that a terminal can be trusted with."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.cli import render
from autoresearch.cli.render import Column, clean, crop, display_width, duration, fields, table


@pytest.mark.parametrize(
    ("hostile", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07shown", "shown"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jwiped", "wiped"),
        ("\x90secret\x9cplain", "plain"),
        ("a\rb\nc\td", "a b c d"),
        ("bell\x07 back\x08", "bell back"),
        ("left\u202eright\u2066", "leftright"),
        ("[bold]markup[/bold]", "[bold]markup[/bold]"),
        ("\x1b", ""),
        ("\x1b]0;never closed\nthe next line", "the next line"),
    ],
)
def test_what_a_terminal_would_obey_is_removed(hostile: str, left: str) -> None:
    """Escape sequences go as a whole, other controls alone, and text that only looks like markup stays."""
    assert clean(hostile) == left


def test_lines_are_kept_where_they_are_wanted() -> None:
    """With `lines` the ends of lines and tabs stay, and a carriage return cannot overwrite a line."""
    assert clean("one\r\n\ttwo\rthree\x1b[K\n", lines=True) == "one\n\ttwo\nthree\n"


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60), st.booleans())
def test_nothing_dangerous_is_left(text: str, lines: bool) -> None:
    """Whatever the text, no control character and no mark of direction is left, and cleaning again changes nothing."""
    safe = clean(text, lines=lines)
    allowed = "\n\t" if lines else ""
    assert not [char for char in safe if (ord(char) < 32 or 127 <= ord(char) < 160) and char not in allowed]
    assert not any(char in safe for char in "\u202a\u202e\u2066\u200f")
    assert clean(safe, lines=lines) == safe


@given(st.text(max_size=40))
def test_json_is_the_same_value_and_harmless(text: str) -> None:
    """JSON reads back as it was, and has no character that a terminal would obey."""
    line = render.as_json_line({"text": text})
    assert json.loads(line) == {"text": text}
    assert all(32 <= ord(char) < 127 or ord(char) >= 160 for char in line)
    assert "\u202e" not in line


def test_json_keeps_letters_of_other_scripts_readable() -> None:
    """Only what is dangerous is escaped."""
    assert render.as_json_line("größer \x9b") == '"größer \\u009b"'


def test_a_table_fits_eighty_columns() -> None:
    """With a width the last column is cropped and no line is longer."""
    columns = [Column("#", right=True), Column("outcome"), Column("hypothesis")]
    text = table(columns, [["1", "kept", "long " * 50], ["12", "inconclusive", "短い" * 40]], width=80)
    assert max(display_width(line) for line in text.splitlines()) == 80
    assert text.splitlines()[1].endswith("…")
    assert text.splitlines()[1].startswith(" 1  kept          long")


def test_a_piped_table_loses_nothing() -> None:
    """Without a width every cell is there in full."""
    long = "long " * 50
    assert long.strip() in table([Column("#"), Column("text")], [["1", long]])


def test_colours_do_not_shift_columns() -> None:
    """Coloured cells line up as plain ones do."""
    columns = [Column("outcome", styles=render.OUTCOME_STYLES), Column("text")]
    rows = [["kept", "a"], ["inconclusive", "b"]]
    coloured = table(columns, rows, colour=True)
    assert "\x1b[32mkept\x1b[0m" in coloured
    assert "".join(clean(coloured, lines=True)) == table(columns, rows)


@pytest.mark.parametrize(("width", "shown"), [(5, "12345"), (4, "123…"), (1, "…"), (0, "")])
def test_crop_leaves_an_ellipsis(width: int, shown: str) -> None:
    """A line that is too long ends in an ellipsis that counts."""
    assert crop("12345", width) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.25, "0.2 s"), (59.6, "1 min 0 s"), (75, "1 min 15 s"), (7300, "2 h 1 min"), (200_000, "2 d 7 h")],
)
def test_durations_have_two_units(seconds: float, shown: str) -> None:
    """A duration is read at a glance."""
    assert duration(seconds) == shown


def test_numbers_never_pretend() -> None:
    """What is absent is a dash, a probability is never rounded to certainty, and an effect says what its sign means."""
    assert render.number(None) == render.effect(None) == render.probability(None) == "-"
    assert (render.probability(0.9999), render.probability(0.001), render.probability(0.5)) == (">.99", "<.01", "0.50")
    assert render.effect_in_words(0.01234) == "+0.0123 better"
    assert render.effect_in_words(-2.0) == "-2 worse"
    assert render.money(0.004) == "$0.0040" and render.money(0.0) == "$0.00" and render.money(1.5) == "$1.50"


def test_fields_leave_out_what_is_empty() -> None:
    """Names align, empty ones vanish, further lines are indented."""
    assert fields([("a", "1"), ("longer", "2\n3"), ("gone", "")]) == "a       1\nlonger  2\n        3\n"
