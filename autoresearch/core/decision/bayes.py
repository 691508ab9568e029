"""`bayes`: keep what is probably better, given one or two runs, the noise, and what candidates here are usually worth.

One run is usually all that a candidate gets, so the question is not significance but expected gain. Two things are
unknown, and both are carried as distributions:

- the levels: the incumbent as the machine measures it now, the baseline, what each seed adds (`levels`). Every
  candidate teaches a little about the incumbent, and when one is kept the new level is the *posterior* mean: the luck
  of the draw that won is not carried on as a bar that real improvements must beat.
- the effect of a candidate, whose prior is learned from every candidate of the run so far (`effects`).

A candidate of effect d, measured k times, has the mean y ~ N(m + d, v + s), where N(m, v) is what is believed of the
incumbent and s = sigma^2 / k. With the gain g = v / (v + s) the incumbent's mean given d is m + g (y - m - d), its
variance v (1 - g); mixing over the posterior of d gives the two moments that are carried on. Higher is better
throughout; the policy counts in units of the noise.

A doubtful candidate is measured again only where that is worth more than a share of a fresh candidate, for a run can be
spent but once. The incumbent is measured again beside a candidate where the machine may have moved: after a pause, now
and then, and where one more of its runs says more about the difference than one more of the candidate's.

Source: the filter is Kalman's; learning the prior from the stream of candidates is empirical Bayes; the worth of a run
is the expected value of sample information.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Decision, Evidence, Look, Noise, Verdict
from autoresearch.core.decision.effects import EDGE, START_PRIOR, EffectPrior, likelihood, within_edge
from autoresearch.core.decision.fold import FoldCache, Standing
from autoresearch.core.decision.greedy import check_history
from autoresearch.core.decision.levels import (
    FIRST_SEED,
    INCUMBENT,
    Levels,
    Runs,
    Scale,
    Seen,
    if_kept,
    if_reverted,
)
from autoresearch.core.decision.noise import plug_in_sd

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of the incumbent's true mean: normal, with `mean` and `variance`."""

    mean: float
    variance: float

    @classmethod
    def of(cls, levels: Levels) -> Belief:
        """Return what `levels` say of the incumbent."""
        return cls(float(levels.mean[INCUMBENT]), float(levels.covariance[INCUMBENT, INCUMBENT]))


@dataclass(frozen=True, slots=True)
class Step:
    """What the measurements of one candidate say.

    Attributes:
        p_better: Probability that the effect is above zero; half of the mass at exactly zero counts.
        expected: Expected effect.
        interval: 5 % and 95 % point of the effect, read off the posterior with the same half counting.
        posterior: Masses on the grid. Shape (G,).
        if_kept: Belief about the incumbent when the candidate becomes it.
        if_reverted: Belief about the incumbent when it stays.
    """

    p_better: float
    expected: float
    interval: tuple[float, float]
    posterior: Vector
    if_kept: Belief
    if_reverted: Belief


def step(
    mean: float, variance: float, k: int, observed_mean: float, sigma: float, grid: ArrayLike, prior: ArrayLike
) -> Step:
    """Return the posterior after `k` measurements of a candidate; higher is better.

    Args:
        mean: Mean of the belief about the incumbent.
        variance: Its variance.
        k: Number of measurements of the candidate, 1 or more.
        observed_mean: Their mean.
        sigma: Standard deviation of one measurement, known.
        grid: Effects that the prior speaks of, ascending. Shape (G,).
        prior: Their masses, summing to 1. Shape (G,).

    Raises:
        ValueError: If a number is not finite, or `k`, `sigma` or `variance` is out of its range.
    """
    if not (math.isfinite(mean) and math.isfinite(observed_mean)):
        raise ValueError(
            f"A step needs finite means, not {mean} for the incumbent and {observed_mean} for the candidate."
        )
    if k < 1 or not (math.isfinite(sigma) and sigma > 0) or not (math.isfinite(variance) and variance >= 0):
        raise ValueError(f"A step needs k >= 1, sigma > 0 and variance >= 0, not {k}, {sigma} and {variance}.")
    known = EffectPrior(np.asarray(grid, dtype=np.float64), np.asarray(prior, dtype=np.float64))
    levels = Levels(np.full(FIRST_SEED, mean), np.full((FIRST_SEED, FIRST_SEED), variance))
    shows = np.eye(1, FIRST_SEED, INCUMBENT)
    seen = levels.see(Runs(shows, np.array([sigma**2 / k]), np.array([observed_mean])))
    posterior = posterior_of(seen, known)
    judged = summary_of(posterior, known.grid)
    spread = float(posterior @ (known.grid - judged.expected) ** 2)
    return Step(
        p_better=judged.p_better,
        expected=judged.expected,
        interval=judged.interval,
        posterior=posterior,
        if_kept=Belief.of(if_kept(seen, judged.expected, spread)),
        if_reverted=Belief.of(if_reverted(seen, judged.expected, spread)),
    )


