"""What a policy does here: how often it keeps a change that changes nothing, and what it is able to see.

By seeded simulation through the policy itself. The noise is known only as well as replicates tell, so every repetition
draws the true spread anew from what they leave possible, while the policy goes on to work with the estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from autoresearch.core.adapter import ArmTotals, Metric
from autoresearch.core.decision import Decision, Evidence, Look, Noise, PastEvidence, Policy, Verdict

MOST_LOOKS = 40
"""A policy that wants more looks than this at one candidate counts as undecided, which keeps nothing."""

LARGEST_EFFECT = 64.0
"""How far `smallest_seen` looks, in standard deviations."""

_NOTHING = ArmTotals("control", 0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a policy is tried: on the first candidate after the baseline.

    Attributes:
        policy: The policy.
        metric: What is measured.
        noise: What is known of the spread; `sd` above 0.
        baseline: Value of the baseline.
        baseline_runs: How often it was measured.
        repetitions: How many candidates are simulated for one rate.
        seed: Of the simulation; the same numbers serve every effect.
    """

    policy: Policy
    metric: Metric
    noise: Noise
    baseline: float
    baseline_runs: int
    repetitions: int = 1000
    seed: int = 0


@runtime_checkable
class DecidesBriefly(Protocol):
    """A policy with a faster way to the same decision where nobody asks for its size."""

    def decide_briefly(self, evidence: Evidence) -> Verdict:
        """Return the verdict without effect and interval, supposing that no earlier look decided."""
        ...


def keep_rate(setting: Setting, effect: float) -> float:
    """Return how often the policy keeps a candidate that is better by `effect`, in the metric's unit."""
    random = np.random.default_rng(setting.seed)
    dof, runs = setting.noise.dof, setting.baseline_runs
    spreads = np.full(setting.repetitions, setting.noise.sd)
    if not math.isinf(dof):
        spreads *= np.sqrt(dof / random.chisquare(dof, setting.repetitions))
    draws = random.standard_normal((setting.repetitions, runs + 2 * MOST_LOOKS))
    shift = setting.metric.direction.sign * effect
    kept = 0
    for spread, drawn in zip(spreads, draws, strict=True):
        values = setting.baseline + spread * drawn
        control, treatment = values[runs : runs + MOST_LOOKS], values[runs + MOST_LOOKS :] + shift
        kept += _kept(setting, values[:runs].tolist(), {"control": control.tolist(), "treatment": treatment.tolist()})
    return kept / setting.repetitions


def _kept(setting: Setting, baseline: list[float], values: dict[str, list[float]]) -> bool:
    history = (PastEvidence(Look(_NOTHING, ArmTotals.of("treatment", baseline)), kept=True),)
    policy = setting.policy
    decide = policy.decide_briefly if isinstance(policy, DecidesBriefly) else policy.decide
    taken = {"control": 0, "treatment": 0}
    looks: list[Look] = []
    measure: tuple[str, ...] = ("treatment",)
    while len(looks) < MOST_LOOKS:
        for arm in measure:
            taken[arm] += 1
        control, treatment = (ArmTotals.of(arm, values[arm][:count]) for arm, count in taken.items())
        looks.append(Look(control, treatment))
        verdict = decide(Evidence(setting.metric, tuple(looks), setting.noise, history))
        if verdict.decision is not Decision.CONTINUE:
            return verdict.decision is Decision.KEEP
        measure = verdict.measure
    return False


def smallest_seen(setting: Setting, power: float = 0.8) -> float | None:
    """Return the smallest effect that the policy keeps with probability `power`, in the metric's unit, to 10 %.

    None where it would have to be larger than `LARGEST_EFFECT` standard deviations.
    """
    sd = setting.noise.sd
    low, high = sd / 16.0, sd * LARGEST_EFFECT
    if keep_rate(setting, high) < power:
        return None
    while high / low > 1.1:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if keep_rate(setting, middle) >= power else (middle, high)
    return high
