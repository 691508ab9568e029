"""Fixed-sample figures, against what others have printed."""

from __future__ import annotations

import math

import pytest

from autoresearch.adapters.marketing.fixed import NullVariance, sample_size, split_p, z_test
from autoresearch.core import ArmTotals
from autoresearch.core.decision import Decision, Look
from autoresearch.core.decision.gates import split_gate
from autoresearch.core.decision.race import ProportionRace, judge
from autoresearch.core.decision.race_policy import counts_of


def arm(n: int, conversions: int, name: str = "control") -> ArmTotals:
    return ArmTotals(name, n, conversions, conversions)


NOBODY, MEN, WOMEN = arm(21_306, 122), arm(21_307, 267), arm(21_387, 189)
"""Hillstrom's e-mail test of 2008: purchases after no mail, men's goods and women's goods."""
GATE_30, GATE_40 = 44_700, 45_489
"""Players of Cookie Cats by the level of the first gate."""


def test_five_to_six_per_cent_takes_7663_per_arm() -> None:
    """5 % to 6 % at two-sided 5 % and power 80 %: 7,663 with the control's variance under the null, 8,158 pooled."""
    assert sample_size(0.05, 0.2) == 7663
    assert sample_size(0.05, 0.2, variance=NullVariance.POOLED) == 8158


def test_hillstrom() -> None:
    """The z of purchases are 7.385, 3.780 and 3.713, and the three groups have the sizes they were meant to have."""
    assert z_test(NOBODY, MEN).z == pytest.approx(7.385, abs=5e-4)
    assert z_test(NOBODY, WOMEN).z == pytest.approx(3.780, abs=5e-4)
    assert z_test(WOMEN, MEN).z == pytest.approx(3.713, abs=5e-4)
    assert split_p([NOBODY.n, MEN.n, WOMEN.n]) == pytest.approx(0.904, abs=5e-4)


def test_the_race_keeps_hillstroms_mails() -> None:
    """What z of 7.4 and 3.8 call better, the race keeps as well, whole data as one look."""
    for treatment in (MEN, WOMEN):
        race = ProportionRace(counts_of([Look(NOBODY, treatment)]), 0.2)
        assert judge(race, 0.05, 0.2).decision is Decision.KEEP


def test_cookie_cats() -> None:
    """Return after a day differs with p 0.0744, after a week with p 0.00155; the split has p 0.0086."""
    day, week = (z_test(arm(GATE_30, a), arm(GATE_40, b)) for a, b in ((20_034, 20_119), (8_502, 8_279)))
    assert day.p == pytest.approx(0.0744, abs=5e-5)
    assert week.p == pytest.approx(0.00155, abs=5e-6)
    assert week.z < 0 > week.lift
    assert split_p([GATE_30, GATE_40]) == pytest.approx(0.0086, abs=5e-5)


def test_cookie_cats_split_passes_the_gate() -> None:
    """A split with p 0.0086 is no proof of a broken one: the gate asks for more, since it may be looked at daily."""
    totals = [arm(GATE_30, 0, "control"), arm(GATE_40, 0, "treatment")]
    assert split_gate(totals, {"control": 0.5, "treatment": 0.5}).passed


def test_udacity() -> None:
    """The landing page's z is 1.3109 in size and its two-sided p 0.1899."""
    page = z_test(arm(145_274, 17_489), arm(145_310, 17_264))
    assert -page.z == pytest.approx(1.3109, abs=5e-5)
    assert page.p == pytest.approx(0.1899, abs=5e-5)


def test_a_split_of_80_to_20_that_came_out_two_to_one() -> None:
    """4,072 and 2,035 where 80 to 20 was planned has p 2.402e-149, and the gate calls it broken."""
    assert split_p([4072, 2035], [0.8, 0.2]) == pytest.approx(2.402e-149, rel=5e-4)
    totals = [arm(4072, 0, "control"), arm(2035, 0, "treatment")]
    assert not split_gate(totals, {"control": 0.8, "treatment": 0.2}).passed


def test_lift_over_nothing_is_infinite() -> None:
    """A control without conversions has no finite lift, and still a z."""
    found = z_test(arm(100, 0), arm(100, 5))
    assert found.lift == math.inf
    assert found.z > 2


@pytest.mark.parametrize(
    ("control", "treatment", "words"),
    [(arm(0, 0), arm(5, 1), "Both arms need people"), (arm(5, 0), arm(5, 0), "Nobody or everybody")],
)
def test_nothing_to_compare_is_refused(control: ArmTotals, treatment: ArmTotals, words: str) -> None:
    """Empty arms and arms without any spread have no z."""
    with pytest.raises(ValueError, match=words):
        z_test(control, treatment)


@pytest.mark.parametrize(("baseline", "lift"), [(0.0, 0.1), (0.05, 0.0), (0.6, 1.0), (0.05, -1.0), (math.nan, 0.1)])
def test_impossible_sizes_are_refused(baseline: float, lift: float) -> None:
    """Both rates must lie between 0 and 1 and differ."""
    with pytest.raises(ValueError, match="no pair of different rates"):
        sample_size(baseline, lift)
