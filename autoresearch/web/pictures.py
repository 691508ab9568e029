"""Pictures of a run as inline SVG: pure functions from numbers to an element that needs no script and no network.

Outcomes differ by shape, colour only helps; colours come from the page's style sheet, so that light, dark and print
share one drawing. What was left out of a picture is said in its notes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from autoresearch.core.adapter import Metric
from autoresearch.core.readmodel import LivePoint, Standing
from autoresearch.core.words import effect, metric_in_words, number
from autoresearch.web.svg import GLYPH, Frame, Scale, along, crop, line, path, picture, place, text, ticks

WIDE = Frame(980, 440, left=72, right=24, top=34, bottom=78)
NARROW = Frame(400, 404, left=62, right=18, top=34, bottom=122, font=12)
SMALL = Frame(460, 270, left=56, right=18, top=30, bottom=40)

MOST_TITLES = 500
"""Experiments up to which every dot has a title of its own; it takes about 150 bytes."""

MOST_LABELS = 7

_CELL = 2.0
"""Dots of one outcome that fall into the same square of so many units look like one and are drawn once."""

_DENSE = 1_500
"""Dots from which on they are drawn smaller and paler, so that what was kept stands out."""

_RAIL = ("crashed", "invalid")


@dataclass(frozen=True, slots=True)
class Dot:
    """One experiment in the picture of the progress.

    Attributes:
        number: Its number.
        outcome: As in the ledger; `baseline` for number 0.
        value: What it measured; None where nothing was.
        words: Its hypothesis.
        effect: How much better it was than what it was compared with; None where unknown.
        confirmed: Whether a claim about it is confirmed.
    """

    number: int
    outcome: str
    value: float | None
    words: str = ""
    effect: float | None = None
    confirmed: bool = False

    @property
    def has_place(self) -> bool:
        """Whether its value is the metric, so that it can be compared with others."""
        return self.value is not None and self.outcome not in _RAIL


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture and what must be said beside it."""

    svg: Markup
    notes: tuple[str, ...] = ()


# ---- The progress of a run


def progress(
    dots: Sequence[Dot],
    standings: Sequence[Standing],
    metric: Metric,
    frame: Frame = WIDE,
    *,
    noise: float | None = None,
    percent: bool = False,
) -> Drawn:
    """Return every experiment as a dot around the line of what the incumbent is believed to be worth.

    Args:
        dots: Finished experiments, the baseline among them.
        standings: The believed incumbent, by number.
        metric: What is measured.
        frame: Size.
        noise: Standard deviation of one measurement, drawn as a bracket beside the line; None where it is unknown.
        percent: Write values as percentages.
    """
    low, high = _range(dots, standings, metric)
    last = max((dot.number for dot in dots), default=0)
    x = Scale(0.0, max(last, 1) * 1.01, *frame.across)
    y = Scale(low, high, *frame.down)
    canvas = _Canvas(frame, x, y)
    titled = len(dots) <= MOST_TITLES
    shown, hidden = _thinned(dots, canvas)
    parts = [
        *_axes(
            canvas,
            ticks(low, high, 5 if frame.height > 300 else 4),
            _percent if percent else None,
            _title_of(metric, frame),
            bottom="",
        ),
        *_rail_name(dots, canvas),
        *_band(standings, canvas, last),
        *_marks([dot for dot in shown if dot.outcome not in ("kept", "baseline")], canvas, titled=titled),
        path(_steps(standings, canvas, last), "believed"),
        *_marks([dot for dot in shown if dot.outcome in ("kept", "baseline")], canvas, titled=True),
        *_bracket(standings, noise, canvas),
        *_labels(dots, standings, metric, canvas),
        *_legend(dots, standings, noise, canvas),
    ]
    off = sum(dot.has_place and not y.holds(_value(dot)) for dot in dots)
    notes = _progress_notes(off, hidden, len(dots))
    kind = "dense" if len(shown) > _DENSE else ""
    return Drawn(picture(frame, "Progress of the run", _described(dots, standings, metric), parts, kind), notes)


