"""Early stopping: whether a measurement that streams its curve still has a chance worth the rest of its time.

What is compared are levels of two curves at the same share of the budget. A candidate's gap to the incumbent there says
something about its gap at the end, but how much is a matter of the subject: gaps close as curves flatten, and what
changes the schedule is worse early and better late. So it is learned, from candidates of the same run that were
measured to their end, and little is believed before there are some.

Let x be the gap of the curves at the share and f the gap of the final values, both positive where the candidate is
worse. The model is f = b x + e with e normal of standard deviation s * sqrt(n^2 + w^2): n is the noise of the two gaps,
and w = WANDER min(x, g) says that gaps twice as wide end twice as far from what was expected, up to the width g that
the incumbent itself gained in the last two thirds of its budget. b and s are unknown, with the conjugate (normal,
inverse gamma) prior, so that a candidate's f has a Student t distribution. Its mass below zero is the chance of ending
better than the incumbent. Gaps within the noise say little about wide ones, so that a lesson counts for that part of
its variance that is no noise. Source: Bayesian linear regression as in Gelman et al., Bayesian Data Analysis, chapter
14, with known relative variances.

The model has never seen the late bloomer that will come. Three rules protect it: nothing is judged before a third of
the budget; nobody is cut whose gap is below a quarter of what the incumbent gained in the two thirds after that; nobody
is cut whose gap closes at a pace that would close it in time. What is cut teaches nothing later, and those that were
spared with a wide gap closed it more than most, so cutting makes the rule more careful, not less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
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
CATCH_UP: Final = 0.25
"""Nobody is cut whose gap is below this part of what the incumbent gained from `JUDGED_FROM` on. A schedule that does
its work later is behind until the very end, where the incumbent has stopped gaining long since."""
OUTSIDE: Final = 4.0
"""Spreads between curves of one artifact that a gap must be wide to count."""
IN_A_ROW: Final = 3
"""Points in a row that must say the same."""
WINDOW: Final = 0.1
"""Share of the budget over which a curve is averaged to its level."""

PRIOR_SLOPE: Final = 0.5
"""Part of a gap that is expected to be left at the end before anything is known."""
PRIOR_WEIGHT: Final = 4.0
"""What that expectation is worth, in candidates with a wide gap."""
WANDER: Final = 0.25
"""How far the part that is left differs between candidates before anything is known, as a standard deviation."""
PRIOR_DOF: Final = 6.0
"""What that spread is worth, in candidates. At first only a gap of two and a half times what the incumbent gained in
the last two thirds of its budget makes a chance below `CHANCE`."""

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
        gained: What the incumbent gained from `JUDGED_FROM` to its end.
        spread: Standard deviation between curves of one artifact.
        chance: Chance of ending better than the incumbent.
        taught_by: What was learned from finished candidates, in candidates with a gap far outside the noise.
        closing: Whether the gap closes at a pace that would close it before the end.
    """

    share: float
    behind: float
    gained: float
    spread: float
    chance: float
    taught_by: float
    closing: bool

    @property
    def hopeless(self) -> bool:
        """Whether the measurement should be cut, were this no passing weakness."""
        return (
            self.chance < CHANCE
            and not self.closing
            and self.behind > CATCH_UP * self.gained
            and self.behind > OUTSIDE * self.spread
        )

    def __str__(self) -> str:
        """Return the sentence for the ledger, without its full stop."""
        chance = f"{self.chance:.1%}" if self.chance >= 0.001 else "below 0.1%"
        return (
            f"after {self.share:.0%} of the budget its curve is {self.behind:.3g} behind the incumbent's, "
            f"{self.behind / self.spread:.0f} times the spread between curves of one artifact; by what the gaps of "
            f"earlier candidates came to (worth {self.taught_by:.1f} wide ones), "
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
        self._lessons: dict[int, list[_Lesson]] = {}

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
        spread, behind = self._spread, _behind(trail, self._incumbent, share)
        gained = _gained(self._incumbent)
        if spread is None or behind is None or gained is None or gained <= spread:
            return None
        # Two curves, of whose noise a part is taken for a gap that lasts, and two values.
        noise = 2 * (PRIOR_SLOPE * spread) ** 2 + 2 * (self._noise or spread) ** 2
        lessons = self._lessons_at(share, noise, gained)
        earlier = _behind(trail, self._incumbent, share / 2)
        return Outlook(
            share,
            behind,
            gained=gained,
            spread=spread,
            chance=_chance_below_zero(behind, noise + _wander(behind, gained), lessons),
            taught_by=sum(lesson.weight for lesson in lessons),
            closing=earlier is None or _closes(earlier, behind, share),
        )

    def _trail(self, run: Measurement) -> _Trail:
        return _Trail.of(run.curve, run.seed, self._cost * run.value, self._cost)

    def _trails(self, runs: Sequence[Measurement]) -> list[_Trail]:
        return [self._trail(run) for run in runs if run.curve]

    @cached_property
    def _spread(self) -> float | None:
        """Standard deviation between curves of one artifact, no less than the noise of the metric; None if unknown.

        Pooled over the shares that are judged, as there are few replicates: often the baseline was measured twice.
        """
        squares, dof = 0.0, 0
        for runs in self._replicates:
            for index in range(math.ceil(JUDGED_FROM * _GRID), math.floor(JUDGED_UNTIL * _GRID) + 1):
                levels = [level for run in runs if (level := run.levels[index]) is not None]
                if len(levels) > 1:
                    squares += float(np.var(levels)) * len(levels)
                    dof += len(levels) - 1
        spread = max(math.sqrt(squares / dof) if dof else 0.0, self._noise)
        return spread if spread > 0 else None

    def _lessons_at(self, share: float, noise: float, gained: float) -> list[_Lesson]:
        """Return what finished candidates teach about gaps near a share."""
        index = round(share * _GRID)
        if index not in self._lessons:
            found = [_lesson(*duel, index, noise, gained) for duel in self._past]
            self._lessons[index] = [lesson for lesson in found if lesson is not None]
        return self._lessons[index]


@dataclass(frozen=True)
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
        return float(self._averages(np.array([share]))[0])

    @cached_property
    def levels(self) -> list[float | None]:
        """`level` at every multiple of 1 / `_GRID`."""
        grid = np.arange(_GRID + 1) / _GRID
        known = (self.shares[0] <= grid - WINDOW) & (self.shares[-1] >= grid)
        return [float(found) if there else None for found, there in zip(self._averages(grid), known, strict=True)]

    def _averages(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        places = shares[:, None] - np.linspace(WINDOW, 0, 6)
        averages: NDArray[np.float64] = np.interp(places, self.shares, self.costs).mean(axis=1)
        return averages


@dataclass(frozen=True, slots=True)
class _Lesson:
    """What the gap of a finished candidate came to.

    Attributes:
        gap: Gap of the curves at the share.
        final: Gap of the values at the end, but no wider than `gap`: who fell back further says no more against
            catching up than who stayed behind, and must not look like scatter.
        variance: Of `final` given the gap, in units of s^2.
        weight: What the lesson counts, 0 to 1: the part of the variance that is no noise.
    """

    gap: float
    final: float
    variance: float
    weight: float


def _behind(trail: _Trail, rivals: Sequence[_Trail], share: float) -> float | None:
    """Return how far a curve is behind its rivals' at a share: behind that of the same seed, where there is one."""
    levels = [level for run in _beside(trail, rivals) if (level := run.level(share)) is not None]
    own = trail.level(share)
    return None if own is None or not levels else own - sum(levels) / len(levels)


def _beside(trail: _Trail, rivals: Sequence[_Trail]) -> Sequence[_Trail]:
    return [run for run in rivals if run.seed == trail.seed] or rivals


def _gained(rivals: Sequence[_Trail]) -> float | None:
    """Return what the rivals' curves gained on average from `JUDGED_FROM` to their end."""
    gains = [
        now - end
        for run in rivals
        if (now := run.level(JUDGED_FROM)) is not None and (end := run.level(float(run.shares[-1]))) is not None
    ]
    return sum(gains) / len(gains) if gains else None


def _closes(earlier: float, behind: float, share: float) -> bool:
    """Say whether a gap, at its pace since half of the training so far, would be closed by the end.

    Gaps close ever more slowly, so this is generous. Levels are averages over a window, half of which lies behind.
    """
    return (earlier - behind) / (share / 2) * (1 - share + WINDOW / 2) >= behind


def _lesson(candidate: _Trail, rivals: Sequence[_Trail], index: int, noise: float, gained: float) -> _Lesson | None:
    """Return what a finished candidate teaches at one place of the grid; None where a curve does not reach it."""
    levels = [level for run in _beside(candidate, rivals) if (level := run.levels[index]) is not None]
    own = candidate.levels[index]
    if own is None or not levels:
        return None
    gap = own - sum(levels) / len(levels)
    final = candidate.value - sum(run.value for run in rivals) / len(rivals)
    wander = _wander(gap, gained)
    clipped = min(final, gap) if gap > 0 else max(final, gap)
    return _Lesson(gap, clipped, noise + wander, wander / (noise + wander))


def _wander(gap: float, gained: float) -> float:
    """Return the variance that candidates' differing ways bring to a final gap, in units of s^2."""
    return (WANDER * min(abs(gap), gained)) ** 2


def _chance_below_zero(gap: float, variance: float, lessons: Sequence[_Lesson]) -> float:
    """Return the probability that a gap now ends below zero, by the model of the module's head."""
    precision = PRIOR_WEIGHT / WANDER**2
    moment = precision * PRIOR_SLOPE
    squares, dof = PRIOR_DOF + moment * PRIOR_SLOPE, PRIOR_DOF
    for lesson in lessons:
        counts = lesson.weight / lesson.variance
        precision += counts * lesson.gap**2
        moment += counts * lesson.gap * lesson.final
        squares += counts * lesson.final**2
        dof += lesson.weight
    slope = moment / precision
    scale = (squares - precision * slope**2) / dof
    sd = math.sqrt(scale * (variance + gap**2 / precision))
    return float(special.stdtr(dof, -slope * gap / sd))


def watching(rule: EarlyRule, seed: int) -> Callable[[float, float], str | None]:
    """Return what `RunContext.hopeless` takes: it collects the points of a measurement and has the rule judge them."""
    curve: list[tuple[float, float]] = []

    def hopeless(share: float, value: float) -> str | None:
        curve.append((share, value))
        return rule.judge(curve, seed)

    return hopeless
