"""Guards: what is compared, in which unit, and where exactly the line is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core import Guard
from autoresearch.core.decision import Decision, Verdict
from autoresearch.core.guards import breach, held

KEEP = Verdict(Decision.KEEP, "better", effect=1.0)


@pytest.mark.parametrize(
    ("guard", "baseline", "value", "reason"),
    [
        (Guard("mb", True, 0.05, "relative"), 100.0, 105.0, None),
        (Guard("mb", True, 0.05, "relative"), 100.0, 109.0, "mb +9 % (at most +5 %)"),
        (Guard("score", False, -0.01, "relative"), 100.0, 99.0, None),
        (Guard("score", False, -0.01, "relative"), 100.0, 98.0, "score -2 % (at least -1 %)"),
        (Guard("score", False, -0.01, "relative"), -100.0, -102.0, "score -2 % (at least -1 %)"),
        (Guard("bpb", True, 0.01, "difference"), 1.0, 1.02, "bpb +0.02 (at most +0.01)"),
        (Guard("bpb", True, 0.01, "difference"), 1.0, 0.5, None),
        (Guard("kb", True, 512.0, "absolute"), 900.0, 513.0, "kb 513 (at most 512)"),
        (Guard("mb", True, 0.05, "relative"), 0.0, 1.0, "mb 1 (at most 0)"),
    ],
)
def test_where_the_line_is(guard: Guard, baseline: float, value: float, reason: str | None) -> None:
    """Shares, differences and fixed limits, in both directions, also of negative numbers and of zero."""
    assert breach(guard, baseline, value) == reason


@given(baseline=st.floats(1e-3, 1e6), share=st.floats(0, 1))
def test_what_is_exactly_at_the_limit_holds(baseline: float, share: float) -> None:
    """The last digit of a sum refuses nobody."""
    assert breach(Guard("mb", True, share, "relative"), baseline, baseline + baseline * share) is None


def test_means_are_compared() -> None:
    """Of several measurements the mean counts, on both sides."""
    guard = Guard("mb", True, 0.05, "relative")
    baseline = [{"mb": 90.0}, {"mb": 110.0}]
    assert held(KEEP, [guard], baseline, [{"mb": 100.0}, {"mb": 108.0}]) is KEEP
    verdict = held(KEEP, [guard, guard], baseline, [{"mb": 100.0}, {"mb": 120.0}])
    assert verdict.decision is Decision.REVERT and verdict.effect == 1.0
    assert verdict.reason == "guard: mb +10 % (at most +5 %); mb +10 % (at most +5 %)"


@pytest.mark.parametrize("decision", [Decision.REVERT, Decision.CONTINUE])
def test_a_guard_only_ever_refuses_a_keep(decision: Decision) -> None:
    """What is not kept anyway needs no guard, and what is to be measured again is measured again."""
    verdict = Verdict(decision, "so")
    assert held(verdict, [Guard("mb", True, 1.0)], [{"mb": 0.0}], [{"mb": 9.0}]) is verdict


@pytest.mark.parametrize("limit", [float("nan"), float("inf")])
def test_a_guard_needs_a_finite_limit(limit: float) -> None:
    """A limit that refuses nothing or everything is a mistake."""
    with pytest.raises(ValueError, match="finite limit"):
        Guard("mb", True, limit)
