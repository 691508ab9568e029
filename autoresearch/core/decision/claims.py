"""What may be said to other people: claims, tested on values that no keep decision ever saw.

Every arm (the baseline and each kept step) is measured with the same fresh seeds. The values then are a table of arms
and seeds, and the model is value = arm + seed + normal noise of one unknown spread. With the seeds' own effects taken
out, the spread has (arms - 1)(seeds - 1) degrees of freedom, and the difference of two arms in standard errors is a t
statistic, whether seeds matter or not: where they do, pairing pays, and where they do not it costs little.

The e-value of "the later arm is better" is the ratio of noncentral t densities of `race_normal`, mixed over half, once
and twice the effect that the search believes in, a quarter, a half and a quarter. That effect was fixed before the
holdout was opened and comes from other data, so it can only cost power, never validity. A mixture at a small
min_effect would be valid too and nearly blind: at half a standard deviation, with 5 seeds and 8 degrees of freedom, no
difference however large reaches 200.

e-LOND controls the false discovery rate over the claims of a run under any dependence, which matters here: neighbouring
steps share an arm, and the incumbent is the sum of its steps.

Sources: Z. Xu, A. Ramdas, "Online multiple testing with e-values" (2024), as implemented by the package online-fdr; the
two-way layout and the normal-normal shrinkage are textbook.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from online_fdr.core.abstract.abstract_gamma_seq import AbstractGammaSequence
from online_fdr.e_values import ELond

from autoresearch.core.decision.edge import edge
from autoresearch.core.decision.race_normal import TStatistic, log_density_ratio

Vector = NDArray[np.float64]

FALSE_DISCOVERY_RATE = 0.1
"""Mean share of false claims among the claims of a run, at most."""

INCUMBENT_SHARE = 0.5
"""Share of the error rate that goes to the first claim, the incumbent against the baseline."""

DECLARED_CLAIMS = 20
"""How many further claims the rest is spread over, flat."""

SMALLEST_ALTERNATIVE, LARGEST_ALTERNATIVE = 0.5, 40.0
"""Bounds of the effect that an e-value looks for, in standard deviations: a smaller one could not be seen with any
number of seeds that a person would pay for."""

ALTERNATIVE_WITHOUT_NOISE = 3.0
"""What is looked for where the search saw no noise, as with a list of examples that is scored whole: how widely fresh
data spread is not known then, and the mixture around 3 sees effects from 2 standard deviations to any number of them.
The largest alternative in its place is blind below 10."""

MOST_SEEDS = 200
"""How far `seeds_needed` looks."""

_MIXTURE = ((0.5, 0.25), (1.0, 0.5), (2.0, 0.25))
_FLOOR = 1e-7
"""Share of a value below which double precision shows no spread; see `noise`."""
_FARTHEST_ERRORS = 1e6


def alternative(believed: float | None, min_effect: float, sd: float) -> float:
    """Return the effect that a claim looks for, in standard deviations; fixed before the holdout is opened.

    Args:
        believed: What the search believes the effect to be, positive where better; None where it says nothing.
        min_effect: Smallest effect worth having, in the same unit.
        sd: Standard deviation of one measurement, in the same unit; 0 where none was seen.
    """
    effect = max(believed or 0.0, min_effect)
    if sd <= 0.0:
        return ALTERNATIVE_WITHOUT_NOISE
    return min(max(effect / sd, SMALLEST_ALTERNATIVE), LARGEST_ALTERNATIVE)


@dataclass(frozen=True, slots=True)
class Panel:
    """Fresh values of several arms at the same seeds, higher is better.

    Attributes:
        values: Shape (arms, seeds), two of each at least, finite.
    """

    values: Vector

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or min(self.values.shape) < 2:
            raise ValueError(f"Claims need two arms and two seeds at least, not values of shape {self.values.shape}.")
        if not np.isfinite(self.values).all():
            raise ValueError("Claims need finite values; an arm that could not be measured must be left out.")

    @property
    def arms(self) -> int:
        """Number of arms."""
        return len(self.values)

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.values[0])

    @property
    def dof(self) -> float:
        """Degrees of freedom of the spread."""
        return float((self.arms - 1) * (self.seeds - 1))

    @property
    def sd(self) -> float:
        """Standard deviation of one measurement, seeds' own effects taken out."""
        seeds, arms = self.values.mean(axis=0), self.values.mean(axis=1, keepdims=True)
        residuals = self.values - seeds - arms + self.values.mean()
        floor = _FLOOR * float(np.abs(self.values).max())
        return max(math.sqrt(float((residuals**2).sum()) / self.dof), floor, 1e-300)

    def compare(self, later: int, earlier: int) -> TStatistic:
        """Return the t statistic of one arm against another, positive where the later one is better."""
        means = self.values.mean(axis=1)
        difference, sd = float(means[later] - means[earlier]), self.sd
        return TStatistic(
            t=difference / sd * math.sqrt(self.seeds / 2.0),
            dof=self.dof,
            sd=sd,
            difference=difference,
            size=self.seeds / 2.0,
            runs=2.0 * self.seeds,
        )


def log_e_value(statistic: TStatistic, looked_for: float, shift: float = 0.0) -> float:
    """Return the log of the e-value against "not better".

    Args:
        statistic: Of the two arms.
        looked_for: As `alternative` returns it.
        shift: Tests "better by at most `shift` standard errors" instead.
    """
    effects = np.array([effect for effect, _ in _MIXTURE]) * looked_for * math.sqrt(statistic.size)
    logs = log_density_ratio(statistic.t - shift, statistic.dof, effects)
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top) @ np.array([weight for _, weight in _MIXTURE])))


