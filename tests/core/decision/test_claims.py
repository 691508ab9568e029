"""Claims: exact under the null, paired where seeds matter, at most a tenth false, sizes with the luck taken off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from autoresearch.core.decision import claims
from autoresearch.core.decision.claims import Panel
from autoresearch.core.decision.race_normal import TStatistic


def panel(*arms: list[float]) -> Panel:
    return Panel(np.array(arms))


def test_two_arms_make_the_paired_t_test() -> None:
    """With two arms the t statistic is that of the textbook's paired test."""
    earlier, later = [1.0, 2.0, 4.0, 3.0], [1.5, 2.9, 4.2, 4.1]
    found = panel(earlier, later).compare(1, 0)
    assert found.t == pytest.approx(stats.ttest_rel(later, earlier).statistic)
    assert found.dof == 3.0
    assert found.difference == pytest.approx(np.mean(later) - np.mean(earlier))
    assert found.error == pytest.approx(found.difference / found.t)


def test_seeds_of_their_own_change_nothing() -> None:
    """What a seed adds to every arm alike cancels: e-values and spread stay as they were."""
    random = np.random.default_rng(3)
    values = random.normal(size=(4, 5)) + np.array([[0.0], [2.0], [3.0], [3.0]])
    plain, moved = Panel(values), Panel(values + 100.0 * random.normal(size=5))
    assert moved.sd == pytest.approx(plain.sd)
    assert claims.log_e_value(moved.compare(1, 0), 2.0) == pytest.approx(claims.log_e_value(plain.compare(1, 0), 2.0))


def test_more_arms_know_the_spread_better() -> None:
    """Degrees of freedom are those of a two-way layout."""
    assert panel([1.0, 2.0, 3.0], [1.0, 2.5, 3.0], [4.0, 5.0, 7.0]).dof == 4.0


@pytest.mark.parametrize("looked_for", [0.5, 3.0, 12.0])
@pytest.mark.parametrize(("dof", "size"), [(4.0, 2.5), (24.0, 5.0)])
def test_the_e_value_is_one_on_average_where_nothing_changed(looked_for: float, dof: float, size: float) -> None:
    """Integrated over the t distribution of no effect it is 1, and less where the arm is worse."""

    def expected(true_errors: float) -> float:
        law = stats.t(dof) if true_errors == 0 else stats.nct(dof, true_errors)
        steps = np.linspace(-12.0, 12.0, 2001)  # t = sinh(step), so that far tails count
        t = np.sinh(steps)
        logs = [claims.log_e_value(claims.TStatistic(x, dof, 1.0, x, size, 4 * size), looked_for) for x in t]
        return float(np.trapezoid(np.exp(logs) * law.pdf(t) * np.cosh(steps), steps))

    assert expected(0.0) == pytest.approx(1.0, abs=0.01)
    assert expected(-1.0) < 0.9


def test_bound_and_verdict_agree() -> None:
    """The lower bound lies above zero exactly where the e-value reaches 1 / level."""
    for shift in np.linspace(0.0, 4.0, 17):
        random = np.random.default_rng(1)
        values = random.normal(size=(3, 5)) + np.array([[0.0], [shift], [0.0]])
        found = Panel(values).compare(1, 0)
        for level in (0.05, 0.0025):
            low, high = claims.interval(found, 3.0, level)
            assert ((low or -1.0) > 0) == (claims.log_e_value(found, 3.0) >= -math.log(level))
            assert high is None or high > found.difference


def test_no_level_has_no_bounds() -> None:
    """A claim without error rate bounds nothing and no number of seeds confirms it."""
    found = panel([1.0, 2.0], [5.0, 6.5]).compare(1, 0)
    assert claims.interval(found, 3.0, 0.0) == (None, None)
    assert claims.seeds_needed(found, 2, 2, 3.0, 0.0) is None


def test_seeds_needed_would_do() -> None:
    """The number named is the first that confirms when means and spread stay; a wrong direction has none."""
    values = np.random.default_rng(5).normal(size=(3, 5)) + np.array([[0.0], [1.5], [0.0]])
    up, level = Panel(values).compare(1, 0), 0.005
    assert claims.log_e_value(up, 1.5) < -math.log(level)
    count = claims.seeds_needed(up, 3, 5, 1.5, level)
    assert count is not None and count > 5
    assert claims.seeds_needed(Panel(values).compare(0, 1), 3, 5, 1.5, level) is None


