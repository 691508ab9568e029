from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Noise
from autoresearch.core.decision.noise import STATED_DOF, Replicates, estimate_noise, plug_in_sd


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


def layout(rng: np.random.Generator, artifacts: int, seeds: int, seed_sd: float, sd: float) -> Replicates:
    """Artifacts measured on the same seeds."""
    replicates, levels = Replicates(), seed_sd * rng.normal(size=seeds)
    for _ in range(artifacts):
        values = 10.0 * rng.normal() + levels + sd * rng.normal(size=seeds)
        replicates.add(list(enumerate(values.tolist())))
    return replicates


def test_without_common_seeds_replicates_are_the_pooled_noise() -> None:
    """Sums kept up one by one give what all groups give at once, calibration and a stated noise included."""
    first, second, third = group(1.0, 2.0, 4.0), group(10.0, 11.0), group(5.0, 5.5, 7.0)
    replicates = Replicates()
    replicates.add([(1, 1.0), (2, 2.0), (3, 4.0)])
    replicates.add([(4, 10.0), (5, 11.0)])
    replicates.add([(6, 99.0)])
    replicates.add_group(third)
    found, pooled = replicates.noise(0.8), estimate_noise([first, second, third], 0.8)
    assert found is not None and pooled is not None
    assert (found.sd, found.dof, found.seed_sd) == (pytest.approx(pooled.sd), pooled.dof, 0.0)
    assert Replicates().noise() is None


def test_a_seed_effect_is_found_where_there_is_one() -> None:
    """Eight artifacts on three seeds show that most of the noise comes with the seed, and how little is left."""
    found = [layout(np.random.default_rng(n), 8, 3, 3.0, 1.0).noise() for n in range(40)]
    assert sum(noise is not None and noise.seed_sd > 0 for noise in found) >= 30  # seeds may lie together by chance
    rest = np.mean([noise.paired_sd**2 for noise in found if noise is not None and noise.seed_sd > 0])
    seeds = np.mean([noise.seed_sd**2 for noise in found if noise is not None])
    assert rest == pytest.approx(1.0, rel=0.15)
    assert seeds == pytest.approx(9.0, rel=0.5)
    assert {noise.dof for noise in found if noise is not None and noise.seed_sd > 0} == {7 * 2}


def test_no_seed_effect_is_found_where_there_is_none() -> None:
    """It is zero unless the data insist: in 1 of 100 layouts at most by chance."""
    found = [layout(np.random.default_rng(n), 8, 3, 0.0, 1.0).noise() for n in range(300)]
    assert sum(noise is not None and noise.seed_sd > 0 for noise in found) <= 9


def test_replicates_that_repeat_exactly_have_no_noise() -> None:
    """A metric that repeats exactly has the deviation 0, whatever the seeds."""
    replicates = Replicates()
    for value in (1.0, 2.0, 3.0):
        replicates.add([(0, value), (1, value)])
    assert replicates.noise() == Noise(0.0, 3.0)
