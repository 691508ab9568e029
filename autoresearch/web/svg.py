"""The few things that every picture needs: scales, ticks, elements. Texts are cleaned and escaped here, once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from autoresearch.core.words import clean

GLYPH = 0.56
"""Width of an average letter, in font sizes; enough to keep labels apart."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Size of a picture and the margins around its plot, in the units of its viewBox.

    Attributes:
        width: Of the whole picture.
        height: Likewise.
        left: Room for the vertical axis.
        right: Room beside the plot.
        top: Room for the title of the axis.
        bottom: Room for the horizontal axis.
        font: Size of letters.
    """

    width: int
    height: int
    left: int = 64
    right: int = 20
    top: int = 30
    bottom: int = 40
    font: int = 13

    @property
    def across(self) -> tuple[float, float]:
        """Left and right end of the plot."""
        return float(self.left), float(self.width - self.right)

    @property
    def down(self) -> tuple[float, float]:
        """Bottom and top of the plot."""
        return float(self.height - self.bottom), float(self.top)


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to places, linear; what lies outside is put on the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(max(share, 0.0), 1.0)

    def holds(self, value: float) -> bool:
        """Whether a value lies on the scale."""
        return self.low <= value <= self.high


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Return round values from `low` to `high`, about `wanted` of them: steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> ticks(0.0, 9.0, 4)
        [0.0, 2.0, 4.0, 6.0, 8.0]
    """
    rough = (high - low) / max(wanted, 1)
    if not (math.isfinite(rough) and rough > 0):
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= rough * 0.75)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12 - math.floor(math.log10(step))) for index in range(first, last + 1)]


def place(value: float) -> str:
    """Return a coordinate with one digit, as short as it can be written."""
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> Markup:
    """Return a text element."""
    named = Markup(' class="{}"').format(kind) if kind else ""
    return Markup('<text x="{}" y="{}" text-anchor="{}"{}>{}</text>').format(
        place(x), place(y), anchor, named, clean(words)
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """Return a straight line."""
    return Markup('<path class="{}" d="M{} {}L{} {}"/>').format(kind, place(x1), place(y1), place(x2), place(y2))


def path(data: str, kind: str, title: str = "") -> Markup:
    """Return a path, with a title that a pointer or a screen reader finds; nothing where there is nothing to draw."""
    if not data:
        return Markup("")
    inside = Markup("<title>{}</title>").format(clean(title)) if title else Markup("")
    return Markup('<path class="{}" d="{}">{}</path>').format(kind, data, inside)


def along(points: Iterable[tuple[float, float]]) -> str:
    """Return the path data of straight lines through points."""
    return "M" + "L".join(f"{place(x)} {place(y)}" for x, y in points)


def picture(frame: Frame, name: str, description: str, parts: Sequence[str], kind: str = "") -> Markup:
    """Return the whole element; `name` and `description` are what is read out instead of it."""
    return Markup(
        '<svg class="picture {}" role="img" viewBox="0 0 {} {}" font-size="{}" aria-label="{}">'
        "<title>{}</title><desc>{}</desc>{}</svg>"
    ).format(
        kind,
        frame.width,
        frame.height,
        frame.font,
        clean(name),
        clean(name),
        clean(description),
        Markup("").join(escape(part) for part in parts),
    )


def crop(words: str, most: int) -> str:
    """Return words cut to `most` characters, cleaned, the last one an ellipsis where something is missing."""
    words = clean(words)
    return words if len(words) <= most else f"{words[: most - 1].rstrip(' .,')}…"