def interval(statistic: TStatistic, looked_for: float, level: float) -> tuple[float | None, float | None]:
    """Return the effects that neither e-value rejects at `level`; None where there is no bound.

    The lower bound inverts the very e-value of the claim, so it lies above zero exactly where the claim is confirmed at
    this level. The upper one is its mirror image.
    """
    if level <= 0.0:
        return None, None
    needed = -math.log(level)
    mirrored = TStatistic(
        -statistic.t, statistic.dof, statistic.sd, -statistic.difference, statistic.size, statistic.runs
    )
    low = edge(lambda y: log_e_value(statistic, looked_for, y) - needed, rising=False, step=1.0, limit=_FARTHEST_ERRORS)
    high = edge(lambda y: log_e_value(mirrored, looked_for, -y) - needed, rising=True, step=1.0, limit=_FARTHEST_ERRORS)
    return _bound(low * statistic.error), _bound(high * statistic.error)


def _bound(value: float) -> float | None:
    return value if math.isfinite(value) else None


def seeds_needed(statistic: TStatistic, arms: int, seeds: int, looked_for: float, level: float) -> int | None:
    """Return how many seeds an arm would confirm the claim if means and spread stayed as they are.

    None where `MOST_SEEDS` would not do, as where the difference points the wrong way.
    """
    if level <= 0.0 or statistic.difference <= 0.0:
        return None
    for count in range(seeds, MOST_SEEDS + 1):
        grown = TStatistic(
            t=statistic.t * math.sqrt(count / seeds),
            dof=float((arms - 1) * (count - 1)),
            sd=statistic.sd,
            difference=statistic.difference,
            size=count / 2.0,
            runs=2.0 * count,
        )
        if log_e_value(grown, looked_for) >= -math.log(level):
            return count
    return None


@dataclass(frozen=True, slots=True)
class Shrunk:
    """Effects with the luck of the draw taken off.

    Attributes:
        effects: In the order given.
        spread: Estimated standard deviation of true effects around zero.
        factor: What every raw effect was multiplied by, from 0 to 1.
    """

    effects: tuple[float, ...]
    spread: float
    factor: float


def shrink(raw: Sequence[float], error: float) -> Shrunk:
    """Return effects shrunk towards zero: true ones normal around zero, measured ones normal around the true ones.

    The spread of the true ones is estimated by maximum likelihood from the raw effects alone: its square is the mean of
    their squares less `error` squared, never below zero.

    Args:
        raw: Measured effects.
        error: Standard error of each.
    """
    if not raw:
        return Shrunk((), 0.0, 1.0)
    square = math.fsum(effect**2 for effect in raw) / len(raw)
    spread = max(0.0, square - error**2)
    factor = spread / (spread + error**2) if spread > 0.0 else 0.0
    return Shrunk(tuple(factor * effect for effect in raw), math.sqrt(spread), factor)


def shares(already: Sequence[float], new: Sequence[bool], declared: int) -> list[float]:
    """Return the share of the error rate for each new claim.

    The first claim of a run about an incumbent gets `INCUMBENT_SHARE`; every other one an equal part of the rest, as
    long as there is some.

    Args:
        already: Shares given to earlier claims of the run.
        new: For each new claim whether it is about an incumbent.
        declared: Number of claims that the rest is spread over.
    """
    part = (1.0 - INCUMBENT_SHARE) / declared
    given = list(already)
    found: list[float] = []
    for incumbent in new:
        first = incumbent and not any(math.isclose(share, INCUMBENT_SHARE) for share in given)
        share = INCUMBENT_SHARE if first else part
        rest = 1.0 - math.fsum(given) - (0.0 if first else _reserved(given))
        found.append(share if share <= rest * (1.0 + 1e-9) else 0.0)
        given.append(found[-1])
    return found


def _reserved(given: Sequence[float]) -> float:
    return 0.0 if any(math.isclose(share, INCUMBENT_SHARE) for share in given) else INCUMBENT_SHARE


@dataclass(frozen=True, slots=True)
class Ruling:
    """What e-LOND says of one claim: its e-value must reach 1 / `level`."""

    level: float
    confirmed: bool


class _Shares(AbstractGammaSequence):
    """Shares of the error rate fixed beforehand, one a claim."""

    def __init__(self, given: Sequence[float]) -> None:
        super().__init__()
        self._given = tuple(given)

    def calc_gamma(self, j: int, *args: Any, **kwargs: Any) -> float:
        """Return the share of claim `j`, counted from 1."""
        return self._given[j - 1]


def rule(e_values: Sequence[float], given: Sequence[float], rate: float = FALSE_DISCOVERY_RATE) -> list[Ruling]:
    """Return the ruling on each claim, in the order in which they were written down.

    Args:
        e_values: One a claim; 0 for a claim that could not be tested.
        given: The claims' shares of the error rate, together 1 at most.
        rate: False discovery rate to hold.

    Raises:
        ValueError: If the shares sum to more than 1 or an e-value is negative or NaN.
    """
    if math.fsum(given) > 1.0 + 1e-9:
        raise ValueError(f"The shares of the error rate sum to {math.fsum(given):.6g}, which is more than 1.")
    test = ELond(rate, _Shares(given))
    found = []
    for value in e_values:
        confirmed = test.test_one(float(value))
        found.append(Ruling(float(test.current_level or 0.0), confirmed))
    return found
