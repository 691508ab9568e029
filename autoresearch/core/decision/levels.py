"""What is believed of the levels behind the values: one joint normal distribution, updated by every measurement.

Three kinds of levels are unknown, all in units of the noise and with higher better:

- the incumbent as the machine measures it now: its true mean plus whatever the machine adds these days,
- the baseline as the machine would measure it now: the same machine, so that drift moves both and is no gain,
- what each of the first few seeds adds to every artifact measured with it; none of these where seeds add nothing.

The first run of an artifact has the first seed, its second run the second, and so on; a run that no seed's level is
kept for has the spread between seeds in its own variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.adapter import ArmTotals

Vector = NDArray[np.float64]

INCUMBENT, BASELINE = 0, 1
FIRST_SEED = 2

SEEDS = 3
"""How many seeds have a level of their own: hardly a candidate is measured more often."""

_FARTHEST = 1e300
"""Largest value, in units of the noise, that is reckoned with."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Measurements of one artifact, in units of the noise.

    Attributes:
        shows: How much of each level each value shows. Shape (k, D).
        variance: Sampling variance of each value around its levels. Shape (k,).
        values: What was measured. Shape (k,).
    """

    shows: Vector
    variance: Vector
    values: Vector


@dataclass(frozen=True, slots=True)
class Seen:
    """What an artifact's runs say of its difference to the incumbent, and how they move the levels.

    Attributes:
        difference: Best estimate of the difference.
        variance: Its variance around the true difference.
        before: Mean of the levels before. Shape (D,).
        surprise: How far each value lies from what the incumbent would have shown. Shape (k,).
        gains: How far each level moves per unit of surprise. Shape (D, k).
        covariance: Of the levels, the difference being known. Shape (D, D).
    """

    difference: float
    variance: float
    before: Vector
    surprise: Vector
    gains: Vector
    covariance: Vector

    @property
    def slope(self) -> Vector:
        """How far each level falls per unit of difference. Shape (D,)."""
        return self.gains[:, 0].copy() if len(self.surprise) == 1 else np.asarray(self.gains.sum(axis=1))

    def given(self, difference: float) -> Vector:
        """Return the mean of the levels if this is the difference. Shape (D,)."""
        return np.asarray(self.before + self.gains @ (self.surprise - difference))


@dataclass(frozen=True, slots=True)
class Levels:
    """A joint normal distribution of incumbent, baseline and seeds.

    Attributes:
        mean: Shape (D,).
        covariance: Shape (D, D).
    """

    mean: Vector
    covariance: Vector

    @property
    def gain(self) -> float:
        """Expected gain of the incumbent over the baseline."""
        return float(self.mean[INCUMBENT] - self.mean[BASELINE])

    @property
    def gain_sd(self) -> float:
        """Standard deviation of that gain; 0 while the incumbent is the baseline."""
        both = self.covariance[INCUMBENT, INCUMBENT] + self.covariance[BASELINE, BASELINE]
        return math.sqrt(max(float(both - 2.0 * self.covariance[INCUMBENT, BASELINE]), 0.0))

    def moved(self, variance: float) -> Levels:
        """Return the belief after the machine may have moved, incumbent and baseline alike, by a normal amount."""
        covariance = self.covariance.copy()
        covariance[:FIRST_SEED, :FIRST_SEED] += variance
        return Levels(self.mean, covariance)

    def see(self, runs: Runs) -> Seen:
        """Return what the runs of an artifact say."""
        projected = self.covariance @ runs.shows.T
        surprise = runs.values - runs.shows @ self.mean
        if len(runs.values) == 1:  # the same as below, in a third of the time
            variance = float(runs.shows[0] @ projected[:, 0]) + float(runs.variance[0])
            gains = projected / variance
            covariance = self.covariance - gains @ projected.T
            return Seen(float(surprise[0]), variance, self.mean, surprise, gains, covariance)
        spread = np.asarray(runs.shows @ projected + np.diag(runs.variance), dtype=np.float64)
        weights = np.asarray(np.linalg.solve(spread, np.ones(len(runs.values))), dtype=np.float64)
        information = float(weights.sum())
        gains = np.asarray(np.linalg.solve(spread, projected.T).T, dtype=np.float64)
        covariance = self.covariance - gains @ projected.T
        difference = float(weights @ surprise) / information
        return Seen(difference, 1.0 / information, self.mean, surprise, gains, covariance)

    def measured(self, runs: Runs) -> Levels:
        """Return the belief after runs of the incumbent itself."""
        seen = self.see(runs)
        return Levels(seen.given(0.0), seen.covariance)


def if_reverted(seen: Seen, expected: float, spread: float) -> Levels:
    """Return the levels after a candidate, mixed over its effect: `expected` with the variance `spread`."""
    slope = seen.slope
    return Levels(seen.given(expected), seen.covariance + spread * np.outer(slope, slope))


def if_kept(seen: Seen, expected: float, spread: float) -> Levels:
    """Return the levels when the candidate is the incumbent from now on; arguments as for `if_reverted`."""
    mean, slope = seen.given(expected), -seen.slope
    mean[INCUMBENT] += expected
    slope[INCUMBENT] += 1.0
    return Levels(mean, seen.covariance + spread * np.outer(slope, slope))


@dataclass(frozen=True, slots=True)
class Scale:
    """How values become units of the noise.

    Attributes:
        unit: What values are divided by: the noise, with the sign that makes higher better.
        seed_variance: Variance of what seeds add, in squared units; 0 where they add nothing.
    """

    unit: float
    seed_variance: float = 0.0

    @property
    def size(self) -> int:
        """Number of levels."""
        return FIRST_SEED + (SEEDS if self.seed_variance else 0)

    def runs_of(self, cumulative: Sequence[ArmTotals]) -> Runs:
        """Return the runs of one arm from its totals look by look.

        Where seeds add nothing the mean says it all; else each look's runs are told apart by their seeds.

        Raises:
            ValueError: If a total is not finite.
        """
        steps = _increments(cumulative) if self.seed_variance else [(0, cumulative[-1])]
        shows = np.zeros((len(steps), self.size))
        variance, values = np.empty(len(steps)), np.empty(len(steps))
        for row, (first, totals) in enumerate(steps):
            shows[row, INCUMBENT] = 1.0
            variance[row] = 1.0 / totals.n
            values[row] = self.in_units(totals)
            for seed in range(first, first + totals.n) if self.seed_variance else ():
                if seed < SEEDS:
                    shows[row, FIRST_SEED + seed] = 1.0 / totals.n
                else:
                    variance[row] += self.seed_variance / totals.n**2
        return Runs(shows, variance, values)

    def in_units(self, totals: ArmTotals) -> float:
        """Return the mean in units of the noise, higher is better.

        Raises:
            ValueError: If the total is not finite.
        """
        if not math.isfinite(totals.total):
            raise ValueError(
                f"The sum over {totals.arm} is {totals.total}; a value that is not finite cannot be judged."
            )
        # A diverged candidate's value may be finite, but not when divided by the noise; and one infinity in the
        # history would leave no belief about anything after it.
        return max(-_FARTHEST, min(_FARTHEST, totals.mean / self.unit))

    def start(self, runs: Runs) -> Levels:
        """Return what the runs of the baseline say, nothing being known before."""
        mean, covariance = np.zeros(self.size), np.zeros((self.size, self.size))
        seeds = range(FIRST_SEED, self.size)
        covariance[seeds, seeds] = self.seed_variance
        # The first value is baseline + seeds + noise, and nothing else is known of the baseline: it is the value less
        # the seeds less the noise.
        from_seeds = -covariance @ runs.shows[0]
        covariance[:FIRST_SEED, :] += from_seeds
        covariance[:, :FIRST_SEED] += from_seeds[:, None]
        covariance[:FIRST_SEED, :FIRST_SEED] = runs.variance[0] - float(from_seeds @ runs.shows[0])
        mean[:FIRST_SEED] = runs.values[0]
        levels = Levels(mean, covariance)
        if len(runs.values) == 1:
            return levels
        return levels.measured(Runs(runs.shows[1:], runs.variance[1:], runs.values[1:]))


def _increments(cumulative: Sequence[ArmTotals]) -> list[tuple[int, ArmTotals]]:
    """Return (number of runs before, totals of the new runs) for each look that brought any."""
    steps, before = [], ArmTotals("", 0, 0.0, 0.0)
    for totals in cumulative:
        if totals.n > before.n:
            new = ArmTotals(totals.arm, totals.n - before.n, totals.total - before.total, 0.0)
            steps.append((before.n, new))
        before = totals
    return steps