class BayesPolicy:
    """Keeps what is probably better, drops what is probably not, and measures again in between where that pays.

    Args:
        keep_at: Keep when the probability that the candidate is better is at least this.
        drop_below: Revert when it is under this.
        max_looks: Runs of a candidate after which the sign of the expected gain decides; runs of the incumbent beside
            it do not count.
        drifting: Whether the machine may move; without, the incumbent is not checked for it.

    The noise must be known (`Evidence.noise`): the loop measures the baseline more than once before the first candidate
    where the adapter states none. A few degrees of freedom widen it, see `noise.plug_in_sd`.
    """

    def __init__(
        self, keep_at: float = 0.8, drop_below: float = 0.5, max_looks: int = 2, *, drifting: bool = True
    ) -> None:
        if not 0.0 < keep_at < 1.0:
            raise ValueError(f"keep_at is a probability between 0 and 1, not {keep_at}; 0.8 is the default.")
        if not 0.0 <= drop_below <= keep_at:
            raise ValueError(
                f"drop_below must lie between 0 and keep_at ({keep_at}), not {drop_below}; 0.5 is the default."
            )
        if max_looks < 1:
            raise ValueError(f"max_looks must be 1 or more, not {max_looks}; 2 is the default.")
        self._keep_at = keep_at
        self._drop_below = drop_below
        self._max_looks = max_looks
        self._drifting = drifting

    @property
    def name(self) -> str:
        """`bayes`."""
        return "bayes"

    @property
    def parameters(self) -> Mapping[str, float]:
        """`keep_at`, `drop_below` and `max_looks`."""
        return {"keep_at": self._keep_at, "drop_below": self._drop_below, "max_looks": float(self._max_looks)}

    @property
    def needs_noise(self) -> bool:
        """Yes: it weighs every value against the noise."""
        return True

    def decide(self, evidence: Evidence) -> Verdict:
        """Keep, revert or look again.

        Raises:
            ValueError: If the noise is unknown, the history does not begin with a measured baseline, or a total is not
                finite.
        """
        look = evidence.looks[-1]
        if look.treatment.n == 0:
            return Verdict(Decision.CONTINUE, "The candidate has not been measured yet.")
        scale = _scale(evidence)
        known = _FOLDS.fold(evidence.history, scale, self._drifting)
        case = _Case(known.levels.moved(known.moved(evidence.block)), scale, evidence.looks)
        judged = judge(case.seen, known.weights)
        decision, measure = self._verdict(case, judged, known, evidence.block)
        inconclusive = decision is Decision.REVERT and judged.p_better >= self._drop_below
        sd = abs(scale.unit)
        effect, interval = judged.expected * sd, (judged.interval[0] * sd, judged.interval[1] * sd)
        reason = _reason(judged.p_better, effect, look, evidence.metric.unit, inconclusive)
        return Verdict(decision, reason, effect, interval, judged.p_better, inconclusive=inconclusive, measure=measure)

    def _verdict(self, case: _Case, judged: Judged, known: Standing, block: int) -> tuple[Decision, tuple[str, ...]]:
        """Return the decision and, where it is to look again, at which arm."""
        p_better, look = judged.p_better, case.looks[-1]
        if p_better < self._drop_below:
            return Decision.REVERT, ()
        if known.due(block) and not look.control.n and p_better < CLEAR:
            return Decision.CONTINUE, ("control",)
        if p_better >= self._keep_at:
            return Decision.KEEP, ()
        if look.treatment.n >= self._max_looks:
            return (Decision.KEEP if judged.expected > 0 else Decision.REVERT), ()
        arms = ("treatment", "control") if look.control.n < look.treatment.n else ("treatment",)
        best = min(arms, key=case.variance_after)
        again = value_of_run(case.seen, case.variance_after(best), known.weights)
        if again > RUN_WORTH * value_of_candidate(case.fresh_variance, known.weights):
            return Decision.CONTINUE, (best,)
        lean = self._drop_below + LEAN * (self._keep_at - self._drop_below)
        return (Decision.KEEP if p_better >= lean else Decision.REVERT), ()

    def believed_gain(self, evidence: Evidence) -> float:
        """Return the incumbent's believed mean less the baseline's, both judged on all that taught about them.

        Raises:
            ValueError: As `decide` does.
        """
        scale = _scale(evidence)
        return _FOLDS.fold(evidence.history, scale, self._drifting).levels.gain * abs(scale.unit)

    def believed_interval(self, evidence: Evidence) -> tuple[float, float] | None:
        """Return the interval of 90 % around `believed_gain`: 1.645 standard deviations of the difference either way.

        Raises:
            ValueError: As `decide` does.
        """
        scale = _scale(evidence)
        levels = _FOLDS.fold(evidence.history, scale, self._drifting).levels
        middle, half = levels.gain * abs(scale.unit), _NINETY * levels.gain_sd * abs(scale.unit)
        return middle - half, middle + half


