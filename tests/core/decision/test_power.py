"""What a policy does with a change that changes nothing, and what it sees."""

from __future__ import annotations

import math

import pytest

from autoresearch.core.adapter import Direction, Metric
from autoresearch.core.decision import Decision, Evidence, Noise, Verdict
from autoresearch.core.decision.policies import create_policy
from autoresearch.core.decision.power import MOST_LOOKS, Setting, keep_rate, smallest_seen

METRIC = Metric("score", "", Direction.MAXIMIZE, min_effect=1.0)


def setting(policy: object, repetitions: int = 200, dof: float = math.inf) -> Setting:
    return Setting(policy, METRIC, Noise(1.0, dof), 100.0, 3, repetitions)  # type: ignore[arg-type]


class AsksForControls:
    """Asks for the incumbent once, then both arms once, then keeps; notes what it got."""

    name = "asking"
    needs_noise = False

    def __init__(self) -> None:
        self.parameters: dict[str, float] = {}
        self.seen: list[tuple[int, int]] = []

    def decide(self, evidence: Evidence) -> Verdict:
        look = evidence.looks[-1]
        self.seen.append((look.control.n, look.treatment.n))
        measure = [("control",), ("control", "treatment"), ()][len(evidence.looks) - 1]
        return Verdict(Decision.CONTINUE if measure else Decision.KEEP, "", measure=measure)

    def believed_gain(self, evidence: Evidence) -> float:
        return 0.0


class NeverDecides(AsksForControls):
    """Looks for ever."""

    def decide(self, evidence: Evidence) -> Verdict:
        return Verdict(Decision.CONTINUE, "")


def test_the_arms_that_a_policy_asks_for_are_measured() -> None:
    """The first look is at the candidate, every further one at what the verdict before it named."""
    policy = AsksForControls()
    assert keep_rate(setting(policy, 1), 0.0) == 1.0
    assert policy.seen == [(0, 1), (1, 1), (2, 2)]


def test_a_policy_that_never_decides_keeps_nothing() -> None:
    """After so many looks a candidate counts as undecided."""
    assert MOST_LOOKS < 100
    assert keep_rate(setting(NeverDecides(), 2), 5.0) == 0.0


def test_greedy_keeps_a_harmless_change_about_every_second_time() -> None:
    """Against the mean of three runs, one run of the same artifact is higher half of the time."""
    assert keep_rate(setting(create_policy("greedy"), 1000), 0.0) == pytest.approx(0.5, abs=0.06)


def test_a_race_keeps_a_harmless_change_within_alpha() -> None:
    """Fresh runs against fresh runs: at most 5 % of no-ops are kept, give or take the simulation's error."""
    assert keep_rate(setting(create_policy("race"), 200, dof=8.0), 0.0) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_what_is_seen_is_kept_at_that_power() -> None:
    """The smallest effect seen is kept in eight cases of ten, and one half as large in fewer."""
    for name in ("bayes", "race"):
        trial = setting(create_policy(name), 150, dof=8.0)
        seen = smallest_seen(trial)
        assert seen is not None
        assert keep_rate(trial, seen) >= 0.8 > keep_rate(trial, seen / 2)
