"""`bayes`: keep what is probably better, given one or two runs, the noise, and what candidates here are usually worth.

One run is usually all that a candidate gets, so the question is not significance but expected gain. Two things are
unknown, and both are carried as distributions:

- the incumbent's true mean, normal with mean m and variance v. Its first measurements start it; every candidate teaches
  a little about it, and when a candidate is kept the new mean is the *posterior* mean: the luck of the draw that won is
  not carried on as a bar that real improvements must beat.
- the effect of a candidate, whose prior is learned from every candidate of the run so far: masses on a grid with a
  spike at zero, fitted by EM, beginning from `START_PRIOR`.

A candidate of effect d, measured k times, has the mean y ~ N(m + d, v + s) with s = sigma^2 / k. With the gain
g = v / (v + s) the incumbent's mean given d is m + g (y - m - d), its variance v (1 - g); mixing over the posterior
of d gives the two moments that are carried on. Higher is better throughout; the policy counts in units of the noise.

Source: the filter is Kalman's for one constant state; learning the prior from the stream of candidates is empirical
Bayes, with the EM for a discrete mixing distribution.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Decision, Evidence, Look, PastEvidence, Verdict
from autoresearch.core.decision.greedy import check_history
from autoresearch.core.decision.noise import plug_in_sd

Vector = NDArray[np.float64]

PRIOR_WORTH = 20.0
"""How many candidates the start prior counts for when the prior is learned."""

EM_ITERATIONS = 3
"""EM steps each time the prior is learned anew. In simulation 3 and 10 give the same gain, and few keep the prior
smooth: run to the end, EM puts the mass that data can move on a handful of grid points."""

EDGE = 40
"""Largest effect, in units of the noise, that the prior speaks of; what lies beyond is taken at its word."""

_FARTHEST = 1e300
"""Largest value, in units of the noise, that is reckoned with."""

LEARN_EVERY = 1.25
"""The prior is learned anew whenever the number of candidates has grown by this factor: in simulation as good as after
every candidate, at a third of the time."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of the incumbent's true mean: normal, with `mean` and `variance`."""

    mean: float
    variance: float

    def measured(self, mean: float, variance: float) -> Belief:
        """Return the belief after the incumbent itself was measured: `mean` of runs with the sampling `variance`."""
        gain = self.variance / (self.variance + variance)
        return Belief(self.mean + gain * (mean - self.mean), self.variance * (1.0 - gain))


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
    effects = np.asarray(grid, dtype=np.float64)
    posterior = np.asarray(prior, dtype=np.float64) * _likelihood(
        observed_mean - mean, variance + sigma**2 / k, effects
    )
    posterior /= posterior.sum()
    expected = float(posterior @ effects)
    spread = float(posterior @ (effects - expected) ** 2)
    belief, sampling = Belief(mean, variance), sigma**2 / k
    at_zero = float(posterior[effects == 0.0].sum())
    middle = np.cumsum(posterior) - posterior / 2.0
    low, high = np.interp([0.05, 0.95], middle, effects)
    return Step(
        p_better=min(float(posterior[effects > 0.0].sum()) + at_zero / 2.0, 1.0),
        expected=expected,
        interval=(float(low), float(high)),
        posterior=posterior,
        if_kept=_if_kept(belief, observed_mean, sampling, expected, spread),
        if_reverted=_if_reverted(belief, observed_mean, sampling, expected, spread),
    )


def _likelihood(difference: float, variance: float, effects: Vector) -> Vector:
    """Return the likelihood of a difference under each effect, up to a factor, at most 1; never all 0."""
    exponent = (effects - difference) ** 2
    exponent -= exponent.min()
    exponent *= -0.5 / variance
    return np.exp(exponent, out=exponent)


def _if_kept(belief: Belief, observed: float, sampling: float, expected: float, spread: float) -> Belief:
    """Return the belief about the candidate's true mean, for when it becomes the incumbent.

    Args:
        belief: About the incumbent, before the candidate was measured.
        observed: Mean of the candidate's measurements.
        sampling: Their variance, sigma^2 / k.
        expected: Posterior mean of the effect.
        spread: Posterior variance of the effect.
    """
    gain = belief.variance / (belief.variance + sampling)
    mean = belief.mean + gain * (observed - belief.mean) + (1.0 - gain) * expected
    return Belief(mean, belief.variance * (1.0 - gain) + (1.0 - gain) ** 2 * spread)


