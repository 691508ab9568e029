"""Early stopping: whether a measurement that streams its curve still has a chance worth the rest of its time.

What is compared are levels of two curves at the same share of the budget. A candidate's gap to the incumbent there says
something about its gap at the end, but how much is a matter of the subject: gaps close as curves flatten, and what
changes the schedule is worse early and better late. So it is learned, from candidates of the same run that were
measured to their end, and little is believed before there are some.

Everything is divided by what the incumbent still gained from that share on, so that curves of any unit and steepness
are alike. Let x be the gap at the share and f the gap of the final values, both in those parts and positive where the
candidate is worse. The model is f = b x + e with e normal of standard deviation s * sqrt(n^2 + (WANDER x)^2): n is the
noise of a gap, and WANDER x says that gaps twice as wide end twice as far from what was expected. b and s are unknown,
with the conjugate (normal, inverse gamma) prior, so that a candidate's f has a Student t distribution. Its mass below
zero is the chance of ending better than the incumbent. Source: Bayesian linear regression as in Gelman et al., Bayesian
Data Analysis, chapter 14, with known relative variances.

The model has never seen the late bloomer that will come. Three rules protect it: nothing is judged before a third of
the budget; nobody is cut whose gap is below half of what the incumbent itself still gained; nobody is cut whose gap
closes at a pace that would close it in time. What is cut teaches nothing later, and those that were spared with a wide
gap closed it more than most, so cutting makes the rule more careful, not less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from autoresearch.core.adapter import Direction, Measurement

__all__ = ["Duel", "EarlyRule", "Outlook", "watching"]

Curve = Sequence[tuple[float, float]]
"""Intermediate values as (share of the budget used, value), in order."""

JUDGED_FROM: Final = 1 / 3
"""Share of the budget before which nothing is judged."""
JUDGED_UNTIL: Final = 0.9
"""Share after which the little that a cut could save is not worth a risk."""
CHANCE: Final = 0.01
"""Chance of ending better than the incumbent below which a measurement is cut."""
CATCH_UP: Final = 0.5
"""Nobody is cut whose gap is below this part of what the incumbent still gained: a later, steeper end of a schedule can
bring as much."""
OUTSIDE: Final = 4.0
"""Spreads between curves of one artifact that a gap must be wide to count."""
IN_A_ROW: Final = 3
"""Points in a row that must say the same."""
WINDOW: Final = 0.05
"""Share of the budget over which a curve is averaged to its level."""

PRIOR_SLOPE: Final = 0.4
"""Part of a gap that is expected to be left at the end before anything is known."""
PRIOR_WEIGHT: Final = 1.0
"""What that expectation is worth, in candidates with a wide gap."""
WANDER: Final = 0.3
"""How far the part that is left differs between candidates before anything is known, as a standard deviation."""
PRIOR_DOF: Final = 4.0
"""What that spread is worth, in candidates. At first no gap, however wide, makes a chance below `CHANCE`."""

MOST_TEACHERS: Final = 100
"""Finished candidates that are learned from, the newest: older ones were close to another incumbent."""
_GRID: Final = 50
"""Lessons are taken at multiples of 1 / `_GRID` of the budget, once each: curves have about a hundred points."""


@dataclass(frozen=True, slots=True)
class Duel:
    """A candidate that was measured to its end, and the incumbent that it was to beat.

    Attributes:
        candidate: Its first measurement.
        incumbent: The incumbent's measurements.
    """

    candidate: Measurement
    incumbent: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a curve says at one share of the budget. Widths are in the curve's unit.

    Attributes:
        share: Share of the budget used.
        behind: How far the curve is behind the incumbent's; negative where it is ahead.
        remaining: What the incumbent still gained from there.
        spread: Standard deviation between curves of one artifact there.
        chance: Chance of ending better than the incumbent.
        taught_by: Finished candidates whose gaps this was learned from.
        closing: Whether the gap closes at a pace that would close it before the end.
    """

    share: float
    behind: float
    remaining: float
    spread: float
    chance: float
    taught_by: int
    closing: bool

    @property
    def hopeless(self) -> bool:
        """Whether the measurement should be cut, were this no passing weakness."""
        return (
            self.chance < CHANCE
            and not self.closing
            and self.behind > CATCH_UP * self.remaining
            and self.behind > OUTSIDE * self.spread
        )

    def __str__(self) -> str:
        """Return the sentence for the ledger, without its full stop."""
        chance = f"{self.chance:.1%}" if self.chance >= 0.001 else "below 0.1%"
        return (
            f"after {self.share:.0%} of the budget its curve is {self.behind:.3g} behind the incumbent's, "
            f"{self.behind / self.spread:.0f} times the spread between curves of one artifact, and the incumbent "
            f"gained only {self.remaining:.3g} more from there; by {self.taught_by} candidates measured to their end, "
            f"its chance of ending better is {chance}"
        )


