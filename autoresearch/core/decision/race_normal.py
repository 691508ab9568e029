"""The race of two arms of repeated measurements: normal values, location and scale unknown; higher is better.

All that the race sees is the two-arm t statistic of the cumulative data. Whatever the scale, it has a noncentral t
distribution whose noncentrality depends on the effect in standard deviations alone, and ratios of these densities are
e-processes: the t statistic is the maximal invariant under location and scale, and mixing over both with the right-Haar
prior gives a likelihood ratio that no look can abuse. With d = min_effect in standard deviations, fixed before the
experiment,

    win  = (2/3 f(d) + 1/3 f(2d)) / f(0)                        against "not better"
    lose = (f(0) + f(-d/2) + f(-d) + f(-2d)) / 4 / f(d)         against "better by at least d"

Runs of other artifacts (calibration) add to the sum of squares and to the degrees of freedom.

Source: M. Pérez-Ortiz, T. Lardy, R. de Heide, P. Grünwald, "E-statistics, group invariance and anytime valid testing"
(2022), for the t test; the ratio of densities below is the textbook integral of the noncentral t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision.edge import edge
from autoresearch.core.decision.noise import estimate_noise

Vector = NDArray[np.float64]

_WIN = ((1.0, 2 / 3), (2.0, 1 / 3))
_LOSE = ((0.0, 0.25), (-0.5, 0.25), (-1.0, 0.25), (-2.0, 0.25))
_FLOOR = 1e-7
"""Share of a value below which sums of squares in double precision show no spread; see `noise`."""

_STEP = 0.0625
_NODES = np.sinh(np.arange(-6.5, 3.25, _STEP))
_WEIGHTS = np.sqrt(1.0 + _NODES**2) * _STEP
"""Where the integrand is taken, in units of its width around its mode, and what each value counts. The trapezoidal rule
on a smooth integrand that dies off at both ends converges faster than any power; the sine stretches the nodes far to
the left, where the integrand of one degree of freedom dies off slowly. Good for ten digits and more."""


@dataclass(frozen=True, slots=True)
class TStatistic:
    """What the race sees of one look.

    Attributes:
        t: The two-arm t statistic, positive where the treatment is better.
        dof: Degrees of freedom, 1 or more.
        sd: Pooled standard deviation, calibration included.
        difference: Mean of the treatment less mean of the control.
        size: n_a n_b / (n_a + n_b); an effect of d standard deviations has the noncentrality d sqrt(size).
        runs: Measurements of both arms, n_a + n_b.
    """

    t: float
    dof: float
    sd: float
    difference: float
    size: float
    runs: float

    def grown(self, share: float) -> TStatistic:
        """Return what to expect after `share` times as many measurements more, means and spread staying as they are."""
        factor, more = 1.0 + share, share * self.runs
        return TStatistic(
            self.t * math.sqrt(factor), self.dof + more, self.sd, self.difference, self.size * factor, self.runs + more
        )

    @property
    def error(self) -> float:
        """Standard error of the difference."""
        return self.sd / math.sqrt(self.size)


def t_statistic(control: ArmTotals, treatment: ArmTotals, calibration: Sequence[ArmTotals] = ()) -> TStatistic | None:
    """Return the t statistic of cumulative totals; None where an arm is empty or nothing was measured twice.

    Args:
        control: Totals of the control.
        treatment: Totals of the treatment.
        calibration: Totals of other artifacts, one each; only their spread counts.

    Raises:
        ValueError: If a total is not finite.
    """
    noise = estimate_noise([control, treatment, *calibration])
    for arm in (control, treatment):
        if not math.isfinite(arm.total):
            raise ValueError(f"The sum over {arm.arm} is {arm.total}; a value that is not finite cannot be judged.")
    if noise is None or control.n == 0 or treatment.n == 0:
        return None
    # A metric that repeats exactly has no spread to divide by; what double precision cannot show stands in for it.
    sd = max(noise.sd, _FLOOR * max(abs(control.mean), abs(treatment.mean)), 1e-300)
    size = control.n * treatment.n / (control.n + treatment.n)
    difference = treatment.mean - control.mean
    t = difference / sd * math.sqrt(size)
    return TStatistic(t, noise.dof, sd, difference, size, control.n + treatment.n)


def log_density_ratio(t: float, dof: float, noncentrality: ArrayLike) -> Vector:
    """Return log f(t; dof, noncentrality) - log f(t; dof, 0) of the noncentral t density; stable for any t.

    With w = t / sqrt(dof + t^2) the ratio is, for a noncentrality m,

        exp(-m^2/2) / (2^((dof-1)/2) Gamma((dof+1)/2)) * integral over r > 0 of r^dof exp(-r^2/2 + m w r)

    and with r = e^s the integrand has one peak and dies off on both sides, so that it is summed around its peak in
    logarithms. Nothing overflows where densities underflow, as they do beyond t of about 40.

    Args:
        t: The statistic; finite.
        dof: Degrees of freedom, 1 or more.
        noncentrality: Any shape; the answer has the same.
    """
    m = np.asarray(noncentrality, dtype=np.float64)[..., None]
    slope = m * (t / math.hypot(math.sqrt(dof), t))
    # The mode solves r^2 - slope r = dof + 1. The root that is larger in size loses no digits, and gives the other one.
    larger = (np.abs(slope) + np.sqrt(slope**2 + 4.0 * (dof + 1.0))) / 2.0
    mode = np.where(slope > 0, larger, (dof + 1.0) / larger)
    width = 1.0 / np.sqrt(mode**2 + dof + 1.0)
    s = width * _NODES
    grown = np.expm1(s)
    # Less the value at the mode, term by term, so that large numbers never meet.
    rest = (dof + 1.0) * s - mode**2 * (grown + grown**2 / 2.0) + slope * mode * grown
    peak = (dof + 1.0) * np.log(mode) - mode**2 / 2.0 + slope * mode
    integral = np.log((np.exp(rest) * _WEIGHTS).sum(axis=-1, keepdims=True) * width) + peak
    constant = (dof - 1.0) / 2.0 * math.log(2.0) + math.lgamma((dof + 1.0) / 2.0)
    return np.asarray((integral - m**2 / 2.0 - constant)[..., 0], dtype=np.float64)


def _log_mixture(t: float, statistic: TStatistic, d: float, parts: Sequence[tuple[float, float]]) -> float:
    """Return the log of the mixed density at effects of `parts`, in units of d, over the density at no effect."""
    effects = np.array([effect for effect, _ in parts]) * d * math.sqrt(statistic.size)
    logs = log_density_ratio(t, statistic.dof, effects)
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top) @ np.array([weight for _, weight in parts])))


def log_win(statistic: TStatistic, d: float, shift: float = 0.0) -> float:
    """Return the log of the e-value against "not better".

    Args:
        statistic: Of the cumulative data.
        d: Smallest effect worth having, in standard deviations; fixed before the experiment.
        shift: Tests "better by at most `shift` standard errors" instead.
    """
    return _log_mixture(statistic.t - shift, statistic, d, _WIN)


def log_lose(statistic: TStatistic, d: float, shift: float = 0.0) -> float:
    """Return the log of the e-value against "better by at least d"; with `shift`, by at least so many errors more."""
    t = statistic.t - shift
    return _log_mixture(t, statistic, d, _LOSE) - _log_mixture(t, statistic, d, ((1.0, 1.0),))


_FARTHEST_ERRORS = 1e6


def lower_effect(statistic: TStatistic, d: float, log_level: float) -> float:
    """Return the lower bound of the effect, in the unit of the values; minus infinity where nothing can be rejected.

    With few degrees of freedom the e-value has a ceiling that no t can pass, and then there is no bound.
    """
    y = edge(lambda y: log_win(statistic, d, y) - log_level, rising=False, step=1.0, limit=_FARTHEST_ERRORS)
    return y * statistic.error


def upper_effect(statistic: TStatistic, d: float, log_level: float, min_effect: float) -> float:
    """Return the upper bound of the effect, in the unit of the values; infinity where nothing can be rejected.

    Args:
        statistic: Of the cumulative data.
        d: `min_effect` in standard deviations, as fixed before the experiment.
        log_level: Log of the threshold, log(1/beta).
        min_effect: In the unit of the values: the effect that `log_lose` without a shift is about.
    """
    y = edge(lambda y: log_lose(statistic, d, y) - log_level, rising=True, step=1.0, limit=_FARTHEST_ERRORS)
    return min_effect + y * statistic.error
