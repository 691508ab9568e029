"""What a run remembers, seen by those who decide and those who propose: pure functions over ledger rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from autoresearch.core.adapter import ArmTotals, Direction, Measurement, Metric, MetricKind, Outcome
from autoresearch.core.decision import Evidence, Look, Noise, PastEvidence, Policy
from autoresearch.core.decision.early import Duel, EarlyRule
from autoresearch.core.decision.noise import Replicates
from autoresearch.core.ledger import Experiment, FreshMeasurement, MeasurementRow, ProposalRow
from autoresearch.core.proposers import Change, PastExperiment

MAX_FAILED_PROPOSALS = 10
"""A proposer that fails this often in a row ends the session instead of burning money."""

PLATEAU_LENGTH = 4
"""Experiments of one category in a row without a keep after which the next ideas come from another category."""

NOISE_EVERY = 1.1
"""The noise is estimated anew when its degrees of freedom have grown by this factor."""

ARMS = ("control", "treatment")

_JUDGED = {Outcome.KEPT.value, Outcome.REVERTED.value, Outcome.INCONCLUSIVE.value}

Measurements = Mapping[int, Sequence[MeasurementRow]]
"""Measurements by experiment id."""


def metric_as_json(metric: Metric) -> dict[str, object]:
    """Return the metric as the ledger keeps it."""
    return {
        "name": metric.name,
        "unit": metric.unit,
        "direction": metric.direction.value,
        "kind": metric.kind.value,
        "noise": metric.noise,
        "min_effect": metric.min_effect,
    }


def metric_from_json(data: Mapping[str, object]) -> Metric:
    """Return the metric that `metric_as_json` wrote."""
    noise, min_effect = data["noise"], data["min_effect"]
    return Metric(
        name=str(data["name"]),
        unit=str(data["unit"]),
        direction=Direction(data["direction"]),
        kind=MetricKind(data["kind"]),
        noise=noise if isinstance(noise, float) else None,
        min_effect=float(min_effect) if isinstance(min_effect, int | float) else 0.0,
    )


def undisturbed(rows: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    """Return the measurements that may be judged: those of the last repair that nothing disturbed."""
    last = max((row.repair for row in rows), default=0)
    return [row for row in rows if row.repair == last and row.disturbed is None]


def is_judged(experiment: Experiment) -> bool:
    """Whether an experiment ended by a policy's verdict, the baseline included."""
    return experiment.outcome in _JUDGED


def teaches(experiment: Experiment, rows: Sequence[MeasurementRow]) -> bool:
    """Whether later decisions know of a finished experiment: it was judged, on a measurement of its candidate."""
    return is_judged(experiment) and any(row.arm == "treatment" for row in undisturbed(rows))


def looks_of(rows: Sequence[MeasurementRow]) -> tuple[Look, ...]:
    """Return the looks of one experiment, cumulative, in order; a look may add runs to either arm."""
    judged = undisturbed(rows)
    looks: list[Look] = []
    for last in sorted({row.look for row in judged}):
        so_far = [row for row in judged if row.look <= last]
        control, treatment = (_by_seed(so_far, arm) for arm in ARMS)
        pairs = [control[seed] * treatment[seed] for seed in control if seed in treatment]
        totals = [ArmTotals.of(arm, [row.value for row in so_far if row.arm == arm]) for arm in ARMS]
        looks.append(Look(totals[0], totals[1], math.fsum(pairs) if pairs else None))
    return tuple(looks)


def _by_seed(rows: Sequence[MeasurementRow], arm: str) -> dict[int, float]:
    return {row.seed: row.value for row in rows if row.arm == arm}


def past_evidence(experiments: Sequence[Experiment], measurements: Measurements) -> tuple[PastEvidence, ...]:
    """Return what later decisions may know of earlier experiments, the baseline at the head."""
    record = Record()
    for experiment in experiments:
        record.add(experiment, measurements.get(experiment.id, ()))
    return record.past


