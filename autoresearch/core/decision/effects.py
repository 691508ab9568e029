"""What a candidate's effect may be: masses on a grid with a spike at zero, learned from every candidate of the run.

Everything is in units of the noise, and higher is better.

Source: learning the prior from the stream of candidates is empirical Bayes, with the EM for a discrete mixing
distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

PRIOR_WORTH = 20.0
"""How many candidates the start prior counts for when the prior is learned."""

EM_ITERATIONS = 3
"""EM steps each time the prior is learned anew. In simulation 3 and 10 give the same gain, and few keep the prior
smooth: run to the end, EM puts the mass that data can move on a handful of grid points."""

LEARN_EVERY = 1.25
"""The prior is learned anew whenever the number of candidates has grown by this factor: in simulation as good as after
every candidate, at a third of the time."""

EDGE = 40
"""Largest effect, in units of the noise, that the prior speaks of; what lies beyond is taken at its word."""


@dataclass(frozen=True, slots=True)
class EffectPrior:
    """What candidates are worth, in units of the noise: masses on a grid of effects. Shapes (G,)."""

    grid: Vector
    weights: Vector


def start_prior() -> EffectPrior:
    """Return the prior before any candidate was seen: most ideas harm, some help a little.

    A spike of 0.05 at zero; the rest 65 parts to 15 between harm, exponential with mean 3, and help, exponential with
    mean 1.5, all in units of the noise. Dense where a decision turns, and out to 40 units, beyond which `bayes` takes a
    measurement at its word.
    """
    half = np.concatenate([np.arange(1, 13) * 0.25, np.arange(7, 25) * 0.5, np.arange(13, EDGE + 1) * 1.0])
    edges = np.concatenate([[0.0], (half[1:] + half[:-1]) / 2.0, [np.inf]])
    harm = np.exp(-edges[:-1] / 3.0) - np.exp(-edges[1:] / 3.0)
    help_ = np.exp(-edges[:-1] / 1.5) - np.exp(-edges[1:] / 1.5)
    weights = np.concatenate([0.95 * 65 / 80 * harm[::-1], [0.05], 0.95 * 15 / 80 * help_])
    return EffectPrior(np.concatenate([-half[::-1], [0.0], half]), weights / weights.sum())


START_PRIOR = start_prior()


def learn_prior(
    observations: Sequence[tuple[float, float]],
    start: EffectPrior = START_PRIOR,
    *,
    worth: float = PRIOR_WORTH,
    iterations: int = EM_ITERATIONS,
) -> EffectPrior:
    """Return the prior of effects after `observations`: `start` counts for `worth` candidates, each of these for one.

    Args:
        observations: (difference, variance) of each candidate, in units of the noise: its mean less the incumbent's
            believed mean, and the variance of that difference around the true effect.
        start: Prior to begin from.
        worth: Number of candidates that `start` stands for, above 0.
        iterations: EM steps.
    """
    if not observations:
        return start
    rows = np.stack([likelihood(within_edge(d), variance, start.grid) for d, variance in observations])
    return EffectPrior(start.grid, em(rows, start.weights, start.weights, worth, iterations))


def likelihood(difference: float, variance: float, effects: Vector) -> Vector:
    """Return the likelihood of a difference under each effect, up to a factor, at most 1; never all 0."""
    exponent = (effects - difference) ** 2
    exponent -= exponent.min()
    exponent *= -0.5 / variance
    return np.exp(exponent, out=exponent)


def em(rows: Vector, weights: Vector, start: Vector, worth: float, iterations: int) -> Vector:
    """Take EM steps from `weights` for masses on a grid with a Dirichlet prior of mean `start`.

    Args:
        rows: Likelihoods, one row per candidate, each up to a factor. Shape (N, G).
        weights: Masses to begin from. Shape (G,).
        start: Mean of the Dirichlet prior. Shape (G,).
        worth: Its number of pseudo-candidates.
        iterations: How many steps.
    """
    for _ in range(iterations):
        shares = rows.T @ (1.0 / (rows @ weights))
        weights = (worth * start + weights * shares) / (worth + len(rows))
    return weights


def within_edge(difference: float) -> float:
    """Return the difference, held within the edge of the grid."""
    return min(max(difference, -float(EDGE)), float(EDGE))
