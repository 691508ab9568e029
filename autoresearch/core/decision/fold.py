"""A run so far, folded experiment by experiment: levels, prior of effects, drift, when to look at the incumbent."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoresearch.core.decision import PastEvidence
from autoresearch.core.decision.effects import (
    EDGE,
    EM_ITERATIONS,
    LEARN_EVERY,
    PRIOR_WORTH,
    START_PRIOR,
    em,
    likelihood,
    within_edge,
)
from autoresearch.core.decision.levels import INCUMBENT, Levels, Runs, Scale, Seen, if_kept, if_reverted

Vector = NDArray[np.float64]

FIRST_CHECK = 24
"""Experiments after which the incumbent is first measured again where an occasion offers. While what is found agrees
with what was believed, the next check comes after twice as many: after 24, 72, 168, ... experiments."""

SHORTEST_CHECK = 8
"""After a check that disagrees the next one comes after a quarter of the experiments, but not before so many."""

SURPRISING = 4.0
"""A check disagrees where its square lies above so many variances: two standard deviations."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the machine moves in one step: a few possible variances, learned from every check of the incumbent.

    Attributes:
        variances: In squared units of the noise, ascending.
        weights: How probable each is.
    """

    variances: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Expected variance of one step."""
        return sum(variance * weight for variance, weight in zip(self.variances, self.weights, strict=True))

    def learned(self, surprise: float, still: float, steps: float) -> Spread:
        """Return what a check teaches.

        Args:
            surprise: How far the incumbent was found from where it was expected.
            still: Variance of that if the machine had not moved.
            steps: So many steps' variance is added to it by moving.
        """
        likelihoods = []
        for variance in self.variances:
            total = still + steps * variance
            likelihoods.append(math.exp(-0.5 * min(surprise**2 / total, 1000.0)) / math.sqrt(total))
        weights = [weight * likelihood for weight, likelihood in zip(self.weights, likelihoods, strict=True)]
        whole = sum(weights)
        return Spread(self.variances, tuple(weight / whole for weight in weights)) if whole > 0 else self


STEP = Spread((0.0, 0.003, 0.03, 0.3), (0.7, 0.24, 0.05, 0.01))
"""From one experiment to the next, before anything was checked: on most machines nothing to speak of."""

GAP = Spread((0.0, 0.3, 3.0, 30.0), (0.5, 0.35, 0.13, 0.02))
"""From one block to the next: another day, perhaps another machine beside it."""

_NEVER = 10**9

STILL = Spread((0.0,), (1.0,))
"""A machine that never moves."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a fold knows at its end; nothing in it changes any more.

    Attributes:
        levels: Of incumbent, baseline and seeds after the last experiment.
        weights: Prior of the next candidate's effect, masses on the grid. Shape (G,).
        block: Of the last experiment.
        checked_block: Block in which the incumbent was last measured.
        since_check: Experiments since.
        check_after: Experiments after which it is due.
        step: How far the machine moves between experiments.
        gap: And between blocks.
    """

    levels: Levels
    weights: Vector
    block: int
    checked_block: int
    since_check: int
    check_after: int
    step: Spread
    gap: Spread

    def moved(self, block: int) -> float:
        """Return the variance that the machine's moving adds until the next experiment."""
        return self.step.mean + (self.gap.mean if block != self.block else 0.0)

    def due(self, block: int) -> bool:
        """Whether the incumbent should be measured again in the next experiment if the occasion offers."""
        if self.check_after == _NEVER:
            return False
        return block != self.checked_block or self.since_check + 1 >= self.check_after


