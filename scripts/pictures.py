"""Draws the pictures of docs/how-it-decides.md from simulation: `python -m scripts.pictures [FOLDER]`.

Everything is seeded; `tests/docs/test_pictures.py` draws them again and compares. Each file has its own light and dark
colours and its own background, so that it can be read wherever it is shown as an image.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.decision import Decision, Evidence, Look, PastEvidence, Policy, Verdict, race_bernoulli
from autoresearch.core.decision.policies import create_policy
from autoresearch.web.svg import Frame, Scale, along, line, path, place, text, ticks
from benchmarks.decisions import SCENARIOS, fixed, naive, people, race
from benchmarks.landscapes import KNOWN, METRIC, look_of

Vector = NDArray[np.float64]

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
FRAME = Frame(720, 360, left=64, right=178, top=44, bottom=48)
MEASUREMENTS = 126
RUNS = 100
TESTS = 10_000
SCENARIO = SCENARIOS[0]
LOOKS = SCENARIO.looks

_STYLE = """
svg { font-family: system-ui, sans-serif; fill: #1a1d21 }
.back { fill: #ffffff }
.grid { stroke: #e3e6ea } .axis { stroke: #555d67 } .quiet { fill: #555d67 } path { fill: none }
.threshold { stroke: #555d67; stroke-dasharray: 6 4 }
.a { stroke: #b3261e } .b { stroke: #0b6e4f } .c { stroke: #1f5fa8 } .d { stroke: #8a5a00 }
.a, .b, .c, .d { stroke-width: 2.5 } .c { stroke-dasharray: 9 3 } .d { stroke-dasharray: 2 3 }
@media (prefers-color-scheme: dark) {
  svg { fill: #e8eaed } .back { fill: #14171a } .grid { stroke: #2c3238 } .axis { stroke: #a9b1bb }
  .quiet { fill: #a9b1bb } .threshold { stroke: #a9b1bb }
  .a { stroke: #ff8a80 } .b { stroke: #4cc38a } .c { stroke: #79b8ff } .d { stroke: #e3b341 }
}
"""


@dataclass(frozen=True)
class Line:
    """A curve: its values at 1, 2, 3 ..., its name beside its end, and its kind in the style sheet."""

    name: str
    values: Sequence[float]
    kind: str


@dataclass(frozen=True)
class Chart:
    """Curves over a common axis.

    Attributes:
        title: What is drawn upwards.
        below: What is drawn to the right.
        description: What a reader sees who sees nothing.
        lines: The curves.
        low: Lower end of the vertical axis.
        high: Upper end.
        marks: Places of the vertical axis with their labels.
        thresholds: Dashed lines, with their names.
    """

    title: str
    below: str
    description: str
    lines: Sequence[Line]
    low: float
    high: float
    marks: Mapping[float, str]
    thresholds: Mapping[float, str]

    def drawn(self) -> str:
        """Return the SVG file."""
        parts = "\n".join(str(part) for part in self._parts())
        width, height, namespace = FRAME.width, FRAME.height, "http://www.w3.org/2000/svg"
        return (
            f'<svg xmlns="{namespace}" viewBox="0 0 {width} {height}" font-size="{FRAME.font}" role="img">\n'
            f"<title>{self.title}</title>\n<desc>{self.description}</desc>\n<style>{_STYLE}</style>\n"
            f'<rect class="back" width="{width}" height="{height}" rx="8"/>\n{parts}\n</svg>\n'
        )

    def _parts(self) -> Iterator[str]:
        (left, right), (bottom, top) = FRAME.across, FRAME.down
        last = max(len(curve.values) for curve in self.lines)
        across, up = Scale(0.0, float(last), left, right), Scale(self.low, self.high, bottom, top)
        yield text(left - 44, top - 18, self.title, kind="quiet")
        for value, label in self.marks.items():
            yield line(left, up(value), right, up(value), "grid")
            yield text(left - 8, up(value) + 4, label, anchor="end", kind="quiet")
        for value in ticks(0.0, float(last), 6):
            yield text(across(value), bottom + 18, f"{value:g}", anchor="middle", kind="quiet")
        yield text((left + right) / 2, bottom + 38, self.below, anchor="middle", kind="quiet")
        yield line(left, bottom, right, bottom, "axis")
        for value, label in self.thresholds.items():
            yield line(left, up(value), right, up(value), "threshold")
            yield text(right + 8, up(value) + 4, label, kind="quiet")
        taken = [up(value) for value in self.thresholds]
        for curve in self.lines:
            yield path(along((across(index), up(value)) for index, value in enumerate(curve.values, 1)), curve.kind)
            y = _free(up(curve.values[-1]), taken)
            taken.append(y)
            yield f'<path class="{curve.kind}" d="M{place(right + 8)} {place(y)}h16"/>'
            yield text(right + 30, y + 4, curve.name)


def _free(y: float, taken: Sequence[float]) -> float:
    """Return a place near y at which a label covers no other one."""
    spots = sorted((y + 9.0 * step for step in range(-20, 21)), key=lambda spot: abs(spot - y))
    return next(spot for spot in spots if all(abs(spot - other) >= 17 for other in taken))


def believed(policy: Policy, number: int) -> Vector:
    """Return what a policy believes to have gained after each measurement, where no candidate changes anything.

    Shape (MEASUREMENTS,), in units of the noise, which is known.
    """
    rng = np.random.default_rng([7, number])
    history: tuple[PastEvidence, ...] = (PastEvidence(look_of([float(rng.normal())]), kept=True),)
    gains = [0.0]
    while len(gains) < MEASUREMENTS:
        values: dict[str, list[float]] = {"control": [], "treatment": []}
        looks: list[Look] = []
        verdict = Verdict(Decision.CONTINUE, "")
        while verdict.decision is Decision.CONTINUE:
            for arm in verdict.measure:
                values[arm].append(float(rng.normal()))
                gains.append(gains[-1])
            looks.append(look_of(values["treatment"], values["control"]))
            verdict = policy.decide(Evidence(METRIC, tuple(looks), KNOWN, history))
        kept = verdict.decision is Decision.KEEP
        history = (*history, PastEvidence(looks[-1], kept, 0, tuple(looks[:-1])))
        gains[-1] = policy.believed_gain(Evidence(METRIC, (), KNOWN, history))
    return np.array(gains[:MEASUREMENTS])


def nothing_to_find() -> Chart:
    """What the policies believe where there is nothing to be found."""
    found = {
        name: np.mean([believed(create_policy(name), number) for number in range(RUNS)], axis=0)
        for name in ("greedy", "bayes")
    }
    high = math.ceil(float(found["greedy"][-1]) * 2) / 2
    ends = {name: f"{values[-1]:.1f}" for name, values in found.items()}
    return Chart(
        "believed gain, in standard deviations of the noise",
        f"measurements (mean of {RUNS} simulated runs in which no candidate changes anything)",
        f"Two rising curves. After {MEASUREMENTS} measurements greedy believes in a gain of {ends['greedy']} where the "
        f"true gain is 0; bayes believes in {ends['bayes']}.",
        [
            Line("greedy", found["greedy"].tolist(), "a"),
            Line("bayes", found["bayes"].tolist(), "b"),
            Line("the truth", [0.0] * MEASUREMENTS, "c"),
        ],
        0.0,
        high,
        {value: f"{value:g}" for value in ticks(0.0, high, 5)},
        {},
    )


def what_looking_costs() -> Chart:
    """Share of tests of no effect that were kept by each look, for four rules on the same tests."""
    counts = people(SCENARIO, 0.0, TESTS, np.random.default_rng(11))
    rules = {
        "z test every day": (naive(LOOKS), "a"),
        "race": (race(0.2), "b"),
        "one z test at the end": (fixed(LOOKS), "d"),
    }
    lines = []
    for name, (rule, kind) in rules.items():
        kept = rule(counts, SCENARIO).kept
        lines.append(Line(name, [float((kept < look).mean()) for look in range(1, LOOKS + 1)], kind))
    ends = ", ".join(f"{curve.name} {curve.values[-1]:.1%}" for curve in lines)
    return Chart(
        "tests of no effect that were kept, so far",
        f"daily looks of 300 people per arm ({TESTS:,} simulated tests)",
        f"Three rising curves. After {LOOKS} looks the false keeps are: {ends}. The dashed line is alpha, 5 %.",
        lines,
        0.0,
        0.15,
        {value: f"{value:.0%}" for value in (0.0, 0.05, 0.1, 0.15)},
        {0.05: "alpha"},
    )


def a_race() -> Chart:
    """The e-value for keeping over the looks of typical tests: at each look the median of many, by true lift."""
    lines = []
    for lift, kind in ((0.3, "b"), (0.2, "c"), (0.1, "d"), (0.0, "a")):
        counts = people(SCENARIO, lift, TESTS // 5, np.random.default_rng(13))
        logs = np.median(race_bernoulli.log_win(counts, SCENARIO.min_effect, SCENARIO.prior), axis=0) / math.log(10.0)
        lines.append(Line(f"{lift:+.0%}" if lift else "no effect", np.clip(logs, -2.0, 4.0).tolist(), kind))
    return Chart(
        "e-value for keeping",
        f"daily looks of 300 people per arm (medians of {TESTS // 5:,} simulated tests)",
        "Four curves on a logarithmic axis, by true lift. The e-value of +30 % and of +20 % grows past 20, the line at "
        "which a test is kept; that of +10 % stays near 1, that of no effect falls.",
        lines,
        -2.0,
        4.0,
        {-2.0: "0.01", -1.0: "0.1", 0.0: "1", 1.0: "10", 2.0: "100", 3.0: "1,000", 4.0: "10,000"},
        {math.log10(20.0): "20: keep"},
    )


PICTURES = {"nothing-to-find.svg": nothing_to_find, "looking.svg": what_looking_costs, "race.svg": a_race}


def main(folder: Path = FOLDER) -> None:
    """Write all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in PICTURES.items():
        drawn = chart()
        (folder / name).write_text(drawn.drawn(), encoding="utf-8")
        print(f"{name}: {drawn.description}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
