"""`autoresearch audit FILE`: how much of what a finished run claims is real, from its log alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.options import JsonOption
from autoresearch.cli.place import colours_wanted, terminal_width
from autoresearch.cli.render import ABSENT, Column, as_json, clean, fields, number, probability, table
from autoresearch.core.adapter import ArmTotals, Direction, Outcome
from autoresearch.core.errors import UsageError

if TYPE_CHECKING:
    from autoresearch.core.decision import Noise
    from autoresearch.core.decision.audit import Audit, AuditedKeep, NoiseFound
    from autoresearch.core.logs import ExperimentLog, LogRow

_VERDICT_STYLES = {"stands out": "green", "likely": "yellow", "unclear": "bright_black"}


class Better(Enum):
    """Which way is better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Audited:
    """A log, and what its audit found; `measured` are the rows that the audit's indices speak of."""

    log: ExperimentLog
    direction: Direction
    measured: tuple[LogRow, ...]
    result: Audit


def audit(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The log, or a workspace.", show_default=False)],
    direction: Annotated[
        Better | None,
        typer.Option("--direction", help="Which way is better, where the log or the metric's name does not tell."),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            "--noise",
            metavar="SD",
            help="Standard deviation between two runs of the same artifact; by default estimated from the log.",
            show_default=False,
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", metavar="COLUMN", help="Column of the metric.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Which run of the file; by default the last.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say how much of a finished run's gain is real: of this tool's or another's, from its log alone."""
    if noise is not None and not (math.isfinite(noise) and noise >= 0):
        raise typer.BadParameter(f"the noise is zero or a positive number, not {noise}.", param_hint="--noise")
    audited = audited_log(file, direction, noise, metric, run)
    if json:
        typer.echo(as_json(audit_as_json(audited)))
    else:
        typer.echo(audit_text(audited, terminal_width(), colour=colours_wanted()), nl=False)


def audited_log(path: Path, better: Better | None, noise: float | None, metric: str | None, run: str | None) -> Audited:
    """Read a log and audit it.

    Raises:
        UsageError: If the log cannot be read, does not tell which way is better, or has nothing to audit.
    """
    from autoresearch.core.decision.audit import Observation
    from autoresearch.core.decision.audit import audit as audit_values
    from autoresearch.core.logs import read_log

    log = read_log(path, metric=metric, run=run)
    direction = _direction(path, log, better)
    measured = tuple(row for row in log.rows if row.value is not None)
    observations = [
        Observation(row.value, row.outcome is Outcome.KEPT, row.runs) for row in measured if row.value is not None
    ]
    try:
        result = audit_values(observations, direction, _noise(log, noise))
    except ValueError as error:
        raise UsageError(
            f"{path}: {error}.\nIt has {_rows_in_words(log)}; what the columns mean: docs/audit.md."
        ) from error
    return Audited(log, direction, measured, result)


def _direction(path: Path, log: ExperimentLog, better: Better | None) -> Direction:
    """Return which way is better: as asked, else as the log says, else as the metric's name says.

    Raises:
        UsageError: If none of them tells.
    """
    from autoresearch.core.logs import direction_of

    if better is not None:
        return Direction.MINIMIZE if better is Better.LOWER else Direction.MAXIMIZE
    found = log.direction or direction_of(log.metric)
    if found is None:
        what = f"the name {log.metric!r}" if log.metric else "the log, which does not name its metric,"
        raise UsageError(
            f"{path}: {what} does not tell whether lower or higher is better.\n"
            "Say it: --direction lower, or --direction higher."
        )
    return found


def _noise(log: ExperimentLog, given: float | None) -> Noise | None:
    """Return what is known of the noise besides the values themselves."""
    from autoresearch.core.decision import Noise
    from autoresearch.core.decision.noise import estimate_noise

    if given is not None:
        return Noise(given, math.inf)
    return estimate_noise([ArmTotals.of("treatment", group) for group in log.replicates], log.noise)


def audit_text(audited: Audited, width: int | None, *, colour: bool = False) -> str:
    """Return the audit for people; without a width nothing is cropped."""
    result, log = audited.result, audited.log
    pairs = [
        ("claimed", f"{_signed(result.claimed)} ({_way(audited)})"),
        ("real", f"{_signed(result.expected)}, 90 % interval {_signed(result.low)} to {_signed(result.high)}"),
        ("luck", _signed(result.luck)),
        ("noise", noise_in_words(result.noise)),
        ("keeps", _keeps_in_words(result.keeps)),
        ("log", f"{log.shape}; {_rows_in_words(log)}"),
        ("notes", "\n".join(notes(audited))),
    ]
    return f"{headline(result)}\n\n{fields(pairs)}\n{_table(audited, width, colour=colour)}"


def headline(result: Audit) -> str:
    """Return the line to remember: what is claimed, what of it is probably real, how many keeps the noise hides."""
    total = len(result.keeps)
    hidden = sum(keep.within_noise for keep in result.keeps)
    of = f"{hidden} of {total} keeps {'is' if hidden == 1 else 'are'}" if total > 1 else "the only keep is"
    keeps = f"{of} smaller than the noise." if total > 1 or hidden else "the only keep is larger than the noise."
    if result.share is None:
        return f"Nothing is claimed: the last keep is no better than the baseline; {keeps}"
    claimed = f"Of {_amount(result.claimed)} claimed"
    if result.expected <= 0:
        return f"{claimed}, probably nothing is real; {keeps}"
    return f"{claimed}, about {_amount(result.expected)} ({result.share * 100:.0f} %) is probably real; {keeps}"


def _amount(value: float) -> str:
    """Return a difference with three digits, and with all of its whole ones as long as a person would count them."""
    return f"{value:.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.3g}"


def _signed(value: float) -> str:
    """Return an improvement with its sign, positive where better."""
    return f"+{_amount(value)}" if value > 0 else _amount(value)


def noise_in_words(noise: NoiseFound) -> str:
    """Return the noise that was used, where it comes from and how well it is known."""
    if noise.source == "given":
        return f"{_amount(noise.sd)}, as given with --noise"
    source = {"log": "estimated from this log alone", "replicates": "from repeated or stated noise and this log"}
    interval = f"90 % interval {_amount(noise.low)} to {_amount(noise.high)}"
    return f"{_amount(noise.sd)}, {source[noise.source]} ({interval})"


def notes(audited: Audited) -> list[str]:
    """Return what a reader should know about the log and the estimate, one sentence each."""
    from autoresearch.core.decision.audit import FEW_CANDIDATES

    result, said = audited.result, list(audited.log.notes)
    if audited.measured[0].outcome is not Outcome.KEPT:
        said.append("The first measured row was not kept; it is taken for the baseline all the same.")
    best = (max if audited.direction is Direction.MAXIMIZE else min)(
        row.value for row in audited.measured if row.outcome is Outcome.KEPT and row.value is not None
    )
    if best != result.incumbent:
        said.append(f"The best kept value is {number(best)}; claimed is what the last keep stands at.")
    if 2 * sum(keep.claimed < 0 for keep in result.keeps) > len(result.keeps):
        said.append("Most keeps are worse than what they replaced; is --direction right?")
    if result.noise.source != "given" and result.candidates < FEW_CANDIDATES:
        count = "1 candidate says" if result.candidates == 1 else f"{result.candidates} candidates say"
        said.append(f"{count} little about the noise; state it with --noise if you know it.")
    if result.noise.at_edge:
        said.append("The noise may be smaller still, as with a metric that repeats; then say --noise 0.")
    return said


def _way(audited: Audited) -> str:
    better = "lower" if audited.direction is Direction.MINIMIZE else "higher"
    name = clean(audited.log.metric) or "value"
    return (
        f"{name} {number(audited.result.baseline)} -> {number(audited.result.incumbent)}, first to last keep; "
        f"{better} is better"
    )


def _keeps_in_words(keeps: tuple[AuditedKeep, ...]) -> str:
    counts = {verdict: sum(keep.verdict == verdict for keep in keeps) for verdict in _VERDICT_STYLES}
    return (
        f"{len(keeps)} after the baseline: {counts['stands out']} stand out of the noise, {counts['likely']} likely, "
        f"{counts['unclear']} unclear"
    )


def _rows_in_words(log: ExperimentLog) -> str:
    counts = {outcome: sum(row.outcome is outcome for row in log.rows) for outcome in Outcome}
    parts = [f"{count} {outcome.value}" for outcome, count in counts.items() if count]
    return f"{len(log.rows)} {'row' if len(log.rows) == 1 else 'rows'} ({', '.join(parts)})"


def _table(audited: Audited, width: int | None, *, colour: bool) -> str:
    columns = [
        Column("row", right=True),
        Column(clean(audited.log.metric) or "value", right=True),
        Column("claimed", right=True),
        Column("z", right=True),
        Column("p", right=True),
        Column("real", right=True),
        Column("verdict", styles=_VERDICT_STYLES),
        Column("description"),
    ]
    rows = []
    for keep in audited.result.keeps:
        row = audited.measured[keep.index]
        rows.append(
            [
                row.label or str(row.line),
                number(row.value),
                _signed(keep.claimed),
                ABSENT if keep.z is None else f"{keep.z:.1f}",
                probability(keep.p_better),
                _signed(keep.expected),
                keep.verdict,
                row.description,
            ]
        )
    return table(columns, rows, width=width, colour=colour)


def audit_as_json(audited: Audited) -> dict[str, Any]:
    """Return the audit with the keys that docs/json.md names."""
    result, log = audited.result, audited.log
    counts = {outcome.value: sum(row.outcome is outcome for row in log.rows) for outcome in Outcome}
    return {
        "shape": log.shape,
        "metric": log.metric,
        "direction": audited.direction.value,
        "rows": len(log.rows),
        "outcomes": counts,
        "baseline": result.baseline,
        "incumbent": result.incumbent,
        "claimed": result.claimed,
        "expected": result.expected,
        "expected_low": result.low,
        "expected_high": result.high,
        "luck": result.luck,
        "share": result.share,
        "noise": result.noise.sd,
        "noise_low": result.noise.low,
        "noise_high": result.noise.high,
        "noise_source": result.noise.source,
        "within_noise": sum(keep.within_noise for keep in result.keeps),
        "stand_out": sum(keep.verdict == "stands out" for keep in result.keeps),
        "notes": notes(audited),
        "keeps": [_keep_as_json(keep, audited.measured[keep.index]) for keep in result.keeps],
    }


def _keep_as_json(keep: AuditedKeep, row: LogRow) -> dict[str, Any]:
    return {
        "line": row.line,
        "label": row.label,
        "value": row.value,
        "claimed": keep.claimed,
        "z": keep.z,
        "p_better": keep.p_better,
        "expected": keep.expected,
        "verdict": keep.verdict,
        "within_noise": keep.within_noise,
        "description": row.description,
    }
