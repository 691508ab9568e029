"""The race as a policy: evidence in, one verdict out."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals, Direction, Metric, MetricKind
from autoresearch.core.decision import Decision, Evidence, Look, Noise, PastEvidence, Policy
from autoresearch.core.decision.noise import STATED_DOF, plug_in_sd
from autoresearch.core.decision.policies import create_policy
from autoresearch.core.decision.race import first_crossing, judge, settling_share
from autoresearch.core.decision.race_normal import log_lose, log_win, t_statistic
from autoresearch.core.decision.race_policy import VALUE_LOOKS, RacePolicy
from autoresearch.core.decision.records import read_tables
from autoresearch.core.errors import UsageError

RATE = Metric("conversion", "", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.2)
SCORE_STATED = 0.4
SCORE = Metric("score", "points", Direction.MAXIMIZE, noise=SCORE_STATED, min_effect=2.0)
REVENUE = Metric("revenue", "euro", Direction.MAXIMIZE, MetricKind.MEAN, min_effect=0.1)


def people(n_a: int, x_a: int, n_b: int, x_b: int) -> Look:
    return Look(ArmTotals("control", n_a, x_a, x_a), ArmTotals("treatment", n_b, x_b, x_b))


def runs(*treatment: float, control: tuple[float, ...] = ()) -> Look:
    return Look(ArmTotals.of("control", control), ArmTotals.of("treatment", treatment))


def flipped(metric: Metric) -> Metric:
    other = Direction.MINIMIZE if metric.direction is Direction.MAXIMIZE else Direction.MAXIMIZE
    return dataclasses.replace(metric, direction=other)


@st.composite
def cumulative(draw: st.DrawFn) -> tuple[Look, ...]:
    totals, looks = [0, 0, 0, 0], []
    for _ in range(draw(st.integers(1, 4))):
        for n, x in ((0, 1), (2, 3)):
            more = draw(st.integers(0, 800))
            totals[n] += more
            totals[x] += draw(st.integers(0, more))
        looks.append(people(*totals))
    assume(totals[0] and totals[2])
    return tuple(looks)


def test_it_is_a_policy_and_reports_what_it_was_made_with() -> None:
    """A race made again from its own parameters has the same ones."""
    policy = create_policy("race", {"alpha": 0.01, "beta": 0.0, "min_effect": 0.5, "max_looks": 7.0})
    assert isinstance(policy, Policy)
    assert create_policy("race", policy.parameters).parameters == policy.parameters
    assert policy.parameters["alpha"] == 0.01 and policy.parameters["max_looks"] == 7.0
    assert "min_effect" not in create_policy("race").parameters


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"alpha": 0.0}, "alpha is an error rate"),
        ({"alpha": 1.0}, "alpha is an error rate"),
        ({"beta": 1.0}, "beta is an error rate"),
        ({"beta": -0.1}, "beta is an error rate"),
        ({"min_effect": 0.0}, "above 0"),
        ({"max_looks": 0.0}, "1 or more"),
        ({"max_looks": 2.5}, "whole number"),
        ({"prior_successes": 0.0}, "two positive counts"),
    ],
)
def test_parameters_out_of_range_get_a_sentence(parameters: dict[str, float], sentence: str) -> None:
    """Each parameter says what it may be."""
    with pytest.raises(UsageError, match=sentence):
        create_policy("race", parameters)


def test_the_first_crossing_decides() -> None:
    """What comes after a line was crossed cannot take the verdict back, and the e-values are those of that look."""
    early = people(300, 9, 300, 45)
    verdict = RacePolicy().decide(Evidence(RATE, (early,)))
    assert verdict.decision is Decision.KEEP
    later = people(6300, 1209, 6300, 645)
    assert RacePolicy().decide(Evidence(RATE, (early, later))) == verdict


def test_first_crossing_counts_looks() -> None:
    """The index of the first look at the line; the number of looks where there is none, and with a rate of 0."""
    level = -math.log(0.05)
    assert first_crossing([[0.0, level, 0.0], [0.0, 0.0, 0.0]], 0.05).tolist() == [1, 3]
    assert int(first_crossing([1e9], 0.0)) == 1


@given(cumulative(), st.floats(0.01, 0.3), st.floats(0.0, 0.5))
def test_exchanging_arms_and_direction_leaves_the_verdict(looks: tuple[Look, ...], alpha: float, beta: float) -> None:
    """A rate where lower is better is judged as its mirror image, figure by figure."""
    policy = RacePolicy(alpha, beta)
    exchanged = tuple(Look(look.treatment, look.control) for look in looks)
    assert policy.decide(Evidence(flipped(RATE), exchanged)) == policy.decide(Evidence(RATE, looks))


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_exchanging_arms_and_direction_leaves_the_verdict_of_values(a: list[float], b: list[float]) -> None:
    """The same for values."""
    there = RacePolicy().decide(Evidence(SCORE, (runs(*b, control=tuple(a)),), Noise(1.0, 8.0)))
    back = RacePolicy().decide(Evidence(flipped(SCORE), (runs(*a, control=tuple(b)),), Noise(1.0, 8.0)))
    assert there.decision is back.decision
    assert there.e_win == pytest.approx(back.e_win)
    assert there.e_lose == pytest.approx(back.e_lose)


@given(cumulative(), st.floats(0.01, 0.3), st.floats(0.01, 0.5))
def test_verdict_and_interval_agree(looks: tuple[Look, ...], alpha: float, beta: float) -> None:
    """A keep has a lower bound above zero, a revert an upper bound below the smallest effect, the rest neither."""
    verdict = RacePolicy(alpha, beta).decide(Evidence(RATE, looks))
    if verdict.interval is None:
        assert verdict.decision is not Decision.REVERT  # a revert has an upper bound, hence an interval
        return
    low, high = verdict.interval
    if verdict.decision is Decision.KEEP:
        assert low >= 0
    elif verdict.decision is Decision.REVERT:
        assert low <= 0 and high <= 0.2
    else:
        assert low <= 0 and high >= 0.2


def test_a_harmful_change_is_reverted() -> None:
    """Shown not to be better by the smallest effect, it ends as a plain revert."""
    verdict = RacePolicy().decide(Evidence(RATE, (people(3000, 150, 3000, 100),)))
    assert verdict.decision is Decision.REVERT and not verdict.inconclusive
    assert verdict.e_lose is not None and verdict.e_lose >= 5
    assert "not to be better by 0.2 relative" in verdict.reason


def test_without_a_lose_race_nothing_is_reverted_for_being_small() -> None:
    """beta 0 goes on."""
    verdict = RacePolicy(beta=0.0).decide(Evidence(RATE, (people(3000, 150, 3000, 100),)))
    assert verdict.decision is Decision.CONTINUE
    assert verdict.interval is None


class BothCross:
    """A race whose lines are both crossed at its second look."""

    log_win = (0.0, 9.0, -9.0)
    log_lose = (0.0, 9.0, 9.0)

    def effect(self, look: int) -> float:
        return 0.1

    def interval(self, look: int, alpha: float, beta: float) -> tuple[float, float]:
        return 0.05, 0.15

    def expected(self, share: float) -> tuple[float, float]:
        return 0.0, 0.0


def test_better_but_less_than_worth_having_is_kept() -> None:
    """Where one look crosses both lines, the treatment is an improvement."""
    judgement = judge(BothCross(), 0.05, 0.2)
    assert (judgement.decision, judgement.look) == (Decision.KEEP, 1)
    assert judgement.e_win == pytest.approx(math.exp(9.0))


class Contradiction(BothCross):
    """A race whose bounds lie the wrong way round: its looks leave no effect unrejected."""

    def __init__(self, win: float, lose: float) -> None:
        self.log_win, self.log_lose = (win,), (lose,)  # type: ignore[assignment]

    def interval(self, look: int, alpha: float, beta: float) -> tuple[float, float]:
        return 0.3, -0.3


def test_looks_that_contradict_each_other_leave_the_deciding_bound() -> None:
    """No effect fits; the bound that decided stands and the other one is not there."""
    kept, reverted = judge(Contradiction(9.0, 0.0), 0.05, 0.2), judge(Contradiction(0.0, 9.0), 0.05, 0.2)
    assert (kept.low, kept.high) == (0.3, math.inf)
    assert (reverted.low, reverted.high) == (-math.inf, -0.3)


def test_live_tests_go_on_until_told_otherwise() -> None:
    """Undecided proportions continue look after look; with max_looks the last one is inconclusive."""
    looks = tuple(people(100 * i, 5 * i, 100 * i, 5 * i) for i in range(1, 4))
    assert RacePolicy().decide(Evidence(RATE, looks)).decision is Decision.CONTINUE
    ended = RacePolicy(max_looks=3).decide(Evidence(RATE, looks))
    assert ended.decision is Decision.REVERT and ended.inconclusive


BASELINE = PastEvidence(runs(10.0, 10.5, 9.4, 10.2), kept=True)


KNOWN = Noise(0.5, 4)


def test_both_arms_are_measured_anew_and_take_turns_at_going_first() -> None:
    """After the candidate's first run comes the incumbent's, then both, in an order that alternates look by look."""
    looks, asked = [runs(10.1)], []
    for n in range(1, 4):
        for control in range(n - 1 if n == 1 else n, n + 1):
            looks.append(runs(*[10.1] * n, control=(10.0,) * control))
            asked.append(RacePolicy().decide(Evidence(SCORE, (looks[-1],), KNOWN, (BASELINE,))).measure)
    assert asked[0] == ("control",)
    assert asked[1] == ("control", "treatment") and asked[2] == ("treatment", "control")


def test_the_draw_that_won_is_no_bar() -> None:
    """What a kept candidate showed when it won changes nothing about the next comparison; fresh runs decide."""
    fair, lucky = (PastEvidence(runs(value), kept=True) for value in (11.0, 19.0))
    look = runs(13.5, 13.9, 13.7, control=(10.0, 10.3, 9.9))
    verdicts = [RacePolicy().decide(Evidence(SCORE, (look,), KNOWN, (BASELINE, past))) for past in (fair, lucky)]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].decision is Decision.KEEP
    assert verdicts[0].effect == pytest.approx(13.7 - 10.0667, abs=1e-3)


def test_earlier_replicates_tell_the_noise() -> None:
    """e-values are those of the normal race with the run's sum of squares and degrees of freedom as calibration."""
    known, look = Noise(0.5, 14.0), runs(11.0, 11.4, control=(10.0, 9.8))
    verdict = RacePolicy().decide(Evidence(SCORE, (look,), known, (BASELINE,)))
    measured = (0.25 * 14.0 - SCORE_STATED**2 * STATED_DOF, 14.0 - STATED_DOF)  # what the adapter states is taken off
    earlier = ArmTotals("calibration", int(measured[1]) + 1, 0.0, max(measured[0], 0.0))
    found = t_statistic(look.control, look.treatment, [earlier])
    d = SCORE.min_effect / plug_in_sd(known, 1.0)
    assert found is not None and found.dof == 2 + 6
    assert verdict.e_win == pytest.approx(math.exp(log_win(found, d)))
    assert verdict.e_lose == pytest.approx(math.exp(log_lose(found, d)))


