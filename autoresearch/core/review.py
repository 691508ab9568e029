"""The kept work of a run for reviewers: a branch with one commit for each kept change, and what each commit says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoresearch.core import memory
from autoresearch.core.adapter import Metric, MetricKind, Outcome, Split
from autoresearch.core.decision import Look
from autoresearch.core.errors import UsageError
from autoresearch.core.ledger import Claim, Experiment, Ledger, Run
from autoresearch.core.live import looks_of as live_looks_of
from autoresearch.core.readmodel import INCUMBENT
from autoresearch.core.store import ReviewBranch, Step, Store
from autoresearch.core.words import clean, effect, number, probability

_SUBJECT = 72
"""Characters of a commit's first line, as git's own tools assume."""


@dataclass(frozen=True, slots=True)
class KeptWork:
    """The kept experiments of a run with what speaks for them.

    Attributes:
        run: The run.
        metric: What was measured.
        kept: The kept experiments, in order.
        looks: Experiment id -> the looks that its decision was made on.
        claims: Number of an experiment -> what `confirm` said of that step, or of the incumbent that it is.
        again: Whether fresh measurements were taken on search data, for want of a holdout.
    """

    run: Run
    metric: Metric
    kept: tuple[Experiment, ...]
    looks: Mapping[int, Sequence[Look]]
    claims: Mapping[int, Claim]
    again: bool


def kept_work(ledger: Ledger, run: Run) -> KeptWork:
    """Return what was kept.

    Raises:
        UsageError: If nothing was.
    """
    # In the order of ending: with several in flight, that is the order in which they were put on top of each other.
    ended = sorted(ledger.experiments(run.id), key=lambda row: row.sequence or 0)
    rows = [row for row in ended if row.outcome == Outcome.KEPT.value]
    kept = tuple(row for row in rows if row.number > 0)
    if not kept:
        raise UsageError(
            f"Run {run.id} kept nothing, so that there is nothing to review.\nWhat it tried: autoresearch log"
        )
    measured, tested = ledger.run_measurements(run.id), ledger.live_looks_of([row.id for row in kept])
    looks = {row.id: live_looks_of(tested[row.id]) if row.id in tested else memory.looks_of(measured.get(row.id, ()))
             for row in kept}  # fmt: skip
    commits = {row.kept_commit for row in kept}
    claims = [claim for claim in ledger.claims(run.id) if claim.commit in commits]
    # What is said of a step itself goes before what is said of the incumbent against the baseline.
    claims.sort(key=lambda claim: claim.subject != INCUMBENT)
    return KeptWork(
        run=run,
        metric=memory.metric_from_json(run.metric),
        kept=kept,
        looks=looks,
        claims={claim.number: claim for claim in claims},
        again=not ledger.fresh(run.id, Split.HOLDOUT.value),
    )


def write_branch(store: Store, work: KeptWork, name: str) -> ReviewBranch:
    """Write a new branch with one commit for each kept change; what is checked out stays as it is.

    Raises:
        UsageError: If there is such a branch already, or git refuses the name.
    """
    steps = [Step(row.kept_commit or "", message_of(row, work), row.ended or row.started) for row in work.kept]
    first = Step(work.run.baseline_commit, _as_found(work.run), work.run.created)
    return store.review_branch(name, work.run.baseline_commit, steps, first=first)


def _as_found(run: Run) -> str:
    return (
        "The files as autoresearch found them\n\n"
        "They were not committed like this when the run began; the changes after this one were measured on them.\n\n"
        f"Autoresearch-Run: {run.id}\n"
    )


def message_of(row: Experiment, work: KeptWork) -> str:
    """Return what the commit of a kept change says: hypothesis, effect with interval, evidence, and what is shown."""
    hypothesis = clean(row.hypothesis) or f"Experiment {row.number}"
    subject = subject_of(hypothesis)
    paragraphs = [
        subject,
        hypothesis if subject != hypothesis else "",
        effect_line(row, work.metric),
        "\n".join(evidence_of(row, work)),
        shown_of(row, work),
        f"Autoresearch-Run: {work.run.id}\nAutoresearch-Experiment: {row.number}",
    ]
    return "\n\n".join(text for text in paragraphs if text) + "\n"


def subject_of(hypothesis: str) -> str:
    """Return the first line of a commit: what changes, without the reason where both do not fit."""
    what = hypothesis.partition(": ")[0]
    if len(hypothesis) <= _SUBJECT:
        return hypothesis
    if len(what) <= _SUBJECT:
        return what
    cut = what[: _SUBJECT - 1]
    return f"{cut.rpartition(' ')[0] or cut}…"


def effect_line(row: Experiment, metric: Metric) -> str:
    """Return the value and the expected effect with its interval; positive is better."""
    value = "" if row.value is None else f"{clean(metric.name)} {number(row.value)}"
    if row.effect is None:
        return value
    unit = f" {clean(metric.unit)}" if metric.unit and metric.kind is MetricKind.VALUE else ""
    said = f"{value}, " if value else ""
    said += f"expected effect {sized(row.effect, metric)}{unit} (positive is better"
    interval = interval_of(row, metric)
    return f"{said}; {interval})" if interval else f"{said})"


def sized(value: float, metric: Metric) -> str:
    """Return an effect in the metric's unit, a lift in percent for proportions and means."""
    return effect(value) if metric.kind is MetricKind.VALUE else f"{value:+.1%}"


def interval_of(row: Experiment, metric: Metric) -> str:
    """Return the interval of an effect in words; empty where there is none."""
    low, high = (None if end is None else sized(end, metric) for end in (row.effect_low, row.effect_high))
    if row.e_win is not None:  # the bounds of a race invert its e-values, each at its own level
        ends = [f"above {low} at alpha" if low else "", f"below {high} at beta" if high else ""]
        return ", ".join(end for end in ends if end)
    return f"90 % interval {low} to {high}" if low and high else ""


def evidence_of(row: Experiment, work: KeptWork) -> list[str]:
    """Return what a keep rests on, a sentence each."""
    said = [reason] if (reason := clean(row.reason)) else []
    looks = work.looks.get(row.id, ())
    if looks:
        said.append(_arms(looks[-1], work.metric))
    if row.p_better is not None and probability(row.p_better) not in row.reason:
        said.append(f"Probability of being better: {probability(row.p_better)}.")
    return said


def _arms(look: Look, metric: Metric) -> str:
    control, treatment = look.control, look.treatment
    if metric.kind is MetricKind.PROPORTION:
        arms = (f"{arm.total:,.0f} of {arm.n:,.0f} in the {arm.arm}" for arm in (treatment, control))
        return f"{clean(metric.name)}: {', '.join(arms)}."
    beside = f", {control.n:,.0f} of the incumbent beside it" if control.n else ""
    return f"Measurements: {treatment.n:,.0f} of the candidate{beside}."


def shown_of(row: Experiment, work: KeptWork) -> str:
    """Return whether a step was confirmed: a keep alone is a bet."""
    claim = work.claims.get(row.number)
    data = "on the same data" if work.again else "on the holdout"
    if claim is not None and claim.outcome == "confirmed" and claim.shrunk is not None:
        word = "Re-measured" if work.again else "Confirmed"
        against = "the baseline, all steps together" if claim.subject == INCUMBENT else "the step before"
        return f"{word} with fresh seeds {data}: {sized(claim.shrunk, work.metric)} against {against}."
    if row.e_win is not None:
        return "Shown by its test at the race's error rate."
    if claim is not None and claim.outcome == "unconfirmed":
        return f"Not confirmed: fresh measurements {data} do not show this step by itself."
    return "Not confirmed by itself: kept as a bet on these measurements."