class Record:
    """What decisions may know of the finished experiments of a run, kept up to date one by one.

    The noise is estimated anew when its degrees of freedom have grown by `NOISE_EVERY`: in between no verdict would
    change, and what was reckoned in its units stays good.

    Args:
        stated_noise: Standard deviation that the adapter states; None where it states none.
        calibration: Totals of the calibration, one group per artifact.
    """

    def __init__(self, stated_noise: float | None = None, calibration: Sequence[ArmTotals] = ()) -> None:
        self.past: tuple[PastEvidence, ...] = ()
        self.noise: Noise | None = None
        self._stated = stated_noise
        self._replicates = Replicates()
        self._estimate_at = 0.0
        self._blocks: dict[int, int] = {}
        for group in calibration:
            self._replicates.add_group(group)
        self._estimate()

    def add(self, experiment: Experiment, rows: Sequence[MeasurementRow]) -> None:
        """Take in the next finished experiment."""
        judged = undisturbed(rows)
        for arm in ARMS:
            self._replicates.add([(row.seed, row.value) for row in judged if row.arm == arm])
        self._estimate()
        looks = looks_of(rows)
        if teaches(experiment, judged):
            kept, block = experiment.outcome == Outcome.KEPT.value, self.block(experiment)
            self._blocks.setdefault(experiment.session_id, block)
            self.past = (*self.past, PastEvidence(looks[-1], kept, block, looks[:-1]))

    def block(self, experiment: Experiment) -> int:
        """Return which session with a judged experiment this is, counted from 0."""
        return self._blocks.get(experiment.session_id, len(self._blocks))

    def _estimate(self) -> None:
        replicates = self._replicates
        if replicates.dof + replicates.other_dof >= self._estimate_at:
            self.noise = replicates.noise(self._stated)
            self._estimate_at = NOISE_EVERY * (replicates.dof + replicates.other_dof)

    def evidence(
        self, metric: Metric, current: Experiment | None = None, rows: Sequence[MeasurementRow] = ()
    ) -> Evidence:
        """Return all that a policy may know of the current experiment, with its measurements so far."""
        noise = self.noise
        if noise is None and current is not None:
            noise = noise_of(metric, {current.id: rows})
        block = self.block(current) if current is not None else 0
        return Evidence(metric, looks_of(rows), noise, self.past, block)


def calibration_groups(rows: Sequence[FreshMeasurement]) -> tuple[ArmTotals, ...]:
    """Return the totals of fresh measurements, one group per artifact; disturbed and failed ones are left out."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.value is not None and row.disturbed is None:
            groups.setdefault(row.commit, []).append(row.value)
    return tuple(ArmTotals.of("calibration", values) for values in groups.values())


def noise_of(metric: Metric, measurements: Measurements, calibration: Sequence[ArmTotals] = ()) -> Noise | None:
    """Return the spread between measurements of one artifact, from every replicate of the run and its calibration."""
    replicates = Replicates()
    for rows in measurements.values():
        judged = undisturbed(rows)
        for arm in ARMS:
            replicates.add([(row.seed, row.value) for row in judged if row.arm == arm])
    for group in calibration:
        replicates.add_group(group)
    return replicates.noise(metric.noise)


def evidence(
    metric: Metric,
    experiments: Sequence[Experiment],
    measurements: Measurements,
    current: Experiment | None = None,
    calibration: Sequence[ArmTotals] = (),
) -> Evidence:
    """Return all that a policy may know; without a current experiment only the history counts.

    Reads the whole history; `History.evidence` reads what is new.
    """
    record = Record(metric.noise, calibration)
    for experiment in experiments:
        if current is None or experiment.number < current.number:
            record.add(experiment, measurements.get(experiment.id, ()))
    return record.evidence(metric, current, measurements.get(current.id, ()) if current is not None else ())


def early_rule(
    metric: Metric,
    experiments: Sequence[Experiment],
    measurements: Measurements,
    calibration: Sequence[ArmTotals] = (),
) -> EarlyRule:
    """Return the rule that cuts hopeless measurements of the next candidate, from the curves of the run so far."""
    curves = _Curves(experiments, measurements)
    incumbent = incumbent_of(experiments)
    noise = noise_of(metric, measurements, calibration)
    return EarlyRule(
        metric.direction,
        curves.of_incumbent(incumbent.number) if incumbent else (),
        [duel for row in experiments if (duel := curves.duel(row)) is not None],
        replicates=[
            curves.of_incumbent(row.number)
            for row in experiments
            if row.outcome == Outcome.KEPT.value and row is not incumbent
        ],
        noise=0.0 if noise is None else noise.sd,
    )


class _Curves:
    """Measurements of a run with their curves, by the experiment that brought the artifact."""

    def __init__(self, experiments: Sequence[Experiment], measurements: Measurements) -> None:
        self._first: dict[int, Measurement] = {}
        self._all: dict[int, list[Measurement]] = {}
        for row in experiments:
            for found in undisturbed(measurements.get(row.id, ())):
                owner = row.number if found.arm == "treatment" else row.parent_number
                run = Measurement(found.value, found.seed, found.seconds, curve=tuple((s, v) for s, v in found.curve))
                if owner is not None:
                    self._all.setdefault(owner, []).append(run)
                if found.arm == "treatment":
                    self._first.setdefault(row.number, run)

    def of_incumbent(self, number: int) -> tuple[Measurement, ...]:
        return tuple(self._all.get(number, ()))

    def duel(self, row: Experiment) -> Duel | None:
        """Return a candidate's first measurement beside its incumbent's; None where one of them has none."""
        candidate = self._first.get(row.number)
        rivals = self.of_incumbent(row.parent_number) if row.parent_number is not None else ()
        return Duel(candidate, rivals) if row.outcome in _JUDGED and candidate is not None and rivals else None


def baseline_value(experiments: Sequence[Experiment], measurements: Measurements) -> float | None:
    """Return the mean of the baseline's measurements; None before it is measured."""
    for experiment in experiments:
        if experiment.number == 0:
            values = [row.value for row in undisturbed(measurements.get(experiment.id, ()))]
            return sum(values) / len(values) if values else None
    return None


