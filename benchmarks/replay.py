"""The race on past tests of real headlines: `python -m benchmarks.replay FILE [--days 14] [--min-effect 0.2]`.

FILE is the Upworthy Research Archive as `autoresearch marketing import` takes it. Tests of sound weeks that vary the
headline alone are replayed day by day, the first headline as control against each other one. The recorded impressions
and clicks are dealt out by lot without putting any back.

1. Whole tests: how they end, and how a kept lift compares with that of all that was recorded.
2. Judged by others: the people of each arm are parted by lot; one half decides, and the other half, which decided
   nothing, says what the kept headline is worth.
3. Nothing changed: both halves of one arm against each other. Every keep is false.
4. A loop: the headlines of a test compete one after the other, a kept one is the next control, halves as in 2.

Rules beside the race are those of `benchmarks.decisions`.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.marketing.archive import ArchiveArm, ArchiveTest, headline_tests, read_archive
from autoresearch.adapters.marketing.replay import dealt
from autoresearch.core.decision.race_bernoulli import Counts
from benchmarks.decisions import BETA, Endings, Rule, Scenario, fixed, naive, race

Vector = NDArray[np.float64]
Half = tuple[int, int]
"""Impressions and clicks of half the people of an arm."""


def rules(days: int) -> dict[str, Rule]:
    return {
        f"race, beta {BETA:g}": race(BETA),
        "race, lose off": race(0.0),
        "naive daily": naive(days),
        "fixed": fixed(days),
    }


@dataclass(frozen=True)
class Pairs:
    """Comparisons as looks, and what is known of both arms besides.

    Attributes:
        counts: Increments per day. Shape (pairs, days).
        truth: Log of the rate ratio by the people who judge, half a click more for each arm. Shape (pairs,).
    """

    counts: Counts
    truth: Vector


def looks(pairs: Sequence[tuple[Half, Half]], days: int, rng: np.random.Generator) -> Counts:
    """Deal out pairs of arms over days."""
    rows = [(*dealt(*one, days, rng), *dealt(*other, days, rng)) for one, other in pairs]
    return Counts.of(*np.array(rows, dtype=np.float64).transpose(1, 0, 2))


def log_ratio(control: Half, treatment: Half) -> float:
    """Return the log of the rate ratio; half a click more, so that arms without any have one."""
    return math.log((treatment[1] + 0.5) / (treatment[0] + 1.0)) - math.log((control[1] + 0.5) / (control[0] + 1.0))


def typical(logs: Vector) -> float:
    """Return the geometric mean lift: a few headlines at many times the rate would make an ordinary mean their own."""
    return math.expm1(float(logs.mean()))


def halves(arm: ArchiveArm, rng: np.random.Generator) -> tuple[Half, Half]:
    """Part the people of an arm by lot."""
    n = arm.n // 2
    clicks = int(rng.hypergeometric(arm.clicks, arm.n - arm.clicks, n))
    return (n, clicks), (arm.n - n, arm.clicks - clicks)


def whole(arm: ArchiveArm) -> Half:
    return arm.n, arm.clicks


def contests(tests: Sequence[ArchiveTest]) -> list[tuple[ArchiveArm, ArchiveArm]]:
    return [(test.arms[0], other) for test in tests for other in test.arms[1:]]


def recorded(tests: Sequence[ArchiveTest], days: int, rng: np.random.Generator) -> Pairs:
    pairs = [(whole(one), whole(other)) for one, other in contests(tests)]
    return Pairs(looks(pairs, days, rng), np.array([log_ratio(*pair) for pair in pairs]))


def parted(tests: Sequence[ArchiveTest], days: int, rng: np.random.Generator) -> Pairs:
    both = [(halves(one, rng), halves(other, rng)) for one, other in contests(tests)]
    deciding = [(one[0], other[0]) for one, other in both]
    return Pairs(looks(deciding, days, rng), np.array([log_ratio(one[1], other[1]) for one, other in both]))


def unchanged(tests: Sequence[ArchiveTest], days: int, rng: np.random.Generator) -> Pairs:
    pairs = [halves(arm, rng) for test in tests for arm in test.arms]
    return Pairs(looks(pairs, days, rng), np.zeros(len(pairs)))


def seen(counts: Counts, ends: NDArray[np.int64]) -> Vector:
    """Return the log rate ratio seen up to the look at which each pair ends."""
    rows = np.arange(len(ends))
    n_a, x_a, n_b, x_b = (part.cumsum(axis=1)[rows, ends] for part in (counts.n_a, counts.x_a, counts.n_b, counts.x_b))
    return np.log((x_b + 0.5) / (n_b + 1.0)) - np.log((x_a + 0.5) / (n_a + 1.0))


def table(title: str, pairs: Pairs, scenario: Scenario) -> None:
    print(f"\n{title}: {len(pairs.truth):,} comparisons, {scenario.looks} days, min_effect {scenario.min_effect:+.0%}")
    print("| rule | kept | reverted | share of the people used | kept: lift seen | lift by the judges | not better |")
    print("|---|---|---|---|---|---|---|")
    for name, rule in rules(scenario.looks).items():
        ends: Endings = rule(pairs.counts, scenario)
        last = scenario.looks - 1
        kept, reverted = ends.kept <= last, ends.reverted <= last
        used = (np.minimum(np.minimum(ends.kept, ends.reverted), last) + 1.0).mean() / scenario.looks
        sizes = "- | - | -"
        if kept.any():
            shown, truth = seen(pairs.counts, np.minimum(ends.kept, last))[kept], pairs.truth[kept]
            sizes = f"{typical(shown):+.1%} | {typical(truth):+.1%} | {(truth <= 0).mean():.1%}"
        print(f"| {name} | {kept.mean():.1%} | {reverted.mean():.1%} | {used:.0%} | {sizes} |")


def loops(tests: Sequence[ArchiveTest], scenario: Scenario, rng: np.random.Generator) -> None:
    """Print what a loop over the headlines of a test gains, by people who decided nothing."""
    parts = [[halves(arm, rng) for arm in test.arms] for test in tests]
    print(f"\nA loop over the headlines of each test: {len(tests):,} loops, lift of the last over the first headline")
    print("| rule | keeps in a loop | lift by the judges | loops that end worse |")
    print("|---|---|---|---|")
    for name, rule in rules(scenario.looks).items():
        ends, keeps = zip(*(one_loop(part, rule, scenario, rng) for part in parts), strict=True)
        logs = gained(parts, ends)
        error = float(logs.std(ddof=1)) / len(logs) ** 0.5
        print(f"| {name} | {np.mean(keeps):.2f} | {typical(logs):+.1%} +- {error:.1%} | {(logs < 0).mean():.1%} |")
    best = [max(range(len(part)), key=lambda arm: part[arm][0][1] / part[arm][0][0]) for part in parts]
    logs = gained(parts, best)
    print(f"| the best rate that was seen | - | {typical(logs):+.1%} | {(logs < 0).mean():.1%} |")


def gained(parts: Sequence[Sequence[tuple[Half, Half]]], ends: Sequence[int]) -> Vector:
    """Return the log rate ratio of the arm at the end of each loop over the first, by the people who judge."""
    return np.array([log_ratio(part[0][1], part[end][1]) for part, end in zip(parts, ends, strict=True)])


def one_loop(
    part: Sequence[tuple[Half, Half]], rule: Rule, scenario: Scenario, rng: np.random.Generator
) -> tuple[int, int]:
    """Return the arm that stands at the end, and how often one was kept."""
    incumbent = keeps = 0
    for arm in range(1, len(part)):
        counts = looks([(part[incumbent][0], part[arm][0])], scenario.looks, rng)
        if rule(counts, scenario).kept[0] < scenario.looks:
            incumbent, keeps = arm, keeps + 1
    return incumbent, keeps


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="the archive")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--min-effect", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=int, help="only so many tests")
    asked = parser.parse_args(arguments)
    begin = time.perf_counter()
    tests = headline_tests(read_archive(asked.file))[: asked.tests]
    tests = tuple(test for test in tests if min(arm.n for arm in test.arms) >= 4 * asked.days)
    scenario = Scenario("replay", 0.015, asked.min_effect, (), looks=asked.days)
    rng = np.random.default_rng(asked.seed)
    people = sum(arm.n for test in tests for arm in test.arms)
    print(f"{len(tests):,} past tests of headlines, {people:,} impressions")
    table("1. Whole tests, judged by all that was recorded", recorded(tests, asked.days, rng), scenario)
    table("2. One half decides, the other judges", parted(tests, asked.days, rng), scenario)
    table("3. Nothing changed", unchanged(tests, asked.days, rng), scenario)
    loops(tests, scenario, rng)
    print(f"\n({time.perf_counter() - begin:.0f} s)")


if __name__ == "__main__":
    main()
