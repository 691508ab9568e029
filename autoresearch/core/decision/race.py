"""The race: two e-processes, so that looking at any moment, for any reason, is allowed.

*Win* tests "the treatment is not better", *lose* tests "the treatment is better by at least `min_effect`". Keep when
win reaches 1/alpha, revert when lose reaches 1/beta, otherwise look again. A harmless change is then kept with a chance
of at most alpha, and an improvement of `min_effect` or more is reverted with a chance of at most beta, however often
anybody looks. The verdict is that of the first look at which a line is crossed; what comes later cannot take it back.

Three families know how to form the two e-values: `race_bernoulli` (exact), `race_normal` (exact for normal values) and
`race_means` (asymptotic). The interval of an effect is the set of nulls that its e-process does not reject, from the
lower bound at alpha to the upper bound at beta. So verdict and interval agree: the lower bound is above zero exactly
when win crosses, and the upper bound is below `min_effect` exactly when lose does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoresearch.core.decision import Decision, race_bernoulli, race_means, race_normal

_LARGEST_LOG = 690.0

_LARGEST_D = 1e12
"""Standard deviations beyond which an effect is not distinguished: squares of larger ones would overflow."""


class Family(Protocol):
    """One kind of race with its data."""

    @property
    def log_win(self) -> Sequence[float]:
        """Log e-value against "not better" after each look."""
        ...

    @property
    def log_lose(self) -> Sequence[float]:
        """Log e-value against "better by at least min_effect" after each look."""
        ...

    def effect(self, look: int) -> float | None:
        """Return the improvement seen up to a look; None where there is none to see."""
        ...

    def interval(self, look: int, alpha: float, beta: float) -> tuple[float, float]:
        """Return what the two e-processes do not reject at a look; ends may be infinite, and are with a rate of 0."""
        ...

    def expected(self, share: float) -> tuple[float, float]:
        """Return log win and log lose to expect after `share` times as much data more, like the data so far."""
        ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a race says.

    Attributes:
        decision: Keep, revert or continue.
        look: Index of the deciding look; the last one where nothing is decided.
        e_win: e-value at that look against "not better".
        e_lose: e-value at that look against "better by at least min_effect".
        effect: Improvement seen at that look.
        low: Lower bound of the improvement, at alpha; minus infinity where there is none.
        high: Upper bound, at beta; infinity where there is none.
    """

    decision: Decision
    look: int
    e_win: float
    e_lose: float
    effect: float | None
    low: float
    high: float


def log_level(rate: float) -> float:
    """Return the log of the threshold for an error rate; a rate of 0 is never reached."""
    return math.inf if rate == 0 else -math.log(rate)


def first_crossing(logs: ArrayLike, rate: float) -> NDArray[np.int64]:
    """Return the first look at which an e-process reaches 1/rate, or the number of looks where it never does.

    Args:
        logs: Log e-values, the looks in the last axis. Shape (..., T).
        rate: Error rate; 0 for never.
    """
    crossed = np.asarray(logs) >= log_level(rate)
    return np.asarray(np.where(crossed.any(axis=-1), crossed.argmax(axis=-1), crossed.shape[-1]), dtype=np.int64)


def check_rates(alpha: float, beta: float) -> None:
    """Raise ValueError unless 0 < alpha < 1 and 0 <= beta < 1."""
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"alpha is an error rate between 0 and 1, not {alpha:g}; 0.05 is the default.")
    if not 0.0 <= beta < 1.0:
        raise ValueError(
            f"beta is an error rate from 0 (never revert for being too small) to below 1, not {beta:g}; "
            "0.2 is the default."
        )


