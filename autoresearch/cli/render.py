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

OUTCOME_STYLES: Mapping[str, str] = {
    "kept": "green",
    "reverted": "bright_black",
    "inconclusive": "yellow",
    "crashed": "red",
    "invalid": "magenta",
}
"""Colours of the outcomes; the word is always there too."""

ABSENT = "-"
"""What a table shows where nothing was measured."""

# Escape sequences as ECMA-48 forms them: strings (OSC, DCS, SOS, PM, APC) up to their end, CSI sequences, the rest.
_SEQUENCE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DIRECTION = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_UNSAFE_IN_JSON = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def clean(text: str, *, lines: bool = False) -> str:
    """Return text without control characters, escape sequences and marks that reorder what is shown.

    Args:
        text: Anything, however hostile.
        lines: Keep line ends and tabs; otherwise all white space becomes single blanks, so that the text is one line.
    """
    text = _SEQUENCE.sub("", text.replace("\r\n", "\n"))
    text = _DIRECTION.sub("", text)
    if lines:
        return _CONTROL.sub("", text.replace("\r", "\n"))
    # White space first: a line end between two words becomes a blank, while a bell between two letters becomes nothing.
    return " ".join(_CONTROL.sub("", " ".join(text.split())).split())


def as_json(value: object) -> str:
    """Return indented JSON; characters that a terminal would obey are written as escapes."""
    return _safe(json.dumps(value, ensure_ascii=False, indent=2))


def as_json_line(value: object) -> str:
    """Return JSON on one line; characters that a terminal would obey are written as escapes."""
    return _safe(json.dumps(value, ensure_ascii=False))


def _safe(text: str) -> str:
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def number(value: float | None) -> str:
    """Return a value of the metric with six digits; a dash where there is none."""
    return ABSENT if value is None else f"{value:.6g}"


def effect(value: float | None) -> str:
    """Return an effect with its sign, positive where the candidate is better; a dash where there is none."""
    return ABSENT if value is None else f"{value:+.3g}"


def effect_in_words(value: float) -> str:
    """Return an effect with what its sign means: `+0.012 better`, `-0.3 worse`."""
    word = "better" if value > 0 else "worse" if value < 0 else "no difference"
    return f"{effect(value)} {word}"


def probability(value: float | None) -> str:
    """Return a probability with two digits, never rounded to certainty; a dash where there is none."""
    if value is None:
        return ABSENT
    return "<.01" if value < 0.01 else ">.99" if value > 0.99 else f"{value:.2f}"


def money(usd: float) -> str:
    """Return dollars: cents, or more digits where cents would hide that something was spent."""
    return f"${usd:.4f}" if 0 < usd < 0.01 else f"${usd:.2f}"


def duration(seconds: float) -> str:
    """Return a duration in the two largest units that it has.

    Example:
        >>> duration(0.25), duration(75), duration(7300)
        ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


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
