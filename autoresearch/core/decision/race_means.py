"""The race of two means of any values, such as revenue per visitor: asymptotic, and labelled so wherever it is shown.

Heavy tails leave no exact test without a bound on the values. What remains is the time-uniform central limit theorem:
with growing samples the difference of two means, followed over time, is as good as a Gaussian martingale whose variance
is estimated. Its one-sided normal mixture gives e-values, and their inversion a confidence sequence, that hold in the
limit. They are not for small samples: below `FEWEST_UNITS` units in an arm nothing is said.

The null is linear, as for proportions: {mu_b <= k mu_a} is tested by D = mean_b - k mean_a with the squared error
s_b^2/n_b + k^2 s_a^2/n_a. Mixing exp(m D/e^2 - m^2/(2e^2)) over a half-normal m of scale tau gives, with z = D/e and
r = (tau/e)^2,

    E = 2 / sqrt(1+r) exp(z^2 r / (2(1+r))) Phi(z sqrt(r/(1+r)))

Source: I. Waudby-Smith, D. Arbour, R. Sinha, E. H. Kennedy, A. Ramdas, "Time-uniform central limit theory and
asymptotic confidence sequences" (2021); the mixture is Robbins' (1970).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision.edge import edge

FEWEST_UNITS = 100
"""Units that each arm must have before anything is said; a limit theorem needs a sample."""

_FARTHEST_LOG_RATIO = 14.0


@dataclass(frozen=True, slots=True)
class Means:
    """Cumulative data of one look.

    Attributes:
        mean_a: Mean of the control, above 0: a lift is relative to it.
        mean_b: Mean of the treatment.
        square_a: Squared standard error of `mean_a`.
        square_b: Squared standard error of `mean_b`.
    """

    mean_a: float
    mean_b: float
    square_a: float
    square_b: float


def means_of(control: ArmTotals, treatment: ArmTotals) -> Means | None:
    """Return means and squared errors; None where an arm has too few units, or no unit differs from another.

    Raises:
        ValueError: If a total is not finite, or the control's mean is below 0.
    """
    for arm in (control, treatment):
        if not (math.isfinite(arm.total) and math.isfinite(arm.total_sq)):
            raise ValueError(f"The totals of {arm.arm} are not finite: sum {arm.total}, sum of squares {arm.total_sq}.")
    if min(control.n, treatment.n) < FEWEST_UNITS:
        return None
    if control.mean < 0:
        raise ValueError(
            f"The mean of {control.arm} is {control.mean:.6g}, and a lift relative to a negative mean says nothing; "
            "measure something that is not negative."
        )
    means = Means(control.mean, treatment.mean, _square_error(control), _square_error(treatment))
    return means if means.square_a > 0 and means.square_b > 0 and means.mean_a > 0 else None


def _square_error(arm: ArmTotals) -> float:
    return max(arm.total_sq - arm.total * arm.mean, 0.0) / (arm.n - 1) / arm.n


def log_normal_cdf(x: float) -> float:
    """Return log Phi(x); where Phi underflows, from the first terms of its asymptotic series."""
    if x > -30.0:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2.0)))
    series = 1.0 - 1.0 / x**2 + 3.0 / x**4
    return -(x**2) / 2.0 - math.log(-x) - 0.5 * math.log(2.0 * math.pi) + math.log(series)


def log_one_sided(z: float, r: float) -> float:
    """Return the log of the half-normal mixture's e-value for a z statistic.

    Args:
        z: Difference in standard errors; large where the null is wrong.
        r: Squared scale of the mixture in standard errors.
    """
    return (
        math.log(2.0) - 0.5 * math.log1p(r) + z**2 * r / (2.0 * (1.0 + r)) + log_normal_cdf(z * math.sqrt(r / (1 + r)))
    )


def _log_e(means: Means, k: float, min_effect: float, sign: float) -> float:
    square = means.square_b + k**2 * means.square_a
    z = sign * (means.mean_b - k * means.mean_a) / math.sqrt(square)
    return log_one_sided(z, (min_effect * means.mean_a) ** 2 / square)


def log_win(means: Means, min_effect: float, k: float = 1.0) -> float:
    """Return the log of the asymptotic e-value against "mu_b <= k mu_a"; k = 1 is "not better"."""
    return _log_e(means, k, min_effect, 1.0)


def log_lose(means: Means, min_effect: float, k: float | None = None) -> float:
    """Return the log of the asymptotic e-value against "mu_b >= k mu_a"; by default k = 1 + min_effect."""
    return _log_e(means, 1.0 + min_effect if k is None else k, min_effect, -1.0)


def lower_lift(means: Means, min_effect: float, log_level: float) -> float:
    """Return the lower bound of the lift mu_b / mu_a - 1; -1 where even tiny ratios are not rejected."""
    y = edge(
        lambda y: log_win(means, min_effect, math.exp(y)) - log_level,
        rising=False,
        step=0.1,
        limit=_FARTHEST_LOG_RATIO,
    )
    return math.expm1(y)


def upper_lift(means: Means, min_effect: float, log_level: float) -> float:
    """Return the upper bound of the lift; infinity where there is none."""
    slope = 1.0 + min_effect
    y = edge(
        lambda y: log_lose(means, min_effect, slope * math.exp(y)) - log_level,
        rising=True,
        step=0.1,
        limit=_FARTHEST_LOG_RATIO,
    )
    return slope * math.exp(y) - 1.0 if y else min_effect


def two_sided_radius(n: float, alpha: float, tuned_for: float) -> float:
    """Return the half-width of the two-sided asymptotic confidence sequence, in standard errors of the mean.

    This is the rule of the leading platforms: declare a winner when the interval leaves zero.

    Args:
        n: Number of units so far.
        alpha: Two-sided error rate.
        tuned_for: Number of units at which the sequence is to be tight.

    Source: equation for `rho` and the boundary of the paper above.
    """
    log_alpha = -2.0 * math.log(alpha)
    rho = math.sqrt((log_alpha + math.log(log_alpha) + 1.0) / tuned_for)
    v = n * rho**2
    return math.sqrt(2.0 * (v + 1.0) / v * math.log(math.sqrt(v + 1.0) / alpha))