def test_a_look_at_one_arm_decides_nothing() -> None:
    """Before the incumbent was measured beside it, the candidate cannot be judged, whatever it shows."""
    verdict = RacePolicy().decide(Evidence(SCORE, (runs(99.0, 98.0),), KNOWN, (BASELINE,)))
    assert (verdict.decision, verdict.measure, verdict.e_win) == (Decision.CONTINUE, ("control",), 1.0)


@given(st.lists(st.floats(8, 14), min_size=2, max_size=5), st.lists(st.floats(8, 14), min_size=2, max_size=5))
def test_the_brief_decision_is_the_same(a: list[float], b: list[float]) -> None:
    """Without interval the decision and the next arms are those of the full verdict."""
    known = Evidence(SCORE, (runs(*b, control=tuple(a)),), KNOWN, (BASELINE,))
    full, brief = RacePolicy().decide(known), RacePolicy().decide_briefly(known)
    assert (brief.decision, brief.measure) == (full.decision, full.measure)


def test_lower_is_better_for_values() -> None:
    """Where lower is better a lower candidate has a positive effect and is kept."""
    look = runs(6.0, 6.3, 6.1, control=(10.0, 10.2, 9.9))
    verdict = RacePolicy().decide(Evidence(flipped(SCORE), (look,), KNOWN, (BASELINE,)))
    assert verdict.decision is Decision.KEEP and verdict.effect == pytest.approx(10.0333 - 6.1333, abs=1e-3)


