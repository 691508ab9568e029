"""Pictures: true scales, shapes that differ without colour, labels that do not collide."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autoresearch.core.adapter import Direction, Metric
from autoresearch.core.readmodel import Standing
from autoresearch.web.pictures import NARROW, WIDE, Dot, effect_bar, progress, split_bar
from autoresearch.web.svg import Scale, ticks

LOWER = Metric("loss", "nats", Direction.MINIMIZE)
HIGHER = Metric("score", "points", Direction.MAXIMIZE)


def run_of(*values: float, sign: int = -1) -> list[Dot]:
    """Return a baseline and one experiment per value; a new best is kept."""
    dots, best = [], values[0]
    for number, value in enumerate(values):
        better = number > 0 and sign * value > sign * best
        effect = abs(value - best) if better else None
        best = value if better else best
        outcome = "baseline" if number == 0 else "kept" if better else "reverted"
        dots.append(Dot(number, outcome, value, f"Idea {number}", effect))
    return dots


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.integers(1, 10))
def test_ticks_lie_inside_and_rise(low: float, span: float, wanted: int) -> None:
    """Ticks are rising values from low to high, and not many more than wanted."""
    high = low + span
    found = ticks(low, high, wanted)
    slack = 1e-6 * span + 1e-9 * max(abs(low), abs(high))
    assert all(low - slack <= value <= high + slack for value in found)
    assert found == sorted(found) and len(found) <= 2 * wanted + 2


def test_a_scale_keeps_what_is_beyond_at_its_edge() -> None:
    """Values outside are put on the edge and known to be outside."""
    scale = Scale(0.0, 10.0, 100.0, 200.0)
    assert [scale(value) for value in (-5.0, 0.0, 5.0, 20.0)] == [100.0, 100.0, 150.0, 200.0]
    assert scale.holds(10.0) and not scale.holds(10.1)


@pytest.mark.parametrize("frame", [WIDE, NARROW])
def test_a_picture_is_well_formed_and_named(frame: object) -> None:
    """It parses as XML and says in words what it shows."""
    drawn = progress(run_of(1.0, 2.0, 0.5), [Standing(0, 1.0), Standing(2, 0.6, 0.4, 0.8)], LOWER, frame)  # type: ignore[arg-type]
    root = ElementTree.fromstring(str(drawn.svg))
    assert root.get("role") == "img" and root.get("aria-label") == "Progress of the run"
    assert "loss (nats, lower is better), by experiment" in drawn.svg and ">look<" not in drawn.svg
    assert "1 reverted, 1 kept" in root.findtext("desc", "") and "from 1 to 0.6" in root.findtext("desc", "")


def test_each_outcome_has_a_shape_of_its_own() -> None:
    """Without any colour the outcomes can be told apart: the paths differ, and the legend names each."""
    dots = [Dot(0, "baseline", 1.0), Dot(1, "kept", 0.9), Dot(2, "reverted", 1.1), Dot(3, "inconclusive", 1.05)]
    svg = str(progress([*dots, Dot(4, "crashed", None), Dot(5, "invalid", 0.1)], [], LOWER).svg)
    shapes = {}
    for kind in ("baseline", "kept", "reverted", "inconclusive", "crashed", "invalid"):
        (data, *_) = re.findall(rf'class="mark {kind}" d="M[\d.-]+ [\d.-]+([^"]*)"', svg)
        shapes[kind] = data
        assert kind == "baseline" or f">{kind}</text>" in svg
    assert len(set(shapes.values())) == 6


def test_a_diverged_candidate_does_not_flatten_the_rest() -> None:
    """A value far off becomes a triangle at the edge, and is counted beside the picture."""
    values = [1.0 - 0.01 * n if n % 5 == 0 else 1.0 + 0.001 * n for n in range(30)]
    drawn = progress([*run_of(*values), Dot(30, "reverted", 1e9)], [], LOWER)
    assert "1 value lies beyond the scale" in " ".join(drawn.notes)
    assert 'class="mark above"' in drawn.svg
    heights = [float(y) for y in re.findall(r'class="mark kept" d="M[\d.]+ ([\d.]+)', drawn.svg)]
    assert max(heights) - min(heights) > 100


@pytest.mark.parametrize(("metric", "sign"), [(LOWER, -1), (HIGHER, 1)])
def test_the_line_goes_the_way_the_value_goes(metric: Metric, sign: int) -> None:
    """Where lower is better the line falls on the picture, where higher is better it rises."""
    standings = [Standing(0, 1.0), Standing(5, 1.0 + sign * 0.5)]
    svg = progress(run_of(1.0, 1.0 + sign * 0.5, sign=sign), standings, metric).svg
    (data,) = [found for found in re.findall(r'class="believed" d="([^"]*)"', svg) if found.count("L") > 1]
    heights = [float(corner.split()[1]) for corner in data[1:].split("L")]
    assert (heights[-1] - heights[0]) * sign < 0, "on a page y grows downwards"


@given(st.one_of(st.lists(st.floats(-size, size), min_size=1, max_size=40) for size in (1e-9, 100.0, 1e15)))
@example([1e9, 1e9 + 1e-6])
def test_any_run_can_be_drawn(values: list[float]) -> None:
    """Equal, tiny, huge and single values give a picture with every mark inside it."""
    svg = progress(run_of(*values), [], LOWER).svg
    for x, y in re.findall(r'class="mark [a-z]+" d="M([\d.-]+) ([\d.-]+)', svg):
        assert 0 <= float(x) <= WIDE.width and 0 <= float(y) <= WIDE.height


@given(st.lists(st.floats(0.0, 1.0), min_size=5, max_size=80))
def test_labels_do_not_lie_on_each_other(falls: list[float]) -> None:
    """No two labels overlap, by the width that they are reckoned with."""
    value, values = 100.0, []
    for fall in falls:
        value -= fall
        values.append(value)
    svg = progress(run_of(*values), [], LOWER).svg
    boxes = []
    for x, y, anchor, words in re.findall(
        r'<text x="([\d.-]+)" y="([\d.-]+)" text-anchor="(\w+)" class="label">([^<]*)</text>', svg
    ):
        width = 0.56 * WIDE.font * len(words)
        left = float(x) - (width if anchor == "end" else 0.0)
        boxes.append((left, left + width, float(y)))
    for index, (left, right, y) in enumerate(boxes):
        for other_left, other_right, other_y in boxes[:index]:
            assert right <= other_left or other_right <= left or abs(y - other_y) >= WIDE.font


def test_dots_on_top_of_each_other_are_drawn_once_and_counted() -> None:
    """Of a thousand equal values a few hundred places remain, and the picture says how many were not drawn."""
    dots = [Dot(0, "baseline", 1.0), *(Dot(n, "reverted", 2.0) for n in range(1, 5_000))]
    drawn = progress(dots, [], LOWER)
    (said,) = [note for note in drawn.notes if "not drawn again" in note]
    hidden = int(said.split()[0].replace(",", ""))
    assert drawn.svg.count("h0") == 5_000 - 1 - hidden + 1, "what is drawn, and one in the legend"


def test_the_noise_is_a_yardstick_beside_the_line() -> None:
    """The bracket is two standard deviations high on the scale of the axis; without noise there is none."""
    standings = [Standing(0, 1.0), Standing(2, 0.5)]
    svg = progress(run_of(1.0, 1.2, 0.5), standings, LOWER, noise=0.1).svg
    top, bottom = (float(y) for y in re.findall(r'class="noise" d="M\S+ (\S+)h8m-4 0V([\d.]+)', svg)[0])
    ys = [float(y) for y in re.findall(r'class="mark (?:baseline|kept)" d="M\S+ ([\d.]+)', svg)]
    unit = (ys[1] - ys[0] + -5.0) / 0.5  # a baseline's path begins at its corner, 5 above its middle
    assert abs(top - bottom) == pytest.approx(0.2 * unit, abs=0.3)
    assert 'class="noise"' not in progress(run_of(1.0, 0.5), standings, LOWER).svg


def test_a_bar_is_centred_on_zero() -> None:
    """An effect of nothing lies in the middle, whatever its interval."""
    assert 'd="M105 13a5' in effect_bar(0.0, -1.0, 0.5, 1.0, "nothing")


def test_a_split_without_people_is_even() -> None:
    """Before anybody came both parts are half."""
    assert split_bar(0, 0).count('width="230"') == 2