def judge(family: Family, alpha: float, beta: float) -> Judgement:
    """Return the verdict of the first look at which a line is crossed.

    Where both lines are crossed at the same look, the treatment is shown to be better and shown to be so by less than
    `min_effect`: that is kept, for it is an improvement.
    """
    check_rates(alpha, beta)
    win, lose = family.log_win, family.log_lose
    won, lost = int(first_crossing(win, alpha)), int(first_crossing(lose, beta))
    look = min(won, lost, len(win) - 1)
    decision = Decision.CONTINUE
    if min(won, lost) < len(win):
        decision = Decision.KEEP if won <= lost else Decision.REVERT
    low, high = family.interval(look, alpha, beta)
    if low > high:
        # Looks that contradict each other leave no effect unrejected; then only the bound that decided stands.
        low, high = (low, math.inf) if decision is Decision.KEEP else (-math.inf, high)
    return Judgement(decision, look, as_e_value(win[look]), as_e_value(lose[look]), family.effect(look), low, high)


def as_e_value(log: float) -> float:
    """Return the e-value; what a double cannot hold becomes its largest power of e, about 1e299."""
    return math.exp(min(log, _LARGEST_LOG))


_LARGEST_SHARE = 1e4


def settling_share(family: Family, alpha: float, beta: float) -> tuple[float, Decision] | None:
    """Return about how much more data settles an undecided race, as a share of the data so far, and which way.

    Supposes that what comes looks like what came. None where ten thousand times as much would not.
    """

    def outcome(share: float) -> Decision:
        win, lose = family.expected(share)
        if win >= log_level(alpha):
            return Decision.KEEP
        return Decision.REVERT if lose >= log_level(beta) else Decision.CONTINUE

    low, high = 0.0, 1e-3
    while outcome(high) is Decision.CONTINUE:
        low, high = high, 2.0 * high
        if high > _LARGEST_SHARE:
            return None
    for _ in range(12):
        middle = (low + high) / 2.0
        low, high = (middle, high) if outcome(middle) is Decision.CONTINUE else (low, middle)
    return high, outcome(high)


class ProportionRace:
    """Two proportions; effects are lifts, rate(treatment) / rate(control) - 1.

    Args:
        counts: One series of looks, increments, shape (T,). Higher is better: exchange the arms first where it is not.
        min_effect: Smallest lift worth having, above 0.
        prior: Successes and failures that the pooled rate begins with.
    """

    def __init__(
        self, counts: race_bernoulli.Counts, min_effect: float, prior: tuple[float, float] = race_bernoulli.PRIOR
    ) -> None:
        check_effect(min_effect)
        self._counts, self._min_effect, self._prior = counts, min_effect, prior
        self.log_win: Sequence[float] = race_bernoulli.log_win(counts, min_effect, prior).tolist()
        self.log_lose: Sequence[float] = race_bernoulli.log_lose(counts, min_effect, prior).tolist()

    def effect(self, look: int) -> float | None:
        """Return the lift of everything up to a look; None while the control has no conversion."""
        seen = self._counts.upto(look)
        n_a, x_a, n_b, x_b = (float(part.sum()) for part in (seen.n_a, seen.x_a, seen.n_b, seen.x_b))
        return (x_b / n_b) / (x_a / n_a) - 1.0 if x_a and n_b else None

    def interval(self, look: int, alpha: float, beta: float) -> tuple[float, float]:
        """Return bounds of the lift, from -1 to infinity."""
        seen = self._counts.upto(look)
        low = race_bernoulli.lower_lift(seen, self._min_effect, log_level(alpha), self._prior)
        if beta == 0:
            return low, math.inf
        return low, race_bernoulli.upper_lift(seen, self._min_effect, log_level(beta), self._prior)

    def expected(self, share: float) -> tuple[float, float]:
        """Return both logs after one more look, `share` times as large as all looks so far, with the same rates."""
        parts = (self._counts.n_a, self._counts.x_a, self._counts.n_b, self._counts.x_b)
        grown = race_bernoulli.Counts(*(np.append(part, share * part.sum()) for part in parts))
        win = race_bernoulli.log_win(grown, self._min_effect, self._prior)
        lose = race_bernoulli.log_lose(grown, self._min_effect, self._prior)
        return float(win[-1]), float(lose[-1])


