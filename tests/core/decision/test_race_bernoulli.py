"""The race of two proportions against its published vectors and its own theory."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoresearch.core.decision.race_bernoulli import (
    Counts,
    Null,
    alternative,
    log_factors,
    log_lose,
    log_win,
    lower_lift,
    pooled_rate,
    projection,
    upper_lift,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "race_bernoulli.json").read_text(encoding="utf-8"))
RATES = st.floats(0.001, 0.999)


def counts(*looks: tuple[float, float, float, float]) -> Counts:
    return Counts.of(*np.array(looks, dtype=float).T)


@st.composite
def series(draw: st.DrawFn) -> Counts:
    """A few looks of any size and allocation, units in at least one arm."""
    looks = []
    for _ in range(draw(st.integers(1, 4))):
        n_a, n_b = draw(st.integers(0, 400)), draw(st.integers(0, 400))
        looks.append((n_a, draw(st.integers(0, n_a)), n_b, draw(st.integers(0, n_b))))
    assume(any(look[0] + look[2] for look in looks))
    return counts(*looks)


@pytest.mark.parametrize("case", VECTORS["projection"])
def test_projection_gives_the_known_answers(case: dict[str, float]) -> None:
    """The nearest point of the null's edge agrees with the vectors to nine digits."""
    a, b = projection(case["theta_a"], case["theta_b"], case["k"], case["n_a"], case["n_b"])
    assert float(a) == pytest.approx(case["a"], rel=1e-9)
    assert float(b) == pytest.approx(case["b"], rel=1e-9)


@pytest.mark.parametrize("case", VECTORS["race"], ids=lambda case: case["name"])
def test_race_gives_the_known_answers(case: dict[str, Any]) -> None:
    """Win and lose after every look agree with the vectors to nine digits, changing allocation included."""
    data, prior = counts(*case["looks"]), tuple(case["prior"])
    assert np.exp(log_win(data, case["min_effect"], prior)) == pytest.approx(case["win"], rel=1e-9)
    assert np.exp(log_lose(data, case["min_effect"], prior)) == pytest.approx(case["lose"], rel=1e-9)


def test_repetitions_are_judged_as_they_are_one_by_one() -> None:
    """A whole array of repetitions gives what each series gives alone."""
    rng = np.random.default_rng(5)
    n = rng.integers(1, 50, (2, 3, 4))
    x = rng.binomial(n, 0.2)
    many = Counts.of(n[0], x[0], n[1], x[1])
    together = log_lose(many, 0.3)
    for index in range(3):
        alone = Counts.of(n[0, index], x[0, index], n[1, index], x[1, index])
        assert together[index] == pytest.approx(log_lose(alone, 0.3), rel=1e-12)


def binomial(n: int, p: float) -> np.ndarray:
    k = np.arange(n + 1)
    return np.array([math.comb(n, i) for i in k]) * p**k * (1 - p) ** (n - k)


@given(st.integers(0, 9), st.integers(0, 9), RATES, RATES, st.floats(0.05, 8.0), st.sampled_from(Null), RATES, RATES)
def test_the_expected_factor_is_at_most_one_under_the_null(
    n_a: int, n_b: int, theta_a: float, theta_b: float, k: float, null: Null, p_a: float, p_b: float
) -> None:
    """Whatever alternative is bet on, whatever point of the null is true: no look is expected to gain, exactly."""
    assume(n_a + n_b > 0)
    assume(p_b <= k * p_a if null is Null.AT_MOST else p_b >= k * p_a)
    x_a, x_b = np.meshgrid(np.arange(n_a + 1.0), np.arange(n_b + 1.0), indexing="ij")
    every = Counts.of(np.full_like(x_a, n_a), x_a, np.full_like(x_b, n_b), x_b)
    factors = np.exp(log_factors(every, theta_a, theta_b, k, null))
    chance = np.outer(binomial(n_a, p_a), binomial(n_b, p_b))
    assert float((factors * chance).sum()) <= 1 + 1e-9


def test_an_alternative_outside_the_null_does_gain_when_it_is_true() -> None:
    """The bound above is not met by betting nothing: under the alternative itself the look is expected to gain."""
    x_a, x_b = np.meshgrid(np.arange(10.0), np.arange(10.0), indexing="ij")
    every = Counts.of(np.full_like(x_a, 9), x_a, np.full_like(x_b, 9), x_b)
    factors = np.exp(log_factors(every, 0.2, 0.6, 1.0, Null.AT_MOST))
    assert float((factors * np.outer(binomial(9, 0.2), binomial(9, 0.6))).sum()) > 2


@given(series(), st.floats(0.02, 2.0), st.integers(0, 4))
def test_a_look_without_units_changes_nothing(data: Counts, min_effect: float, where: int) -> None:
    """It multiplies both e-processes by one, wherever it falls."""
    place = min(where, data.n_a.size)
    empty = Counts(*(np.insert(part, place, 0.0) for part in (data.n_a, data.x_a, data.n_b, data.x_b)))
    assert log_win(empty, min_effect)[-1] == pytest.approx(log_win(data, min_effect)[-1], rel=1e-12, abs=1e-12)
    assert log_lose(empty, min_effect)[-1] == pytest.approx(log_lose(data, min_effect)[-1], rel=1e-12, abs=1e-12)


