"""Are claims true? `python -m benchmarks.claims [--quick]`.

Simulated runs of mostly null candidates: each run proposes 40 candidates to a shipped policy, then baseline, incumbent
and every kept step are measured anew, and the shipped functions judge the claims as `autoresearch confirm` does. A
claim is false when it is confirmed and its true effect is not above zero. Per setting: the mean share of false claims
among the confirmed ones (0 where none is) and its standard error; how much of what is truly better was confirmed; in
how many runs the incumbent was; and over these the gain as it is, as the policy believes it, and as measured anew, raw
and shrunk.

Everything is in units of the noise and drawn from a fixed seed. With 2 under `sd` each seed has an effect of its
own that all arms share, twice as large as the noise. `blind` keeps every eighth candidate whatever it shows, so that
nearly all that is claimed is nothing.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from autoresearch.core import (
    ArmTotals,
    Decision,
    Direction,
    Evidence,
    Look,
    Metric,
    Noise,
    PastEvidence,
    Policy,
    Verdict,
)
from autoresearch.core.decision import claims
from autoresearch.core.decision.policies import create_policy

CANDIDATES = 40
NOISE = 1.0
DOF = 8.0
METRIC = Metric("value", "", Direction.MAXIMIZE, noise=NOISE)

Draw = Callable[[np.random.Generator], float]


def nothing(random: np.random.Generator) -> float:
    return 0.0


def few_small(random: np.random.Generator) -> float:
    return random.exponential(1.0) if random.random() < 0.1 else 0.0


def few_large(random: np.random.Generator) -> float:
    return random.exponential(5.0) if random.random() < 0.1 else 0.0


def harmful(random: np.random.Generator) -> float:
    return random.exponential(3.0) if random.random() < 0.1 else -random.exponential(0.5)


LANDSCAPES: dict[str, Draw] = {
    "none at all": nothing,
    "10 % exp(1), else 0": few_small,
    "10 % exp(5), else 0": few_large,
    "10 % exp(3), else -exp(.5)": harmful,
}


@dataclass
class Searched:
    """A simulated run: the true value of each arm, the baseline first, and what the search believed of each step."""

    true: list[float] = field(default_factory=lambda: [0.0])
    effects: list[float] = field(default_factory=list)
    believed: float = 0.0


def totals(arm: str, values: Sequence[float]) -> ArmTotals:
    return ArmTotals.of(arm, list(values))


def search(policy: Policy, draw: Draw, random: np.random.Generator) -> Searched:
    """Let a policy judge candidates, as the loop would."""
    empty = totals("control", [])
    noise = Noise(NOISE, DOF)
    history = [PastEvidence(Look(empty, totals("treatment", random.normal(size=3).tolist())), kept=True)]
    run = Searched()
    for _ in range(CANDIDATES):
        true = run.true[-1] + draw(random)
        values: dict[str, list[float]] = {"control": [], "treatment": []}
        looks: list[Look] = []
        verdict = Verdict(Decision.CONTINUE, "")
        while verdict.decision is Decision.CONTINUE:
            for arm in verdict.measure:
                values[arm].append((true if arm == "treatment" else run.true[-1]) + random.normal())
            looks.append(Look(totals("control", values["control"]), totals("treatment", values["treatment"])))
            verdict = policy.decide(Evidence(METRIC, tuple(looks), noise, tuple(history)))
        kept = verdict.decision is Decision.KEEP
        history.append(PastEvidence(looks[-1], kept))
        if kept:
            run.true.append(true)
            run.effects.append(verdict.effect or 0.0)
    run.believed = policy.believed_gain(Evidence(METRIC, (), noise, tuple(history)))
    return run


def blind(draw: Draw, random: np.random.Generator) -> Searched:
    """Keep every eighth candidate whatever it shows."""
    run = Searched()
    for _ in range(CANDIDATES // 8):
        run.true.append(run.true[-1] + draw(random))
        run.effects.append(float(random.exponential(2.0)))
    run.believed = sum(run.effects)
    return run


@dataclass(frozen=True)
class Told:
    """What was claimed of one run: counts, and the gain where it is confirmed."""

    confirmed: int
    false: int
    better: int
    found: int
    true_gain: float
    believed: float
    raw: float | None
    shrunk: float | None

    @property
    def share(self) -> float:
        return self.false / self.confirmed if self.confirmed else 0.0


def tell(run: Searched, seeds: int, seed_sd: float, random: np.random.Generator) -> Told | None:
    """Measure every arm anew and judge the claims; None where nothing was kept."""
    arms = len(run.true)
    if arms == 1:
        return None
    values = np.array(run.true)[:, None] + random.normal(size=(arms, seeds)) + seed_sd * random.normal(size=seeds)
    panel = claims.Panel(values)
    pairs = [(arms - 1, 0)] + ([(arm, arm - 1) for arm in range(1, arms)] if arms > 2 else [])
    believed = [run.believed, *run.effects][: len(pairs)]
    shares = claims.shares([], [True] + [False] * (len(pairs) - 1), max(claims.DECLARED_CLAIMS, len(pairs) - 1))
    compared = [panel.compare(later, earlier) for later, earlier in pairs]
    looked_for = [claims.alternative(effect, 0.0, NOISE) for effect in believed]
    e_values = [math.exp(min(700.0, claims.log_e_value(*pair))) for pair in zip(compared, looked_for, strict=True)]
    confirmed = [ruling.confirmed for ruling in claims.rule(e_values, shares)]
    true = [run.true[later] - run.true[earlier] for later, earlier in pairs]
    raw = compared[0].difference
    return Told(
        confirmed=sum(confirmed),
        false=sum(told and effect <= 0.0 for told, effect in zip(confirmed, true, strict=True)),
        better=sum(effect > 0.0 for effect in true),
        found=sum(told and effect > 0.0 for told, effect in zip(confirmed, true, strict=True)),
        true_gain=true[0],
        believed=run.believed,
        raw=raw if confirmed[0] else None,
        shrunk=claims.shrink([raw], compared[0].error).effects[0] if confirmed[0] else None,
    )


def mean(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):6.2f}" if values else "     -"


def line(name: str, rule: str, seeds: int, seed_sd: float, runs: int, random: np.random.Generator) -> float:
    """Simulate one setting, print its line, return the mean share of false claims."""
    draw = LANDSCAPES[name]
    told = []
    for _ in range(runs):
        run = blind(draw, random) if rule == "blind" else search(create_policy(rule), draw, random)
        told.append(tell(run, seeds, seed_sd, random))
    done = [item for item in told if item is not None]
    shares = [item.share for item in done] + [0.0] * (len(told) - len(done))
    error = statistics.stdev(shares) / math.sqrt(len(shares))
    better = sum(item.better for item in done)
    sure = [item for item in done if item.raw is not None]
    found = f"{sum(item.found for item in done) / better:4.0%}" if better else "   -"
    print(
        f"{name:27} {rule:7} {seeds:5} {seed_sd:5g}  {statistics.fmean(shares):6.2%} ± {error:5.2%}  {found:>8}  "
        f"{len(sure) / len(told):8.0%}  {mean([item.true_gain for item in sure])} "
        f"{mean([item.believed for item in sure])} {mean([item.raw for item in sure if item.raw is not None])} "
        f"{mean([item.shrunk for item in sure if item.shrunk is not None])}",
        flush=True,
    )
    return statistics.fmean(shares)


def main() -> None:
    """Print the table; leave with 1 where a mean share of false claims is above a tenth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the runs")
    runs = 250 if parser.parse_args().quick else 1000
    random = np.random.default_rng(20_000)
    print(f"{runs} runs of {CANDIDATES} candidates a line; gains are those of the runs whose incumbent is confirmed")
    print(
        f"{'effects of candidates':27} {'keeps':7} {'seeds':>5} {'sd':>5}  {'false claims':>14}  {'of true':>8}  "
        f"{'of runs':>8}  {'true':>6} {'belief':>6} {'raw':>6} {'shrunk':>6}"
    )
    worst = max(
        line(name, rule, seeds, seed_sd, runs, random)
        for name in LANDSCAPES
        for rule, seeds, seed_sd in (("blind", 5, 0.0), ("greedy", 5, 0.0), ("bayes", 5, 0.0), ("bayes", 10, 2.0))
    )
    print(f"Worst mean share of false claims: {worst:.2%}, of {claims.FALSE_DISCOVERY_RATE:.0%} promised")
    if worst > claims.FALSE_DISCOVERY_RATE:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
