from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Noise
from autoresearch.core.decision.noise import STATED_DOF, estimate_noise, plug_in_sd


def group(*values: float) -> ArmTotals:
    return ArmTotals.of("treatment", values)


def test_one_group_gives_its_sample_deviation() -> None:
    """A single group of replicates has the textbook standard deviation with n - 1 degrees of freedom."""
    values = (2.0, 2.5, 1.75, 2.25)
    noise = estimate_noise([group(*values)])
    assert noise is not None
    assert noise.sd == pytest.approx(statistics.stdev(values))
    assert noise.dof == 3


def test_groups_are_pooled_by_their_degrees_of_freedom() -> None:
    """Two groups with different means pool their squares: (2 + 8) over two degrees of freedom."""
    noise = estimate_noise([group(0.0, 2.0), group(100.0, 104.0), group(7.0), group()])
    assert noise is not None
    assert (noise.sd, noise.dof) == (pytest.approx(math.sqrt(5.0)), 2)


def test_nothing_measured_twice_and_nothing_stated_is_unknown() -> None:
    """Without replicates and without a stated noise there is none."""
    assert estimate_noise([group(1.0), group()]) is None


def test_stated_noise_is_a_prior_that_replicates_outweigh() -> None:
    """A stated noise alone is taken with its few degrees of freedom; a hundred replicates say otherwise and win."""
    assert estimate_noise([], 0.5) == Noise(0.5, STATED_DOF)
    values = np.random.default_rng(0).normal(0, 2.0, 101)
    noise = estimate_noise([group(*map(float, values))], 0.5)
    assert noise is not None
    assert noise.sd == pytest.approx(float(values.std(ddof=1)), rel=0.06)
    assert noise.dof == 100 + STATED_DOF


@given(st.floats(-1e6, 1e6), st.integers(2, 50))
def test_equal_values_have_no_spread(value: float, n: int) -> None:
    """Measurements that repeat exactly give a deviation of exactly zero, not the dust of rounding."""
    noise = estimate_noise([group(*[value] * n)])
    assert noise == Noise(0.0, n - 1)


def test_what_is_not_finite_is_refused() -> None:
    """A nan among replicates, or a stated noise of zero, is refused by a sentence."""
    with pytest.raises(ValueError, match="not finite"):
        estimate_noise([group(1.0, math.nan)])
    with pytest.raises(ValueError, match="positive"):
        estimate_noise([], 0.0)


def test_plug_in_widens_with_few_degrees_of_freedom_and_never_vanishes() -> None:
    """Known noise stays, four degrees of freedom double the variance, and no spread still gives a positive number."""
    assert plug_in_sd(Noise(2.0, math.inf), 1.0) == 2.0
    assert plug_in_sd(Noise(2.0, 4.0), 1.0) == pytest.approx(2.0 * math.sqrt(2.0))
    assert plug_in_sd(Noise(2.0, 1.0), 1.0) == plug_in_sd(Noise(2.0, 3.0), 1.0)
    assert 0 < plug_in_sd(Noise(0.0, 3.0), 0.0) < plug_in_sd(Noise(0.0, 3.0), 5.0) < 1e-6
