"""The joint belief about incumbent, baseline and seeds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision.levels import BASELINE, FIRST_SEED, INCUMBENT, Levels, Scale, if_kept, if_reverted

PLAIN = Scale(1.0)
SEEDED = Scale(1.0, seed_variance=3.0)


def arm(*values: float) -> list[ArmTotals]:
    """Cumulative totals, a look after every run."""
    return [ArmTotals.of("treatment", values[: n + 1]) for n in range(len(values))]


def variance(levels: Levels, level: int = INCUMBENT) -> float:
    return float(levels.covariance[level, level])


def test_one_value_is_the_baseline_give_or_take_the_noise() -> None:
    """Without seeds the mean of n runs is known to 1/n, and incumbent and baseline are the same thing."""
    levels = PLAIN.start(PLAIN.runs_of(arm(1.0, 2.0, 6.0)))
    assert levels.mean.tolist() == pytest.approx([3.0, 3.0])
    assert levels.covariance.ravel().tolist() == pytest.approx([1 / 3] * 4)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=3), st.lists(st.floats(-5, 5), min_size=1, max_size=3))
def test_seeds_that_add_nothing_change_nothing(baseline: list[float], candidate: list[float]) -> None:
    """With a vanishing seed effect, runs told apart by their seeds say what their mean says."""
    tiny = Scale(1.0, seed_variance=1e-12)
    found = []
    for scale in (PLAIN, tiny):
        seen = scale.start(scale.runs_of(arm(*baseline))).see(scale.runs_of(arm(*candidate)))
        kept = if_kept(seen, 0.7, 0.3)
        found.append([seen.difference, seen.variance, *kept.mean[:2], *kept.covariance[:2, :2].ravel()])
    assert found[0] == pytest.approx(found[1], abs=1e-6)


def test_the_same_seed_is_a_fairer_comparison() -> None:
    """Where seeds add much, a candidate met on the seed of the baseline is compared by the noise of two runs alone."""
    seen = SEEDED.start(SEEDED.runs_of(arm(5.0))).see(SEEDED.runs_of(arm(6.0)))
    assert seen.difference == pytest.approx(1.0)
    assert seen.variance == pytest.approx(2.0)
    other = SEEDED.start(SEEDED.runs_of(arm(5.0))).see(SEEDED.runs_of([ArmTotals.of("treatment", (6.0, 6.0))]))
    assert other.variance > 2.0, "its second run has a seed on which nothing else was measured"


def test_a_lucky_seed_is_not_the_baselines_merit() -> None:
    """When runs on other seeds fall lower, the high value on the first seed goes to the seed."""
    levels = SEEDED.start(SEEDED.runs_of(arm(6.0, 0.0, 0.0)))
    assert levels.mean[BASELINE] == pytest.approx(2.0)
    assert levels.mean[FIRST_SEED] > 2.0 > levels.mean[FIRST_SEED + 1]
    assert float(levels.mean[BASELINE] + levels.mean[FIRST_SEED]) == pytest.approx(5.0)


def test_moving_changes_no_gain() -> None:
    """The machine moves incumbent and baseline alike: less is known of each, and as much of their difference."""
    start = PLAIN.start(PLAIN.runs_of(arm(0.0)))
    kept = if_kept(start.see(PLAIN.runs_of(arm(4.0))), 3.0, 0.5)
    moved = kept.moved(10.0)
    spread = np.array([1.0, -1.0])
    assert variance(moved) == pytest.approx(variance(kept) + 10.0)
    assert spread @ moved.covariance @ spread == pytest.approx(float(spread @ kept.covariance @ spread))
    found = moved.measured(PLAIN.runs_of(arm(7.0)))
    assert found.gain == pytest.approx(kept.gain, abs=0.3)
    assert float(found.mean[INCUMBENT]) == pytest.approx(7.0, abs=0.5)


def test_a_reverted_candidate_leaves_the_gain() -> None:
    """While the baseline stands, whatever is learned of the incumbent is learned of the baseline."""
    start = PLAIN.start(PLAIN.runs_of(arm(0.0)))
    after = if_reverted(start.see(PLAIN.runs_of(arm(-3.0))), -2.0, 1.0)
    assert after.gain == 0.0
    assert variance(after) < variance(start)


def test_what_is_not_finite_is_refused() -> None:
    """A nan is a sentence, not a belief."""
    with pytest.raises(ValueError, match="not finite"):
        PLAIN.runs_of(arm(float("nan")))
