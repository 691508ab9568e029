"""What the decision rules are worth: `python -m benchmarks.decisions [--quick] [--only live]`.

Prints tables from seeded simulation through the shipped functions. A table of live tests gives, for each rule and each
true lift, the share of tests that are kept, the share that is reverted, and the units in the treatment that a test
takes on average. Every rule of a table sees the same simulated people. The keep rules of measured adapters are in
`benchmarks.landscapes`.

Rules beside the race, all at one-sided 2.5 % (the winning side of a two-sided 5 %), as they are used in practice:

- naive: a z test every day, keep at the first significant one
- fixed: one z test at the end
- weekly: a z test at the end of each of four weeks with the bounds of Lan and DeMets for O'Brien and Fleming
- sequence: the two-sided asymptotic confidence sequence, tuned for 5,000 units, keep when it leaves zero
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.adapter import ArmTotals, Direction, Metric, MetricKind
from autoresearch.core.decision import Decision, Evidence, Look, race_bernoulli
from autoresearch.core.decision.race import ProportionRace, first_crossing, judge
from autoresearch.core.decision.race_bernoulli import Counts
from autoresearch.core.decision.race_means import two_sided_radius
from autoresearch.core.decision.race_policy import RacePolicy
from autoresearch.core.decision.records import Names, ValueTable
from benchmarks import landscapes
from benchmarks.landscapes import median_ms

Vector = NDArray[np.float64]
Whole = NDArray[np.int64]

ALPHA = 0.05
BETA = 0.2
CHUNK = 4000
NORMAL = NormalDist()


@dataclass(frozen=True)
class Scenario:
    """Live tests of one kind.

    Attributes:
        name: Heading of its table.
        rate: Mean conversion rate of the control.
        min_effect: Smallest lift worth having; alternatives of the race.
        lifts: True lifts, one group of rows each.
        sizes: Units of control and treatment per look.
        looks: Looks of a test.
        weekday: Relative rate by day of the week; its mean is 1.
        prior: Successes and failures that the race's pooled rate begins with.
    """

    name: str
    rate: float
    min_effect: float
    lifts: tuple[float, ...]
    sizes: tuple[int, int] = (300, 300)
    looks: int = 28
    weekday: tuple[float, ...] = (1.0,)
    prior: tuple[float, float] = race_bernoulli.PRIOR


SCENARIOS = (
    Scenario("5 % base rate, 300 per arm and look, 28 looks", 0.05, 0.2, (0.0, 0.1, 0.2, 0.3)),
    Scenario(
        "the same with a weekday cycle (weekend at half the rate)",
        0.05,
        0.2,
        (0.0, 0.2),
        weekday=(1.2, 1.2, 1.2, 1.2, 1.2, 0.5, 0.5),
    ),
    Scenario("the same, split 90 to 10", 0.05, 0.2, (0.0, 0.2), sizes=(540, 60)),
    Scenario("base rate 0.5 %, 3,000 per arm and look", 0.005, 0.2, (0.0, 0.2), sizes=(3000, 3000)),
    Scenario("base rate 40 %, 300 per arm and look", 0.4, 0.08, (0.0, 0.08)),
)


@dataclass(frozen=True)
class Endings:
    """When tests end, as an index of the look; the number of looks where they do not."""

    kept: Whole
    reverted: Whole


Rule = Callable[[Counts, Scenario], Endings]


def people(scenario: Scenario, lift: float, repetitions: int, rng: np.random.Generator) -> Counts:
    """Simulate tests. Shape (repetitions, looks)."""
    day = np.resize(np.array(scenario.weekday), scenario.looks) * scenario.rate
    n_a, n_b = (np.full((repetitions, scenario.looks), size) for size in scenario.sizes)
    return Counts.of(n_a, rng.binomial(n_a, day), n_b, rng.binomial(n_b, day * (1.0 + lift)))


def never(counts: Counts) -> Whole:
    return np.full(counts.n_a.shape[:-1], counts.n_a.shape[-1], dtype=np.int64)


def race(beta: float) -> Rule:
    """Return the shipped race."""

    def rule(counts: Counts, scenario: Scenario) -> Endings:
        won = first_crossing(race_bernoulli.log_win(counts, scenario.min_effect, scenario.prior), ALPHA)
        if beta == 0:
            return Endings(won, never(counts))
        lost = first_crossing(race_bernoulli.log_lose(counts, scenario.min_effect, scenario.prior), beta)
        return Endings(
            np.where(won <= lost, won, counts.n_a.shape[-1]), np.where(lost < won, lost, counts.n_a.shape[-1])
        )

    return rule


def z_statistics(counts: Counts) -> Vector:
    """Return the pooled z statistic of the cumulative counts after each look; 0 while nobody converted."""
    n_a, x_a, n_b, x_b = (part.cumsum(axis=-1) for part in (counts.n_a, counts.x_a, counts.n_b, counts.x_b))
    pooled = (x_a + x_b) / (n_a + n_b)
    error = np.sqrt(pooled * (1.0 - pooled) * (1.0 / n_a + 1.0 / n_b))
    return np.asarray(np.divide(x_b / n_b - x_a / n_a, error, out=np.zeros_like(error), where=error > 0))


def bounded(bounds: Vector) -> Rule:
    """Return the rule that keeps at the first look whose z statistic reaches its bound."""

    def rule(counts: Counts, scenario: Scenario) -> Endings:
        crossed = z_statistics(counts) >= bounds
        return Endings(first_crossing(np.where(crossed, 1.0, -1.0), 1.0), never(counts))

    return rule


def naive(looks: int) -> Rule:
    return bounded(np.full(looks, NORMAL.inv_cdf(1.0 - ALPHA / 2.0)))


def fixed(looks: int) -> Rule:
    return bounded(np.append(np.full(looks - 1, np.inf), NORMAL.inv_cdf(1.0 - ALPHA / 2.0)))


def weekly(looks: int) -> Rule:
    bounds = np.full(looks, np.inf)
    bounds[6::7] = obrien_fleming(looks // 7, ALPHA / 2.0)
    return bounded(bounds)


def obrien_fleming(stages: int, alpha: float) -> Vector:
    """Return one-sided z bounds at equally spaced stages that spend alpha as 2 - 2 Phi(z_(alpha/2) / sqrt(share)).

    The density of the score that has not crossed yet is carried from stage to stage on a grid.

    Source: K. K. G. Lan, D. L. DeMets (1983); the recursion of P. Armitage, C. K. McPherson, B. C. Rowe (1969).
    """
    start = NORMAL.inv_cdf(1.0 - alpha / 2.0)
    spent = [2.0 - 2.0 * NORMAL.cdf(start / math.sqrt(stage / stages)) for stage in range(1, stages + 1)]
    grid, step = np.linspace(-12.0, 12.0, 2401, retstep=True)
    density = np.exp(-(grid**2) / 2.0) / math.sqrt(2.0 * math.pi)
    kernel = np.exp(-((grid[:, None] - grid[None, :]) ** 2) / 2.0) / math.sqrt(2.0 * math.pi) * step
    bounds, before = [], 0.0
    for stage, total in enumerate(spent, 1):
        tail = density[::-1].cumsum()[::-1] * step - density * step / 2.0  # mass above each point of the grid
        # Logarithms, because the tail is far from straight between two points of the grid.
        cut = float(np.interp(-math.log(total - before), -np.log(np.maximum(tail, 1e-300)), grid))
        bounds.append(cut / math.sqrt(stage))
        before = total
        density = kernel @ (density * np.clip((cut - grid) / step + 0.5, 0.0, 1.0))
    return np.array(bounds)


def sequence(scenario: Scenario) -> Rule:
    """Return the asymptotic confidence sequence on the z statistic, tuned for 5,000 units."""
    units = np.arange(1, scenario.looks + 1) * sum(scenario.sizes)
    return bounded(np.array([two_sided_radius(float(n), ALPHA, 5000.0) for n in units]))


def rules_of(scenario: Scenario) -> dict[str, Rule]:
    return {
        f"race, beta {BETA:g}": race(BETA),
        "race, lose off": race(0.0),
        "naive daily": naive(scenario.looks),
        "fixed": fixed(scenario.looks),
        "weekly": weekly(scenario.looks),
        "sequence": sequence(scenario),
    }


@dataclass
class Tally:
    """Sums over repetitions of one rule at one lift."""

    tests: int = 0
    kept: int = 0
    reverted: int = 0
    looks: int = 0

    def add(self, endings: Endings, looks: int) -> None:
        ended = np.minimum(endings.kept, endings.reverted)
        self.tests += ended.size
        self.kept += int((endings.kept < looks).sum())
        self.reverted += int((endings.reverted < looks).sum())
        self.looks += int(np.minimum(ended + 1, looks).sum())


def simulate(scenario: Scenario, lift: float, repetitions: int, seed: int) -> dict[str, Tally]:
    """Run every rule on the same tests."""
    rules, rng = rules_of(scenario), np.random.default_rng(seed)
    tallies = {name: Tally() for name in rules}
    for begin in range(0, repetitions, CHUNK):
        counts = people(scenario, lift, min(CHUNK, repetitions - begin), rng)
        for name, rule in rules.items():
            tallies[name].add(rule(counts, scenario), scenario.looks)
    return tallies


def live_tables(repetitions: int) -> None:
    """Print one table per scenario."""
    print(f"Live tests: {repetitions:,} repetitions, alpha {ALPHA:g}; kept and reverted in % of tests.")
    for number, scenario in enumerate(SCENARIOS):
        print(f"\n{scenario.name}; min_effect {scenario.min_effect:+.0%}")
        print("| rule | true lift | kept | reverted | units in treatment |")
        print("|---|---|---|---|---|")
        for lift in scenario.lifts:
            for name, tally in simulate(scenario, lift, repetitions, 1000 * number + round(100 * lift)).items():
                units = tally.looks / tally.tests * scenario.sizes[1]
                shares = f"{tally.kept / tally.tests:.1%} | {tally.reverted / tally.tests:.1%}"
                print(f"| {name} | {lift:+.0%} | {shares} | {units:,.0f} |")


def cost_table(repeats: int) -> None:
    """Print what one look of one test costs: e-values alone, and the whole verdict with its interval."""
    metric = Metric("rate", "", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.2)
    print("\nCost of one look, median in ms of processor time")
    print("| looks so far | both e-values | verdict with interval |")
    print("|---|---|---|")
    for looks in (1, 28, 280):
        counts = Counts.of(*(np.full(looks, value) for value in (300, 15, 300, 17)))
        totals = [
            Look(ArmTotals("control", 300 * n, 15 * n, 15 * n), ArmTotals("treatment", 300 * n, 17 * n, 17 * n))
            for n in range(1, looks + 1)
        ]
        evidence, policy = Evidence(metric, tuple(totals)), RacePolicy(beta=0.0)
        alone = median_ms(partial(ProportionRace, counts, 0.2), repeats)
        whole = median_ms(partial(policy.decide, evidence), repeats)
        print(f"| {looks} | {alone:.2f} | {whole:.2f} |")


MOST_RUNS = 10
QUICK_RUNS = 300
"""Runs on each landscape with `--quick`."""


def values_table(repetitions: int) -> None:
    """Print the race of repeated runs: two arms, alternating, at most ten runs each, a look after every run."""
    print(f"\nRepeated runs, up to {MOST_RUNS} per arm: {repetitions:,} repetitions, alpha {ALPHA:g}, beta {BETA:g}")
    print("| min_effect in noise | noise | true effect | kept | reverted | runs in both arms |")
    print("|---|---|---|---|---|---|")
    for d in (1.0, 2.0):
        for label, noise in (("known", 1.0), ("from the same runs", None)):
            for effect in (0.0, d, 1.5 * d):
                kept, reverted, runs = values_endings(d, noise, effect, repetitions)
                print(f"| {d:g} | {label} | {effect:g} | {kept:.1%} | {reverted:.1%} | {runs:.1f} |")


def values_endings(d: float, noise: float | None, effect: float, repetitions: int) -> tuple[float, float, float]:
    """Return the shares kept and reverted and the mean number of runs that were looked at."""
    rng = np.random.default_rng(7)
    decisions, runs = [], 0
    for _ in range(repetitions):
        pairs = rng.normal(size=(MOST_RUNS, 2)) + np.array([0.0, effect])
        rows = tuple((arm == 1, float(pair[arm])) for pair in pairs for arm in (0, 1))
        judgement = judge(ValueTable(Names("a", "b"), rows).race(d, noise)[0], ALPHA, BETA)
        decisions.append(judgement.decision)
        runs += judgement.look + 2
    share = 1.0 / repetitions
    return decisions.count(Decision.KEEP) * share, decisions.count(Decision.REVERT) * share, runs * share


TABLES: dict[str, Callable[[bool], None]] = {
    "live": lambda quick: live_tables(4_000 if quick else 40_000),
    "keeps": lambda quick: landscapes.tables(QUICK_RUNS if quick else 2_000),
    "values": lambda quick: values_table(200 if quick else 2_000),
    "cost": lambda quick: cost_table(20 if quick else 200),
    "keeps-cost": lambda quick: landscapes.cost_table(20 if quick else 200),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the repetitions")
    parser.add_argument("--only", choices=sorted(TABLES), action="append", help="this table; may be given again")
    asked = parser.parse_args(arguments)
    for name in asked.only or TABLES:
        begin = time.perf_counter()
        TABLES[name](asked.quick)
        print(f"\n({name}: {time.perf_counter() - begin:.0f} s)\n")


if __name__ == "__main__":
    main()