def _if_reverted(belief: Belief, observed: float, sampling: float, expected: float, spread: float) -> Belief:
    """Return the belief about the incumbent after the candidate's measurements; arguments as for `_if_kept`."""
    gain = belief.variance / (belief.variance + sampling)
    mean = belief.mean + gain * (observed - belief.mean - expected)
    return Belief(mean, belief.variance * (1.0 - gain) + gain**2 * spread)


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
    likelihood = np.stack([_likelihood(_within_edge(d), variance, start.grid) for d, variance in observations])
    return EffectPrior(start.grid, _em(likelihood, start.weights, start.weights, worth, iterations))


def _em(likelihood: Vector, weights: Vector, start: Vector, worth: float, iterations: int) -> Vector:
    """Take EM steps from `weights` for masses on a grid with a Dirichlet prior of mean `start`.

    Args:
        likelihood: One row per candidate, each up to a factor. Shape (N, G).
        weights: Masses to begin from. Shape (G,).
        start: Mean of the Dirichlet prior. Shape (G,).
        worth: Its number of pseudo-candidates.
        iterations: How many steps.
    """
    for _ in range(iterations):
        shares = likelihood.T @ (1.0 / (likelihood @ weights))
        weights = (worth * start + weights * shares) / (worth + len(likelihood))
    return weights


def _within_edge(difference: float) -> float:
    return min(max(difference, -float(EDGE)), float(EDGE))


class _Filter:
    """The run so far, folded experiment by experiment; everything in units of the noise, higher is better."""

    def __init__(self, baseline: Belief, candidates: int) -> None:
        self.incumbent = baseline
        self.baseline = baseline
        self.weights = START_PRIOR.weights
        self._grid = START_PRIOR.grid
        self._moments = np.stack([np.ones_like(self._grid), self._grid, self._grid**2])
        self._likelihood = np.empty((candidates, len(self._grid)))
        self._seen = 0
        self._learn_at = 1.0
        self._baseline_stands = True

    def control(self, mean: float, variance: float) -> None:
        """Take in measurements of the incumbent itself."""
        self._believe(self.incumbent.measured(mean, variance))

    def candidate(self, mean: float, sampling: float, kept: bool) -> None:
        """Take in a finished candidate: the mean of its measurements and its sampling variance."""
        difference, variance = mean - self.incumbent.mean, self.incumbent.variance + sampling
        likelihood = _likelihood(_within_edge(difference), variance, self._grid)
        if abs(difference) > EDGE:
            expected, spread = difference, variance
        else:
            mass, first, second = (self._moments @ (self.weights * likelihood)).tolist()
            expected = first / mass
            spread = max(second / mass - expected**2, 0.0)
        before = self.incumbent
        if self._baseline_stands or not kept:
            self._believe(_if_reverted(before, mean, sampling, expected, spread))
        if kept:
            self.incumbent, self._baseline_stands = _if_kept(before, mean, sampling, expected, spread), False
        self._learn(likelihood)

    def _believe(self, incumbent: Belief) -> None:
        self.incumbent = incumbent
        if self._baseline_stands:
            self.baseline = incumbent

    def _learn(self, likelihood: Vector) -> None:
        self._likelihood[self._seen] = likelihood
        self._seen += 1
        if self._seen >= self._learn_at:
            seen = self._likelihood[: self._seen]
            self.weights = _em(seen, self.weights, START_PRIOR.weights, PRIOR_WORTH, EM_ITERATIONS)
            self._learn_at = max(self._seen + 1, self._seen * LEARN_EVERY)