@given(RATES, st.floats(-2.0, 1e4), st.integers(0, 1000), st.integers(0, 1000))
def test_rates_are_clipped(rate: float, ratio: float, n_a: int, n_b: int) -> None:
    """No alternative leaves [1e-9, 1 - 1e-9], negative and enormous ratios included."""
    assume(n_a + n_b > 0)
    for theta in alternative(rate, ratio, n_a, n_b):
        assert 1e-9 <= float(theta) <= 1 - 1e-9


def test_an_alternative_in_the_null_bets_nothing() -> None:
    """Where the clip pushes the alternative into the null, the look multiplies by one."""
    assert float(log_factors(counts((10, 1, 10, 9)), 0.4, 0.3, 1.0, Null.AT_MOST)[0]) == 0.0
    assert float(log_factors(counts((10, 1, 10, 9)), 0.3, 0.4, 1.0, Null.AT_LEAST)[0]) == 0.0


@given(series(), st.floats(0.02, 2.0))
def test_no_data_make_the_race_fail(data: Counts, min_effect: float) -> None:
    """Both logs are finite for every table: nobody converts, everybody does, an arm is empty."""
    assert np.all(np.isfinite(log_win(data, min_effect)))
    assert np.all(np.isfinite(log_lose(data, min_effect)))


def test_the_bet_is_placed_before_the_look() -> None:
    """The rate that a look's bet rests on does not contain that look."""
    data = counts((10, 5, 10, 5), (10, 0, 10, 0))
    assert pooled_rate(data, (1.0, 19.0)) == pytest.approx([1 / 20, 11 / 40])


@pytest.mark.parametrize("lift", [-0.4, 0.0, 0.3])
def test_intervals_cover_at_every_look(lift: float) -> None:
    """A bound is wrong when a null beyond the truth is rejected; over all looks and nulls that stays under the rate.

    Nulls are nested, so a bound lies where the first of them is rejected. In theory the supremum over them could be
    rejected more often than each alone; in these 2,000 small, ragged tests it is not.
    """
    rng, alpha = np.random.default_rng(7), 0.2
    n = rng.integers(0, 30, (2, 2000, 10))
    data = Counts.of(n[0], rng.binomial(n[0], 0.2), n[1], rng.binomial(n[1], 0.2 * (1 + lift)))
    beyond = np.exp(np.linspace(0.0, 3.0, 8))
    above = [log_win(data, 0.3, k=float((1 + lift) * step)).max(axis=-1) for step in beyond]
    below = [log_lose(data, 0.3, k=float((1 + lift) / step)).max(axis=-1) for step in beyond]
    for logs in (above, below):
        assert (np.max(logs, axis=0) >= -math.log(alpha)).mean() <= alpha


@given(series(), st.floats(0.05, 0.5), st.floats(0.01, 0.5))
def test_bounds_are_where_the_test_turns(data: Counts, min_effect: float, alpha: float) -> None:
    """The null just below the lower bound is rejected and the one just above is not; the upper bound likewise."""
    level = -math.log(alpha)
    low, high = lower_lift(data, min_effect, level), upper_lift(data, min_effect, level)
    if low > -1:
        assert float(log_win(data, min_effect, k=(1 + low) * (1 - 1e-4))[-1]) >= level - 1e-9
        assert float(log_win(data, min_effect, k=(1 + low) * (1 + 1e-4))[-1]) < level + 1e-9
    if math.isfinite(high):
        assert float(log_lose(data, min_effect, k=(1 + high) * (1 + 1e-4))[-1]) >= level - 1e-9
        assert float(log_lose(data, min_effect, k=(1 + high) * (1 - 1e-4))[-1]) < level + 1e-9


@pytest.mark.parametrize(("rate", "lift"), [(0.05, 0.0), (0.3, 0.0), (0.05, -0.3)])
def test_however_the_data_are_cut_into_looks_false_keeps_stay_under_alpha(rate: float, lift: float) -> None:
    """Of 2,000 tests without improvement, each cut in its own way, at most 5 % ever cross, give or take luck."""
    rng = np.random.default_rng(11)
    sizes = rng.integers(0, 2, (2, 2000, 12)) * rng.integers(1, 400, (2, 2000, 12))
    a, b = rng.binomial(sizes[0], rate), rng.binomial(sizes[1], rate * (1 + lift))
    logs = log_win(Counts.of(sizes[0], a, sizes[1], b), 0.2)
    kept = float((logs.max(axis=-1) >= math.log(20)).mean())
    assert kept <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_real_improvements_are_kept_and_rarely_reverted() -> None:
    """At twice the smallest effect nearly every test crosses the winning line; false reverts stay under beta."""
    rng = np.random.default_rng(12)
    n = np.full((500, 28), 300)
    better = Counts.of(n, rng.binomial(n, 0.05), n, rng.binomial(n, 0.07))
    assert (log_win(better, 0.2).max(axis=-1) >= math.log(20)).mean() > 0.9
    barely = Counts.of(n, rng.binomial(n, 0.05), n, rng.binomial(n, 0.06))
    assert (log_lose(barely, 0.2).max(axis=-1) >= math.log(5)).mean() <= 0.2


@pytest.mark.parametrize(
    ("look", "sentence"),
    [((10, 11, 10, 1), "more conversions"), ((-1, 0, 10, 1), "negative"), ((10, math.nan, 10, 1), "finite")],
)
def test_impossible_counts_are_refused(look: tuple[float, float, float, float], sentence: str) -> None:
    """Conversions above units, negative counts and NaN get a sentence."""
    with pytest.raises(ValueError, match=sentence):
        counts(look)