class ValueRace:
    """Two arms of repeated measurements; effects are differences in the unit of the values.

    Args:
        statistics: Of the cumulative data, one per look; None where nothing can be said yet.
        min_effect: Smallest difference worth having, in the unit, above 0.
        d: The same in standard deviations, fixed before the experiment.
    """

    def __init__(self, statistics: Sequence[race_normal.TStatistic | None], min_effect: float, d: float) -> None:
        check_effect(min_effect)
        d = min(d, _LARGEST_D)
        self._statistics, self._min_effect, self._d = statistics, min_effect, d
        self.log_win: Sequence[float] = [0.0 if s is None else race_normal.log_win(s, d) for s in statistics]
        self.log_lose: Sequence[float] = [0.0 if s is None else race_normal.log_lose(s, d) for s in statistics]

    def effect(self, look: int) -> float | None:
        """Return the difference of the means."""
        statistic = self._statistics[look]
        return None if statistic is None else statistic.difference

    def interval(self, look: int, alpha: float, beta: float) -> tuple[float, float]:
        """Return bounds of the difference."""
        statistic = self._statistics[look]
        if statistic is None:
            return -math.inf, math.inf
        low = race_normal.lower_effect(statistic, self._d, log_level(alpha))
        if beta == 0:
            return low, math.inf
        return low, race_normal.upper_effect(statistic, self._d, log_level(beta), self._min_effect)

    def expected(self, share: float) -> tuple[float, float]:
        """Return both logs after `share` times as many measurements more, means and spread staying as they are."""
        if self._statistics[-1] is None:
            return 0.0, 0.0
        grown = self._statistics[-1].grown(share)
        return race_normal.log_win(grown, self._d), race_normal.log_lose(grown, self._d)


class MeanRace:
    """Two means, asymptotic; effects are lifts, mean(treatment) / mean(control) - 1.

    Args:
        means: Of the cumulative data, one per look; None where nothing can be said yet.
        min_effect: Smallest lift worth having, above 0.
    """

    def __init__(self, means: Sequence[race_means.Means | None], min_effect: float) -> None:
        check_effect(min_effect)
        self._means, self._min_effect = means, min_effect
        self.log_win: Sequence[float] = [0.0 if m is None else race_means.log_win(m, min_effect) for m in means]
        self.log_lose: Sequence[float] = [0.0 if m is None else race_means.log_lose(m, min_effect) for m in means]

    def effect(self, look: int) -> float | None:
        """Return the lift."""
        means = self._means[look]
        return None if means is None else means.mean_b / means.mean_a - 1.0

    def interval(self, look: int, alpha: float, beta: float) -> tuple[float, float]:
        """Return bounds of the lift."""
        means = self._means[look]
        if means is None:
            return -1.0, math.inf
        low = race_means.lower_lift(means, self._min_effect, log_level(alpha))
        if beta == 0:
            return low, math.inf
        return low, race_means.upper_lift(means, self._min_effect, log_level(beta))

    def expected(self, share: float) -> tuple[float, float]:
        """Return both logs after `share` times as many units more, means and spread staying as they are."""
        means = self._means[-1]
        if means is None:
            return 0.0, 0.0
        grown = race_means.Means(
            means.mean_a, means.mean_b, means.square_a / (1.0 + share), means.square_b / (1.0 + share)
        )
        return race_means.log_win(grown, self._min_effect), race_means.log_lose(grown, self._min_effect)


def check_effect(min_effect: float) -> None:
    """Raise ValueError unless the smallest effect is a positive number."""
    if not (math.isfinite(min_effect) and min_effect > 0):
        raise ValueError(
            f"A race needs a smallest effect worth having, above 0, not {min_effect:g}: without one it cannot tell "
            "a small improvement from none. Give --min-effect."
        )


def check_prior(prior: tuple[float, float]) -> None:
    """Raise ValueError unless both counts are positive numbers."""
    if not all(math.isfinite(count) and count > 0 for count in prior):
        raise ValueError(
            f"The prior is two positive counts, successes and failures, not {prior[0]:g} and {prior[1]:g}; "
            "1 and 19 are the default."
        )