@dataclass(frozen=True, slots=True)
class Belief:
    """What a policy believes of the incumbent.

    Attributes:
        baseline: Mean of the baseline's measurements; None before it is measured.
        value: Believed value of the incumbent, in the metric's unit; None before the baseline is measured.
        gain: Believed gain over the baseline, positive where better; None before the baseline is kept.
    """

    baseline: float | None
    value: float | None
    gain: float | None


def belief(
    policy: Policy | None,
    metric: Metric,
    experiments: Sequence[Experiment],
    measurements: Measurements,
    known: Evidence | None,
) -> Belief:
    """Return what the policy believes of the incumbent by evidence at hand, which may be None without a policy."""
    start = baseline_value(experiments, measurements)
    kept = any(row.outcome == Outcome.KEPT.value for row in experiments)  # the baseline, which comes first, as a rule
    if policy is None or known is None or start is None or not kept:
        return Belief(start, start if policy is not None else None, None)
    gain = policy.believed_gain(known)
    return Belief(start, start + metric.direction.sign * gain, gain)


def incumbent_of(experiments: Sequence[Experiment]) -> Experiment | None:
    """Return the experiment that was kept last, the baseline included; the ledger, not the branch, is the truth.

    Last is what ended last: in lanes that need not be the highest number.
    """
    kept = [row for row in reversed(experiments) if row.outcome == Outcome.KEPT.value]
    return max(kept, key=lambda row: row.sequence or 0, default=None)


def past_experiments(experiments: Sequence[Experiment]) -> tuple[PastExperiment, ...]:
    """Return the finished experiments as a proposer sees them, oldest first, the baseline left out."""
    return tuple(_past(row) for row in experiments if row.number > 0 and row.outcome is not None)


def _past(row: Experiment) -> PastExperiment:
    interval = None
    if row.effect_low is not None and row.effect_high is not None:
        interval = (row.effect_low, row.effect_high)
    return PastExperiment(
        number=row.number,
        hypothesis=row.hypothesis,
        category=row.category,
        outcome=Outcome(row.outcome),
        reason=row.reason,
        value=row.value,
        effect=row.effect,
        interval=interval,
        diff=row.diff,
        fingerprint=row.fingerprint,
        changes=changes_from_json(row.changes),
        details=row.details,
    )


def changes_from_json(data: Sequence[Mapping[str, str]]) -> tuple[Change, ...]:
    """Return turned knobs as the ledger keeps them."""
    return tuple(Change(item["knob"], item["old"], item["new"]) for item in data)


def plateaued(history: Sequence[PastExperiment], length: int = PLATEAU_LENGTH) -> frozenset[str]:
    """Return the categories whose last `length` experiments brought no keep.

    A category comes off the plateau once as many experiments of other categories followed, so that a long run visits
    each again.
    """
    found: set[str] = set()
    for category in {past.category for past in history}:
        positions = [index for index, past in enumerate(history) if past.category == category][-length:]
        tail = [history[index] for index in positions]
        since = len(history) - 1 - positions[-1]
        if len(tail) == length and all(past.outcome is not Outcome.KEPT for past in tail) and since < length:
            found.add(category)
    return frozenset(found)


def failures_in_a_row(proposals: Sequence[ProposalRow], since: datetime) -> int:
    """Return how many proposals made after `since` failed or were refused in a row, up to the newest."""
    count = 0
    for row in reversed([row for row in proposals if row.created >= since]):
        if row.status not in ("failed", "refused"):
            break
        count += 1
    return count


def experiments_since_keep(experiments: Sequence[Experiment]) -> int:
    """Return how many finished experiments followed the last keep."""
    count = 0
    for row in experiments:
        if row.outcome is not None:
            count = 0 if row.outcome == Outcome.KEPT.value else count + 1
    return count
