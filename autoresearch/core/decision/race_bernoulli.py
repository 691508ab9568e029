"""The race of two proportions: exact at any sample size, at any moment, for any allocation of units to arms.

Arm a is the control, arm b the treatment; higher is better. The null of a test is a half of the unit square,
{theta_b <= k theta_a} or {theta_b >= k theta_a}. Against it stands an alternative (theta_a, theta_b) that is chosen
from earlier looks only. One look with n_a, n_b units and x_a, x_b conversions multiplies the e-process by the
likelihood of the alternative over that of its projection (a, b) onto the edge b = k a:

    (theta_a/a)^x_a ((1-theta_a)/(1-a))^(n_a-x_a) (theta_b/b)^x_b ((1-theta_b)/(1-b))^(n_b-x_b)

Under any point of the null its expectation is at most 1: the projection minimises the divergence over the null, which
is convex, and the log is concave. So the product over the looks is a nonnegative supermartingale, and the chance that
it ever reaches 1/alpha is at most alpha (Ville).

Everything is vectorised: arrays have the looks in their last axis, and any number of repetitions before it.

Source: R. Turner, A. Ly, P. Grünwald, "Generic E-variables for exact sequential k-sample tests that allow for optional
stopping" (2021), with the projection for a linear null; Ville's inequality (1939).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoresearch.core.decision.edge import edge

Vector = NDArray[np.float64]

PRIOR = (1.0, 19.0)
"""Successes and failures that the pooled rate begins with: one conversion in twenty, worth twenty units."""

_CLIP = 1e-9
_WIN = ((1.0, 2 / 3), (2.0, 1 / 3))
"""Lifts of the alternatives against "not better", in units of min_effect, and their weights."""
_LOSE = ((0.0, 0.25), (-0.5, 0.25), (-1.0, 0.25), (-2.0, 0.25))
"""The same against "better by at least min_effect"."""
_FARTHEST_LOG_RATIO = 14.0
"""Intervals end at ratios of one to a million: what lies beyond is as good as unbounded."""


class Null(Enum):
    """Which half of the square is tested."""

    AT_MOST = "theta_b <= k theta_a"
    AT_LEAST = "theta_b >= k theta_a"


@dataclass(frozen=True, slots=True)
class Counts:
    """Increments per look, the looks in the last axis: units and conversions of control (a) and treatment (b).

    All four have one shape (..., T). Build them with `of`, which checks.
    """

    n_a: Vector
    x_a: Vector
    n_b: Vector
    x_b: Vector

    @classmethod
    def of(cls, n_a: ArrayLike, x_a: ArrayLike, n_b: ArrayLike, x_b: ArrayLike) -> Counts:
        """Return the counts as arrays.

        Raises:
            ValueError: If a count is negative or not finite, or conversions exceed units.
        """
        arrays = np.broadcast_arrays(*(np.asarray(value, dtype=np.float64) for value in (n_a, x_a, n_b, x_b)))
        if not all(np.all(np.isfinite(array)) and np.all(array >= 0) for array in arrays):
            raise ValueError("Units and conversions of a look must be finite and not negative.")
        if np.any(arrays[1] > arrays[0]) or np.any(arrays[3] > arrays[2]):
            raise ValueError("A look has more conversions than units: each unit converts once at most.")
        return cls(*arrays)

    def upto(self, look: int) -> Counts:
        """Return the looks up to and including number `look`, counted from 0."""
        end = look + 1
        return Counts(self.n_a[..., :end], self.x_a[..., :end], self.n_b[..., :end], self.x_b[..., :end])

    def exchanged(self) -> Counts:
        """Return the same data with the arms' names exchanged: what a metric where lower is better needs."""
        return Counts(self.n_b, self.x_b, self.n_a, self.x_a)


def pooled_rate(counts: Counts, prior: tuple[float, float] = PRIOR) -> Vector:
    """Return the pooled rate before each look, from earlier looks and the prior's counts. Shape (..., T)."""
    successes, failures = prior
    x = np.cumsum(counts.x_a + counts.x_b, axis=-1) - (counts.x_a + counts.x_b)
    n = np.cumsum(counts.n_a + counts.n_b, axis=-1) - (counts.n_a + counts.n_b)
    return np.asarray((successes + x) / (successes + failures + n), dtype=np.float64)


def alternative(rate: ArrayLike, ratio: ArrayLike, n_a: ArrayLike, n_b: ArrayLike) -> tuple[Vector, Vector]:
    """Return (theta_a, theta_b) with theta_b = ratio theta_a whose mean over the look's units is `rate`.

    Both are clipped to [1e-9, 1 - 1e-9]; a negative ratio counts as 0. Arguments broadcast; a look needs units.
    """
    at_least_zero = np.maximum(ratio, 0.0)
    # A look whose units are all in b with ratio 0 has no such theta_a; the clip takes the infinity.
    with np.errstate(divide="ignore"):
        theta_a = np.asarray(rate) * np.add(n_a, n_b) / (n_a + at_least_zero * np.asarray(n_b))
    theta_a = np.minimum(theta_a, 1e9)
    return np.clip(theta_a, _CLIP, 1.0 - _CLIP), np.clip(at_least_zero * theta_a, _CLIP, 1.0 - _CLIP)


