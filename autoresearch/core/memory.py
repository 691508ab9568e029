"""What a run remembers, seen by those who decide and those who propose: pure functions over ledger rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from autoresearch.core.adapter import ArmTotals, Direction, Measurement, Metric, MetricKind, Outcome
from autoresearch.core.decision import Evidence, Look, Noise, PastEvidence, Policy
from autoresearch.core.decision.early import Duel, EarlyRule
from autoresearch.core.decision.noise import estimate_noise
from autoresearch.core.ledger import Experiment, FreshMeasurement, MeasurementRow, ProposalRow
from autoresearch.core.proposers import Change, PastExperiment

MAX_FAILED_PROPOSALS = 10
"""A proposer that fails this often in a row ends the session instead of burning money."""

PLATEAU_LENGTH = 4
"""Experiments of one category in a row without a keep after which the next ideas come from another category."""

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


def looks_of(rows: Sequence[MeasurementRow]) -> tuple[Look, ...]:
    """Return the looks of one experiment, cumulative, in order; a look may add runs to either arm."""
    judged = undisturbed(rows)
    looks: list[Look] = []
    for last in sorted({row.look for row in judged}):
        so_far = [row for row in judged if row.look <= last]
        control = [row.value for row in so_far if row.arm == "control"]
        treatment = [row.value for row in so_far if row.arm == "treatment"]
        looks.append(Look(ArmTotals.of("control", control), ArmTotals.of("treatment", treatment)))
    return tuple(looks)


def past_evidence(experiments: Sequence[Experiment], measurements: Measurements) -> tuple[PastEvidence, ...]:
    """Return what later decisions may know of earlier experiments, the baseline at the head."""
    past: list[PastEvidence] = []
    for experiment in experiments:
        looks = looks_of(measurements.get(experiment.id, ()))
        if experiment.outcome in _JUDGED and looks and looks[-1].treatment.n > 0:
            past.append(PastEvidence(looks[-1], kept=experiment.outcome == Outcome.KEPT.value))
    return tuple(past)


def calibration_groups(rows: Sequence[FreshMeasurement]) -> tuple[ArmTotals, ...]:
    """Return the totals of fresh measurements, one group per artifact; disturbed and failed ones are left out."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row.value is not None and row.disturbed is None:
            groups.setdefault(row.commit, []).append(row.value)
    return tuple(ArmTotals.of("calibration", values) for values in groups.values())


def noise_of(metric: Metric, measurements: Measurements, calibration: Sequence[ArmTotals] = ()) -> Noise | None:
    """Return the spread between measurements of one artifact, from every replicate of the run and its calibration."""
    groups = [
        ArmTotals.of(arm, values)
        for rows in measurements.values()
        for arm in ("control", "treatment")
        if len(values := [row.value for row in undisturbed(rows) if row.arm == arm]) > 1
    ]
    return estimate_noise([*groups, *calibration], metric.noise)


def evidence(
    metric: Metric,
    experiments: Sequence[Experiment],
    measurements: Measurements,
    current: Experiment | None = None,
    calibration: Sequence[ArmTotals] = (),
) -> Evidence:
    """Return all that a policy may know; without a current experiment only the history counts."""
    looks = looks_of(measurements.get(current.id, ())) if current is not None else ()
    earlier = [row for row in experiments if current is None or row.number < current.number]
    noise = noise_of(metric, measurements, calibration)
    return Evidence(metric, looks, noise, past_evidence(earlier, measurements))


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
    calibration: Sequence[ArmTotals] = (),
) -> Belief:
    """Return what the policy believes of the incumbent, from the whole history of the run; no gain without a policy."""
    start = baseline_value(experiments, measurements)
    if policy is None or start is None or incumbent_of(experiments) is None:
        return Belief(start, start if policy is not None else None, None)
    gain = policy.believed_gain(evidence(metric, experiments, measurements, calibration=calibration))
    return Belief(start, start + metric.direction.sign * gain, gain)


def incumbent_of(experiments: Sequence[Experiment]) -> Experiment | None:
    """Return the last kept experiment, the baseline included; the ledger, not the branch, is the truth."""
    kept = [row for row in experiments if row.outcome == Outcome.KEPT.value]
    return kept[-1] if kept else None


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