class BayesPolicy:
    """Keeps what is probably better, drops what is probably not, and measures again in between.

    Args:
        keep_at: Keep when the probability that the candidate is better is at least this.
        drop_below: Revert when it is under this.
        max_looks: Looks after which the sign of the expected gain decides.

    The noise must be known (`Evidence.noise`): the loop measures the baseline more than once before the first candidate
    where the adapter states none. A few degrees of freedom widen it, see `noise.plug_in_sd`.
    """

    def __init__(self, keep_at: float = 0.8, drop_below: float = 0.5, max_looks: int = 2) -> None:
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
        state = _fold(evidence, scale)
        if look.control.n:
            state.control(*_in_units(look.control, scale))
        judged = _judge(state, look, scale)
        sd = abs(scale)
        effect, interval = judged.expected * sd, (judged.interval[0] * sd, judged.interval[1] * sd)
        decision, inconclusive = self._verdict(judged, len(evidence.looks))
        reason = _reason(judged.p_better, effect, look.treatment.n, evidence.metric.unit, inconclusive)
        return Verdict(decision, reason, effect, interval, judged.p_better, inconclusive=inconclusive)

    def _verdict(self, judged: Step, looks: int) -> tuple[Decision, bool]:
        """Return the decision, and whether it is a revert for lack of evidence."""
        if judged.p_better >= self._keep_at:
            return Decision.KEEP, False
        if judged.p_better < self._drop_below:
            return Decision.REVERT, False
        if looks < self._max_looks:
            return Decision.CONTINUE, False
        return (Decision.KEEP, False) if judged.expected > 0 else (Decision.REVERT, True)

    def believed_gain(self, evidence: Evidence) -> float:
        """Return the incumbent's believed mean less the baseline's, both judged on all that taught about them.

        Raises:
            ValueError: As `decide` does.
        """
        scale = _scale(evidence)
        state = _fold(evidence, scale)
        return (state.incumbent.mean - state.baseline.mean) * abs(scale)


def _scale(evidence: Evidence) -> float:
    """Return the number that values are divided by: the noise, with the sign that makes higher better.

    This is the border at which direction is handled, once.
    """
    check_history(evidence)
    if evidence.noise is None:
        raise ValueError(
            "The policy bayes needs the noise, and it is unknown: measure the baseline at least twice with different "
            "seeds before the first candidate, or state it in the metric."
        )
    sd = plug_in_sd(evidence.noise, evidence.history[0].look.treatment.mean)
    return evidence.metric.direction.sign * sd


def _in_units(totals: ArmTotals, scale: float) -> tuple[float, float]:
    """Return mean and sampling variance of measurements in units of the noise, higher is better."""
    if not math.isfinite(totals.total):
        raise ValueError(f"The sum over {totals.arm} is {totals.total}; a value that is not finite cannot be judged.")
    # A diverged candidate's value may be finite, but not when divided by the noise; and one infinity in the history
    # would leave no belief about anything after it.
    return max(-_FARTHEST, min(_FARTHEST, totals.mean / scale)), 1.0 / totals.n


def _fold(evidence: Evidence, scale: float) -> _Filter:
    """Run the filter over the history."""
    state = _Filter(Belief(*_in_units(evidence.history[0].look.treatment, scale)), len(evidence.history))
    for past in evidence.history[1:]:
        _take_in(state, past, scale)
    return state


def _take_in(state: _Filter, past: PastEvidence, scale: float) -> None:
    if past.look.control.n:
        state.control(*_in_units(past.look.control, scale))
    if past.look.treatment.n:  # 0 where the candidate crashed: that teaches nothing about values
        state.candidate(*_in_units(past.look.treatment, scale), past.kept)


def _judge(state: _Filter, look: Look, scale: float) -> Step:
    """Return what the candidate's measurements so far say, in units of the noise."""
    observed, sampling = _in_units(look.treatment, scale)
    belief = state.incumbent
    difference, variance = observed - belief.mean, belief.variance + sampling
    if abs(difference) <= EDGE:
        return step(belief.mean, belief.variance, look.treatment.n, observed, 1.0, START_PRIOR.grid, state.weights)
    # Beyond the edge the prior says nothing: the effect is what was measured, with the variance of the difference.
    width = 1.6449 * math.sqrt(variance)
    return Step(
        p_better=1.0 if difference > 0 else 0.0,
        expected=difference,
        interval=(difference - width, difference + width),
        posterior=_likelihood(_within_edge(difference), variance, START_PRIOR.grid),
        if_kept=_if_kept(belief, observed, sampling, difference, variance),
        if_reverted=_if_reverted(belief, observed, sampling, difference, variance),
    )


def _reason(p_better: float, effect: float, runs: int, unit: str, inconclusive: bool) -> str:
    """Return one plain sentence for the ledger."""
    count = "1 run" if runs == 1 else f"{runs} runs"
    sentence = f"P(better) {p_better:.2f} from {count}; expected gain {effect:.3g} {unit}".rstrip()
    return f"{sentence}; too little to tell." if inconclusive else f"{sentence}."
