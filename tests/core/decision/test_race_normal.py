"""The race of values against its published vectors, the library's noncentral t, and simulation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import nct

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision.race_normal import (
    TStatistic,
    log_density_ratio,
    log_lose,
    log_win,
    lower_effect,
    t_statistic,
    upper_effect,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "race_normal.json").read_text(encoding="utf-8"))


def statistic(control: list[float], treatment: list[float], *calibration: list[float]) -> TStatistic:
    groups = [ArmTotals.of("calibration", group) for group in calibration]
    found = t_statistic(ArmTotals.of("control", control), ArmTotals.of("treatment", treatment), groups)
    assert found is not None
    return found


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_race_gives_the_known_answers(case: dict[str, Any]) -> None:
    """t, its degrees of freedom, win and lose agree with the vectors."""
    found = statistic(case["control"], case["treatment"], *case["calibration"])
    assert (found.t, found.sd) == pytest.approx((case["t"], case["sd"]), rel=1e-9)
    assert found.dof == case["dof"]
    assert math.exp(log_win(found, case["d"])) == pytest.approx(case["win"], rel=1e-6)
    assert math.exp(log_lose(found, case["d"])) == pytest.approx(case["lose"], rel=1e-6)


@given(st.floats(-6, 6), st.integers(1, 60), st.floats(-5, 5))
def test_density_ratio_agrees_with_the_library(t: float, dof: int, noncentrality: float) -> None:
    """Where densities do not underflow, the ratio is that of the library's noncentral t."""
    theirs = nct.logpdf(t, dof, noncentrality) - nct.logpdf(t, dof, 0.0)
    if math.isfinite(theirs) and theirs > -25:  # the library loses its digits in the far tail
        assert float(log_density_ratio(t, dof, noncentrality)) == pytest.approx(theirs, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("t", "dof", "noncentrality", "log_ratio"),
    [
        (2.0, 1, 3.0, 1.006396189500324),
        (50.0, 1, 10.0, 3.2013316629893342),
        (-50.0, 2, 20.0, -208.53348783517302),
        (1e6, 3, 4.0, 4.556524718293617),
        (-1e6, 3, 40.0, -813.6631341749668),
        (100.0, 200, 100.0, 393.51984312640775),
        (-100.0, 200, 100.0, -5492.850086823737),
        (0.1, 1000, 5.0, -11.999814996035928),
        (30.0, 10, 1000.0, -5431.641183143931),
    ],
)
def test_density_ratio_is_stable_far_out(t: float, dof: int, noncentrality: float, log_ratio: float) -> None:
    """Where densities underflow it agrees with the parabolic cylinder function at thirty digits (mpmath)."""
    assert float(log_density_ratio(t, dof, noncentrality)) == pytest.approx(log_ratio, rel=1e-10)


@given(st.floats(-30, 30), st.floats(0.01, 20), st.integers(1, 40), st.floats(0.3, 4))
def test_evidence_rises_with_t(t: float, step: float, dof: int, d: float) -> None:
    """A larger t never speaks less for winning nor more for losing: rejected nulls form a ray."""
    here, there = (TStatistic(value, dof, 1.0, value, 1.0, 2) for value in (t, t + step))
    assert log_win(there, d) >= log_win(here, d) - 1e-9
    assert log_lose(there, d) <= log_lose(here, d) + 1e-9


@given(st.floats(-20, 20), st.integers(1, 40), st.floats(0.3, 4), st.floats(0.01, 0.5), st.integers(1, 10))
def test_bounds_agree_with_the_verdict(t: float, dof: int, d: float, rate: float, size: int) -> None:
    """The lower bound is above zero exactly when win crosses, the upper below the effect exactly when lose does."""
    found = TStatistic(t, dof, 2.0, t * 2.0 / math.sqrt(size), size, 4 * size)
    level, min_effect = -math.log(rate), 2.0 * d
    low, high = lower_effect(found, d, level), upper_effect(found, d, level, min_effect)
    assert (low >= 0) if log_win(found, d) >= level else (low <= 0)
    assert (high <= min_effect) if log_lose(found, d) >= level else (high >= min_effect)


def test_few_degrees_of_freedom_give_no_bound() -> None:
    """With one degree of freedom no t however large rejects, and the bounds are infinite instead of wrong."""
    found = TStatistic(1e9, 1.0, 1.0, 1.0, 0.5, 2)
    assert lower_effect(found, 0.5, math.log(1000)) == -math.inf


def test_scale_and_location_do_not_matter() -> None:
    """Other units and another zero leave t as it is."""
    one = statistic([1.0, 1.2, 0.9], [1.4, 1.3])
    other = statistic([102.0, 102.4, 101.8], [102.8, 102.6])
    assert other.t == pytest.approx(one.t, rel=1e-9)


def test_a_metric_that_repeats_exactly_is_decided_at_once() -> None:
    """Without any spread a difference is certain, in either direction, and nothing overflows."""
    better, worse = statistic([2.0] * 4, [2.5]), statistic([2.0] * 4, [1.5])
    assert log_win(better, 1e3) > math.log(1e6) > log_win(worse, 1e3)
    assert math.isfinite(log_lose(worse, 1e3))
    assert log_lose(worse, 1e3) > math.log(5)


def test_nothing_is_said_before_something_was_measured_twice() -> None:
    """One run in each arm, or an empty arm, has no t statistic."""
    single = ArmTotals.of("control", [1.0])
    assert t_statistic(single, ArmTotals.of("treatment", [2.0])) is None
    assert t_statistic(single, ArmTotals.of("treatment", []), [ArmTotals.of("x", [1.0, 2.0])]) is None


def test_a_value_that_is_not_finite_is_refused() -> None:
    """Infinity in an arm gets a sentence, even where that arm has one run."""
    with pytest.raises(ValueError, match="not finite"):
        t_statistic(ArmTotals.of("control", [math.inf]), ArmTotals.of("treatment", [1.0, 2.0]))


def test_false_keeps_stay_under_alpha_when_looking_after_every_run() -> None:
    """Of 300 null comparisons watched run by run up to eight an arm, at most 5 % cross, give or take luck."""
    rng = np.random.default_rng(3)
    kept = 0
    for _ in range(300):
        a, b = rng.normal(size=(2, 8)).tolist()
        kept += any(log_win(statistic(a[:n], b[:n]), 1.5) >= math.log(20) for n in range(2, 9))
    assert kept / 300 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_more_of_the_same_is_what_a_larger_sample_would_show() -> None:
    """Data grown by themselves have the size, runs and t of the data taken twice, but for the degrees of freedom."""
    once, twice = statistic([1.0, 2.0], [3.0, 5.0]), statistic([1.0, 2.0] * 2, [3.0, 5.0] * 2)
    grown = once.grown(1.0)
    assert (grown.size, grown.runs, grown.dof) == (twice.size, twice.runs, twice.dof)
    assert grown.t == pytest.approx(once.t * math.sqrt(2))
