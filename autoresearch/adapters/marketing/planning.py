"""What the traffic can afford, said before anything is spent: days per test, tests a year, and what cannot be tested.

The race's figures are simulated through the shipped e-processes (`core.decision.race_bernoulli`) with one look a day,
so they carry a standard error of about one percentage point; the fixed-sample figure beside them is a formula. Nobody
knows beforehand how many ideas are any good. Tests a year suppose that one in five is better by exactly the smallest
lift of interest and that four change nothing; what is better by more ends sooner.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.marketing.fixed import NullVariance, sample_size
from autoresearch.core import ArmTotals, MetricKind, UsageError
from autoresearch.core.decision import race_bernoulli
from autoresearch.core.decision.arms import RatePrior, learned_prior, plan_finite_list
from autoresearch.core.decision.race import check_rates, first_crossing
from autoresearch.core.decision.race_bernoulli import Counts

if TYPE_CHECKING:
    from pathlib import Path

    from autoresearch.adapters.marketing.campaign import Campaign

ORIGINAL_PACE = 36_500
"""Tests a year at one hundred a day, the pace that the original loop has on a machine."""
GOOD_SHARE = 0.2
"""Share of ideas that tests a year are reckoned with as good."""
LADDER = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
"""Lifts that a plan goes through."""
LEAST_POWER = 0.5
"""A plan is hopeless when even the smallest lift of interest is found less often than this."""
REPETITIONS = 2000

_YEAR_DAYS = 365.0
_UNIT_LOOKS = 60
_UNIT_SPAN = 6.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What a plan is made for.

    Attributes:
        weekly: Units (visitors, recipients) a week, over all surfaces, each counted once.
        baseline: Conversion rate today.
        lift: Smallest relative improvement worth having.
        alpha: Chance of keeping a change that is no improvement, at most.
        beta: Chance of reverting one of that lift, at most; 0 never gives up early.
        max_weeks: Weeks after which a test ends undecided.
        surfaces: Tests at once, each on a share of the units of its own.
        arms: Candidates in one test, all against one control; each is then judged at `alpha` divided by their number.
        reach: Share of units that meet what a test changes: where surfaces differ, of the one that fewest meet.
        holdout: Share of units that always gets the original and serves no test.
        whole_weeks: Whether tests end with whole weeks.
        maturity_days: Days that a unit is given to convert.
    """

    weekly: int
    baseline: float
    lift: float
    alpha: float = 0.05
    beta: float = 0.2
    max_weeks: int = 8
    surfaces: int = 1
    holdout: float = 0.05
    whole_weeks: bool = True
    maturity_days: float = 0.0
    arms: int = 1
    reach: float = 1.0

    def __post_init__(self) -> None:
        check_rates(self.alpha, self.beta)
        if not (0.0 < self.baseline < 1.0 and self.lift > 0.0 and self.baseline * (1.0 + self.lift) < 1.0):
            raise UsageError(
                f"A baseline of {self.baseline:g} raised by {self.lift:+.3g} is no rate between 0 and 1.\n"
                "Give the rate as a share (0.05 for 5 %) and the lift relative to it (0.1 for a tenth more)."
            )
        if min(self.weekly, self.max_weeks, self.surfaces, self.arms) < 1:
            raise UsageError(
                "A plan needs units a week, weeks, surfaces and arms of 1 or more.\nCorrect the one that is less."
            )
        if not (0.0 <= self.holdout < 1.0 and self.maturity_days >= 0.0 and 0.0 < self.reach <= 1.0):
            raise UsageError(
                "The holdout is a share from 0 to below 1, reach one above 0, and maturity is 0 days or more.\n"
                "Correct them."
            )

    @property
    def daily_per_arm(self) -> float:
        """Units in each arm of one test per day."""
        return self.weekly / 7.0 * (1.0 - self.holdout) * self.reach / self.surfaces / (self.arms + 1.0)

    @property
    def alpha_per_arm(self) -> float:
        """Chance of keeping one treatment that is no improvement, so that all of a test together have `alpha`."""
        return self.alpha / self.arms


@dataclass(frozen=True, slots=True)
class Race:
    """How the race ends, by simulation.

    Attributes:
        kept: Share of tests that keep the treatment.
        reverted: Share that reverts it.
        undecided: Share that comes to the end of its weeks.
        days: Mean days of a test, waiting for its last units included.
        units: Mean units in each arm.
    """

    kept: float
    reverted: float
    undecided: float
    days: float
    units: float