CLEAR = 0.98
"""Probability of being better from which on the incumbent is not checked before the candidate is kept."""

RUN_WORTH = 0.2
"""A doubtful candidate is measured again where that raises the gain to expect by more than this share of what a fresh
candidate is worth. Below 1, because a second run also saves keeps that are wrong, and the gain alone does not count
those. In simulation 0 and 1 lose 3 % of the gain where a few ideas are large or where all are small."""

LEAN = 0.4
"""Where a doubtful candidate is not worth another run, it is kept if its probability of being better lies above so
much of the way from `drop_below` to `keep_at`."""

_NINETY = 1.6448536269514722
"""95 % point of the standard normal: so many standard deviations either way hold 90 %."""

_FOLDS = FoldCache()


class _Case:
    """The candidate under judgement: its looks, and the levels that they are seen against."""

    def __init__(self, levels: Levels, scale: Scale, looks: tuple[Look, ...]) -> None:
        self._before, self._scale, self.looks = levels, scale, looks
        self.seen = self._see(looks)

    def _see(self, looks: Sequence[Look]) -> Seen:
        levels = self._before
        if looks[-1].control.n:
            levels = levels.measured(self._scale.runs_of([look.control for look in looks]))
        return levels.see(self._scale.runs_of([look.treatment for look in looks]))

    def variance_after(self, arm: str) -> float:
        """Return the variance of the difference after one more run of an arm."""
        last = self.looks[-1]
        control, treatment = last.control, last.treatment
        if arm == "control":
            control = _one_more(control)
        else:
            treatment = _one_more(treatment)
        return self._see((*self.looks, Look(control, treatment))).variance

    @property
    def fresh_variance(self) -> float:
        """Variance of the difference after one run of a fresh candidate."""
        one = ArmTotals("treatment", 1, 0.0, 0.0)
        return self._before.see(self._scale.runs_of([one])).variance


def _one_more(totals: ArmTotals) -> ArmTotals:
    """Return the totals with one more run; what it measures does not matter for a variance."""
    return ArmTotals(totals.arm, totals.n + 1, totals.total, totals.total_sq)


def _scale(evidence: Evidence) -> Scale:
    """Return how values become units of the noise.

    This is the border at which direction is handled, once.
    """
    check_history(evidence)
    noise = evidence.noise
    if noise is None:
        raise ValueError(
            "The policy bayes needs the noise, and it is unknown: measure the baseline at least twice with different "
            "seeds before the first candidate, or state it in the metric."
        )
    sd = plug_in_sd(Noise(noise.paired_sd, noise.dof), evidence.history[0].look.treatment.mean)
    return Scale(evidence.metric.direction.sign * sd, (noise.seed_sd / sd) ** 2)


@dataclass(frozen=True, slots=True)
class Judged:
    """What is believed of a candidate's effect, in units of the noise.

    Attributes:
        p_better: Probability that it is above zero; half of the mass at exactly zero counts.
        expected: Its expectation.
        interval: Its 5 % and 95 % point.
    """

    p_better: float
    expected: float
    interval: tuple[float, float]


