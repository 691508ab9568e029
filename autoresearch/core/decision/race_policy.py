"""`race`, the policy: from evidence to a race, and from the race to a verdict.

This is the border at which direction is handled, once: where lower is better the arms of proportions and means are
exchanged and values are negated, and every formula is applied as written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autoresearch.core.adapter import ArmTotals, Direction, Metric, MetricKind
from autoresearch.core.decision import (
    Decision,
    Evidence,
    Look,
    Noise,
    Verdict,
    race_bernoulli,
    race_means,
    race_normal,
)
from autoresearch.core.decision.bayes import BayesPolicy
from autoresearch.core.decision.greedy import GreedyPolicy
from autoresearch.core.decision.noise import STATED_DOF, plug_in_sd
from autoresearch.core.decision.race import (
    Family,
    Judgement,
    MeanRace,
    ProportionRace,
    ValueRace,
    check_effect,
    check_prior,
    check_rates,
    judge,
    log_level,
)
from autoresearch.core.errors import UsageError

VALUE_LOOKS = 12
"""Looks after which a race of measured values gives up where nobody says how many: a candidate that a dozen runs cannot
settle costs more than it can bring. Live tests have no such default; their traffic ends them."""


def counts_of(looks: Sequence[Look]) -> race_bernoulli.Counts:
    """Return the increments of cumulative looks.

    Raises:
        ValueError: If totals fall from one look to the next, or conversions exceed units.
    """
    rows = [(look.control.n, look.control.total, look.treatment.n, look.treatment.total) for look in looks]
    increments = np.diff(np.array([(0, 0, 0, 0), *rows], dtype=np.float64), axis=0)
    if np.any(increments < 0):
        look = int(np.argwhere(increments < 0)[0][0]) + 1
        raise ValueError(
            f"The totals fall at look {look}, and cumulative totals of matured units never do; "
            "count a unit only when its outcome can no longer change."
        )
    return race_bernoulli.Counts.of(*increments.T)


def _negated(totals: ArmTotals) -> ArmTotals:
    return ArmTotals(totals.arm, totals.n, -totals.total, totals.total_sq)


class RacePolicy:
    """Keeps what is shown to be better, reverts what is shown not to be better by `min_effect`.

    Args:
        alpha: Chance of keeping a treatment that is not better, at most. Treatments that were begun together against
            one control share it: each of K is kept at an e-value of K/alpha, and its lower bound is at alpha/K.
        beta: Chance of reverting one that is better by `min_effect` or more, at most; 0 never reverts for being small.
        min_effect: Smallest improvement worth having: relative for proportions and means, in the unit for values. None:
            the metric's.
        max_looks: Looks after which an undecided experiment is `inconclusive`. None: `VALUE_LOOKS` for values, no end
            for live tests.
        prior: Successes and failures that the pooled rate of proportions begins with.

    Effects and intervals of proportions and means are lifts. Where lower is better the arms are exchanged, so that a
    lift is rate(control) / rate(treatment) - 1, positive where the treatment is better. The interval goes from the
    bound at alpha to the bound at beta.

    For values both arms are measured anew at every look, side by side and in alternating order: the runs that made the
    incumbent win were selected for being good, and would be too high a bar. What was measured before tells the noise,
    which adds to the sum of squares and its degrees of freedom and turns `min_effect` into d.
    """

    def __init__(
        self,
        alpha: float = 0.05,
        beta: float = 0.2,
        min_effect: float | None = None,
        max_looks: int | None = None,
        prior: tuple[float, float] = race_bernoulli.PRIOR,
    ) -> None:
        check_rates(alpha, beta)
        if min_effect is not None:
            check_effect(min_effect)
        if max_looks is not None and max_looks < 1:
            raise ValueError(f"max_looks must be 1 or more, not {max_looks}.")
        check_prior(prior)
        self._alpha, self._beta, self._min_effect = alpha, beta, min_effect
        self._max_looks, self._prior = max_looks, prior

    @property
    def name(self) -> str:
        """`race`."""
        return "race"

    @property
    def parameters(self) -> Mapping[str, float]:
        """`alpha`, `beta`, the prior's counts, and `min_effect` and `max_looks` where they are given."""
        given = {"min_effect": self._min_effect, "max_looks": self._max_looks}
        return {
            "alpha": self._alpha,
            "beta": self._beta,
            "prior_successes": self._prior[0],
            "prior_failures": self._prior[1],
            **{name: float(value) for name, value in given.items() if value is not None},
        }

    @property
    def needs_noise(self) -> bool:
        """Yes: a race of values cannot begin before something was measured twice."""
        return True

    def decide(self, evidence: Evidence) -> Verdict:
        """Keep, revert or look again.

        Raises:
            UsageError: If neither the policy nor the metric names a smallest effect.
            ValueError: If the noise of values is unknown, or totals are impossible.
        """
        if evidence.looks[-1].treatment.n == 0:
            return Verdict(Decision.CONTINUE, "The candidate has not been measured yet.")
        judgement = judge(self._family(evidence), self._level(evidence), self._beta)
        bounds = (judgement.low, judgement.high)
        out_of_looks = judgement.decision is Decision.CONTINUE and self._is_last(evidence)
        return Verdict(
            Decision.REVERT if out_of_looks else judgement.decision,
            self._reason(judgement, evidence, out_of_looks),
            judgement.effect,
            bounds if all(map(math.isfinite, bounds)) else None,
            e_win=judgement.e_win,
            e_lose=judgement.e_lose,
            inconclusive=out_of_looks,
            measure=_next_arms(evidence),
        )

    def decide_briefly(self, evidence: Evidence) -> Verdict:
        """Return the verdict of `decide` without effect and interval, supposing that no earlier look decided.

        For simulations: the interval takes most of the time.
        """
        if evidence.metric.kind is not MetricKind.VALUE or evidence.looks[-1].treatment.n == 0:
            return self.decide(evidence)
        race = self._value_race(evidence, evidence.looks[-1:])
        measure = _next_arms(evidence)
        if race.log_win[-1] >= log_level(self._level(evidence)):
            return Verdict(Decision.KEEP, "", measure=measure)
        lost = race.log_lose[-1] >= log_level(self._beta)
        over = lost or self._is_last(evidence)
        return Verdict(Decision.REVERT if over else Decision.CONTINUE, "", inconclusive=not lost, measure=measure)

    def _level(self, evidence: Evidence) -> float:
        """Return the share of alpha that one treatment of a family has (e-Bonferroni)."""
        return self._alpha / evidence.family

    def _is_last(self, evidence: Evidence) -> bool:
        return len(evidence.looks) >= self._looks(evidence.metric)

    def believed_gain(self, evidence: Evidence) -> float:
        """Return the gain of the incumbent over the baseline in the metric's unit; positive is better.

        For values the filter of `bayes` over the same history, which takes the luck of the winners off; for live tests
        the sum of the differences that the kept tests showed, each to those whom it reaches.
        """
        if evidence.metric.kind is MetricKind.VALUE:
            believer = GreedyPolicy() if evidence.noise is None else BayesPolicy()
            return believer.believed_gain(evidence)
        sign = evidence.metric.direction.sign
        kept = [past for past in evidence.history if past.kept and past.look.control.n and past.look.treatment.n]
        return sign * math.fsum(past.reach * (past.look.treatment.mean - past.look.control.mean) for past in kept)

    def believed_interval(self, evidence: Evidence) -> tuple[float, float] | None:
        """Return what the filter of `bayes` says of values; None for live tests, whose intervals are test by test."""
        if evidence.metric.kind is not MetricKind.VALUE or evidence.noise is None:
            return None
        return BayesPolicy().believed_interval(evidence)

    def _looks(self, metric: Metric) -> float:
        if self._max_looks is not None:
            return self._max_looks
        return VALUE_LOOKS if metric.kind is MetricKind.VALUE else math.inf

    def _smallest(self, metric: Metric) -> float:
        smallest = metric.min_effect if self._min_effect is None else self._min_effect
        if smallest == 0:
            raise UsageError(
                f"The policy race needs to know what improvement of {metric.name} is worth having, and the metric "
                "names none.\nGive one with --min-effect, or take --policy bayes."
            )
        return smallest

    def _family(self, evidence: Evidence) -> Family:
        metric, looks = evidence.metric, evidence.looks
        if metric.kind is MetricKind.VALUE:
            return self._value_race(evidence, looks)
        if metric.direction is Direction.MINIMIZE:
            looks = tuple(Look(look.treatment, look.control) for look in looks)
        if metric.kind is MetricKind.PROPORTION:
            return ProportionRace(counts_of(looks), self._smallest(metric), self._prior)
        return MeanRace([race_means.means_of(look.control, look.treatment) for look in looks], self._smallest(metric))

    def _value_race(self, evidence: Evidence, looks: Sequence[Look]) -> ValueRace:
        metric, noise = evidence.metric, evidence.noise
        if noise is None:
            raise ValueError(
                "A race of values needs the noise, and it is unknown: measure the baseline at least twice with "
                "different seeds before the first candidate, or state it in the metric."
            )
        first = evidence.history[0].look.treatment if evidence.history else looks[-1].treatment
        min_effect = self._smallest(metric)
        d = min_effect / plug_in_sd(noise, first.mean)
        calibration = _calibration(noise, metric)
        return ValueRace([_statistic(look, metric.direction, calibration) for look in looks], min_effect, d)

    def _reason(self, judgement: Judgement, evidence: Evidence, out_of_looks: bool) -> str:
        """Return one plain sentence for the ledger."""
        metric = evidence.metric
        smallest = f"{self._smallest(metric):g} {metric.unit}".rstrip()
        if metric.kind is not MetricKind.VALUE:
            smallest = f"{self._smallest(metric):.3g} relative"
        label = " (asymptotic)" if metric.kind is MetricKind.MEAN else ""
        values = f"e-values{label}: win {judgement.e_win:.3g} of {1 / self._level(evidence):.3g}"
        if evidence.family > 1:
            values += f" as one of {evidence.family} treatments"
        if self._beta:
            values += f", lose {judgement.e_lose:.3g} of {1 / self._beta:.3g}"
        if out_of_looks:
            return f"Undecided after so many looks; {values}; too little to tell."
        words = {
            Decision.KEEP: "Shown to be better",
            Decision.REVERT: f"Shown not to be better by {smallest}",
            Decision.CONTINUE: "Undecided so far",
        }
        return f"{words[judgement.decision]} at look {judgement.look + 1}; {values}."


