"""The asymptotic race of means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision.race_means import (
    FEWEST_UNITS,
    Means,
    log_lose,
    log_normal_cdf,
    log_one_sided,
    log_win,
    lower_lift,
    means_of,
    two_sided_radius,
    upper_lift,
)


def arm(n: int, mean: float, sd: float, name: str = "control") -> ArmTotals:
    return ArmTotals(name, n, n * mean, (n - 1) * sd**2 + n * mean**2)


@given(st.floats(-200, 40))
def test_log_of_the_normal_distribution(x: float) -> None:
    """It agrees with the library to eight digits, far into the tail too."""
    assert log_normal_cdf(x) == pytest.approx(norm.logcdf(x), rel=1e-6, abs=1e-12)


@given(st.floats(0.01, 100.0))
def test_the_mixture_is_an_e_value(r: float) -> None:
    """Its expectation under a standard normal z is one, by numerical integration."""
    z = np.linspace(-12, 12 * math.sqrt(1 + r) + 12, 6001)
    values = np.array([math.exp(log_one_sided(float(point), r) - point**2 / 2) for point in z])
    assert float(np.trapezoid(values, z)) / math.sqrt(2 * math.pi) == pytest.approx(1.0, rel=1e-4)


@given(st.floats(0.1, 10), st.floats(0.05, 20), st.floats(0.05, 0.5), st.floats(0.01, 0.5))
def test_bounds_agree_with_the_verdict(mean_b: float, error: float, min_effect: float, rate: float) -> None:
    """The lower bound is above zero exactly when win crosses, the upper below the effect exactly when lose does."""
    means, level = Means(1.0, mean_b, 0.01 * error**2, 0.01 * error**2), -math.log(rate)
    low, high = lower_lift(means, min_effect, level), upper_lift(means, min_effect, level)
    assert (low >= 0) if log_win(means, min_effect) >= level else (low <= 0)
    assert (high <= min_effect) if log_lose(means, min_effect) >= level else (high >= min_effect)


def test_the_error_of_a_scaled_control_is_scaled() -> None:
    """By hand: against "mu_b >= 1.5 mu_a" the error is that of mean_b less 1.5 times mean_a."""
    means = Means(2.0, 2.4, 0.01, 0.04)
    square = 0.04 + 1.5**2 * 0.01
    expected = log_one_sided((1.5 * 2.0 - 2.4) / math.sqrt(square), (0.5 * 2.0) ** 2 / square)
    assert log_lose(means, 0.5) == pytest.approx(expected, rel=1e-12)
    assert log_win(means, 0.5) == pytest.approx(log_one_sided(0.4 / math.sqrt(0.05), 1.0 / 0.05), rel=1e-12)


def test_nothing_is_said_of_small_samples() -> None:
    """Below a hundred units in an arm there is no limit to speak of."""
    assert means_of(arm(FEWEST_UNITS - 1, 1.0, 1.0), arm(10_000, 1.0, 1.0)) is None
    assert means_of(arm(FEWEST_UNITS, 1.0, 1.0), arm(FEWEST_UNITS, 1.0, 1.0)) is not None


def test_standard_errors_are_those_of_the_mean() -> None:
    """The squared error is the sample variance over n."""
    means = means_of(arm(400, 2.0, 3.0), arm(900, 2.5, 6.0))
    assert means is not None
    assert (means.square_a, means.square_b) == pytest.approx((9 / 400, 36 / 900))


def test_a_negative_control_is_refused() -> None:
    """A lift over a loss is no lift."""
    with pytest.raises(ValueError, match="negative mean"):
        means_of(arm(200, -1.0, 1.0), arm(200, 1.0, 1.0))


def test_totals_that_are_not_finite_are_refused() -> None:
    """NaN gets a sentence."""
    with pytest.raises(ValueError, match="not finite"):
        means_of(ArmTotals("control", 200, math.nan, 1.0), arm(200, 1.0, 1.0))


def test_heavy_tails_keep_false_keeps_near_alpha() -> None:
    """Of 400 null tests of skewed revenue with 20 looks, at most 5 % cross, give or take luck."""
    rng = np.random.default_rng(4)
    kept = 0
    for _ in range(400):
        values = rng.lognormal(0.0, 1.0, (2, 20, 200))
        n = 200 * np.arange(1, 21)
        total, square = values.sum(axis=2).cumsum(axis=1), (values**2).sum(axis=2).cumsum(axis=1)
        for look in range(20):
            arms = [
                ArmTotals(name, int(n[look]), float(total[i, look]), float(square[i, look]))
                for i, name in enumerate("ab")
            ]
            means = means_of(*arms)
            assert means is not None
            if log_win(means, 0.1) >= math.log(20):
                kept += 1
                break
    assert kept / 400 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)


def test_two_sided_radius_is_tight_where_it_is_tuned() -> None:
    """Among the usual tunings, the one for a sample of 5,000 gives the shortest interval at 5,000."""
    radii = {tuned: two_sided_radius(5000, 0.05, tuned) for tuned in (500, 5000, 50_000)}
    assert min(radii, key=radii.__getitem__) == 5000
    assert 2.5 < radii[5000] < 3.2
