"""How good an opinion about copy was: a model's order of the arms, said beforehand, against how people decided.

Opinion may order ideas. It is never the metric, and here it gets a mark of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.marketing.past_tests import PastTest

Vector = NDArray[np.float64]

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well an order of the arms, said beforehand, agrees with how they did.

    Attributes:
        tests: Tests compared.
        rho: Spearman's rank correlation within tests, averaged with weight arms - 1; 0 for a coin, 1 for perfect order
            of rates that are themselves noisy.
        low: Lower end of its 90 % interval.
        high: Upper end.
        concordance: Share of pairs of arms in the right order; ties count half.
    """

    tests: int
    rho: float
    low: float
    high: float
    concordance: float


def score_opinion(tests: Sequence[PastTest], scores: Sequence[Sequence[float]]) -> Agreement:
    """Score an opinion about arms, a model's or a person's, against how they did.

    Args:
        tests: Finished tests.
        scores: For each test one number per arm, higher for "will do better", given before the outcome was known. Equal
            numbers are no opinion.

    Raises:
        ValueError: If scores and arms do not match, or there are fewer than two tests.
    """
    if len(tests) < 2:
        raise ValueError(f"An opinion is scored over two tests at least, not {len(tests)}.")
    rhos, weights, right, pairs = [], [], 0.0, 0
    for test, given in zip(tests, scores, strict=True):
        if len(given) != len(test.arms):
            raise ValueError(f"Test {test.id} has {len(test.arms)} arms and {len(given)} scores.")
        rates = [arm.conversions / arm.n for arm in test.arms]
        rhos.append(_spearman(given, rates))
        weights.append(len(rates) - 1.0)
        for one in range(len(rates)):
            for other in range(one):
                agree = np.sign(given[one] - given[other]) * np.sign(rates[one] - rates[other])
                right, pairs = right + (1.0 + float(agree)) / 2.0, pairs + 1
    rho, weight = np.array(rhos), np.array(weights) / sum(weights)
    mean = float(weight @ rho)
    error = math.sqrt(float(weight**2 @ (rho - mean) ** 2) * len(rho) / (len(rho) - 1.0))
    reach = _NORMAL.inv_cdf(0.95) * error
    return Agreement(len(tests), mean, max(mean - reach, -1.0), min(mean + reach, 1.0), right / max(pairs, 1))


def _spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the rank correlation; 0 where either has no order."""
    a, b = _ranks(first), _ranks(second)
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / size if size > 0.0 else 0.0


def _ranks(values: Sequence[float]) -> Vector:
    """Return ranks from 0, equal values sharing theirs."""
    array = np.asarray(values, dtype=np.float64)
    below = (array[:, None] > array[None, :]).sum(axis=1)
    equal = (array[:, None] == array[None, :]).sum(axis=1)
    return np.asarray(below + (equal - 1) / 2.0, dtype=np.float64)