class EarlyRule:
    """Judges the curve of a candidate's first measurement.

    Args:
        direction: Which way is better, for the curve as for the metric.
        incumbent: Measurements of the incumbent; those without a curve are not looked at.
        past: Earlier candidates of the run, measured to their end, oldest first.
        replicates: Measurements of one artifact each, for the spread between its curves; those of the incumbent need
            not be repeated here.
        noise: Standard deviation between values of one artifact, in the metric's unit; 0 where unknown.
    """

    def __init__(
        self,
        direction: Direction,
        incumbent: Sequence[Measurement],
        past: Sequence[Duel],
        *,
        replicates: Sequence[Sequence[Measurement]] = (),
        noise: float = 0.0,
    ) -> None:
        self._cost = -direction.sign
        self._incumbent = self._trails(incumbent)
        self._past = [
            (self._trail(duel.candidate), self._trails(duel.incumbent))
            for duel in past[-MOST_TEACHERS:]
            if duel.candidate.curve
        ]
        self._replicates = [self._incumbent, *(self._trails(runs) for runs in replicates)]
        self._noise = noise
        self._lessons: dict[float, list[_Lesson]] = {}

    def judge(self, curve: Curve, seed: int) -> str | None:
        """Return why the rest of a measurement is not worth its time; None to go on.

        Args:
            curve: The curve so far; its last point is judged, with the `IN_A_ROW` - 1 before it.
            seed: Of the measurement; the incumbent's with the same seed is what it is laid beside.
        """
        if len(curve) < IN_A_ROW:
            return None
        newest = self.outlook(curve, seed)
        if newest is None or not newest.hopeless:
            return None
        for end in range(len(curve) - 1, len(curve) - IN_A_ROW, -1):
            earlier = self.outlook(curve[:end], seed)
            if earlier is None or not earlier.hopeless:
                return None
        return str(newest)

    def outlook(self, curve: Curve, seed: int) -> Outlook | None:
        """Return what the last point of a curve says; None where nothing can be said of it."""
        if not self._incumbent or not curve or not JUDGED_FROM <= curve[-1][0] <= JUDGED_UNTIL:
            return None
        share = curve[-1][0]
        trail = _Trail.of(curve, seed, math.nan, self._cost)
        spread, behind = self._spread(share), _behind(trail, self._incumbent, share)
        remaining = _remaining(self._incumbent, share)
        if spread is None or behind is None or remaining is None or remaining <= spread:
            return None
        lessons = self._lessons_at(share)
        chance = _chance_below_zero(behind / remaining, _noise_of_gap(spread, remaining), lessons)
        earlier = _behind(trail, self._incumbent, share / 2)
        # Gaps close ever more slowly, so to prolong the pace is generous. Nobody is cut of whom no pace is known.
        closing = earlier is None or (earlier - behind) / (share / 2) * (1 - share) >= behind
        return Outlook(share, behind, remaining, spread, chance, len(lessons), closing)

    def _trail(self, run: Measurement) -> _Trail:
        return _Trail.of(run.curve, run.seed, self._cost * run.value, self._cost)

    def _trails(self, runs: Sequence[Measurement]) -> list[_Trail]:
        return [self._trail(run) for run in runs if run.curve]

    def _spread(self, share: float) -> float | None:
        """Return the standard deviation between curves of one artifact, no less than the noise of the metric."""
        squares, dof = 0.0, 0
        for runs in self._replicates:
            levels = [level for run in runs if (level := run.level(share)) is not None]
            if len(levels) > 1:
                squares += float(np.var(levels)) * len(levels)
                dof += len(levels) - 1
        spread = max(math.sqrt(squares / dof) if dof else 0.0, self._noise)
        return spread if spread > 0 else None

    def _lessons_at(self, share: float) -> list[_Lesson]:
        """Return what finished candidates teach about gaps near a share."""
        near = round(share * _GRID) / _GRID
        if near not in self._lessons:
            spread = self._spread(near)
            found = [_lesson(candidate, rivals, near, spread) for candidate, rivals in self._past if spread is not None]
            self._lessons[near] = [lesson for lesson in found if lesson is not None]
        return self._lessons[near]