@dataclass(frozen=True, slots=True)
class Rung:
    """What it takes to find one lift.

    Attributes:
        lift: The lift.
        fixed_per_arm: Units per arm of a fixed-sample test.
        fixed_days: Days that these take here; the end is fixed beforehand and looked at once.
        found: Chance that the race finds it within the weeks of the plan.
        days: Mean days of the race at this lift.
    """

    lift: float
    fixed_per_arm: int
    fixed_days: float
    found: float
    days: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What the traffic can afford.

    Attributes:
        setting: What was asked.
        fixed_per_arm: Units per arm of a two-sided z test at 5 % with power 80 %, variance under "no effect" from the
            control.
        fixed_per_arm_pooled: The same with the pooled variance, as other calculators have it.
        fixed_days: Days of that test.
        good: The race where the treatment is better by the smallest lift of interest.
        nothing: The race where it changes nothing.
        tests_a_year: Candidates judged a year: over all surfaces, one test after the other on each, and all its arms.
        finds_a_year: Improvements among them that are found.
        smallest_found: Smallest lift that the race finds with a chance of 80 % within the weeks; None beyond tenfold.
        ladder: What it takes to find other lifts.
        pace_weekly: Units a week that 36,500 tests a year would take.
        pace_lift: Smallest lift that these units could find at that pace; None beyond tenfold.
    """

    setting: Setting
    fixed_per_arm: int
    fixed_per_arm_pooled: int
    fixed_days: float
    good: Race
    nothing: Race
    tests_a_year: float
    finds_a_year: float
    smallest_found: float | None
    ladder: tuple[Rung, ...]
    pace_weekly: float
    pace_lift: float | None

    @property
    def not_testable(self) -> tuple[float, ...]:
        """Lifts of the ladder that are found less than half the time."""
        return tuple(rung.lift for rung in self.ladder if rung.found < LEAST_POWER)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {**asdict(self), "not_testable": list(self.not_testable), "hopeless": hopeless(self)}


def setting_of(
    campaign: Campaign,
    weekly: int | None = None,
    baseline: float | None = None,
    lift: float | None = None,
    max_weeks: int | None = None,
    surfaces: int | None = None,
) -> Setting:
    """Return what to plan for in a campaign; what is given here counts before what its `campaign.toml` says.

    Raises:
        UsageError: If nobody says how much traffic there is or how much of it converts, or the metric is no rate.
    """
    traffic, metric = campaign.traffic, campaign.metric
    weekly = traffic.weekly if weekly is None else weekly
    baseline = traffic.baseline if baseline is None else baseline
    if metric.kind is not MetricKind.PROPORTION:
        raise UsageError(
            f"{metric.name} is a mean, and plans are made for rates.\nPlan for the share of people who buy at all."
        )
    if weekly is None or baseline is None:
        raise UsageError(
            f"{campaign.path} does not say how much traffic there is and how much of it converts.\n"
            "Set weekly and baseline in its table [traffic], or give --weekly and --baseline."
        )
    return Setting(
        weekly=weekly,
        baseline=baseline,
        lift=metric.min_effect if lift is None else lift,
        max_weeks=traffic.max_weeks if max_weeks is None else max_weeks,
        surfaces=(len(campaign.surfaces) or 1) if surfaces is None else surfaces,
        holdout=traffic.holdout,
        whole_weeks=traffic.whole_weeks,
        maturity_days=traffic.maturity_days,
        arms=traffic.arms,
        reach=min((one.reach for one in campaign.surfaces), default=1.0),
    )


def make_plan(setting: Setting) -> Plan:
    """Return what the traffic of a setting can afford. Takes a second or two, all of it simulation."""
    good, nothing = _race(setting, setting.lift), _race(setting, 0.0)
    mean_days = GOOD_SHARE * good.days + (1.0 - GOOD_SHARE) * nothing.days
    test_days = mean_days if setting.arms == 1 else _days_of_all_arms(setting)
    tests = setting.surfaces * setting.arms * _YEAR_DAYS / test_days
    per_arm = sample_size(setting.baseline, setting.lift)
    free = _units_per_test(setting.baseline, setting.lift, setting.alpha_per_arm, setting.beta)
    pace_units = ORIGINAL_PACE * 7.0 / _YEAR_DAYS * (1.0 + 1.0 / setting.arms) / (1.0 - setting.holdout) / setting.reach
    return Plan(
        setting=setting,
        fixed_per_arm=per_arm,
        fixed_per_arm_pooled=sample_size(setting.baseline, setting.lift, variance=NullVariance.POOLED),
        fixed_days=_in_weeks(setting, per_arm / setting.daily_per_arm),
        good=good,
        nothing=nothing,
        tests_a_year=tests,
        finds_a_year=tests * GOOD_SHARE * good.kept,
        smallest_found=_smallest(setting),
        ladder=tuple(_rung(setting, lift) for lift in LADDER if setting.baseline * (1.0 + lift) < 1.0),
        pace_weekly=free * pace_units,
        pace_lift=_pace_lift(setting, setting.weekly / pace_units / free),
    )


def hopeless(plan: Plan) -> str | None:
    """Return why tests here could not show what they are run for, and what would help; None where they could."""
    if plan.good.kept >= LEAST_POWER:
        return None
    setting = plan.setting
    reach = (
        f"The smallest lift that they would find four times in five is {plan.smallest_found:+.0%}."
        if plan.smallest_found is not None
        else "Not even a tenfold rate would be found four times in five."
    )
    return (
        f"With {setting.weekly:,} units a week a test of {setting.max_weeks} weeks finds an improvement of "
        f"{100 * setting.lift:+.3g}% on {100 * setting.baseline:.3g}% in {plan.good.kept:.0%} of cases; the others "
        f"end without an answer or give up. {reach}\n"
        "Test bolder changes, on a goal that more people reach, over more weeks, or on more traffic: a fixed-sample "
        f"test would take {plan.fixed_per_arm:,} units per arm."
    )


def hopelessness_of(setting: Setting) -> str | None:
    """Return what `hopeless` says of a setting, and make the whole plan only where it has something to say."""
    if _race(setting, setting.lift).kept >= LEAST_POWER:
        return None
    return hopeless(make_plan(setting))


def _in_weeks(setting: Setting, days: float) -> float:
    """Return days rounded up to whole days or weeks, and the wait for the last units."""
    whole = math.ceil(days / 7.0) * 7.0 if setting.whole_weeks else math.ceil(days)
    return whole + setting.maturity_days


def _rung(setting: Setting, lift: float) -> Rung:
    per_arm = sample_size(setting.baseline, lift)
    race = _race(_with_lift(setting, lift), lift)
    return Rung(lift, per_arm, _in_weeks(setting, per_arm / setting.daily_per_arm), race.kept, race.days)


def _with_lift(setting: Setting, lift: float) -> Setting:
    return Setting(**{**asdict(setting), "lift": lift})


def _smallest(setting: Setting) -> float | None:
    """Return the smallest lift that is found with a chance of 80 % when the race looks for it, to 5 %."""

    def found(lift: float) -> bool:
        # Losing is left out: what is better by exactly what is looked for is given up with a chance of beta by design.
        sought = Setting(**{**asdict(setting), "lift": lift, "beta": 0.0})
        return _race(sought, lift, 1000).kept >= 0.8

    low, high = 1e-3, min(9.0, (1.0 - 1e-6) / setting.baseline - 1.0)
    if not found(high):
        return None
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def _days_of_all_arms(setting: Setting) -> float:
    """Return mean days of a test with all its arms: until one is kept, or the last of them is decided.

    Arms are drawn as if each had a control of its own: with one that they share their ends come closer together, so
    this is, a little, the longer figure.
    """
    looks = 7 * setting.max_weeks
    rng = np.random.default_rng(20260302)
    until_kept = np.full(REPETITIONS, looks)
    until_last = np.zeros(REPETITIONS, np.int64)
    for arm in range(setting.arms):
        good = _simulated(setting, setting.lift, REPETITIONS)
        nothing = _simulated(setting, 0.0, REPETITIONS)
        # As many good ones as meant, in other repetitions for each arm; rolled, so that no two arms share a repetition.
        is_good = rng.permutation(REPETITIONS) < GOOD_SHARE * REPETITIONS
        won, lost = (np.roll(np.where(is_good, one, other), arm * 7) for one, other in zip(good, nothing, strict=True))
        until_kept = np.minimum(until_kept, np.where(won <= lost, won, looks))
        until_last = np.maximum(until_last, np.minimum(won, lost))
    return _mean_days(setting, np.minimum(until_kept, until_last))


def _simulated(setting: Setting, true_lift: float, repetitions: int) -> tuple[Whole, Whole]:
    """Return the looks at which tests in this setting win and lose."""
    key = (setting.baseline, setting.lift, true_lift, setting.alpha_per_arm, setting.beta)
    return _endings(*key, setting.daily_per_arm, 7 * setting.max_weeks, repetitions)


def _mean_days(setting: Setting, ended: Whole) -> float:
    """Return mean days of tests that end at these looks, the wait for their last units included."""
    days = np.minimum(ended, 7 * setting.max_weeks - 1) + 1.0
    days = np.ceil(days / 7.0) * 7.0 if setting.whole_weeks else days
    return float(days.mean()) + setting.maturity_days


def _race(setting: Setting, true_lift: float, repetitions: int = REPETITIONS) -> Race:
    """Simulate tests in this setting with a true lift."""
    won, lost = _simulated(setting, true_lift, repetitions)
    looks = 7 * setting.max_weeks
    days = _mean_days(setting, np.minimum(won, lost))
    kept, reverted = (won <= lost) & (won < looks), lost < won
    return Race(
        kept=float(kept.mean()),
        reverted=float(reverted.mean()),
        undecided=float((~kept & ~reverted).mean()),
        days=days,
        units=(days - setting.maturity_days) * setting.daily_per_arm,
    )


Whole = NDArray[np.int64]


@lru_cache(maxsize=256)
def _endings(
    baseline: float,
    lift: float,
    true_lift: float,
    alpha: float,
    beta: float,
    per_look: float,
    looks: int,
    repetitions: int,
) -> tuple[Whole, Whole]:
    """Return the looks at which simulated races win and lose, `looks` where they never do."""
    rng = np.random.default_rng(20260301)
    edges = np.floor(np.arange(looks + 1) * per_look)
    n = np.broadcast_to(np.diff(edges), (repetitions, looks)).astype(np.int64)
    counts = Counts.of(n, rng.binomial(n, baseline), n, rng.binomial(n, min(baseline * (1.0 + true_lift), 1.0)))
    won = first_crossing(race_bernoulli.log_win(counts, lift), alpha)
    if beta == 0.0:
        return won, np.full_like(won, looks)
    return won, first_crossing(race_bernoulli.log_lose(counts, lift), beta)


def _units_per_test(baseline: float, lift: float, alpha: float, beta: float) -> float:
    """Return mean units per arm of a test that may go on as long as it needs and is looked at often."""
    per_look = sample_size(baseline, lift) * _UNIT_SPAN / _UNIT_LOOKS
    means = []
    for true_lift in (lift, 0.0):
        won, lost = _endings(baseline, lift, true_lift, alpha, beta, per_look, _UNIT_LOOKS, REPETITIONS)
        means.append(float((np.minimum(np.minimum(won, lost), _UNIT_LOOKS - 1) + 1.0).mean()) * per_look)
    return GOOD_SHARE * means[0] + (1.0 - GOOD_SHARE) * means[1]


def _pace_lift(setting: Setting, share: float) -> float | None:
    """Return the lift whose fixed sample is `share` times that of the plan's: the race's units go with it."""
    wanted = share * sample_size(setting.baseline, setting.lift)
    low, high = 1e-4, min(9.0, (1.0 - 1e-6) / setting.baseline - 1.0)
    if sample_size(setting.baseline, high) > wanted:
        return None
    while high / low > 1.01:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if sample_size(setting.baseline, middle) <= wanted else (middle, high)
    return high


def describe(plan: Plan) -> str:
    """Return the plan in words and tables for a terminal or a page."""
    setting, good, nothing = plan.setting, plan.good, plan.nothing
    end = "whole weeks" if setting.whole_weeks else "any day"
    lines = [
        f"{setting.weekly:,} units a week, {100 * setting.baseline:.3g}% convert, smallest lift of interest "
        f"{100 * setting.lift:+.3g}%",
        f"{setting.surfaces} test{'s' * (setting.surfaces > 1)} at once{_sharing(setting)}, "
        f"{setting.holdout:.0%} held out, {setting.max_weeks} weeks at most, ending with {end}",
        "",
        "One test                      race, mean    fixed sample",
        f"  days, change is better      {good.days:10.0f}    {plan.fixed_days:12,.0f}",
        f"  days, change does nothing   {nothing.days:10.0f}    {plan.fixed_days:12,.0f}",
        f"  units per arm               {good.units:10,.0f}    {plan.fixed_per_arm:12,}  (pooled variance: "
        f"{plan.fixed_per_arm_pooled:,})",
        f"  finds it                    {good.kept:10.0%}    {0.8:12.0%}  (if it may last that long)",
        f"  keeps what does nothing     {nothing.kept:10.1%}    {0.025:12.1%}",
        f"  ends undecided              {good.undecided:10.0%}",
        "",
        f"{'Tests' if setting.arms == 1 else 'Candidates'} a year: {plan.tests_a_year:.0f}. "
        f"If one idea in five is that good, {plan.finds_a_year:.1f} are found.",
        _testable(plan),
        f"{ORIGINAL_PACE:,} tests a year would take {plan.pace_weekly:,.0f} units a week; with yours, only lifts of "
        + (f"{plan.pace_lift:+.0%} or more." if plan.pace_lift is not None else "more than tenfold."),
        "",
        "    lift    units per arm    days fixed    race finds it    race days",
        *(
            f"{rung.lift:+8.0%}    {rung.fixed_per_arm:13,}    {rung.fixed_days:10,.0f}    {rung.found:13.0%}    "
            f"{rung.days:9.0f}"
            for rung in plan.ladder
        ),
        "",
        f"The race by simulation, {REPETITIONS:,} tests a figure. Fixed sample: two-sided 5 %, power 80 %, variance",
        "under no effect from the control, looked at once.",
    ]
    reason = hopeless(plan)
    return "\n".join(lines if reason is None else [*lines, "", f"Hopeless: {reason}"]) + "\n"


def list_prior(folder: Path, baseline: float | None, spread: float | None) -> tuple[RatePrior, str]:
    """Return what is known of variants' rates, and where from: the campaign's finished tests, or what is stated.

    Args:
        folder: The campaign folder.
        baseline: Stated usual rate; None: that of the tests.
        spread: Stated standard deviation of variants' true rates; None: that of the tests.

    Raises:
        UsageError: If neither says it.
    """
    from autoresearch.adapters.marketing.resonance import tests_of

    try:
        if baseline is not None and spread is not None:
            return RatePrior(baseline, spread), "what is stated"
        past = [arm for test in tests_of(folder, archive=False) for arm in test.arms]
        learned = learned_prior([ArmTotals("arm", arm.n, arm.conversions, arm.conversions) for arm in past])
        prior = RatePrior(learned.mean if baseline is None else baseline, learned.sd if spread is None else spread)
    except ValueError as error:
        raise UsageError(
            f"{error}\nState both: [traffic] baseline and [email] spread in campaign.toml, or with the command "
            "autoresearch marketing plan --list 100000 --baseline 0.05 --spread 0.005"
        ) from error
    tests = f"{len(past):,} arms of earlier tests"
    stated = "the stated baseline" if baseline is not None else "the stated spread" if spread is not None else ""
    return prior, f"{stated} and {tests}" if stated else tests


def _sharing(setting: Setting) -> str:
    """Return what makes a test slower than one of two arms that everybody meets."""
    arms = f" of {setting.arms} candidates each" if setting.arms > 1 else ""
    return arms + (f", met by {setting.reach:.0%} of the units" if setting.reach < 1.0 else "")


def describe_list(people: int, prior: RatePrior, learned: str = "") -> str:
    """Return how to spend a list that ends, in words: whom to test on, and what that is expected to bring.

    Args:
        people: Length of the list.
        prior: What rates of variants are usually like.
        learned: Where that comes from; empty where it goes without saying.

    Raises:
        ValueError: If the list is too short to compare anything.
    """
    made = plan_finite_list(people, prior)
    gain, best = made.expected_rate - made.untested_rate, made.perfect_rate - made.untested_rate
    return (
        f"A list of {people:,}, rates of variants around {prior.mean:.3%} with a spread of {prior.sd:.3%}"
        f"{f', from {learned}' if learned else ''}:\n"
        f"  test on {made.per_arm:,} per arm, then send the better-looking one to the other {made.rolled:,}\n"
        f"  expected over the whole list: {made.expected_rate:.3%}, which is {gain * people:,.0f} conversions more "
        f"than one variant untested,\n  and {gain / best:.0%} of what knowing the better one beforehand would bring\n"
        "Test & Roll brings the most conversions and claims nothing: the arm that it chooses is a bet.\n"
    )


def _testable(plan: Plan) -> str:
    smallest = plan.smallest_found
    reach = "nothing below tenfold" if smallest is None else f"{smallest:+.1%}"
    beyond = ", ".join(f"{lift:+.0%}" for lift in plan.not_testable) or "none of the table below"
    return (
        f"Smallest lift found four times in five: {reach}. Not testable (found less than every second time): {beyond}."
    )
