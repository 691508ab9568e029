"""What the keep rules gain where the truth is known: `python -m benchmarks.landscapes [--runs N] [--processes P]`.

A run has 126 measurements, the baseline's one among them. Candidate after candidate is drawn from a landscape: its true
effect on the incumbent, and what it would measure at its first and its second look. Every rule meets the same
candidates with the same luck; a rule that looks twice meets fewer of them. Decisions and believed gains come from the
shipped policies: evidence in, verdict out. The noise is 1 and known, so everything is counted in noise.

- true gain: sum of the true effects of what was kept
- claimed: what the policy believes it gained (`Policy.believed_gain`)
- wrong keeps: kept candidates whose true effect is zero or less
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.adapter import ArmTotals, Direction, Metric
from autoresearch.core.decision import Decision, Evidence, Look, Noise, PastEvidence, Policy
from autoresearch.core.decision.policies import create_policy

Vector = NDArray[np.float64]

MEASUREMENTS = 126
LOOKS = 2
METRIC = Metric("value", "", Direction.MAXIMIZE)
KNOWN = Noise(1.0, math.inf)
NOBODY = ArmTotals.of("control", ())
RULES = ("greedy", "bayes")
CHUNK = 10


@dataclass(frozen=True)
class Landscape:
    """Where candidates come from, in units of the noise.

    Attributes:
        name: Heading of its rows.
        better: (share, mean) of exponential improvements, a group each.
        harm: Mean of the exponential harm that all others do; 0 where they do nothing.
    """

    name: str
    better: tuple[tuple[float, float], ...]
    harm: float

    def effects(self, rng: np.random.Generator, count: int) -> Vector:
        """Draw true effects. Shape (count,)."""
        which, size = rng.random(count), rng.exponential(size=count)
        scale = np.full(count, -self.harm)
        edge = 0.0
        for share, mean in self.better:
            scale[(which >= edge) & (which < edge + share)] = mean
            edge += share
        return np.asarray(size * scale)


LANDSCAPES = (
    Landscape("few large, many bad", ((0.06, 5.0), (0.14, 0.6)), 3.0),
    Landscape("small", ((0.2, 0.6),), 2.0),
    Landscape("none at all", (), 0.0),
)


@dataclass(frozen=True)
class Luck:
    """Everything that chance decides in one run, the same for every rule.

    Attributes:
        baseline: Noise of the baseline's measurement.
        effects: True effect of each candidate on its incumbent. Shape (candidates,).
        noise: Noise of each candidate's looks. Shape (candidates, looks).
    """

    baseline: float
    effects: Vector
    noise: Vector

    @classmethod
    def draw(cls, landscape: Landscape, number: int) -> Luck:
        """Draw the luck of run `number`, whichever process asks."""
        rng = np.random.default_rng([LANDSCAPES.index(landscape), number])
        candidates = MEASUREMENTS - 1
        return cls(float(rng.normal()), landscape.effects(rng, candidates), rng.normal(size=(candidates, LOOKS)))


def play(policy: Policy, luck: Luck) -> tuple[float, float, float]:
    """Return true gain, claimed gain and wrong keeps of one run under a policy."""
    truth, wrong, left = 0.0, 0, MEASUREMENTS - 1
    history = [PastEvidence(look_of([luck.baseline]), kept=True)]
    for effect, noise in zip(luck.effects, luck.noise, strict=True):
        looks: list[Look] = []
        decision = Decision.CONTINUE
        while decision is Decision.CONTINUE and left > 0:
            looks.append(look_of((truth + effect + noise[: len(looks) + 1]).tolist()))
            left -= 1
            decision = policy.decide(Evidence(METRIC, tuple(looks), KNOWN, tuple(history))).decision
        if not looks:
            break
        kept = decision is Decision.KEEP
        history.append(PastEvidence(looks[-1], kept))
        if kept:
            truth += float(effect)
            wrong += bool(effect <= 0)
    return truth, policy.believed_gain(Evidence(METRIC, (), KNOWN, tuple(history))), float(wrong)


def look_of(values: Sequence[float]) -> Look:
    return Look(NOBODY, ArmTotals.of("treatment", values))


def play_chunk(landscape: Landscape, numbers: range) -> Vector:
    """Return what every rule made of some runs. Shape (runs, rules, 3)."""
    policies = [create_policy(name) for name in RULES]
    lucks = [Luck.draw(landscape, number) for number in numbers]
    return np.array([[play(policy, luck) for policy in policies] for luck in lucks])


def simulate(landscape: Landscape, runs: int, pool: ProcessPoolExecutor) -> Vector:
    """Return true gain, claimed gain and wrong keeps. Shape (runs, rules, 3)."""
    chunks = [range(begin, min(begin + CHUNK, runs)) for begin in range(0, runs, CHUNK)]
    return np.concatenate(list(pool.map(partial(play_chunk, landscape), chunks)))


def mean_and_error(values: Vector) -> tuple[float, float]:
    """Return mean and standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def ratio_and_error(above: Vector, below: Vector) -> tuple[float, float]:
    """Return the ratio of two means over the same runs, and its standard error by the delta method."""
    ratio = float(above.mean() / below.mean())
    return ratio, mean_and_error(above - ratio * below)[1] / abs(float(below.mean()))


