"""How far two measurements of the same artifact lie apart, and how well that is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Noise

STATED_DOF = 8.0
"""What an adapter's stated noise is worth: as much as nine runs of one artifact. Enough to start on; twenty replicates
on this machine outweigh it."""

_RELATIVE_FLOOR = 1e-7
"""Sums of squares in double precision cannot tell a spread below this share of the value from none at all."""


def estimate_noise(groups: Sequence[ArmTotals], stated_sd: float | None = None) -> Noise | None:
    """Return the noise that replicates show, pooled over groups, with the adapter's own figure as a prior.

    Args:
        groups: Totals of measurements of one artifact each, artifacts measured once included (they add nothing).
        stated_sd: Standard deviation that the adapter states, in the unit of the metric; None where it states none.

    Returns:
        The noise in the unit of the metric; its degrees of freedom are the sum over groups of n - 1, plus `STATED_DOF`
        where the adapter states one. A metric that repeats exactly gives `sd` 0. None where nothing was measured twice
        and nothing is stated.

    Raises:
        ValueError: If a total is not finite or `stated_sd` is not positive.
    """
    if stated_sd is not None and not (math.isfinite(stated_sd) and stated_sd > 0):
        raise ValueError(f"A stated noise must be a positive number, not {stated_sd}.")
    squares, dof = 0.0, 0.0
    for group in groups:
        if group.n >= 2:
            squares += _within(group)
            dof += group.n - 1
    if stated_sd is not None:
        squares += STATED_DOF * stated_sd**2
        dof += STATED_DOF
    return Noise(math.sqrt(squares / dof), dof) if dof else None


def _within(group: ArmTotals) -> float:
    """Return the sum of squared deviations from the group's mean."""
    if not (math.isfinite(group.total) and math.isfinite(group.total_sq)):
        raise ValueError(
            f"The totals of {group.arm} are not finite: sum {group.total}, sum of squares {group.total_sq}."
        )
    squares = group.total_sq - group.total * group.mean
    return squares if squares > group.n * (_RELATIVE_FLOOR * group.mean) ** 2 else 0.0


def plug_in_sd(noise: Noise, scale: float) -> float:
    """Return the standard deviation that stands for `noise` in a formula which takes it as known; above 0.

    With few degrees of freedom the variance may well be larger than its estimate. Given the data its expectation is
    dof / (dof - 2) times the estimate, and that is what is returned, with dof held at 3 or more where it would diverge.

    Args:
        noise: What is known of the spread.
        scale: A typical value of the metric; the result is at least the share of it that double precision can show.
    """
    dof = max(noise.dof, 3.0)
    inflation = 1.0 if math.isinf(dof) else dof / (dof - 2.0)
    return max(noise.sd * math.sqrt(inflation), _RELATIVE_FLOOR * abs(scale), 1e-300)