def test_a_metric_that_repeats_exactly_is_claimed() -> None:
    """Without any spread a difference is as sure as it can be, and no difference is none."""
    found = panel([3.0] * 5, [2.0] * 5, [2.0] * 5)
    assert claims.log_e_value(found.compare(0, 1), 40.0) > math.log(1e4)
    assert claims.log_e_value(found.compare(2, 1), 40.0) < 0


def test_shares_are_half_for_the_incumbent_and_flat_for_the_rest() -> None:
    """The first incumbent has half; later incumbents and steps share the rest; what is beyond it gets none."""
    assert claims.shares([], [True, False, False], 20) == [0.5, 0.025, 0.025]
    assert claims.shares([0.5, 0.025], [True, False], 20) == [0.025, 0.025]
    assert claims.shares([0.5, 0.25], [False, False], 2) == [0.25, 0.0]
    assert claims.shares([], [False, False, False], 2) == [0.25, 0.25, 0.0], "the incumbent's half stays reserved"


def test_levels_rise_with_every_confirmation() -> None:
    """e-LOND: the level of a claim is rate x share x (1 + confirmed before it)."""
    rulings = claims.rule([25.0, 150.0, 150.0, 190.0], [0.5, 0.025, 0.025, 0.025])
    assert [ruling.level for ruling in rulings] == pytest.approx([0.05, 0.005, 0.005, 0.005])
    assert [ruling.confirmed for ruling in rulings] == [True, False, False, False]
    rulings = claims.rule([25.0, 200.1, 150.0], [0.5, 0.025, 0.025])
    assert [ruling.confirmed for ruling in rulings] == [True, True, True]
    assert rulings[2].level == pytest.approx(0.0075)


def test_shares_above_one_are_refused() -> None:
    """An error rate can be spent once."""
    with pytest.raises(ValueError, match="more than 1"):
        claims.rule([1.0, 1.0], [0.6, 0.6])


def test_shrinking_takes_noise_off_and_leaves_the_large() -> None:
    """Effects within their error shrink to nothing, effects far beyond it hardly; the spread is the excess."""
    assert claims.shrink([0.5, -0.5], 1.0).effects == (0.0, 0.0)
    large = claims.shrink([10.0, -10.0], 1.0)
    assert large.effects == pytest.approx((9.9, -9.9))
    assert large.spread == pytest.approx(math.sqrt(99.0)) and large.factor == pytest.approx(0.99)
    assert claims.shrink([3.0], 0.0).effects == (3.0,)
    assert claims.shrink([], 1.0).effects == ()


def test_what_is_looked_for_comes_from_the_search() -> None:
    """The believed effect in standard deviations, at least min_effect, within bounds."""
    assert claims.alternative(6.0, 0.5, 2.0) == 3.0
    assert claims.alternative(0.1, 4.0, 2.0) == 2.0
    assert claims.alternative(None, 0.0, 2.0) == claims.SMALLEST_ALTERNATIVE
    assert claims.alternative(1e9, 0.0, 2.0) == claims.LARGEST_ALTERNATIVE


@pytest.mark.parametrize(("effect", "confirmed"), [(0.0, False), (1.0, False), (5.0, True), (40.0, True), (1e6, True)])
def test_a_search_without_noise_does_not_blind_the_claim(effect: float, confirmed: bool) -> None:
    """Where the search could not tell how widely fresh data spread, effects of every size from 5 of theirs are seen."""
    size, looked_for = 2.5, claims.alternative(0.1, 0.0, 0.0)
    statistic = TStatistic(t=effect * math.sqrt(size), dof=8.0, sd=1.0, difference=effect, size=size, runs=10.0)
    assert (claims.log_e_value(statistic, looked_for) > math.log(400.0)) == confirmed


@pytest.mark.parametrize("values", [[[1.0, 2.0]], [[1.0], [2.0]], [[1.0, math.nan], [1.0, 2.0]]])
def test_what_cannot_be_judged_is_refused(values: list[list[float]]) -> None:
    """One arm, one seed or a value that is not finite has a sentence."""
    with pytest.raises(ValueError, match="Claims need"):
        panel(*values)


def test_few_claims_of_nothing_are_made() -> None:
    """Of steps that change nothing and share arms, at most a tenth of the runs claims one."""
    random = np.random.default_rng(11)
    false = 0
    for _ in range(300):
        found = Panel(random.normal(size=(5, 5)))
        pairs = [(4, 0), (1, 0), (2, 1), (3, 2), (4, 3)]
        e_values = [math.exp(claims.log_e_value(found.compare(*pair), 2.0)) for pair in pairs]
        false += any(ruling.confirmed for ruling in claims.rule(e_values, [0.5, *[0.025] * 4]))
    assert false / 300 <= 0.1