@dataclass(frozen=True, slots=True)
class _Trail:
    """A measurement with its curve, turned so that lower is better."""

    seed: int
    value: float
    shares: NDArray[np.float64]
    costs: NDArray[np.float64]

    @classmethod
    def of(cls, curve: Curve, seed: int, value: float, cost: int) -> _Trail:
        points = np.asarray(curve, dtype=np.float64)
        return cls(seed, value, points[:, 0], cost * points[:, 1])

    def level(self, share: float) -> float | None:
        """Return the average over the `WINDOW` before a share; None where the curve does not reach that far."""
        if self.shares[0] > share - WINDOW or self.shares[-1] < share:
            return None
        return float(np.interp(np.linspace(share - WINDOW, share, 6), self.shares, self.costs).mean())


@dataclass(frozen=True, slots=True)
class _Lesson:
    """Gap of a finished candidate at a share and at the end, and the noise of both, in parts of what remained."""

    gap: float
    final: float
    noise: float

    @property
    def weight(self) -> float:
        return 1 / (self.noise**2 + (WANDER * self.gap) ** 2)


def _behind(trail: _Trail, rivals: Sequence[_Trail], share: float) -> float | None:
    """Return how far a curve is behind its rivals' at a share: behind that of the same seed, where there is one."""
    own = trail.level(share)
    same = [run for run in rivals if run.seed == trail.seed] or rivals
    levels = [level for run in same if (level := run.level(share)) is not None]
    return None if own is None or not levels else own - sum(levels) / len(levels)


def _remaining(rivals: Sequence[_Trail], share: float) -> float | None:
    """Return what the rivals' curves gained on average from a share to their end."""
    gains = [
        now - end
        for run in rivals
        if (now := run.level(share)) is not None and (end := run.level(float(run.shares[-1]))) is not None
    ]
    return sum(gains) / len(gains) if gains else None


def _lesson(candidate: _Trail, rivals: Sequence[_Trail], share: float, spread: float) -> _Lesson | None:
    """Return what a finished candidate teaches about gaps at a share; None where its gap there was mere noise."""
    behind, remaining = _behind(candidate, rivals, share), _remaining(rivals, share)
    if behind is None or remaining is None or remaining <= spread:
        return None
    gap, noise = behind / remaining, _noise_of_gap(spread, remaining)
    if abs(gap) * WANDER < noise:
        return None
    return _Lesson(gap, (candidate.value - sum(run.value for run in rivals) / len(rivals)) / remaining, noise)


def _noise_of_gap(spread: float, remaining: float) -> float:
    """Return the standard deviation of a gap between two measurements, in parts of what remained."""
    return math.sqrt(2) * spread / remaining


def _chance_below_zero(gap: float, noise: float, lessons: Sequence[_Lesson]) -> float:
    """Return the probability that a gap now ends below zero, by the model of the module's head."""
    precision = PRIOR_WEIGHT / WANDER**2
    moment = precision * PRIOR_SLOPE
    squares = PRIOR_DOF + moment * PRIOR_SLOPE
    for lesson in lessons:
        precision += lesson.weight * lesson.gap**2
        moment += lesson.weight * lesson.gap * lesson.final
        squares += lesson.weight * lesson.final**2
    slope, dof = moment / precision, PRIOR_DOF + len(lessons)
    variance = (squares - precision * slope**2) / dof
    sd = math.sqrt(variance * (noise**2 + (WANDER * gap) ** 2 + gap**2 / precision))
    return float(special.stdtr(dof, -slope * gap / sd))


def watching(rule: EarlyRule, seed: int) -> Callable[[float, float], str | None]:
    """Return what `RunContext.hopeless` takes: it collects the points of a measurement and has the rule judge them."""
    curve: list[tuple[float, float]] = []

    def hopeless(share: float, value: float) -> str | None:
        curve.append((share, value))
        return rule.judge(curve, seed)

    return hopeless
