"""The interval of the believed gain is honest."""

from __future__ import annotations

import numpy as np
import pytest

from autoresearch.core import ArmTotals, Decision, Direction, Evidence, Look, Metric, MetricKind, Noise, PastEvidence
from autoresearch.core.decision import OffersInterval
from autoresearch.core.decision.bayes import BayesPolicy
from autoresearch.core.decision.greedy import GreedyPolicy
from autoresearch.core.decision.race_policy import RacePolicy

METRIC = Metric("value", "", Direction.MAXIMIZE, noise=1.0, min_effect=0.5)
NOISE = Noise(1.0, float("inf"))


def look(control: list[float], treatment: list[float]) -> Look:
    return Look(ArmTotals.of("control", control), ArmTotals.of("treatment", treatment))


def simulated(random: np.random.Generator, candidates: int = 40) -> tuple[float, Evidence]:
    """Return the true gain of a run that `bayes` decided, and what is known at its end."""
    policy, true = BayesPolicy(), 0.0
    history = [PastEvidence(look([], list(random.normal(size=2))), True)]
    for _ in range(candidates):
        effect = random.exponential(2.0) if random.random() < 0.2 else -random.exponential(3.0)
        runs: dict[str, list[float]] = {"control": [], "treatment": []}
        looks, arms = [], ("treatment",)
        while True:
            for arm in arms:
                runs[arm].append(true + (effect if arm == "treatment" else 0.0) + random.normal())
            looks.append(look(runs["control"], runs["treatment"]))
            verdict = policy.decide(Evidence(METRIC, tuple(looks), NOISE, tuple(history)))
            arms = verdict.measure
            if verdict.decision is not Decision.CONTINUE:
                break
        kept = verdict.decision is Decision.KEEP
        history.append(PastEvidence(looks[-1], kept, 0, tuple(looks[:-1])))
        true += effect if kept else 0.0
    return true, Evidence(METRIC, (), NOISE, tuple(history))


def test_it_holds_the_true_gain_in_about_nine_runs_of_ten() -> None:
    """Of simulated runs, decided by the policy itself, 80 to 97 % have their true gain inside."""
    random, inside, runs = np.random.default_rng(1), 0, 80
    for _ in range(runs):
        true, known = simulated(random)
        interval = BayesPolicy().believed_interval(known)
        assert interval is not None
        inside += interval[0] <= true <= interval[1]
    assert 0.80 <= inside / runs <= 0.97


def test_it_lies_around_the_believed_gain_and_is_nothing_for_the_baseline() -> None:
    """The middle is `believed_gain`; while the incumbent is the baseline both ends are zero."""
    history = (PastEvidence(look([], [0.0, 0.1]), True), PastEvidence(look([], [-1.0]), False))
    alone = BayesPolicy().believed_interval(Evidence(METRIC, (), NOISE, history))
    assert alone == pytest.approx((0.0, 0.0), abs=1e-6)
    known = Evidence(METRIC, (), NOISE, (*history, PastEvidence(look([], [5.0]), True)))
    low, high = BayesPolicy().believed_interval(known) or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(BayesPolicy().believed_gain(known)) and 1.0 < high - low < 6.0


def test_policies_say_whether_they_have_one() -> None:
    """A race of values has that of `bayes`, one of people none; `greedy` believes without any."""
    history = (PastEvidence(look([], [0.0, 0.1]), True), PastEvidence(look([], [5.0]), True))
    known = Evidence(METRIC, (), NOISE, history)
    assert RacePolicy().believed_interval(known) == BayesPolicy().believed_interval(known)
    people = Metric("rate", "", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.1)
    assert RacePolicy().believed_interval(Evidence(people, (), None, history)) is None
    assert not isinstance(GreedyPolicy(), OffersInterval)
