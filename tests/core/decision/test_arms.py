"""Many arms and finite lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Decision, arms
from autoresearch.core.decision.race import ProportionRace, judge
from autoresearch.core.decision.race_bernoulli import Counts, log_win


def race(*, control: float, treatment: float, looks: int = 20, units: int = 1000) -> ProportionRace:
    """Return a race in which exactly the expected number converts at each look."""
    counts = Counts.of(*(np.full(looks, value) for value in (units, control * units, units, treatment * units)))
    return ProportionRace(counts, 0.2)


def test_published_test_and_roll() -> None:
    """A list of 100,000 with rates around 0.68 ± 0.03 is tested on 2,284 people per arm, as its authors print it."""
    assert arms.plan_finite_list(100_000, arms.RatePrior(0.68, 0.03)).per_arm == 2284


def test_test_and_roll_maximises_the_expected_rate() -> None:
    """Simulated lists bring most at the planned size, and about as much as the plan expects."""
    people, prior = 20_000, arms.RatePrior(0.05, 0.01)
    plan = arms.plan_finite_list(people, prior)
    rng = np.random.default_rng(5)
    rates = np.clip(rng.normal(prior.mean, prior.sd, size=(40_000, 2)), 0.0, 1.0)

    def brought(per_arm: int) -> float:
        seen = rng.binomial(per_arm, rates)
        chosen = np.where(seen[:, 1] > seen[:, 0], rates[:, 1], rates[:, 0])
        return float((per_arm * rates.sum(axis=1) + (people - 2 * per_arm) * chosen).mean()) / people

    assert brought(plan.per_arm) == pytest.approx(plan.expected_rate, abs=2e-4)
    assert brought(plan.per_arm) > max(brought(plan.per_arm // 6), brought(min(6 * plan.per_arm, people // 2)))
    assert plan.untested_rate < plan.expected_rate < plan.perfect_rate


@given(people=st.integers(2, 10**8), mean=st.floats(1e-4, 0.9999), sd=st.floats(1e-5, 1.0))
def test_a_plan_spends_the_list_exactly(people: int, mean: float, sd: float) -> None:
    """Tested and rolled people add up to the list, whatever is believed of the rates."""
    plan = arms.plan_finite_list(people, arms.RatePrior(mean, sd))
    assert plan.per_arm >= 1
    assert plan.rolled >= 0
    assert 2 * plan.per_arm + plan.rolled == people


def test_a_list_of_one_is_refused() -> None:
    """Nothing can be compared on one person."""
    with pytest.raises(ValueError, match="two people at least"):
        arms.plan_finite_list(1, arms.RatePrior(0.1, 0.01))


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 0.1), (1.0, 0.1), (0.5, 0.0), (0.5, math.inf), (math.nan, 0.1)])
def test_impossible_priors_are_refused(mean: float, sd: float) -> None:
    """A prior has a rate between 0 and 1 and a finite spread above 0."""
    with pytest.raises(ValueError, match="spread above 0"):
        arms.RatePrior(mean, sd)


def test_the_prior_is_learned_without_the_noise_of_counting() -> None:
    """From many noisy arms come their true mean and spread, not the wider spread that is seen."""
    rng = np.random.default_rng(1)
    rates = rng.normal(0.1, 0.01, 4000)
    arms_seen = [ArmTotals("a", 1000, float(x), float(x)) for x in rng.binomial(1000, rates)]
    prior = arms.learned_prior(arms_seen)
    assert prior.mean == pytest.approx(0.1, abs=5e-4)
    assert prior.sd == pytest.approx(0.01, rel=0.05)


def test_a_prior_of_equal_or_few_arms_is_refused() -> None:
    """Where rates spread no more than chance, or only two arms are known, no spread is made up."""
    with pytest.raises(ValueError, match="no more than chance"):
        arms.learned_prior([ArmTotals("a", 100, 10.0, 10.0)] * 5)
    with pytest.raises(ValueError, match="three is the least"):
        arms.learned_prior([ArmTotals("a", 100, 10.0, 10.0), ArmTotals("b", 0, 0.0, 0.0)] * 2)


def test_each_of_many_arms_has_to_reach_its_share() -> None:
    """A treatment that a test of its own would just keep is not kept as one of fifty."""
    alone = race(control=0.05, treatment=0.07, looks=3)
    assert judge(alone, 0.05, 0.2).decision is Decision.KEEP
    others = {f"t{number}": race(control=0.05, treatment=0.05, looks=3) for number in range(49)}
    assert arms.judge_arms({"good": alone, **others}, 0.05, 0.2)["good"].decision is not Decision.KEEP


def test_the_best_kept_arm_is_the_one_with_the_highest_lower_bound() -> None:
    """Among the winners the surest size counts; where nobody wins there is no best arm."""
    judged = arms.judge_arms(
        {"good": race(control=0.05, treatment=0.07), "better": race(control=0.05, treatment=0.09)}, 0.05, 0.2
    )
    assert {name: one.decision for name, one in judged.items()} == {"good": Decision.KEEP, "better": Decision.KEEP}
    assert arms.best_kept(judged) == max(judged, key=lambda name: judged[name].low)
    assert arms.best_kept(arms.judge_arms({"same": race(control=0.05, treatment=0.05)}, 0.05, 0.2)) is None


def kept_any(tests: int, treatments: int, bar: float) -> float:
    """Return how many tests of useless treatments against one control keep one at some look, as a share."""
    rng = np.random.default_rng(11)
    looks, units = 14, 400
    control = rng.binomial(units, 0.05, (1, tests, looks))
    counts = Counts.of(units, control, units, rng.binomial(units, 0.05, (treatments, tests, looks)))
    return float((log_win(counts, 0.2) >= math.log(bar)).any(axis=(0, 2)).mean())


def test_useless_arms_are_rarely_kept_together() -> None:
    """Of 2,000 tests of four useless treatments at most alpha keep any; with the bar of one more would."""
    assert 0 < kept_any(2000, 4, bar=4 / 0.05) <= 0.05 < kept_any(2000, 4, bar=1 / 0.05)


def test_no_treatments_are_no_test() -> None:
    """A family of none has no error rate to share."""
    with pytest.raises(ValueError, match="one treatment at least"):
        arms.judge_arms({}, 0.05, 0.2)