@dataclass(frozen=True)
class Bar:
    """What `bayes` must show on one landscape.

    Attributes:
        words: The bar as a sentence, `x` being the figure.
        figure: Returns the figure and its standard error from results of shape (runs, rules, 3).
        met: Says whether a figure is good enough.
    """

    words: str
    figure: Callable[[Vector], tuple[float, float]]
    met: Callable[[float], bool]


TRUE, CLAIMED, WRONG = 0, 1, 2
GREEDY, BAYES = RULES.index("greedy"), RULES.index("bayes")


def against_greedy(column: int) -> Callable[[Vector], tuple[float, float]]:
    return lambda found: ratio_and_error(found[:, BAYES, column], found[:, GREEDY, column])


def claimed_of_true(found: Vector) -> tuple[float, float]:
    return ratio_and_error(found[:, BAYES, CLAIMED], found[:, BAYES, TRUE])


def claimed(found: Vector) -> tuple[float, float]:
    return mean_and_error(found[:, BAYES, CLAIMED])


HONEST = Bar("claimed over true gain: 0.95 to 1.05", claimed_of_true, lambda x: abs(x - 1.0) <= 0.05)
FEWER = Bar("wrong keeps over those of greedy: at most 0.65", against_greedy(WRONG), lambda x: x <= 0.65)
BARS: dict[str, tuple[Bar, ...]] = {
    "few large, many bad": (
        Bar("true gain over that of greedy: at least 0.95", against_greedy(TRUE), lambda x: x >= 0.95),
        HONEST,
        FEWER,
    ),
    "small": (
        Bar("true gain over that of greedy: at least 1.2", against_greedy(TRUE), lambda x: x >= 1.2),
        HONEST,
        FEWER,
    ),
    "none at all": (Bar("claimed: at most 0.8", claimed, lambda x: x <= 0.8), FEWER),
}


def tables(runs: int, processes: int | None = None) -> None:
    """Print what each rule gained, then each bar with its figure.

    Args:
        runs: Simulated runs on each landscape, 2 or more.
        processes: How many work at once; None: one per processor.
    """
    # A worker's matrices are small; with more threads than processors, linear algebra only waits for itself.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    workers = processes or os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = {landscape.name: simulate(landscape, runs, pool) for landscape in LANDSCAPES}
    print(f"Keep rules: {runs:,} runs of {MEASUREMENTS} measurements, in units of the noise; +- is a standard error.")
    print("| effects | rule | true gain | claimed | wrong keeps |")
    print("|---|---|---|---|---|")
    for name, found in results.items():
        for rule, label in enumerate(RULES):
            cells = [f"{mean:.2f} +- {error:.2f}" for mean, error in map(mean_and_error, found[:, rule].T)]
            print(f"| {name} | {label} | {' | '.join(cells)} |")
    print("\n| effects | bar for bayes | figure | met |")
    print("|---|---|---|---|")
    for name, found in results.items():
        for bar in BARS[name]:
            value, error = bar.figure(found)
            print(f"| {name} | {bar.words} | {value:.3f} +- {error:.3f} | {'yes' if bar.met(value) else 'NO'} |")


def cost_table(repeats: int) -> None:
    """Print what one verdict of each rule costs, by the number of experiments behind it."""
    print("Cost of one verdict, median in ms of processor time")
    print(f"| experiments before | {' | '.join(RULES)} |")
    print(f"|---|{'---|' * len(RULES)}")
    for experiments in (10, 126, 500, 1000):
        luck = np.random.default_rng(experiments).normal(-1.0, 2.0, size=experiments)
        looks = [look_of([value]) for value in luck]
        history = tuple(PastEvidence(look, index == 0 or index % 20 == 0) for index, look in enumerate(looks))
        evidence = Evidence(METRIC, (look_of([0.3]),), KNOWN, history)
        cells = [f"{median_ms(partial(create_policy(name).decide, evidence), repeats):.2f}" for name in RULES]
        print(f"| {experiments:,} | {' | '.join(cells)} |")


def median_ms(work: Callable[[], object], repeats: int) -> float:
    """Return the processor time of this thread: on a shared machine the wall clock also measures the neighbours."""
    seconds = []
    for _ in range(repeats):
        begin = time.thread_time()
        work()
        seconds.append(time.thread_time() - begin)
    return 1000.0 * float(np.median(seconds))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs on each landscape")
    parser.add_argument("--processes", type=int, help="how many work at once; by default one per processor")
    asked = parser.parse_args(arguments)
    tables(asked.runs, asked.processes)


if __name__ == "__main__":
    main()