def judge(seen: Seen, weights: Vector) -> Judged:
    """Return what a candidate's runs say under a prior of effects on the grid of `START_PRIOR`."""
    difference, variance = seen.difference, seen.variance
    if abs(difference) > EDGE:
        # Beyond the edge the prior says nothing: the effect is what was measured, with the variance of the difference.
        width = 1.6449 * math.sqrt(variance)
        return Judged(float(difference > 0), difference, (difference - width, difference + width))
    return summary_of(posterior_of(seen, EffectPrior(START_PRIOR.grid, weights)), START_PRIOR.grid)


def posterior_of(seen: Seen, prior: EffectPrior) -> Vector:
    """Return the masses of the effects after a candidate's runs. Shape (G,)."""
    posterior = prior.weights * likelihood(seen.difference, seen.variance, prior.grid)
    return np.asarray(posterior / posterior.sum())


def summary_of(posterior: Vector, grid: Vector) -> Judged:
    """Return probability, expectation and interval of an effect from its masses on an ascending grid."""
    at_zero = float(posterior[grid == 0.0].sum())
    middle = np.cumsum(posterior) - posterior / 2.0
    low, high = np.interp([0.05, 0.95], middle, grid)
    p_better = min(float(posterior[grid > 0.0].sum()) + at_zero / 2.0, 1.0)
    return Judged(p_better, float(posterior @ grid), (float(low), float(high)))


def value_of_candidate(variance: float, weights: Vector) -> float:
    """Return the gain to expect of a fresh candidate after one run, if it is kept where that is worth it.

    Args:
        variance: Of its measured difference around the true one.
        weights: Prior of its effect, masses on the grid. Shape (G,).
    """
    spread = (_DIFFERENCES[:, None] - START_PRIOR.grid) ** 2
    expected = np.exp(spread * (-0.5 / variance)) @ (weights * START_PRIOR.grid)
    return float(np.maximum(expected, 0.0).sum()) * _WIDTH / math.sqrt(2.0 * math.pi * variance)


_WIDTH = 0.5
_DIFFERENCES = np.arange(-4.0, 10.0 + _WIDTH, _WIDTH)
"""Measured differences over which a fresh candidate is averaged. Below none is kept, and the few beyond bring little to
a sum that only has to be about right."""


def value_of_run(seen: Seen, variance: float, weights: Vector) -> float:
    """Return how much one more run of a candidate raises the gain to expect of keeping it or not.

    Given the effect d, the next difference D' is normal with mean d + r (D - d) and variance v' (v - v') / v, where D
    is the difference so far, v its variance, v' that of D', and r = v' / v.

    Args:
        seen: What its runs so far say.
        variance: Of the difference after one more run.
        weights: Prior of its effect, masses on the grid. Shape (G,).
    """
    posterior = weights * likelihood(within_edge(seen.difference), seen.variance, START_PRIOR.grid)
    posterior /= posterior.sum()
    now = max(float(posterior @ START_PRIOR.grid), 0.0)
    ratio = variance / seen.variance
    spread = variance * (1.0 - ratio)
    if spread <= 0.0:
        return 0.0
    around = math.sqrt(spread + 0.3)
    differences = seen.difference + _NODES * around
    means = START_PRIOR.grid + ratio * (seen.difference - START_PRIOR.grid)
    density = np.exp((differences[:, None] - means) ** 2 * (-0.5 / spread)) @ (posterior * START_PRIOR.grid)
    step = float(_NODES[1] - _NODES[0]) * around
    then = float(np.maximum(density, 0.0).sum()) * step / math.sqrt(2.0 * math.pi * spread)
    return then - now


_NODES = np.linspace(-4.0, 4.0, 33)


def _reason(p_better: float, effect: float, look: Look, unit: str, inconclusive: bool) -> str:
    """Return one plain sentence for the ledger."""
    count = "1 run" if look.treatment.n == 1 else f"{look.treatment.n} runs"
    if look.control.n:
        count += f" against {look.control.n} of the incumbent beside it"
    # Never rounded to certainty, as in every table of ours.
    better = "<.01" if p_better < 0.01 else ">.99" if p_better > 0.99 else f"{p_better:.2f}"
    sentence = f"P(better) {better} from {count}; expected gain {effect:.3g} {unit}".rstrip()
    return f"{sentence}; too little to tell." if inconclusive else f"{sentence}."
