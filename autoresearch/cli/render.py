"""From values to text that a terminal can be trusted with: pure functions that print nothing.

Hypotheses, reasons and logs were written by a model or a candidate. Everything of that kind passes `clean` before it is
shown, and is never read as markup.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoresearch.core.words import ABSENT as ABSENT
from autoresearch.core.words import clean as clean
from autoresearch.core.words import duration as duration
from autoresearch.core.words import effect as effect
from autoresearch.core.words import effect_in_words as effect_in_words
from autoresearch.core.words import money as money
from autoresearch.core.words import number as number
from autoresearch.core.words import probability as probability

OUTCOME_STYLES: Mapping[str, str] = {
    "kept": "green",
    "reverted": "bright_black",
    "inconclusive": "yellow",
    "crashed": "red",
    "invalid": "magenta",
}
"""Colours of the outcomes; the word is always there too."""

_UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def as_json(value: object) -> str:
    """Return indented JSON; characters that a terminal would obey are written as escapes."""
    return _safe(json.dumps(value, ensure_ascii=False, indent=2))


def as_json_line(value: object) -> str:
    """Return JSON on one line; characters that a terminal would obey are written as escapes."""
    return _safe(json.dumps(value, ensure_ascii=False))


def _safe(text: str) -> str:
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def clock(seconds: float) -> str:
    """Return a running time as `m:ss` or `h:mm:ss`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def display_width(text: str) -> int:
    """Return how many columns a line takes: two for East Asian wide characters, none for combining ones."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def crop(text: str, width: int | None) -> str:
    """Return a line cut to `width` columns, the last one an ellipsis where something is missing."""
    if width is None or display_width(text) <= width:
        return text
    room, kept = max(0, width - 1), ""
    for char in text:
        room -= display_width(char)
        if room < 0:
            break
        kept += char
    return f"{kept}…" if width > 0 else ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; `right` aligns numbers, `styles` colours a cell by its text where colours are wanted."""

    title: str
    right: bool = False
    styles: Mapping[str, str] | None = None


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None = None, colour: bool = False
) -> str:
    """Return rows as aligned text, one line a row.

    Args:
        columns: What stands in each column.
        rows: Cells; every one is cleaned here.
        width: Columns that the terminal has; the last column of the table is cropped to fit. None crops nothing.
        colour: Colour the cells of columns with styles.
    """
    cells = [[clean(cell) for cell in row] for row in rows]
    titles = [column.title for column in columns]
    widths = [max(map(display_width, column)) for column in zip(titles, *cells, strict=True)]
    if width is not None:
        widths[-1] = max(8, width - sum(widths[:-1]) - 2 * (len(widths) - 1))
    lines = [_line(columns, titles, widths, width is not None, colour=False)]
    lines += [_line(columns, row, widths, width is not None, colour=colour) for row in cells]
    return "\n".join(lines) + "\n"


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], cropped: bool, *, colour: bool
) -> str:
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        shown = crop(cell, width) if cropped else cell
        blanks = " " * (width - display_width(shown))
        styled = paint(shown, (column.styles or {}).get(cell)) if colour else shown
        parts.append(f"{blanks}{styled}" if column.right else f"{styled}{blanks}")
    return "  ".join(parts).rstrip()


_CODES = {"green": "32", "red": "31", "yellow": "33", "magenta": "35", "cyan": "36", "bright_black": "90"}


def paint(text: str, style: str | None) -> str:
    """Return text in a colour; as it is without one."""
    return text if style is None or not text else f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def fields(pairs: Sequence[tuple[str, str]]) -> str:
    """Return `name  text` lines with the texts aligned; pairs with an empty text are left out."""
    shown = [(name, clean(text, lines=True)) for name, text in pairs if text]
    indent = max((len(name) for name, _ in shown), default=0) + 2
    lines = []
    for name, text in shown:
        first, *rest = text.splitlines() or [""]
        lines.append(f"{name.ljust(indent)}{first}")
        lines += [f"{' ' * indent}{line}" for line in rest]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def painted_diff(diff: str) -> str:
    """Return a unified diff with added lines green, removed ones red and places cyan."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    return "\n".join(paint(line, styles.get(line[:1])) for line in diff.split("\n"))


def in_a_word(value: Any) -> str:
    """Return a value of a small mapping as one word: numbers with six digits, everything else as it prints."""
    return number(value) if isinstance(value, float) else clean(str(value))
