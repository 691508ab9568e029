"""`autoresearch show`: everything that the ledger holds of one experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.options import JsonOption, RunOption, WorkspaceOption
from autoresearch.cli.place import Place, colours_wanted, opened, suffix
from autoresearch.cli.render import (
    Column,
    as_json,
    clean,
    duration,
    effect,
    effect_in_words,
    fields,
    in_a_word,
    money,
    number,
    painted_diff,
    probability,
    table,
)
from autoresearch.core.errors import UsageError
from autoresearch.core.words import metric_in_words

if TYPE_CHECKING:
    from autoresearch.core.adapter import Metric, MetricKind
    from autoresearch.core.decision import Look
    from autoresearch.core.ledger import Experiment, MeasurementRow, ProposalRow

_SHORT_COMMIT = 10


def show(
    which: Annotated[str, typer.Argument(metavar="N", help="Number of the experiment, or best, or baseline.")] = "best",
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what the candidate changed.")] = False,
    log: Annotated[bool, typer.Option("--log", help="Show what the candidate printed.")] = False,
    json: JsonOption = False,
) -> None:
    """Show everything about one experiment: hypothesis, outcome and reason, every measurement, effect, cost and refs.

    `best` is the last kept experiment, the one that the run stands on.
    """
    with opened(workspace, run, to_read=True) as place:
        experiment = chosen(place, which)
        measurements = place.ledger.measurements(experiment.id)
        proposals = place.ledger.proposals(place.run.id, experiment.number)
        if json:
            typer.echo(as_json(as_record(experiment, measurements, proposals)))
            return
        from autoresearch.core.memory import metric_from_json

        metric = metric_from_json(place.run.metric)
        typer.echo(details(experiment, measurements, proposals, metric, live_test(place, experiment, metric)), nl=False)
        if diff:
            typer.echo(f"\n{diff_text(experiment, colour=colours_wanted())}", nl=False)
        if log:
            typer.echo(f"\n{log_text(place, experiment)}", nl=False)


def chosen(place: Place, which: str) -> Experiment:
    """Return the experiment that `which` names: a number, `best` or `baseline`.

    Raises:
        UsageError: If there is none; says which there are.
    """
    rows = place.ledger.experiments(place.run.id)
    if which == "best":
        from autoresearch.core.memory import incumbent_of

        best = incumbent_of(rows)
        if best is None:
            raise UsageError(
                f"Nothing is kept in run {place.run.id} yet, not even the baseline.\n"
                f"See what goes on: autoresearch status{suffix(place.layout)}"
            )
        return best
    if which != "baseline" and not which.isdecimal():
        raise typer.BadParameter(f"{which!r} is no number of an experiment, nor best, nor baseline.", param_hint="N")
    wanted = 0 if which == "baseline" else int(which)
    found = next((row for row in rows if row.number == wanted), None)
    if found is None:
        last = max((row.number for row in rows), default=None)
        there = (
            "it has none yet" if last is None else "it has only the baseline, 0" if last == 0 else f"it has 0 to {last}"
        )
        raise UsageError(
            f"Run {place.run.id} has no experiment {wanted}; {there}.\n"
            f"List them: autoresearch log{suffix(place.layout)}"
        )
    return found


def as_record(
    experiment: Experiment, measurements: Sequence[MeasurementRow], proposals: Sequence[ProposalRow]
) -> dict[str, Any]:
    """Return the row with its measurements and proposals, as `show --json` prints it."""
    record = experiment.model_dump(mode="json")
    record["measurements"] = [row.model_dump(mode="json") for row in measurements]
    record["proposals"] = [row.model_dump(mode="json") for row in proposals]
    return record


@dataclass(frozen=True)
class LiveTest:
    """What people did, look by look.

    Attributes:
        looks: Cumulative totals of both arms; none with an experiment that was measured.
        deciding: Index of the look that effect and e-values are of, at or before the last one.
    """

    looks: Sequence[Look] = ()
    deciding: int = 0

    @property
    def of_earlier(self) -> str:
        """Say of which look an effect is where people came after it; empty where none did, or nobody was asked."""
        last = len(self.looks) - 1
        return f", at look {self.deciding + 1} of {last + 1}" if self.deciding < last else ""


def live_test(place: Place, row: Experiment, metric: Metric) -> LiveTest:
    """Return what people did; nothing of an experiment that was measured."""
    from autoresearch.core import live
    from autoresearch.core.readmodel import policy_of

    looks, policy = live.looks_of(place.ledger.live_looks(row.id)), policy_of(place.run)
    if not looks or policy is None:
        return LiveTest(looks, max(len(looks) - 1, 0))
    return LiveTest(looks, live.deciding_look(policy, live.evidence_of(metric, row, looks)))


def details(
    row: Experiment,
    measurements: Sequence[MeasurementRow],
    proposals: Sequence[ProposalRow],
    metric: Metric,
    test: LiveTest,
) -> str:
    """Return the whole experiment in words."""
    name = "baseline" if row.number == 0 else f"experiment {row.number}"
    text = f"{name} of run {row.run_id}: {row.outcome or 'in progress'}\n"
    text += fields(
        [
            ("hypothesis", row.hypothesis),
            ("category", row.category),
            ("changed", _changes(row)),
            ("reason", row.reason),
            ("lane", _lane(row)),
            ("value", f"{number(row.value)} {metric_in_words(metric)}" if row.value is not None else "not measured"),
            ("effect", _effect(row, test.of_earlier, metric.kind)),
            ("race", _race(row)),
            ("parent", _parent(row)),
            ("commits", _commits(row)),
            ("cost", f"{money(row.usd)}, {row.tokens} tokens, {duration(row.seconds)}"),
            ("timings", ", ".join(f"{phase} {duration(seconds)}" for phase, seconds in row.timings.items())),
            ("time", f"{_moment(row.started)} to {_moment(row.ended)}"),
            ("proposer", _proposer(row)),
            ("judged by", _judged_by(row)),
            ("artifact", f"fingerprint {row.fingerprint[:16]}"),
            ("details", _mapping(row.details)),
        ]
    )
    if measurements:
        text += f"\n{measurement_table(measurements)}"
        text += _secondary(measurements[-1])
    if test.looks:
        text += f"\n{look_table(test)}"
    return text + _attempts(proposals)


_MOST_LOOKS = 12


def look_table(test: LiveTest) -> str:
    """Return what both arms showed, all looks together so far in each line; of many looks the last ones."""
    columns = [
        Column("look", right=True),
        *(Column(title, right=True) for title in ("control", "mean", "treatment", "mean")),
        Column("note"),
    ]
    rows = []
    for index, look in list(enumerate(test.looks))[-_MOST_LOOKS:]:
        arms = [
            cell
            for arm in (look.control, look.treatment)
            for cell in (f"{arm.n:,}", number(arm.mean if arm.n else None))
        ]
        rows.append([str(index + 1), *arms, "effect and e-values" if index == test.deciding else ""])
    return table(columns, rows)


def measurement_table(rows: Sequence[MeasurementRow]) -> str:
    """Return every measurement, the disturbed ones included, in the order they were taken."""
    columns = [Column(title, right=title not in ("arm", "split", "note")) for title in (
        "look", "arm", "seed", "value", "seconds", "split", "note"
    )]  # fmt: skip
    return table(columns, [_measurement(row) for row in rows])


def _measurement(row: MeasurementRow) -> list[str]:
    notes = [f"repair {row.repair}"] if row.repair else []
    notes += [f"taken again ({row.attempt})"] if row.attempt else []
    notes += [f"disturbed: {row.disturbed}"] if row.disturbed else []
    return [
        str(row.look + 1), row.arm, str(row.seed), number(row.value), f"{row.seconds:.1f}", row.split, "; ".join(notes),
    ]  # fmt: skip


def _secondary(row: MeasurementRow) -> str:
    """Return the further numbers of the last measurement."""
    if not row.secondary:
        return ""
    return "\n" + fields([(clean(name), in_a_word(value)) for name, value in row.secondary.items()])


def _attempts(proposals: Sequence[ProposalRow]) -> str:
    """Return the calls of the proposer where there was more than the one that was taken."""
    if len(proposals) < 2:
        return ""
    columns = [Column("try", right=True), Column("status"), Column("cost", right=True), Column("reason")]
    rows = [[str(row.attempt + 1), row.status, money(row.usd), row.reason or row.hypothesis] for row in proposals]
    return f"\n{table(columns, rows)}"


def _changes(row: Experiment) -> str:
    return ", ".join(f"{change['knob']} {change['old']} -> {change['new']}" for change in row.changes)


def _lane(row: Experiment) -> str:
    if not row.lane:
        return ""
    many = f", one of {row.family} treatments that were begun together" if row.family > 1 else ""
    return f"{clean(row.lane)}{many}"


def _judged_by(row: Experiment) -> str:
    """Return evaluator and sandbox; where the metric came from people there is neither."""
    evaluator = f"evaluator {row.evaluator_fingerprint[:16] or 'without a fingerprint'}"
    return f"{evaluator}, sandbox {row.sandbox}" if row.sandbox else evaluator if row.evaluator_fingerprint else ""


def _effect(row: Experiment, when: str, kind: MetricKind) -> str:
    from autoresearch.core.adapter import MetricKind

    if row.effect is None:
        return ""
    text = effect_in_words(row.effect) + when
    low, high = row.effect_low, row.effect_high
    if row.e_win is not None:  # the bounds of a race invert its e-values, each at its own level
        text += "" if low is None else f"; above {effect(low)} (at alpha)"
        text += "" if high is None else f"{';' if low is None else ','} below {effect(high)} (at beta)"
        text += "" if kind is MetricKind.VALUE else "; relative to the control"
    elif low is not None and high is not None:
        text += f"; 90 % interval {effect(low)} to {effect(high)}"
    return text if row.p_better is None else f"{text}; probability of being better {probability(row.p_better)}"


def _race(row: Experiment) -> str:
    values = (("win", row.e_win), ("lose", row.e_lose))
    return ", ".join(f"e-value of {name} {value:.3g}" for name, value in values if value is not None)


def _parent(row: Experiment) -> str:
    return "" if row.parent_number is None else f"experiment {row.parent_number} ({row.parent_commit[:_SHORT_COMMIT]})"


def _commits(row: Experiment) -> str:
    named = (("candidate", row.candidate_commit), ("kept", row.kept_commit))
    return ", ".join(f"{name} {commit[:_SHORT_COMMIT]}" for name, commit in named if commit)


def _proposer(row: Experiment) -> str:
    repairs = f", repaired {row.repairs} times" if row.repairs else ""
    return f"{row.proposer or 'nobody'}, origin {row.origin}{repairs}"


def _moment(value: datetime | None) -> str:
    return "now" if value is None else f"{value:%Y-%m-%d %H:%M:%S} UTC"


def _mapping(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {in_a_word(value)}" for name, value in values.items())


def diff_text(row: Experiment, *, colour: bool) -> str:
    """Return the diff of a candidate against its parent, safe to print."""
    if not row.diff:
        if row.number == 0:
            return "no change: this is the artifact as found\n"
        return "The log that was imported does not say what it changed.\n" if _imported(row) else "no change\n"
    text = clean(row.diff, lines=True)
    text = text if text.endswith("\n") else f"{text}\n"
    return painted_diff(text) if colour else text


def _imported(row: Experiment) -> bool:
    return row.origin.startswith("import:")


def log_text(place: Place, row: Experiment) -> str:
    """Return what the candidate printed: the whole log where it lies here, else the end that the ledger kept."""
    path = place.layout.experiment(row.run_id, row.number) / "run.log"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else row.log_tail
    if not text:
        return (
            "The log that was imported does not say what it printed.\n" if _imported(row) else "It printed nothing.\n"
        )
    text = clean(text, lines=True)
    return text if text.endswith("\n") else f"{text}\n"