def _next_arms(evidence: Evidence) -> tuple[str, ...]:
    """Return what the next look measures: for values both arms in alternating order, once both are as far."""
    look = evidence.looks[-1]
    if evidence.metric.kind is not MetricKind.VALUE:
        return ("treatment",)
    if look.control.n < look.treatment.n:
        return ("control",)
    return ("control", "treatment") if look.treatment.n % 2 else ("treatment", "control")


def _calibration(noise: Noise, metric: Metric) -> tuple[ArmTotals, ...]:
    """Return a group of measurements that tells as much of the noise as was measured before this experiment.

    What the adapter states is taken off: it counts where nothing else is known, and a race has its own measurements.
    """
    stated = 0.0 if metric.noise is None or math.isinf(noise.dof) else STATED_DOF
    dof = max(noise.dof - stated, 0.0)
    if math.isinf(dof):
        dof = _KNOWN_DOF
        squares = dof * noise.sd**2
    else:
        squares = max(noise.dof * noise.sd**2 - stated * (metric.noise or 0.0) ** 2, 0.0)
    return (ArmTotals("calibration", round(dof) + 1, 0.0, squares),) if round(dof) >= 1 else ()


_KNOWN_DOF = 10_000.0
"""Degrees of freedom that stand for a noise which is known exactly."""


def _statistic(look: Look, direction: Direction, calibration: Sequence[ArmTotals]) -> race_normal.TStatistic | None:
    """Return the t statistic of one look, higher is better."""
    control, treatment = look.control, look.treatment
    if direction is Direction.MINIMIZE:
        control, treatment = _negated(control), _negated(treatment)
    return race_normal.t_statistic(control, treatment, calibration)
