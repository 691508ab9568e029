"""When a session has had enough."""

from __future__ import annotations

import pytest

from autoresearch.core import Direction, Metric, UsageError
from autoresearch.core.budget import Limits, Spent, limit_reached

LOWER = Metric("loss", "", Direction.MINIMIZE)
HIGHER = Metric("score", "", Direction.MAXIMIZE)


def test_without_limits_nothing_ends_a_session() -> None:
    """No limit is no limit."""
    assert limit_reached(Limits(), Spent(10**6, 1e9, 1e6, 10**9, 10**6, 10**6), LOWER, -1e9) is None


@pytest.mark.parametrize(
    ("limits", "spent"),
    [
        (Limits(experiments=5), Spent(experiments=5)),
        (Limits(hours=1), Spent(seconds=3600)),
        (Limits(max_usd=2), Spent(usd=2)),
        (Limits(max_tokens=10), Spent(tokens=10)),
        (Limits(max_samples=3), Spent(samples=3)),
        (Limits(patience=4), Spent(since_keep=4)),
        (Limits(experiments=0), Spent()),
    ],
)
def test_each_limit_ends_the_session_when_it_is_reached(limits: Limits, spent: Spent) -> None:
    """A limit is reached at its value, and the sentence begins with its name."""
    name = next(iter(limits.as_json()))
    assert (limit_reached(limits, spent, LOWER, None) or "").startswith(f"{name}: ")


def test_a_target_is_reached_from_the_right_side() -> None:
    """Lower is better for a loss, higher for a score."""
    assert limit_reached(Limits(target=0.9), Spent(), LOWER, 0.95) is None
    assert limit_reached(Limits(target=0.9), Spent(), LOWER, 0.9) is not None
    assert limit_reached(Limits(target=0.9), Spent(), HIGHER, 0.85) is None
    assert limit_reached(Limits(target=-1.0), Spent(), HIGHER, 0.0) is not None


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_impossible_limits_are_refused(value: float) -> None:
    """Negative and infinite limits are mistakes."""
    with pytest.raises(UsageError, match="hours"):
        Limits(hours=value)