def test_values_are_given_up_after_a_dozen_looks() -> None:
    """A candidate half as good as what is worth having, never settled, ends as inconclusive."""
    looks = tuple(runs(*[11.0, 10.1, 12.0, 9.9][: 1 + i % 4]) for i in range(VALUE_LOOKS))
    policy = RacePolicy(alpha=1e-6, beta=1e-6)
    assert policy.decide(Evidence(SCORE, looks[:-1], Noise(0.5, 3), (BASELINE,))).decision is Decision.CONTINUE
    assert policy.decide(Evidence(SCORE, looks, Noise(0.5, 3), (BASELINE,))).inconclusive


def test_an_unmeasured_candidate_is_looked_at_again() -> None:
    """Before the first measurement there is nothing to judge."""
    assert RacePolicy().decide(Evidence(SCORE, (runs(),), None, (BASELINE,))).decision is Decision.CONTINUE


def test_values_without_noise_are_refused() -> None:
    """Neither stated nor measured twice: the sentence says what to measure."""
    unknown = dataclasses.replace(SCORE, noise=None)
    with pytest.raises(ValueError, match="measure the baseline at least twice"):
        RacePolicy().decide(Evidence(unknown, (runs(1.0),), None, (PastEvidence(runs(1.0), kept=True),)))


