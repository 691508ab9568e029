"""What the keep rules gain where the truth is known: `python -m benchmarks.landscapes [--runs N] [--processes P]`.

A run has 126 measurements, the baseline's one and those of the incumbent beside a candidate among them. Candidate after
candidate is drawn from a landscape: its true effect on the incumbent, and what it would measure at each of its runs.
Every rule meets the same candidates with the same luck, the same machine at the same measurement and the same seeds; a
rule that looks twice meets fewer candidates. Decisions, which arm to measure next and believed gains come from the
shipped policies: evidence in, verdict out. The noise is 1 and known, so everything is counted in noise.

- true gain: sum of the true effects of what was kept
- claimed: what the policy believes it gained (`Policy.believed_gain`)
- off: mean distance of the two, run by run
- wrong keeps: kept candidates whose true effect is zero or less
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.adapter import ArmTotals, Direction, Metric
from autoresearch.core.decision import Decision, Evidence, Look, Noise, PastEvidence, Policy, Verdict
from autoresearch.core.decision.bayes import BayesPolicy
from autoresearch.core.decision.policies import create_policy

Vector = NDArray[np.float64]

MEASUREMENTS = 126
LOOKS = 3
"""Runs of an arm beside one candidate for which luck is drawn; no rule asks for more."""
METRIC = Metric("value", "", Direction.MAXIMIZE)
KNOWN = Noise(1.0, math.inf)
CHUNK = 25


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
class Machine:
    """What the place of measuring adds to every value, whatever the artifact.

    Attributes:
        name: In the table.
        walk: Standard deviation of the level's step from one measurement to the next.
        jump: How far the level moves at the middle of the run, once.
        seed: Standard deviation of what a seed adds to every artifact; the noise around it makes up the rest to 1.
        pause: Whether the run is interrupted at its middle and goes on in another session.
    """

    name: str
    walk: float = 0.0
    jump: float = 0.0
    seed: float = 0.0
    pause: bool = False

    def levels(self, rng: np.random.Generator) -> Vector:
        """Draw the level at each measurement, and one beyond. Shape (MEASUREMENTS + 1,)."""
        steps = self.walk * rng.normal(size=MEASUREMENTS + 1)
        steps[MEASUREMENTS // 2] += self.jump
        return np.cumsum(steps)


STILL = Machine("still")
SHARED_SEEDS = Machine("seeds shared", seed=0.75**0.5)
DRIFTS = (
    Machine("walk of 0.1 a run", walk=0.1),
    Machine("2 up at half", jump=2.0),
    Machine("2 down at half", jump=-2.0),
    Machine("2 up in a pause at half", jump=2.0, pause=True),
    Machine("2 down in a pause at half", jump=-2.0, pause=True),
)


@dataclass(frozen=True)
class Rule:
    """A policy and what it is told of the noise.

    Attributes:
        name: In the table.
        policy: The policy.
        noise: The noise that it is told.
    """

    name: str
    policy: Policy
    noise: Noise = KNOWN


def keep_rules() -> tuple[Rule, ...]:
    return Rule("greedy", create_policy("greedy")), Rule("bayes", create_policy("bayes"))


def drift_rules() -> tuple[Rule, ...]:
    greedy, shipped = keep_rules()
    return greedy, Rule("bayes, no checks", BayesPolicy(drifting=False)), shipped


def seed_rules() -> tuple[Rule, ...]:
    told = Noise(1.0, math.inf, SHARED_SEEDS.seed)
    greedy, shipped = keep_rules()
    return greedy, Rule("bayes, seeds unknown", shipped.policy), Rule("bayes", shipped.policy, told)


@dataclass(frozen=True)
class Luck:
    """Everything that chance decides in one run, the same for every rule.

    Attributes:
        baseline: Noise of the baseline's measurement.
        effects: True effect of each candidate on its incumbent. Shape (candidates,).
        noise: Noise of each candidate's runs. Shape (candidates, LOOKS).
        beside: Noise of the incumbent's runs beside each candidate. Shape (candidates, LOOKS).
        levels: What the machine adds, by measurement. Shape (MEASUREMENTS + 1,).
        seeds: What each seed adds. Shape (LOOKS,).
        pause: Whether another session begins at half.
    """

    baseline: float
    effects: Vector
    noise: Vector
    beside: Vector
    levels: Vector
    seeds: Vector
    pause: bool

    @classmethod
    def draw(cls, landscape: Landscape, machine: Machine, number: int) -> Luck:
        """Draw the luck of run `number`, whichever process asks."""
        rng = np.random.default_rng([LANDSCAPES.index(landscape), number])
        candidates, rest = MEASUREMENTS - 1, math.sqrt(1.0 - machine.seed**2)
        baseline, effects = float(rng.normal()), landscape.effects(rng, candidates)
        noise = rest * rng.normal(size=(candidates, LOOKS))
        beside, levels = rest * rng.normal(size=(candidates, LOOKS)), machine.levels(rng)
        seeds = machine.seed * rng.normal(size=LOOKS)
        return cls(rest * baseline + float(seeds[0]), effects, noise, beside, levels, seeds, machine.pause)


def play(rule: Rule, luck: Luck) -> tuple[float, float, float, float]:
    """Return true gain, claimed gain, wrong keeps and runs of the incumbent of one run under a rule."""
    truth, wrong, used, beside = 0.0, 0, 1, 0
    history: tuple[PastEvidence, ...] = (PastEvidence(look_of([luck.baseline + float(luck.levels[0])]), kept=True),)
    for number, effect in enumerate(luck.effects.tolist()):
        shown: dict[str, tuple[float, Vector, list[float]]] = {
            "control": (truth, luck.beside[number], []),
            "treatment": (truth + effect, luck.noise[number], []),
        }
        looks: list[Look] = []
        verdict, block = Verdict(Decision.CONTINUE, ""), int(luck.pause and used >= MEASUREMENTS // 2)
        while verdict.decision is Decision.CONTINUE and used < MEASUREMENTS:
            for arm in verdict.measure:
                mean, noise, values = shown[arm]
                values.append(mean + float(luck.levels[used] + luck.seeds[len(values)] + noise[len(values)]))
                used += 1
            looks.append(look_of(shown["treatment"][2], shown["control"][2]))
            verdict = rule.policy.decide(Evidence(METRIC, tuple(looks), rule.noise, history, block))
        if not looks:
            break
        kept = verdict.decision is Decision.KEEP
        history = (*history, PastEvidence(looks[-1], kept, block, tuple(looks[:-1])))
        beside += looks[-1].control.n
        if kept:
            truth += effect
            wrong += effect <= 0
    return truth, rule.policy.believed_gain(Evidence(METRIC, (), rule.noise, history)), float(wrong), float(beside)


def look_of(treatment: Sequence[float], control: Sequence[float] = ()) -> Look:
    return Look(ArmTotals.of("control", control), ArmTotals.of("treatment", treatment))


Rules = Callable[[], tuple[Rule, ...]]


def play_chunk(landscape: Landscape, machine: Machine, rules: Rules, numbers: range) -> Vector:
    """Return what every rule made of some runs. Shape (runs, rules, 4)."""
    made = rules()
    lucks = [Luck.draw(landscape, machine, number) for number in numbers]
    return np.array([[play(rule, luck) for rule in made] for luck in lucks])


def simulate(landscape: Landscape, machine: Machine, rules: Rules, runs: int, pool: ProcessPoolExecutor) -> Vector:
    """Return true gain, claimed gain, wrong keeps and runs of the incumbent. Shape (runs, rules, 4)."""
    chunks = [range(begin, min(begin + CHUNK, runs)) for begin in range(0, runs, CHUNK)]
    return np.concatenate(list(pool.map(partial(play_chunk, landscape, machine, rules), chunks)))


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
        figure: Returns the figure and its standard error from results of shape (runs, rules, 4).
        met: Says whether a figure is good enough.
    """

    words: str
    figure: Callable[[Vector], tuple[float, float]]
    met: Callable[[float], bool]