def projection(
    theta_a: ArrayLike, theta_b: ArrayLike, k: ArrayLike, n_a: ArrayLike, n_b: ArrayLike
) -> tuple[Vector, Vector]:
    """Return the point (a, k a) nearest to the alternative, in Kullback-Leibler divergence weighted by the arms' units.

    a is the smaller root of k(n_a+n_b)a^2 - [n_a(1+k theta_a) + n_b(k+theta_b)]a + (n_a theta_a + n_b theta_b) = 0, the
    first-order condition. Arguments broadcast.
    """
    n_a, n_b, k = np.asarray(n_a), np.asarray(n_b), np.asarray(k)
    square = k * (n_a + n_b)
    linear = n_a * (1.0 + k * theta_a) + n_b * (k + theta_b)
    constant = n_a * theta_a + n_b * theta_b
    # This form of the root subtracts nothing that is nearly equal.
    a = 2.0 * constant / (linear + np.sqrt(np.maximum(linear**2 - 4.0 * square * constant, 0.0)))
    return a, k * a


def log_factors(counts: Counts, theta_a: ArrayLike, theta_b: ArrayLike, k: float, null: Null) -> Vector:
    """Return the log of what each look multiplies the e-process by, for given alternatives. Shape as broadcast.

    0 where the alternative lies in the null, and where a look has no units.
    """
    theta_a, theta_b = np.asarray(theta_a, dtype=np.float64), np.asarray(theta_b, dtype=np.float64)
    empty = counts.n_a + counts.n_b == 0
    a, b = projection(theta_a, theta_b, k, counts.n_a + empty, counts.n_b + empty)
    a, b = np.clip(a, 1e-300, 1.0 - 1e-16), np.clip(b, 1e-300, 1.0 - 1e-16)
    logs = (
        counts.x_a * np.log(theta_a / a)
        + (counts.n_a - counts.x_a) * (np.log1p(-theta_a) - np.log1p(-a))
        + counts.x_b * np.log(theta_b / b)
        + (counts.n_b - counts.x_b) * (np.log1p(-theta_b) - np.log1p(-b))
    )
    inside = theta_b <= k * theta_a if null is Null.AT_MOST else theta_b >= k * theta_a
    return np.where(inside | empty, 0.0, logs)


def log_e(
    counts: Counts,
    k: float,
    null: Null,
    ratios: tuple[tuple[float, float], ...],
    prior: tuple[float, float] = PRIOR,
) -> Vector:
    """Return the log of the e-process after each look. Shape (..., T).

    Args:
        counts: Increments per look.
        k: Slope of the null's edge, above 0.
        null: Which side of the edge is tested.
        ratios: (theta_b / theta_a, weight) of each alternative; weights sum to 1. The mixture is of whole products over
            the looks: every alternative is followed from the first look on.
        prior: Successes and failures that the pooled rate begins with.
    """
    ones = (1,) * counts.n_a.ndim
    ratio = np.array([ratio for ratio, _ in ratios]).reshape(-1, *ones)
    weight = np.array([weight for _, weight in ratios]).reshape(-1, *ones)
    empty = counts.n_a + counts.n_b == 0
    theta_a, theta_b = alternative(pooled_rate(counts, prior), ratio, counts.n_a + empty, counts.n_b + empty)
    products = np.cumsum(log_factors(counts, theta_a, theta_b, k, null), axis=-1)
    top = products.max(axis=0)
    return np.asarray(top + np.log((weight * np.exp(products - top)).sum(axis=0)), dtype=np.float64)


def log_win(counts: Counts, min_effect: float, prior: tuple[float, float] = PRIOR, k: float = 1.0) -> Vector:
    """Return the log of the e-process against "theta_b <= k theta_a" after each look; k = 1 is "not better"."""
    ratios = tuple((k * (1.0 + lift * min_effect), weight) for lift, weight in _WIN)
    return log_e(counts, k, Null.AT_MOST, ratios, prior)


def log_lose(counts: Counts, min_effect: float, prior: tuple[float, float] = PRIOR, k: float | None = None) -> Vector:
    """Return the log of the e-process against "theta_b >= k theta_a"; by default k = 1 + min_effect."""
    slope = 1.0 + min_effect if k is None else k
    ratios = tuple((slope * (1.0 + lift * min_effect) / (1.0 + min_effect), weight) for lift, weight in _LOSE)
    return log_e(counts, slope, Null.AT_LEAST, ratios, prior)


def lower_lift(counts: Counts, min_effect: float, log_level: float, prior: tuple[float, float] = PRIOR) -> float:
    """Return the lower bound of the lift after the last look: nulls "lift at most this" below it are rejected.

    Args:
        counts: One series of looks, shape (T,).
        min_effect: As in `log_win`; the alternatives scale with the null.
        log_level: Log of the threshold, log(1/alpha).
        prior: As in `log_win`.

    Returns:
        The lift; -1 where even tiny ratios are not rejected.
    """
    y = edge(
        lambda y: float(log_win(counts, min_effect, prior, math.exp(y))[-1]) - log_level,
        rising=False,
        step=0.1,
        limit=_FARTHEST_LOG_RATIO,
    )
    return math.expm1(y)


def upper_lift(counts: Counts, min_effect: float, log_level: float, prior: tuple[float, float] = PRIOR) -> float:
    """Return the upper bound of the lift after the last look; infinity where there is none. See `lower_lift`."""
    slope = 1.0 + min_effect
    y = edge(
        lambda y: float(log_lose(counts, min_effect, prior, slope * math.exp(y))[-1]) - log_level,
        rising=True,
        step=0.1,
        limit=_FARTHEST_LOG_RATIO,
    )
    return slope * math.exp(y) - 1.0 if y else min_effect