@dataclass(frozen=True, slots=True)
class _Canvas:
    frame: Frame
    x: Scale
    y: Scale

    @property
    def rail(self) -> float:
        """Height of the line for experiments without a value."""
        return self.frame.height - self.frame.bottom + 34.0

    def spot(self, dot: Dot) -> tuple[float, float]:
        """Return where a dot lies; without a value, on the rail below the plot."""
        return self.x(dot.number), self.y(_value(dot)) if dot.has_place else self.rail


def _title_of(metric: Metric, frame: Frame) -> str:
    return crop(f"{metric_in_words(metric)}, by experiment", int(frame.width / (GLYPH * frame.font)) - 2)


def _rail_name(dots: Sequence[Dot], canvas: _Canvas) -> Iterator[Markup]:
    if not all(dot.has_place for dot in dots):
        yield text(canvas.frame.left - 8, canvas.rail + 4, "no value", anchor="end", kind="quiet")


def _value(dot: Dot) -> float:
    return math.nan if dot.value is None else dot.value


def _range(dots: Sequence[Dot], standings: Sequence[Standing], metric: Metric) -> tuple[float, float]:
    """Return the values that the vertical axis spans: all that was kept or believed, and most of the rest.

    One diverged candidate would otherwise press everything else into a line.
    """
    sign = metric.direction.sign
    core = [sign * dot.value for dot in dots if dot.value is not None and dot.outcome in ("kept", "baseline")]
    core += [sign * value for one in standings for value in (one.value, one.low, one.high) if value is not None]
    others = sorted(sign * _value(dot) for dot in dots if dot.has_place and dot.outcome not in ("kept", "baseline"))
    core = core or others or [0.0]
    worst, best = min(core), max(core)
    span = best - worst
    if others:
        tenth = others[len(others) // 10]
        worst = min(worst, max(tenth, worst - 1.2 * span) if span else tenth)
        best = max(best, min(others[-1], best + 0.25 * span))
    span = best - worst or abs(best) * 0.01 or 1.0
    # Room on the better side, where nothing lies: for the labels of the big steps.
    ends = sign * (worst - 0.05 * span), sign * (best + 0.22 * span)
    return min(ends), max(ends)


def _thinned(dots: Sequence[Dot], canvas: _Canvas) -> tuple[list[Dot], int]:
    """Return the dots without those that would be drawn on top of one like them, and how many those are."""
    found: dict[object, Dot] = {}
    for dot in dots:
        x, y = canvas.spot(dot)
        alone = dot.outcome in ("kept", "baseline")
        found.setdefault(dot.number if alone else (dot.outcome, round(x / _CELL), round(y / _CELL)), dot)
    return list(found.values()), len(dots) - len(found)


def _progress_notes(off: int, hidden: int, count: int) -> tuple[str, ...]:
    notes = []
    if off == 1:
        notes.append("1 value lies beyond the scale and is drawn as a triangle at its edge.")
    if off > 1:
        notes.append(f"{off:,} values lie beyond the scale and are drawn as triangles at its edge.")
    if hidden:
        notes.append(f"{hidden:,} of {count:,} experiments fall on a dot like theirs and are not drawn again.")
    return tuple(notes)


def _described(dots: Sequence[Dot], standings: Sequence[Standing], metric: Metric) -> str:
    """Return the picture in a sentence, for those who do not see it."""
    counts: dict[str, int] = {}
    for dot in dots:
        counts[dot.outcome] = counts.get(dot.outcome, 0) + 1
    ended = ", ".join(f"{count} {name}" for name, count in counts.items() if name != "baseline") or "no experiment yet"
    way = ""
    if standings:
        way = f" The incumbent is believed to go from {number(standings[0].value)} to {number(standings[-1].value)}."
    return f"{metric_in_words(metric)} over the number of the experiment: {ended}.{way}"


def _axes(
    canvas: _Canvas,
    marks: Sequence[float],
    words: Callable[[float, int], str] | None,
    title: str,
    bottom: str = "look",
) -> Iterator[Markup]:
    frame = canvas.frame
    left, right = frame.across
    digits = _digits(marks)
    for value in marks:
        if canvas.y.holds(value):
            y = canvas.y(value)
            yield line(left, y, right, y, "grid")
            yield text(left - 8, y + 4, (words or _plain)(value, digits), anchor="end", kind="quiet")
    floor = frame.down[0]
    yield line(left, floor, right, floor, "axis")
    for value in ticks(canvas.x.low, canvas.x.high, 8 if frame.width > 600 else 4):
        if value == int(value):
            yield text(canvas.x(value), floor + 17, f"{value:,.0f}", anchor="middle", kind="quiet")
    if bottom:
        yield text(right, floor + 34, bottom, anchor="end", kind="quiet")
    yield text(4, 16, title, kind="strong")


def _digits(marks: Sequence[float]) -> int:
    """Return how many digits behind the point tell the values of an axis apart."""
    if len(marks) < 2 or marks[1] <= marks[0]:
        return 3
    return max(0, -math.floor(math.log10(marks[1] - marks[0]) + 1e-9))


def _plain(value: float, digits: int) -> str:
    if digits > 6 or abs(value) >= 1e7:
        return f"{value:.4g}".replace("-", "−")
    return f"{value:,.{digits}f}".replace("-", "−")


def _percent(value: float, digits: int) -> str:
    return f"{value:.{max(0, digits - 2)}%}"


def _lift_tick(value: float, digits: int) -> str:
    return f"{value:+.{max(0, digits - 2)}%}"


def _band(standings: Sequence[Standing], canvas: _Canvas, last: int) -> Iterator[Markup]:
    known = [one for one in standings if one.low is not None and one.high is not None]
    if len(known) < 2:
        return
    upper = list(_corners([(one.number, float(one.high or 0.0)) for one in known], canvas, last))
    lower = list(_corners([(one.number, float(one.low or 0.0)) for one in known], canvas, last))
    yield path(along([*upper, *reversed(lower)]) + "Z", "band")


def _bracket(standings: Sequence[Standing], noise: float | None, canvas: _Canvas) -> Iterator[Markup]:
    """Yield one standard deviation of a measurement either way of the last believed value: a yardstick for steps."""
    if noise and standings:
        x = canvas.frame.across[1] + 8.0
        yield path(
            _beam(x, canvas.y(standings[-1].value - noise), canvas.y(standings[-1].value + noise)),
            "noise",
            f"noise: a measurement lies {number(noise)} from its artifact's value, in standard deviations",
        )


def _beam(x: float, y1: float, y2: float) -> str:
    return f"M{place(x - 4)} {place(y1)}h8m-4 0V{place(y2)}m-4 0h8"


def _steps(standings: Sequence[Standing], canvas: _Canvas, last: int) -> str:
    points = list(_corners([(one.number, one.value) for one in standings], canvas, last))
    return along(points) if len(points) > 1 else ""


def _corners(points: Sequence[tuple[int, float]], canvas: _Canvas, last: int) -> Iterator[tuple[float, float]]:
    """Yield the corners of a line that stays where it is until the next point."""
    before = None
    for at, value in points:
        x, y = canvas.x(at), canvas.y(value)
        if before is not None:
            yield x, before
        yield x, y
        before = y
    if before is not None:
        yield canvas.x(last), before


def _ring(x: float, y: float, r: float) -> str:
    return f"M{place(x - r)} {place(y)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0"


_SHAPES: Mapping[str, Callable[[float, float], str]] = {
    "kept": lambda x, y: _ring(x, y, 5),
    "baseline": lambda x, y: f"M{place(x - 5)} {place(y - 5)}h10v10h-10Z",
    "reverted": lambda x, y: f"M{place(x)} {place(y)}h0",
    "inconclusive": lambda x, y: _ring(x, y, 3),
    "crashed": lambda x, y: f"M{place(x - 3)} {place(y - 3)}l6 6m0-6l-6 6",
    "invalid": lambda x, y: f"M{place(x - 4)} {place(y)}h8m-4-4v8",
    "above": lambda x, y: f"M{place(x - 4)} {place(y + 7)}h8l-4-7Z",
    "below": lambda x, y: f"M{place(x - 4)} {place(y - 7)}h8l-4 7Z",
    "confirmed": lambda x, y: _ring(x, y, 9),
}
"""Path data of each shape around a point."""


def _marks(dots: Sequence[Dot], canvas: _Canvas, *, titled: bool) -> Iterator[Markup]:
    """Yield the dots; without titles all of one shape are one path, which takes a tenth of the bytes."""
    joint: dict[str, list[str]] = {}
    for dot in dots:
        kind = _kind(dot, canvas)
        data = _SHAPES[kind](*canvas.spot(dot))
        if dot.confirmed:
            yield path(_SHAPES["confirmed"](*canvas.spot(dot)), "confirmed")
        if titled:
            yield path(data, f"mark {kind}", _title(dot))
        else:
            joint.setdefault(kind, []).append(data)
    for kind, parts in joint.items():
        yield path("".join(parts), f"mark {kind}")


def _kind(dot: Dot, canvas: _Canvas) -> str:
    if not dot.has_place:
        return dot.outcome if dot.outcome in _RAIL else "crashed"
    if canvas.y.holds(_value(dot)):
        return dot.outcome
    return "above" if _value(dot) > canvas.y.high else "below"


def _title(dot: Dot) -> str:
    parts = [f"#{dot.number} {dot.outcome}"]
    parts += [f"{number(dot.value)}"] if dot.value is not None else []
    parts += [f"{effect(dot.effect)}"] if dot.effect is not None else []
    if dot.confirmed:
        parts.append("confirmed")
    return f"{', '.join(parts)}: {crop(dot.words, 90)}"


# ---- Labels


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        beside = self.left < other.right and other.left < self.right
        return beside and self.top < other.bottom and other.top < self.bottom


def _labels(dots: Sequence[Dot], standings: Sequence[Standing], metric: Metric, canvas: _Canvas) -> Iterator[Markup]:
    """Yield what the biggest kept steps were, where there is room for it."""
    frame = canvas.frame
    kept = [dot for dot in dots if dot.outcome == "kept" and dot.value is not None]
    taken = [_around(canvas.spot(dot), 7.0) for dot in kept]
    taken += _line_boxes(standings, canvas)
    better = metric.direction.sign  # on the picture, up is the better side where higher is better
    most = MOST_LABELS if frame.width > 600 else 3
    placed = 0
    for dot in sorted(kept, key=lambda dot: -(dot.effect or 0.0)):
        words = crop(dot.words, 34 if frame.width > 600 else 22)
        found = _free(canvas.spot(dot), GLYPH * frame.font * len(words), taken, frame, better)
        if found is None or not words or placed == most:
            continue
        box, anchor = found
        taken.append(box)
        placed += 1
        x, y = canvas.spot(dot)
        edge = box.bottom if box.bottom < y else box.top
        yield line(x, y, x, edge, "leader")
        yield text(box.left if anchor == "start" else box.right, box.bottom - 4, words, anchor=anchor, kind="label")


def _around(spot: tuple[float, float], r: float) -> _Box:
    return _Box(spot[0] - r, spot[1] - r, spot[0] + r, spot[1] + r)


def _line_boxes(standings: Sequence[Standing], canvas: _Canvas) -> list[_Box]:
    """Return boxes along the line of the believed value, so that no label lies on it."""
    boxes = []
    for one, after in pairwise(standings):
        y, then = canvas.y(one.value), canvas.y(after.value)
        right = canvas.x(after.number)
        boxes.append(_Box(canvas.x(one.number), y - 2, right, y + 2))
        boxes.append(_Box(right - 1, min(y, then), right + 1, max(y, then)))
    return boxes


def _free(
    spot: tuple[float, float], width: float, taken: Sequence[_Box], frame: Frame, better: int
) -> tuple[_Box, str] | None:
    """Return the nearest place for a label of `width`, on the better side of its dot first, and its anchor."""
    x, y = spot
    height = frame.font + 5.0
    for distance in (9.0, 26.0, 44.0, 62.0, 80.0, 100.0):
        for side in (better, -better):
            top = y - distance - height if side > 0 else y + distance
            for left, anchor in ((x - 3.0, "start"), (x + 3.0 - width, "end")):
                box = _Box(left, top, left + width, top + height)
                inside = frame.across[0] <= box.left and box.right <= frame.across[1]
                inside = inside and frame.down[1] <= box.top and box.bottom <= frame.down[0]
                if inside and not any(box.meets(other) for other in taken):
                    return box, anchor
    return None


def _legend(
    dots: Sequence[Dot], standings: Sequence[Standing], noise: float | None, canvas: _Canvas
) -> Iterator[Markup]:
    """Yield the meaning of every shape that occurs."""
    frame = canvas.frame
    outcomes = {dot.outcome for dot in dots}
    names = [name for name in ("kept", "reverted", "inconclusive", "crashed", "invalid") if name in outcomes]
    entries = [*(["believed"] if len(standings) > 1 else []), *names]
    entries += ["confirmed"] if any(dot.confirmed for dot in dots) else []
    entries += ["noise"] if noise and standings else []
    named = [(name, _LEGEND.get(name, name)) for name in entries]
    banded = any(one.low is not None for one in standings)
    named = [(name, f"{words}, 90 % band" if name == "believed" and banded else words) for name, words in named]
    places, rows = _flowed([26.0 + GLYPH * frame.font * len(words) for _, words in named], frame)
    for (name, words), (x, row) in zip(named, places, strict=True):
        y = frame.height - 10.0 - 20.0 * (rows - 1 - row)
        if name == "believed":
            yield line(x - 6, y - 4, x + 8, y - 4, "believed")
        elif name == "noise":
            yield path(_beam(x, y - 10, y + 2), "noise")
        elif name == "confirmed":
            yield path(_SHAPES["kept"](x, y - 4), "mark kept") + path(_SHAPES[name](x, y - 4), name)
        else:
            yield path(_SHAPES[name](x, y - 4), f"mark {name}")
        yield text(x + 14, y, words, kind="quiet")


_LEGEND_AT = 16.0
_LEGEND = {"believed": "believed value", "noise": "± noise"}


def _flowed(widths: Sequence[float], frame: Frame) -> tuple[list[tuple[float, int]], int]:
    """Return (x, row) of things of these widths one after another, and how many rows they take."""
    places, x, row = [], _LEGEND_AT, 0
    for width in widths:
        if x + width > frame.width and x > _LEGEND_AT:
            x, row = _LEGEND_AT, row + 1
        places.append((x, row))
        x += width + 8.0
    return places, row + 1


# ---- One effect with its interval


def effect_bar(middle: float, low: float | None, high: float | None, reach: float, words: str) -> Markup:
    """Return an effect and its interval on a line around zero, `reach` at either end; `words` are its title."""
    frame = Frame(220, 26, left=6, right=6, top=2, bottom=2)
    x = Scale(-reach, reach, *frame.across)
    parts = [line(6, 13, 214, 13, "grid"), line(x(0.0), 2, x(0.0), 24, "axis")]
    if low is not None and high is not None:
        parts.append(line(x(low), 13, x(high), 13, "interval"))
        parts += [line(x(end), 8, x(end), 18, "cap") for end in (low, high) if x.holds(end)]
    parts.append(path(_SHAPES["kept"](x(middle), 13.0), "mark kept"))
    return picture(frame, words, words, parts, "bar")


# ---- Live tests


def lift_by_look(points: Sequence[LivePoint], min_effect: float, frame: Frame = SMALL) -> Drawn:
    """Return the lift and its interval at every look."""
    known = [point for point in points if point.verdict.effect is not None]
    low, high = _lift_range(known, min_effect)
    canvas = _Canvas(frame, _looks_scale(points, frame), Scale(low, high, *frame.down))
    parts = [*_axes(canvas, ticks(low, high, 4), _lift_tick, "lift and interval")]
    zero = canvas.y(0.0)
    parts += [line(*_ends(frame, zero), "axis")]
    if min_effect and canvas.y.holds(min_effect):
        at = canvas.y(min_effect)
        parts += [line(*_ends(frame, at), "threshold")]
    cut = 0
    for point in known:
        parts += _lift(point, canvas)
        interval = point.verdict.interval
        cut += interval is not None and not all(canvas.y.holds(end) for end in interval)
    if min_effect and canvas.y.holds(min_effect):
        words = f"worth having {min_effect:+.0%}"
        parts += [text(frame.across[1], canvas.y(min_effect) - 5, words, anchor="end", kind="label")]
    notes = (f"{cut} intervals without a cap go beyond the scale.",) if cut else ()
    said = _lift_in_words(known[-1]) if known else "no look yet"
    return Drawn(picture(frame, "Lift by look", f"Last look: {said}", parts, "small"), notes)


def _ends(frame: Frame, y: float) -> tuple[float, float, float, float]:
    return frame.across[0], y, frame.across[1], y


def _looks_scale(points: Sequence[LivePoint], frame: Frame) -> Scale:
    last = max((point.look for point in points), default=1)
    return Scale(0.5, last + 0.5, *frame.across)


def _lift_range(points: Sequence[LivePoint], min_effect: float) -> tuple[float, float]:
    """Return a range that shows every lift of the later half and its interval; early ones may be endless."""
    settled = points[len(points) // 2 :]
    values = [0.0, 1.2 * min_effect]
    values += [point.verdict.effect for point in settled if point.verdict.effect is not None]
    values += [min(max(end, -1.0), 3.0) for point in settled for end in point.verdict.interval or ()]
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or 0.1
    return low - margin, high + margin


def _lift(point: LivePoint, canvas: _Canvas) -> Iterator[Markup]:
    x, lift, interval = canvas.x(point.look), point.verdict.effect or 0.0, point.verdict.interval
    if interval is not None:
        yield line(x, canvas.y(interval[0]), x, canvas.y(interval[1]), "interval")
        yield from (line(x - 4, canvas.y(end), x + 4, canvas.y(end), "cap") for end in interval if canvas.y.holds(end))
    yield path(_ring(x, canvas.y(lift), 4), "mark kept", f"look {point.look}: {_lift_in_words(point)}")


def _lift_in_words(point: LivePoint) -> str:
    lift, interval = point.verdict.effect, point.verdict.interval
    said = "no lift yet" if lift is None else f"lift {lift:+.1%}"
    return said if interval is None else f"{said}, interval {interval[0]:+.1%} to {interval[1]:+.1%}"


@dataclass(frozen=True, slots=True)
class _Race:
    name: str
    rate: float
    values: tuple[tuple[int, float], ...]
    shape: Callable[[float, float], str]


def e_values(points: Sequence[LivePoint], alpha: float, beta: float, frame: Frame = SMALL) -> Drawn:
    """Return both e-values by look on a logarithmic axis, each with the line at which it decides.

    Args:
        points: Looks of one test.
        alpha: The test keeps when `win` reaches 1/alpha.
        beta: It reverts when `lose` reaches 1/beta; 0 for never.
        frame: Size.
    """
    races = [
        _Race("win", alpha, _logs(points, "e_win"), lambda x, y: _ring(x, y, 3.5)),
        _Race("lose", beta, _logs(points, "e_lose"), lambda x, y: f"M{place(x - 3)} {place(y - 3)}h6v6h-6Z"),
    ]
    every = [value for race in races for _, value in race.values] + [0.0]
    every += [-math.log10(race.rate) for race in races if race.rate]
    low, high = max(min(every), -4.0) - 0.3, min(max(every), 8.0) + 0.4
    canvas = _Canvas(frame, _looks_scale(points, frame), Scale(low, high, *frame.down))
    step = max(1, round((high - low) / 5))
    marks = [float(power) for power in range(math.ceil(low), math.floor(high) + 1) if power % step == 0]
    parts = [*_axes(canvas, marks, _power, "e-values, each multiplied look by look")]
    for race in races:
        parts += _drawn_race(race, canvas)
    said = "; ".join(_race_in_words(race) for race in races)
    return Drawn(picture(frame, "e-values by look", said, parts, "small"))


def _logs(points: Sequence[LivePoint], name: str) -> tuple[tuple[int, float], ...]:
    values = [(point.look, getattr(point.verdict, name)) for point in points]
    return tuple((look, math.log10(max(value, 1e-300))) for look, value in values if value is not None)


def _power(value: float, digits: int) -> str:
    return f"{10**value:g}" if -4 <= value <= 4 else f"1e{value:.0f}"


def _drawn_race(race: _Race, canvas: _Canvas) -> Iterator[Markup]:
    left, right = canvas.frame.across
    if race.rate:
        at = canvas.y(-math.log10(race.rate))
        yield line(left, at, right, at, f"threshold {race.name}")
        does = "keep" if race.name == "win" else "revert"
        yield text(left + 4, at - 5, f"{does} when {race.name} reaches {1 / race.rate:.3g}", kind="label")
    spots = [(canvas.x(look), canvas.y(value)) for look, value in race.values]
    if len(spots) > 1:
        yield path(along(spots), f"race {race.name}")
    for (x, y), (look, value) in zip(spots, race.values, strict=True):
        yield path(race.shape(x, y), f"mark race-{race.name}", f"look {look}: {race.name} {10 ** min(value, 300):.3g}")


def _race_in_words(race: _Race) -> str:
    if not race.values:
        return f"{race.name}: none"
    last = f"{10 ** min(race.values[-1][1], 300):.3g}"
    return f"{race.name} {last} of {1 / race.rate:.3g}" if race.rate else f"{race.name} {last}"


def split_bar(control: int, treatment: int) -> Markup:
    """Return how many people saw which arm, as two parts of a bar with a mark at one half."""
    frame = Frame(460, 64, left=0, right=0, top=0, bottom=0)
    share = control / (control + treatment) if control + treatment else 0.5
    x = 460 * share
    parts = [
        Markup('<rect class="control" x="0" y="22" width="{}" height="20"/>').format(place(x)),
        Markup('<rect class="treatment" x="{}" y="22" width="{}" height="20"/>').format(place(x), place(460 - x)),
        line(230, 16, 230, 48, "axis"),
        text(2, 14, f"control {control:,} ({share:.2%})", kind="label"),
        text(458, 14, f"treatment {treatment:,} ({1 - share:.2%})", anchor="end", kind="label"),
        text(230, 61, "meant: half and half", anchor="middle", kind="quiet"),
    ]
    words = f"control {control:,}, treatment {treatment:,}"
    return picture(frame, "Split of people between the arms", words, parts, "small")


# ---- Curves of measurements

_CURVES = ("first", "second")


def curves(named: Sequence[tuple[str, Sequence[tuple[float, float]]]], frame: Frame = SMALL) -> Markup | None:
    """Return up to two curves over the share of the budget, each named at its end; None where nothing can be drawn.

    The scale shows the later part of the curves: the first points of a training lie so far off that they would press
    everything else into a line.
    """
    known = [(name, [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]) for name, points in named]
    known = [(name, points) for name, points in known if len(points) > 1]
    if not known:
        return None
    last = max(points[-1][0] for _, points in known)
    settled = [y for _, points in known for x, y in points if x >= 0.15 * last] or [y for _, ys in known for _, y in ys]
    low, high = min(settled), max(settled)
    margin = 0.08 * (high - low) or abs(high) * 0.01 or 1.0
    canvas = _Canvas(frame, Scale(0.0, 1.0, *frame.across), Scale(low - margin, high + margin, *frame.down))
    parts = [*_curve_axes(canvas)]
    for (name, points), kind in zip(known, _CURVES, strict=False):
        spots = [(canvas.x(x), canvas.y(y)) for x, y in points if canvas.y.holds(y)]
        parts += [
            path(
                along(spots) if spots else "",
                f"curve {kind}",
                f"{name}: {number(points[-1][1])} at {points[-1][0]:.0%}",
            )
        ]
    parts += _curve_legend([name for name, _ in known], canvas)
    said = "; ".join(f"{name} at {number(points[-1][1])} after {points[-1][0]:.0%}" for name, points in known)
    return picture(frame, "Curve of the measurement", said, parts, "small")


def _curve_axes(canvas: _Canvas) -> Iterator[Markup]:
    frame = canvas.frame
    left, right = frame.across
    marks = ticks(canvas.y.low, canvas.y.high, 4)
    for value in marks:
        y = canvas.y(value)
        yield line(left, y, right, y, "grid")
        yield text(left - 8, y + 4, _plain(value, _digits(marks)), anchor="end", kind="quiet")
    floor = frame.down[0]
    yield line(left, floor, right, floor, "axis")
    for share in (0.0, 0.5, 1.0):
        yield text(canvas.x(share), floor + 17, f"{share:.0%}", anchor="middle", kind="quiet")
    yield text(right, floor + 34, "share of the budget", anchor="end", kind="quiet")


def _curve_legend(names: Sequence[str], canvas: _Canvas) -> Iterator[Markup]:
    x = 4.0
    for name, kind in zip(names, _CURVES, strict=False):
        yield line(x, 12, x + 18, 12, f"curve {kind}")
        yield text(x + 24, 16, name)
        x += 40.0 + GLYPH * canvas.frame.font * len(name)