TRUE, CLAIMED, WRONG, BESIDE = range(4)
GREEDY, BAYES = 0, 1


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
    """Print what each rule gained, then each bar with its figure, then drifting machines and shared seeds.

    Args:
        runs: Simulated runs on each landscape, 2 or more.
        processes: How many work at once; None: one per processor.
    """
    # A worker's matrices are small; with more threads than processors, linear algebra only waits for itself.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    workers = processes or os.cpu_count() or 1
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = {found.name: simulate(found, STILL, keep_rules, runs, pool) for found in LANDSCAPES}
        print(
            f"Keep rules: {runs:,} runs of {MEASUREMENTS} measurements, in units of the noise; +- is a standard error."
        )
        header()
        for name, found in results.items():
            rows(name, keep_rules(), found)
        bars(results)
        few = max(2, runs // 4)
        print(f"\nWhere the machine moves, and where seeds add the same to every artifact: {few:,} runs each.")
        header()
        for landscape in LANDSCAPES[:2]:
            for machine in DRIFTS:
                found = simulate(landscape, machine, drift_rules, few, pool)
                rows(f"{landscape.name}; {machine.name}", drift_rules(), found)
            found = simulate(landscape, SHARED_SEEDS, seed_rules, few, pool)
            rows(f"{landscape.name}; {SHARED_SEEDS.name}", seed_rules(), found)


def header() -> None:
    print("| effects | rule | true gain | claimed | off | wrong keeps | runs of the incumbent |")
    print("|---|---|---|---|---|---|---|")


def rows(name: str, rules: Sequence[Rule], found: Vector) -> None:
    """Print a row per rule."""
    for number, rule in enumerate(rules):
        columns = found[:, number].T
        off = np.abs(columns[CLAIMED] - columns[TRUE])
        shown = (columns[TRUE], columns[CLAIMED], off, columns[WRONG])
        cells = [f"{mean:.2f} +- {error:.2f}" for mean, error in map(mean_and_error, shown)]
        print(f"| {name} | {rule.name} | {' | '.join(cells)} | {columns[BESIDE].mean():.1f} |", flush=True)


def bars(results: Mapping[str, Vector]) -> None:
    """Print each bar with its figure."""
    print("\n| effects | bar for bayes | figure | met |")
    print("|---|---|---|---|")
    for name, found in results.items():
        for bar in BARS[name]:
            value, error = bar.figure(found)
            print(f"| {name} | {bar.words} | {value:.3f} +- {error:.3f} | {'yes' if bar.met(value) else 'NO'} |")


def cost_table(repeats: int) -> None:
    """Print what one verdict costs, by the number of experiments behind it.

    Growing: the verdict on each experiment of a run, every other experiment being known from the verdict before. Anew:
    the first verdict of a process, or the first after the noise was estimated anew.
    """
    print("Cost of one verdict, median in ms of processor time")
    print("| experiments before | greedy | bayes, growing | bayes, anew |")
    print("|---|---|---|---|")
    for experiments in (10, 126, 500, 1000):
        luck = np.random.default_rng(experiments).normal(-1.0, 2.0, size=experiments + repeats)
        looks = [look_of([value]) for value in luck]
        past = [PastEvidence(look, index == 0 or index % 20 == 0) for index, look in enumerate(looks)]
        histories = [tuple(past[: experiments + more]) for more in range(repeats)]
        asked = [Evidence(METRIC, (look_of([0.3]),), KNOWN, history) for history in histories]
        # Another unit makes every experiment new.
        fresh = [Evidence(METRIC, (look_of([0.3]),), Noise(1.0 + i / 1e6, math.inf), histories[0]) for i in range(20)]
        greedy, bayes = create_policy("greedy"), create_policy("bayes")
        bayes.decide(asked[0])
        cells = [
            median_ms(partial(greedy.decide, asked[0]), repeats),
            median_of(bayes.decide, asked[1:]),
            median_of(bayes.decide, fresh),
        ]
        print(f"| {experiments:,} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")


def median_of(decide: Callable[[Evidence], Verdict], asked: Sequence[Evidence]) -> float:
    """Return the median processor time of one verdict on each evidence, in ms."""
    return float(np.median([median_ms(partial(decide, evidence), 1) for evidence in asked]))


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
