"""How far two measurements of the same artifact lie apart, and how well that is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

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


@dataclass
class Replicates:
    """Sums over everything that was measured more than once: enough for the noise, and kept up by adding.

    A value is artifact + seed + rest. Artifacts taken out, the sums say how much the seeds explain: `matrix` and
    `right` are the normal equations of the seeds' levels, `squares` is the sum of squares within artifacts.
    """

    seeds: dict[int, int] = field(default_factory=dict)
    matrix: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 0)))
    right: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    squares: float = 0.0
    dof: float = 0.0
    other_squares: float = 0.0
    other_dof: float = 0.0

    def add(self, values: Sequence[tuple[int, float]]) -> None:
        """Take in the measurements of one artifact as (seed, value); a single one says nothing of the noise.

        Raises:
            ValueError: If a value is not finite.
        """
        if len(values) < 2:
            return
        totals = ArmTotals.of("replicates", [value for _, value in values])
        self.squares += _within(totals)
        self.dof += totals.n - 1
        rows = [self._row(seed) for seed, _ in values]
        counts = np.bincount(rows, minlength=len(self.seeds)).astype(np.float64)
        self.matrix += np.diag(counts) - np.outer(counts, counts) / totals.n
        np.add.at(self.right, rows, [value - totals.mean for _, value in values])

    def add_group(self, totals: ArmTotals) -> None:
        """Take in measurements of one artifact whose seeds no other artifact had."""
        if totals.n >= 2:
            self.other_squares += _within(totals)
            self.other_dof += totals.n - 1

    def _row(self, seed: int) -> int:
        if seed not in self.seeds:
            self.seeds[seed] = len(self.seeds)
            self.matrix = np.pad(self.matrix, (0, 1))
            self.right = np.pad(self.right, (0, 1))
        return self.seeds[seed]

    def noise(self, stated_sd: float | None = None) -> Noise | None:
        """Return the noise, with the share of the seeds where the data show one; see `estimate_noise`.

        A seed effect shows where the F test of the two-way layout rejects its absence at `SEED_LEVEL`. Then the spread
        around artifact and seed is that of the layout's residuals, with their degrees of freedom, and what the adapter
        states, which is about both together, does not enter.
        """
        squares, dof = self.squares + self.other_squares, self.dof + self.other_dof
        if stated_sd is not None:
            if not (math.isfinite(stated_sd) and stated_sd > 0):
                raise ValueError(f"A stated noise must be a positive number, not {stated_sd}.")
            squares, dof = squares + STATED_DOF * stated_sd**2, dof + STATED_DOF
        if dof == 0:
            return None
        return self._paired() or Noise(math.sqrt(squares / dof), dof)

    def _paired(self) -> Noise | None:
        """Return the noise with its seed effect; None where none shows."""
        if not self.seeds or self.squares == 0.0:
            return None
        inverse, rank = np.linalg.pinv(self.matrix, hermitian=True), float(np.linalg.matrix_rank(self.matrix))
        by_seeds = float(self.right @ inverse @ self.right)
        rest, rest_dof = max(self.squares - by_seeds, 0.0), self.dof - rank
        if rest_dof < 1 or rank < 1:
            return None
        variance = max(rest / rest_dof, _SMALLEST_SHARE * self.squares / self.dof)
        if float(fdtrc(rank, rest_dof, by_seeds / rank / variance)) >= SEED_LEVEL:
            return None
        # The seeds' sum of squares has the expectation rank * rest + trace * seed, and the trace is `dof`.
        weights = rank + self.other_dof
        seed = rank * (by_seeds - rank * variance) / self.dof
        seed += self.other_squares - self.other_dof * variance
        seed = max(seed / weights, 0.0)
        return Noise(math.sqrt(variance + seed), rest_dof, math.sqrt(seed))


SEED_LEVEL = 0.01
"""Chance of seeing a seed effect where there is none, each time the noise is estimated."""

_SMALLEST_SHARE = 1e-6
"""Where the rest repeats exactly, it is taken to be at least this share of the variance within artifacts."""


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