def test_a_metric_without_smallest_effect_is_refused() -> None:
    """A race needs something worth having; the sentence names the option."""
    with pytest.raises(UsageError, match="--min-effect"):
        RacePolicy().decide(Evidence(dataclasses.replace(RATE, min_effect=0.0), (people(10, 1, 10, 1),)))


def test_falling_totals_are_refused() -> None:
    """Cumulative totals of matured units never fall."""
    with pytest.raises(ValueError, match="fall at look 2"):
        RacePolicy().decide(Evidence(RATE, (people(10, 2, 10, 2), people(10, 1, 10, 2))))


def test_means_are_labelled_asymptotic() -> None:
    """The reason says that the e-values hold in the limit only."""
    look = Look(ArmTotals("control", 5000, 5000.0, 10_000.0), ArmTotals("treatment", 5000, 6500.0, 14_000.0))
    verdict = RacePolicy().decide(Evidence(REVENUE, (look,)))
    assert verdict.decision is Decision.KEEP and "asymptotic" in verdict.reason
    assert verdict.effect == pytest.approx(0.3)


def test_believed_gain_of_live_tests_is_what_the_kept_ones_showed() -> None:
    """In the metric's unit, positive is better, reverted ones not counted."""
    history = (
        PastEvidence(people(1000, 50, 1000, 80), kept=True),
        PastEvidence(people(1000, 80, 1000, 20), kept=False),
    )
    assert RacePolicy().believed_gain(Evidence(RATE, (), None, history)) == pytest.approx(0.03)
    assert RacePolicy().believed_gain(Evidence(flipped(RATE), (), None, history)) == pytest.approx(-0.03)


def test_believed_gain_of_values_takes_luck_off() -> None:
    """It is what `bayes` believes over the same history: less than the raw difference."""
    history = (BASELINE, PastEvidence(runs(11.5), kept=True))
    known = Evidence(SCORE, (), Noise(0.5, 4), history)
    assert RacePolicy().believed_gain(known) == create_policy("bayes").believed_gain(known)


def test_what_settles_a_race_does_settle_it() -> None:
    """A race grown by the forecast share crosses the line that was forecast; by half of it, none."""
    text = "variant,exposures,conversions\ncontrol,900,43\nb,900,66\n"
    race = read_tables(text)[0].race(0.2)  # type: ignore[union-attr,call-arg]
    found = settling_share(race, 0.05, 0.2)  # type: ignore[arg-type]
    assert found is not None
    share, decision = found
    assert decision is Decision.KEEP
    assert race.expected(share)[0] >= math.log(20) > race.expected(share / 2)[0]  # type: ignore[union-attr]


def test_treatments_of_one_test_share_alpha() -> None:
    """What alone is kept is not enough as one of three; the bar and the lower bound are those of a third of alpha."""
    looks = (people(2000, 100, 2000, 145),)
    alone, among = (RacePolicy().decide(Evidence(RATE, looks, family=family)) for family in (1, 3))
    assert alone.e_win == among.e_win and alone.e_win is not None and 20 <= alone.e_win < 60
    assert (alone.decision, among.decision) == (Decision.KEEP, Decision.CONTINUE)
    assert alone.interval is not None and among.interval is not None
    assert alone.interval[0] > 0 > among.interval[0] and alone.interval[1] == among.interval[1]
    assert among == dataclasses.replace(RacePolicy(alpha=0.05 / 3).decide(Evidence(RATE, looks)), reason=among.reason)
    assert "of 60 as one of 3 treatments" in among.reason


def test_a_family_of_values_shares_alpha_in_both_ways_to_decide() -> None:
    """The brief verdict agrees with the full one."""
    looks = (runs(13.0, 13.2, 13.1, control=(10.0, 10.1, 9.9)),)
    for family in (1, 10**6):
        evidence = Evidence(SCORE, looks, Noise(0.4, 20.0), family=family)
        assert RacePolicy().decide(evidence).decision is RacePolicy().decide_briefly(evidence).decision
