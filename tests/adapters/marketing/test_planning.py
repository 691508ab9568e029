"""What traffic can afford."""

from __future__ import annotations

import json

import pytest

from autoresearch.adapters.marketing.planning import Plan, Setting, describe, hopeless, hopelessness_of, make_plan
from autoresearch.core import UsageError


@pytest.fixture(scope="module")
def usual() -> Plan:
    """Ten thousand visitors a week, one in twenty converts, a fifth more is of interest."""
    return make_plan(Setting(10_000, 0.05, 0.2))


def test_fixed_samples_are_the_published_ones(usual: Plan) -> None:
    """5 % to 6 % takes 7,663 per arm, or 8,158 with the pooled variance, which is two whole weeks here."""
    assert (usual.fixed_per_arm, usual.fixed_per_arm_pooled) == (7663, 8158)
    assert usual.fixed_days == 14


def test_a_plan_says_the_same_of_its_lift_twice(usual: Plan) -> None:
    """The rung of the plan's own lift has the plan's own figures: both are made from as many tests."""
    (rung,) = [rung for rung in usual.ladder if rung.lift == usual.setting.lift]
    assert (rung.found, rung.days, rung.fixed_days) == (usual.good.kept, usual.good.days, usual.fixed_days)


def test_the_race_is_that_of_the_design() -> None:
    """28 looks of 300 per arm at 5 %: +20 % is kept in 67 % after 4,915 per arm, no effect ends after 4,130."""
    plan = make_plan(Setting(4200, 0.05, 0.2, max_weeks=4, holdout=0.0, whole_weeks=False))
    assert plan.good.kept == pytest.approx(0.67, abs=0.035)
    assert plan.good.units == pytest.approx(4915, rel=0.05)
    assert plan.nothing.units == pytest.approx(4130, rel=0.05)
    assert plan.nothing.kept == pytest.approx(0.025, abs=0.012)


def test_shares_sum_to_one_and_errors_hold(usual: Plan) -> None:
    """Every test ends in one of three ways, and what does nothing is kept with a chance of at most alpha."""
    for race in (usual.good, usual.nothing):
        assert race.kept + race.reverted + race.undecided == pytest.approx(1.0)
    assert usual.nothing.kept <= 0.05
    assert usual.good.reverted <= 0.2


def test_tests_a_year_are_days_divided(usual: Plan) -> None:
    """A year over the mean days of one good idea in five; as many finds as are good and found."""
    days = 0.2 * usual.good.days + 0.8 * usual.nothing.days
    assert usual.tests_a_year == pytest.approx(365 / days)
    assert usual.finds_a_year == pytest.approx(usual.tests_a_year * 0.2 * usual.good.kept)


def test_whole_weeks_and_maturity_lengthen_tests() -> None:
    """Waiting for the week's end and for late conversions takes days; the fixed test waits as well."""
    free = make_plan(Setting(10_000, 0.05, 0.2, whole_weeks=False))
    weeks = make_plan(Setting(10_000, 0.05, 0.2))
    late = make_plan(Setting(10_000, 0.05, 0.2, maturity_days=3))
    assert free.good.days < weeks.good.days == pytest.approx(late.good.days - 3)
    assert free.fixed_days <= weeks.fixed_days == late.fixed_days - 3


def test_thirty_six_thousand_tests_take_other_traffic(usual: Plan) -> None:
    """At a hundred tests a day the plan's own traffic finds giants only; more traffic in proportion finds the same."""
    assert usual.pace_weekly > 100 * 10_000
    tests_a_week = 36_500 * 7 / 365
    assert usual.pace_weekly * 0.95 / 2 / tests_a_week == pytest.approx(0.82 * 7663, rel=0.15)  # units per arm
    assert usual.pace_lift is not None
    assert usual.pace_lift > 1.0
    enough = make_plan(Setting(round(usual.pace_weekly), 0.05, 0.2))
    assert enough.pace_lift == pytest.approx(0.2, rel=0.03)


def test_a_hopeless_plan_says_what_would_help() -> None:
    """500 visitors a week cannot show a tenth more on 2 %; the refusal names size, chance and ways out."""
    plan = make_plan(Setting(500, 0.02, 0.1))
    reason = hopeless(plan)
    assert reason is not None
    assert "500 units a week" in reason
    assert "bolder changes" in reason
    assert "Hopeless:" in describe(plan)
    assert 0.1 in plan.not_testable
    assert 1.0 not in plan.not_testable


def test_a_setting_is_hopeless_when_its_plan_is(usual: Plan) -> None:
    """Asking for the refusal alone gives what the plan says."""
    assert hopelessness_of(usual.setting) is None
    bad = Setting(500, 0.02, 0.1)
    assert hopelessness_of(bad) == hopeless(make_plan(bad)) is not None


def test_a_good_plan_is_not_hopeless(usual: Plan) -> None:
    """A plan that finds what it looks for goes through."""
    assert hopeless(usual) is None
    assert "Hopeless" not in describe(usual)
    assert usual.smallest_found is not None
    assert 0.05 < usual.smallest_found < 0.2


def test_almost_no_traffic_is_planned_too() -> None:
    """One visitor a week finds nothing at all, and the plan says so instead of failing."""
    plan = make_plan(Setting(1, 0.3, 0.5, max_weeks=1))
    assert plan.smallest_found is None
    assert plan.pace_lift is None
    assert "nothing below tenfold" in describe(plan)
    assert "Not even a tenfold rate" in str(hopeless(plan))


def test_surfaces_share_the_traffic() -> None:
    """Two tests at once have half the units each, and together no more than twice the tests a year."""
    one, two = make_plan(Setting(50_000, 0.05, 0.2)), make_plan(Setting(50_000, 0.05, 0.2, surfaces=2))
    assert two.setting.daily_per_arm == pytest.approx(one.setting.daily_per_arm / 2)
    assert one.tests_a_year < two.tests_a_year <= 2 * one.tests_a_year


def test_the_same_plan_twice_is_the_same(usual: Plan) -> None:
    """Simulation is seeded, and the plan goes through JSON."""
    assert make_plan(Setting(10_000, 0.05, 0.2)) == usual
    assert json.loads(json.dumps(usual.as_json()))["fixed_per_arm"] == 7663


@pytest.mark.parametrize(
    "wrong",
    [
        {"baseline": 0.0},
        {"baseline": 5.0},
        {"lift": 0.0},
        {"lift": -0.1},
        {"lift": 30.0},
        {"weekly": 0},
        {"max_weeks": 0},
        {"surfaces": 0},
        {"holdout": 1.0},
        {"maturity_days": -1.0},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    """Rates, lifts and counts out of their range are refused with what is meant."""
    with pytest.raises(UsageError):
        Setting(**{"weekly": 1000, "baseline": 0.05, "lift": 0.1, **wrong})  # type: ignore[arg-type]
