"""Test & Roll: the sign decides, and over many lists the total is what the plan promised."""

from __future__ import annotations

import numpy as np
import pytest

from autoresearch.core import ArmTotals, Direction, Evidence, Look, Metric, MetricKind
from autoresearch.core.decision import Decision
from autoresearch.core.decision.arms import RatePrior, plan_finite_list
from autoresearch.core.decision.finite_list import FiniteListPolicy


def evidence(control: tuple[int, float], treatment: tuple[int, float], way: Direction = Direction.MAXIMIZE) -> Evidence:
    metric = Metric("reply_rate", "share", way, MetricKind.PROPORTION, min_effect=0.1)
    arms = [ArmTotals(arm, n, x, x) for arm, (n, x) in (("control", control), ("treatment", treatment))]
    return Evidence(metric, (Look(*arms),))


@pytest.mark.parametrize(
    ("control", "treatment", "way", "decision"),
    [
        ((100, 5), (100, 6), Direction.MAXIMIZE, Decision.KEEP),
        ((100, 6), (100, 5), Direction.MAXIMIZE, Decision.REVERT),
        ((100, 5), (100, 5), Direction.MAXIMIZE, Decision.REVERT),
        ((100, 6), (100, 5), Direction.MINIMIZE, Decision.KEEP),
        ((100, 0), (100, 1), Direction.MAXIMIZE, Decision.KEEP),
        ((100, 5), (0, 0), Direction.MAXIMIZE, Decision.CONTINUE),
    ],
)
def test_the_sign_decides(
    control: tuple[int, float], treatment: tuple[int, float], way: Direction, decision: Decision
) -> None:
    """More conversions keep, fewer or as many revert, and an arm without anybody decides nothing."""
    assert FiniteListPolicy().decide(evidence(control, treatment, way)).decision is decision


def test_a_choice_is_called_a_bet() -> None:
    """The reason names the rule and its missing error rate, and there is no e-value or interval to take for proof."""
    verdict = FiniteListPolicy().decide(evidence((500, 22), (500, 31)))
    assert verdict.reason == (
        "The treatment is chosen by Test & Roll: treatment 31 of 500, control 22 of 500. A bet, without an error rate."
    )
    assert verdict.e_win is None
    assert verdict.interval is None
    assert verdict.p_better is None


def test_the_total_over_many_lists_is_what_the_plan_promised() -> None:
    """20,000 lists of 5,000 people, choices by the policy: the mean rate is the formula's within four standard errors.

    The formula takes counts for normal. It promises more than one untested arm brings, and less than foresight would.
    """
    people, prior, lists = 5_000, RatePrior(0.1, 0.02), 20_000
    plan, policy = plan_finite_list(people, prior), FiniteListPolicy()
    random = np.random.default_rng(5)
    rates = np.clip(random.normal(prior.mean, prior.sd, (lists, 2)), 0.0, 1.0)
    tested = random.binomial(plan.per_arm, rates)
    looks = [evidence((plan.per_arm, int(a)), (plan.per_arm, int(b))) for a, b in tested]
    chosen = np.array([policy.decide(look).decision is Decision.KEEP for look in looks], dtype=int)
    rolled = random.binomial(plan.rolled, rates[np.arange(lists), chosen])
    totals = (tested.sum(axis=1) + rolled) / people
    error = totals.std() / np.sqrt(lists)
    assert abs(totals.mean() - plan.expected_rate) < 4 * error
    assert plan.untested_rate + 20 * error < totals.mean() < plan.perfect_rate - 4 * error
