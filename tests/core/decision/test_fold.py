"""A run folded experiment by experiment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Look, PastEvidence
from autoresearch.core.decision.fold import FIRST_CHECK, GAP, STEP, FoldCache, Standing
from autoresearch.core.decision.levels import INCUMBENT, Scale

SCALE = Scale(1.0)


def past(*values: float, kept: bool = False, control: tuple[float, ...] = (), block: int = 0) -> PastEvidence:
    return PastEvidence(Look(ArmTotals.of("control", control), ArmTotals.of("treatment", values)), kept, block)


def fold(*history: PastEvidence) -> Standing:
    return FoldCache().fold(history, SCALE)


QUIET = [past(0.0, 0.0), *(past(-1.0 - n % 3) for n in range(FIRST_CHECK - 1))]


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=2, max_size=12), st.integers(1, 11))
def test_what_is_cached_changes_nothing(drawn: list[tuple[float, bool]], cut: int) -> None:
    """A history that grew, one that was cut, and one that differs give what they give when folded anew."""
    history = (past(0.0), *(past(value, kept=kept) for value, kept in drawn))
    other = (*history[:cut], past(3.3, kept=True))
    cache = FoldCache()
    for asked in (history[:cut], history, other, history[:cut], history):
        found, anew = cache.fold(asked, SCALE), fold(*asked)
        assert found.levels.mean.tolist() == anew.levels.mean.tolist()
        assert found.weights.tolist() == anew.weights.tolist()


def test_growing_by_one_experiment_takes_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache goes on where it was, and does not fold what it knows again."""
    steps: list[PastEvidence] = []
    monkeypatch.setattr("autoresearch.core.decision.fold.Fold.take_in", lambda self, past: steps.append(past))
    cache, history = FoldCache(), tuple(QUIET)
    cache.fold(history[:-1], SCALE)
    steps.clear()
    cache.fold(history, SCALE)
    cache.fold(history, SCALE)
    assert steps == [history[-1]]


def test_the_incumbent_comes_due_in_doubling_gaps_while_checks_agree() -> None:
    """First after so many experiments, then after twice as many; sooner again once a check disagrees."""
    assert not fold(*QUIET[:-1]).due(0) and fold(*QUIET).due(0)
    agreed = fold(*QUIET, past(-1.0, control=(0.1,)))
    assert agreed.check_after == 2 * FIRST_CHECK and not agreed.due(0)
    surprised = fold(*QUIET, past(-1.0, control=(6.0,)))
    assert surprised.check_after < FIRST_CHECK


def test_a_new_block_makes_it_due_until_it_was_checked() -> None:
    """After a pause the incumbent is due at once, and no longer after it was measured in the new block."""
    quiet = QUIET[:4]
    assert fold(*quiet).due(1) and not fold(*quiet).due(0)
    assert fold(*quiet, past(-1.0, block=1)).due(1)
    assert not fold(*quiet, past(-1.0, control=(0.2,), block=1)).due(1)


def test_drift_is_learned_from_checks() -> None:
    """Where the incumbent is found far off the machine is thought to move more, where it is found in place less."""
    found = [fold(*QUIET, past(-1.0, control=(value,))).step.mean for value in (0.0, 5.0)]
    assert found[0] < STEP.mean < found[1]
    pauses = [fold(*QUIET[:4], past(-1.0, control=(value,), block=1)) for value in (0.0, 5.0)]
    assert pauses[0].gap.mean < GAP.mean < pauses[1].gap.mean
    assert pauses[1].step == STEP, "what came with the pause says nothing about steps"


def test_a_jump_is_believed_once_it_is_seen() -> None:
    """A control far off moves the incumbent's level most of the way, and no gain is booked for it."""
    after = fold(*QUIET, past(-1.0, control=(8.0, 8.0)))
    assert float(after.levels.mean[INCUMBENT]) > 5.0
    assert after.levels.gain == pytest.approx(0.0, abs=1e-9)


def test_a_machine_that_does_not_move_is_never_due() -> None:
    """Without drift nothing is checked and nothing is added."""
    still = FoldCache().fold((*QUIET, *QUIET[1:]), SCALE, drifting=False)
    assert not still.due(0) and not still.due(1) and still.moved(1) == 0.0


def test_an_experiment_without_measurements_is_no_experiment() -> None:
    """A crash neither teaches nor passes time."""
    assert np.array_equal(fold(*QUIET, past()).levels.covariance, fold(*QUIET).levels.covariance)