class Fold:
    """A run so far; `take_in` moves it on by one experiment.

    Args:
        baseline: The first experiment.
        scale: How values become units of the noise.
        drifting: Whether the machine may move.
    """

    def __init__(self, baseline: PastEvidence, scale: Scale, drifting: bool = True) -> None:
        self._scale = scale
        levels = scale.start(scale.runs_of([look.treatment for look in baseline.all_looks]))
        step, gap = (STEP, GAP) if drifting else (STILL, STILL)
        first = FIRST_CHECK if drifting else _NEVER
        self.standing = Standing(levels, START_PRIOR.weights, baseline.block, baseline.block, 0, first, step, gap)
        # How much of the incumbent's variance comes from moving, per unit of the variance of a step and of a gap.
        self._steps, self._gaps = 0.0, 0.0
        self._rows = np.empty((64, len(_GRID)))
        self._seen = 0
        self._learn_at = 1.0

    def take_in(self, past: PastEvidence) -> None:
        """Fold in the next experiment; one that measured nothing teaches nothing."""
        looks = past.all_looks
        if not (past.look.control.n or past.look.treatment.n):
            return
        self._arrive(past.block)
        if past.look.control.n:
            self._control(self._scale.runs_of([look.control for look in looks]))
        if past.look.treatment.n:
            self._candidate(self._scale.runs_of([look.treatment for look in looks]), past.kept)

    def _arrive(self, block: int) -> None:
        known = self.standing
        self._steps += 1.0
        self._gaps += block != known.block
        levels = known.levels.moved(known.moved(block))
        self.standing = replace(known, levels=levels, block=block, since_check=known.since_check + 1)

    def _control(self, runs: Runs) -> None:
        """Learn from the incumbent itself: first how far the machine moves, then where it is."""
        known = self.standing
        seen = known.levels.see(runs)
        by_steps, by_gaps = self._steps * known.step.mean, self._gaps * known.gap.mean
        step = known.step.learned(seen.difference, seen.variance - by_steps, self._steps)
        gap = known.gap
        if known.block != known.checked_block:  # what came with the gap says nothing about single steps
            step, gap = known.step, gap.learned(seen.difference, seen.variance - by_gaps, self._gaps)
        more = self._steps * (step.mean - known.step.mean) + self._gaps * (gap.mean - known.gap.mean)
        agrees = seen.difference**2 <= SURPRISING * seen.variance
        self.standing = replace(
            known,
            levels=known.levels.moved(more).measured(runs),
            step=step,
            gap=gap,
            checked_block=known.block,
            since_check=0,
            check_after=2 * known.check_after if agrees else max(SHORTEST_CHECK, known.check_after // 4),
        )
        self._shrink(seen)

    def _shrink(self, seen: Seen) -> None:
        left = (1.0 - float(seen.slope[INCUMBENT])) ** 2
        self._steps *= left
        self._gaps *= left

    def _candidate(self, runs: Runs, kept: bool) -> None:
        known = self.standing
        seen = known.levels.see(runs)
        row = likelihood(within_edge(seen.difference), seen.variance, _GRID)
        if abs(seen.difference) > EDGE:
            expected, spread = seen.difference, seen.variance
        else:
            mass, first, second = (_MOMENTS @ (known.weights * row)).tolist()
            expected = first / mass
            spread = max(second / mass - expected**2, 0.0)
        levels = (if_kept if kept else if_reverted)(seen, expected, spread)
        self.standing = replace(known, levels=levels, weights=self._learned(row, known.weights))
        self._shrink(seen)

    def _learned(self, row: Vector, weights: Vector) -> Vector:
        """Write a candidate's likelihood down; return the prior, learned anew where that is due."""
        if self._seen == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self._seen] = row
        self._seen += 1
        if self._seen < self._learn_at:
            return weights
        self._learn_at = max(self._seen + 1, self._seen * LEARN_EVERY)
        return em(self._rows[: self._seen], weights, START_PRIOR.weights, PRIOR_WORTH, EM_ITERATIONS)


_GRID = START_PRIOR.grid
_MOMENTS = np.stack([np.ones_like(_GRID), _GRID, _GRID**2])


class FoldCache:
    """The latest folds, so that a history which has grown by one experiment costs one step.

    A fold is found again by its experiments, compared one by one, so that the answer never depends on what is cached.
    """

    def __init__(self, limit: int = 4) -> None:
        self._limit = limit
        self._entries: list[tuple[tuple[PastEvidence, ...], Scale, bool, Fold]] = []
        self._lock = threading.Lock()

    def fold(self, history: tuple[PastEvidence, ...], scale: Scale, drifting: bool = True) -> Standing:
        """Return what is known after a history that begins with the baseline."""
        with self._lock:
            taken, fold = self._longest(history, scale, drifting)
            for past in history[taken:]:
                fold.take_in(past)
            self._entries = [(history, scale, drifting, fold), *self._entries][: self._limit]
            return fold.standing

    def _longest(self, history: tuple[PastEvidence, ...], scale: Scale, drifting: bool) -> tuple[int, Fold]:
        for index, (known, its_scale, its_drifting, fold) in enumerate(self._entries):
            # Equal tuples of the same objects are told by identity, some nanoseconds an experiment.
            if its_scale == scale and drifting == its_drifting and known == history[: len(known)]:
                del self._entries[index]
                return len(known), fold
        return 1, Fold(history[0], scale, drifting)
