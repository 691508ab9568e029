"""Brings a run that ended elsewhere into a ledger, from its log: whole, or not at all and with the line that is wrong.

The run is finished and only to be read: it has no git objects, and nobody goes on with it. What a format says and the
ledger has no column for stands under `imported` in the experiment's details, so that exporting gives the file again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, create_model
from sqlmodel import SQLModel

from autoresearch.core.adapter import Direction, Metric, Outcome
from autoresearch.core.decision.policies import create_policy, policy_names
from autoresearch.core.errors import UsageError
from autoresearch.core.formats import EPOCH, IMPORTED, PI_STATUS, PI_VERDICT, RUN_KEYS, text_of_cell
from autoresearch.core.ledger import (
    IMPORT_ADAPTER,
    Columns,
    Experiment,
    FinishedExperiment,
    Ledger,
    LiveLook,
    MeasurementRow,
    Run,
    Session,
)
from autoresearch.core.logs import ExperimentLog, LogRow, direction_of, read_log
from autoresearch.core.memory import metric_as_json, metric_from_json

FORMATS = ("results.tsv", "jsonl", "pi", "csv")
"""What can be imported, by the names of `autoresearch export`."""


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run as its log tells it, ready to be inserted.

    Attributes:
        run: The run; its id follows from what was read.
        session: The one session that stands for all of its work.
        experiments: In the order of ending, the baseline first.
        shape: Which shape the log has, in a few words.
        notes: Sentences about what was left out or read in a special way.
    """

    run: Run
    session: Session
    experiments: tuple[FinishedExperiment, ...]
    shape: str
    notes: tuple[str, ...]

    def insert(self, ledger: Ledger) -> bool:
        """Insert the run; False, and nothing is written, where the same log was imported before."""
        return ledger.add_finished_run(self.run, self.session, self.experiments)


def read_finished(
    path: Path,
    *,
    form: str | None = None,
    metric: str | None = None,
    direction: Direction | None = None,
    run: str | None = None,
    now: datetime | None = None,
) -> FinishedRun:
    """Read a log as a finished run.

    Args:
        path: The log.
        form: Which of `FORMATS` it must have; None: any.
        metric: Column of the metric in a table; its name where the log has none.
        direction: Which way is better; None: as the log or the metric's name tells.
        run: Which run, where the file holds several; None: the last.
        now: The moment of the import.

    Raises:
        UsageError: If the file has no known shape, a line of it is wrong, or it does not tell which way is better.
    """
    log = read_log(path, metric=metric, run=run, whole=True)
    name = _form_of(log)
    if form not in (None, name):
        raise UsageError(
            f"{path} has the shape {log.shape}, which is not that of --format {form}.\n"
            "Leave --format out, or name the file that was meant."
        )
    source = _Source(path, log, now or datetime.now(UTC))
    begun = _run(source, name, _metric(source, metric, direction), run)
    source.run_id = begun.id
    finished = _unique(source, _READERS[name](source))
    begun.baseline_commit = begun.baseline_commit or finished[0].experiment.get("kept_commit") or ""
    begun.created = min(one.experiment["started"] for one in finished)
    begun.ended = max(one.experiment.get("ended") or one.experiment["started"] for one in finished)
    session = Session(run_id=begun.id, started=begun.created, ended=begun.ended, reason=begun.stop_reason)
    return FinishedRun(begun, session, tuple(finished), log.shape, (*log.notes, *source.notes))


class _Source:
    """A log that was read, and the place in it that a sentence speaks of."""

    def __init__(self, path: Path, log: ExperimentLog, now: datetime) -> None:
        self.path, self.log, self.now = path, log, now
        self.written = min(datetime.fromtimestamp(path.stat().st_mtime, UTC), now)
        self.run_id = ""
        self.notes: list[str] = []

    def wrong(self, row: LogRow, what: str) -> UsageError:
        return UsageError(f"{self.path}, line {row.line}: {what}.\nCorrect the line; nothing was imported.")

    def past(self, row: LogRow, moment: datetime) -> datetime:
        """Return a moment; one in the future is refused, for later runs would count their time from it."""
        if moment.year < EPOCH.year:
            raise self.wrong(row, f"the time {moment} lies before {EPOCH.year}")
        if moment > self.now + timedelta(days=1):
            raise self.wrong(row, f"the time {moment:%Y-%m-%d %H:%M} lies in the future")
        return moment.astimezone(UTC)

    @property
    def origin(self) -> str:
        return f"import:{self.path.name}"


def _form_of(log: ExperimentLog) -> str:
    if log.shape.startswith("JSON lines"):
        return "jsonl"
    return "pi" if log.shape.startswith("pi") else "csv" if log.shape.startswith("csv") else "results.tsv"


# ---- The run


def _metric(source: _Source, name: str | None, given: Direction | None) -> Metric:
    """Return the metric: as our own JSON lines describe it, else what the log and the caller say.

    Raises:
        UsageError: If nobody says its name, or which way is better.
    """
    log = source.log
    described = log.header.get("metric")
    if isinstance(described, dict):
        try:
            return metric_from_json(described)
        except (KeyError, TypeError, ValueError) as error:
            what = f"the metric of the run is not as autoresearch export writes it: {error}"
            raise source.wrong(log.rows[0], what) from error
    name = log.metric or name or ""
    if not name:
        raise UsageError(f"{source.path} does not name its metric.\nSay it: --metric NAME")
    direction = given or log.direction or direction_of(name)
    if direction is None:
        raise UsageError(
            f"{source.path}: the name {name!r} does not tell whether lower or higher is better.\n"
            "Say it: --direction lower, or --direction higher."
        )
    return Metric(name, log.unit, direction)


def _run(source: _Source, form: str, metric: Metric, chosen: str | None) -> Run:
    """Return the run; its id follows from what was read, so that the same file is never there twice."""
    read = f"{metric.name}\0{metric.direction.value}\0{chosen or ''}\0".encode() + source.path.read_bytes()
    header = source.log.header if form == "jsonl" else {}
    about = _checked(source, source.log.rows[0], _RUN, header) if header else {}
    if about.get("policy") in policy_names():
        try:
            create_policy(about["policy"], about.get("policy_parameters", {}))
        except UsageError as error:
            raise source.wrong(source.log.rows[0], f"the policy of the run: {str(error).rstrip('.')}") from error
    options: dict[str, Any] = {"file": source.path.name, "format": form}
    if header:
        options["run"] = dict(header)
    if form == "pi":
        options["name"] = str(source.log.header.get("name") or "")
    # Another tool's loop kept what it says it kept; greedy believes just that, and reports say so.
    rules = {"policy": "greedy", "proposer": "unknown", **about}
    return Run(
        **{
            **rules,
            "id": f"import-{hashlib.sha256(read).hexdigest()[:12]}",
            "adapter": IMPORT_ADAPTER,
            "metric": metric_as_json(metric),
            "options": options,
            "state": "stopped",
            "stop_reason": f"imported from {source.path.name}",
        }
    )


_PLACE = (("arm", "treatment"), ("repair", 0), ("look", 0), ("attempt", 0))
"""What tells the measurements of an experiment from one another, and what is meant where a line leaves it out."""


def _unique(source: _Source, finished: Sequence[FinishedExperiment]) -> list[FinishedExperiment]:
    """Return the experiments in the order of ending, where they say it, else by number.

    Raises:
        UsageError: If two rows have one number, or two measurements of a row one place.
    """
    seen: dict[int, int] = {}
    for row, one in zip(source.log.rows, finished, strict=True):
        number = one.experiment["number"]
        if number < 0:
            raise source.wrong(row, f"experiments are numbered from 0, and this is {number}")
        if number in seen:
            raise source.wrong(row, f"experiment {number} stands in line {seen[number]} already")
        seen[number] = row.line
        places = [tuple(m.get(name, known) for name, known in _PLACE) for m in one.measurements]
        looks = [(look["arm"], look["look"]) for look in one.looks]
        if len(set(places)) < len(places) or len(set(looks)) < len(looks):
            raise source.wrong(row, f"a measurement of experiment {number} stands there twice")
    said = all(one.experiment.get("sequence") is not None for one in finished)
    return sorted(finished, key=lambda one: int(one.experiment["sequence" if said else "number"]))


# ---- Checking what a line says


class _Pi(BaseModel):
    """What pi's log says beside status and metric; other tools' notes may be anything."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")

    metrics: dict[str, float] | None = None
    asi: dict[str, Any] | None = None


class _Change(BaseModel):
    knob: str
    old: str
    new: str


_Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_TYPES: Mapping[str, Any] = {
    # Columns whose type in the table says less than what readers of the ledger rely on.
    "timings": dict[str, float],
    "changes": list[_Change],
    "secondary": dict[str, float],
    "curve": list[tuple[float, float]],
    "policy_parameters": dict[str, float],
}
_STRICT = {int: _Integer, int | None: _Integer | None, datetime: AwareDatetime, datetime | None: AwareDatetime | None}


def _model(table: type[SQLModel], names: Sequence[str]) -> type[BaseModel]:
    """Return what checks these columns of a table as JSON gives them."""
    fields: dict[str, Any] = {}
    for name in names:
        known = table.model_fields[name]
        kind: Any = _TYPES.get(name) or _STRICT.get(known.annotation, known.annotation)  # type: ignore[arg-type]
        if name in (*_COSTS, "started"):
            kind = kind | None  # as of an import from a log that does not say them
        fields[name] = (kind, ...) if known.is_required() else (kind, None)
    config = ConfigDict(strict=True, allow_inf_nan=False, extra="ignore")
    made: type[BaseModel] = create_model(f"{table.__name__}Line", __config__=config, **fields)
    return made


_NOT_OURS = ("id", "run_id", "session_id", "proposal_id", "sequence")
"""Columns of an experiment that are numbers of another ledger."""

_COSTS = ("usd", "tokens", "seconds")
"""Columns that are 0 in the ledger where a log says nothing of them, and that no export makes a 0 of."""

_FROM_LOG = ("outcome", "value", "origin")
"""Columns that are read, and judged, by `logs` or set by the import."""

_EXPERIMENT = _model(Experiment, [name for name in Experiment.model_fields if name not in (*_NOT_OURS, *_FROM_LOG)])
_MEASUREMENT = _model(
    MeasurementRow, [name for name in MeasurementRow.model_fields if name not in ("id", "experiment_id")]
)
_LOOK = _model(LiveLook, [name for name in LiveLook.model_fields if name not in ("id", "experiment_id")])
_VERDICT = _model(Experiment, [name for name in PI_VERDICT if name != "outcome"])
_SEQUENCE = _model(Experiment, ["sequence"])
_RUN = _model(Run, [name for name in RUN_KEYS if name not in ("adapter", "metric", "stop_reason", "created", "ended")])


def _checked(source: _Source, row: LogRow, model: type[BaseModel], record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a JSON object says, each of its type.

    Raises:
        UsageError: If one of them is of another type; names line and column.
    """
    try:
        text = json.dumps(record, allow_nan=False)
    except ValueError as error:
        raise source.wrong(row, "a number is nan or infinite, and nothing measured is") from error
    try:
        return model.model_validate_json(text).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise source.wrong(row, _fault(error)) from error


def _fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=True)[0]
    where, found = ".".join(str(part) for part in first["loc"]), repr(first.get("input"))
    if not where:  # what is checked was JSON before, which allows one thing that JSON in UTF-8 does not
        return "a text of it holds half a character (an escape like \\ud800 by itself)"
    if first["type"] == "missing":
        return f"{where} is missing"
    shown = found if len(found) <= 60 else f"{found[:57]}..."
    return f"{where} is {shown}: {first['msg'][:1].lower()}{first['msg'][1:]}"


# ---- The formats


def _from_results(source: _Source) -> list[FinishedExperiment]:
    """Read a table of karpathy/autoresearch or of uditgoenka/autoresearch."""
    known = {"commit", source.log.metric, "memory_gb", "status", "description", "iteration"}
    surplus = [name for name in source.log.rows[0].record if name not in known and name]
    if surplus:
        source.notes.append(f"Left out: the columns {', '.join(surplus)}.")
    finished: list[FinishedExperiment] = []
    for number, row in enumerate(source.log.rows):
        memory = _memory_gb(source, row)
        commit = str(row.record.get("commit", "")).strip("-")
        experiment = _experiment(source, row, number, commit, finished)
        kept: dict[str, Any] = {"unmeasured": [*_COSTS, "started", "ended"]}
        if row.value is None and memory:
            kept["memory_gb"] = memory
        experiment["details"] = {IMPORTED: kept}
        secondary = {"peak_vram_mb": memory * 1024} if memory else {}
        finished.append(FinishedExperiment(experiment, _measured(row, secondary, experiment)))
    return finished


def _memory_gb(source: _Source, row: LogRow) -> float:
    cell = str(row.record.get("memory_gb", ""))
    if cell in ("", "-"):
        return 0.0
    try:
        memory = float(cell)
    except ValueError as error:
        raise source.wrong(row, f"memory_gb is {cell[:60]!r}, which is no number") from error
    if not 0 <= memory < 1e9:
        raise source.wrong(row, f"memory_gb is {cell[:60]!r}, which no machine has")
    return memory


def _experiment(
    source: _Source, row: LogRow, number: int, commit: str, before: Sequence[FinishedExperiment]
) -> dict[str, Any]:
    """Return an experiment of a log that says little more than what was kept."""
    kept = row.outcome is Outcome.KEPT
    parent = next((one.experiment for one in reversed(before) if one.experiment["outcome"] == Outcome.KEPT.value), None)
    return {
        "run_id": source.run_id,
        "number": number,
        "parent_number": None if parent is None else parent["number"],
        "parent_commit": "" if parent is None else parent.get("kept_commit") or "",
        "hypothesis": row.description,
        "origin": source.origin,
        "kept_commit": (commit or None) if kept else None,
        "candidate_commit": None if kept else commit or None,
        "outcome": row.outcome.value,
        "value": row.value,
        "started": source.written,
        "ended": source.written,
    }


def _measured(row: LogRow, secondary: Mapping[str, float], experiment: Columns) -> tuple[Columns, ...]:
    """Return the one measurement that a value stands for."""
    if row.value is None:
        return ()
    return ({"value": row.value, "secondary": dict(secondary), "started": experiment["started"]},)


def _from_pi(source: _Source) -> list[FinishedExperiment]:
    """Read the log of pi-autoresearch; what stands under `asi` by the names that we write is taken over."""
    numbers = [row.record.get("run") for row in source.log.rows]
    plain = [number for number in numbers if isinstance(number, int) and not isinstance(number, bool)]
    in_order = len(plain) == len(numbers) and plain[0] == 1 and plain == sorted(set(plain))
    finished: list[FinishedExperiment] = []
    for place, row in enumerate(source.log.rows):
        number = plain[place] - 1 if in_order else place
        experiment = _experiment(source, row, number, str(row.record.get("commit") or ""), finished)
        said = {name: row.record[name] for name in ("commit", "description", *_Pi.model_fields) if name in row.record}
        beside = _checked(source, row, _Pi, said)
        metrics: dict[str, float] = beside.get("metrics") or {}
        _take_notes(source, row, experiment, beside.get("asi") or {})
        moment = _moment(source, row)
        experiment["started"] = experiment["ended"] = moment or source.written
        kept: dict[str, Any] = {"unmeasured": [*_COSTS, "started", *(() if moment else ("ended",))]}
        if row.value is None and metrics:
            kept["metrics"] = metrics
        experiment["details"] = {**experiment["details"], IMPORTED: kept}
        finished.append(FinishedExperiment(experiment, _measured(row, metrics, experiment)))
    return finished


def _take_notes(source: _Source, row: LogRow, experiment: dict[str, Any], notes: Mapping[str, Any]) -> None:
    """Take over what pi's log says beside the value: our own words where they agree with the status, else as notes."""
    ours = {name: notes[name] for name in PI_VERDICT if name in notes}
    if PI_STATUS.get(str(ours.get("outcome")), "discard") == row.record.get("status") and "outcome" in ours:
        try:
            experiment["outcome"] = Outcome(ours.pop("outcome")).value
        except ValueError as error:
            raise source.wrong(row, f"asi.outcome is {notes['outcome']!r}, which is no outcome") from error
        experiment.update(_checked(source, row, _VERDICT, ours))
        notes = {name: value for name, value in notes.items() if name not in PI_VERDICT}
    experiment["details"] = dict(notes)


def _moment(source: _Source, row: LogRow) -> datetime | None:
    found = row.record.get("timestamp")
    if not found:
        return None
    try:
        return source.past(row, EPOCH + timedelta(milliseconds=found))
    except (OverflowError, TypeError, ValueError) as error:
        raise source.wrong(row, f"the timestamp {str(found)[:60]} is no time in milliseconds") from error


def _from_csv(source: _Source) -> list[FinishedExperiment]:
    """Read our own CSV."""
    return [_csv_experiment(source, row) for row in source.log.rows]


def _csv_experiment(source: _Source, row: LogRow) -> FinishedExperiment:
    cells = {name: text_of_cell(cell) for name, cell in row.record.items() if cell}
    texts = {name: cell for name, cell in cells.items() if name in _EXPERIMENT.model_fields}
    try:
        columns = _EXPERIMENT.model_validate_strings(texts, strict=False).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise source.wrong(row, _fault(error)) from error
    experiment = _complete(source, row, columns)
    empty = [name for name in (*_COSTS, "started", "ended") if not row.record.get(name)]
    if empty:
        experiment["details"] = {IMPORTED: {"unmeasured": empty}}
    if "values" in row.record:
        values = [_finite(source, row, text) for text in cells.get("values", "").split()]
    else:
        values = [] if row.value is None else [row.value]
    taken = [
        {"value": value, "look": look, "seed": look, "started": experiment["started"]}
        for look, value in enumerate(values)
    ]
    return FinishedExperiment(experiment, taken, proposal=_spent(experiment))


def _finite(source: _Source, row: LogRow, text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise source.wrong(row, f"values has {text[:60]!r}, which is no number") from error
    if not math.isfinite(value):
        raise source.wrong(row, f"values has {text!r}, and nothing measured is")
    return value


def _complete(source: _Source, row: LogRow, columns: Columns) -> dict[str, Any]:
    """Return an experiment of our own format, with what the log was judged to say."""
    optional = (*_COSTS, "started")
    given = {name: value for name, value in columns.items() if value is not None or name not in optional}
    moments = {name: source.past(row, given[name]) for name in ("started", "ended") if given.get(name) is not None}
    given = {"started": moments.get("ended", source.written), **given, **moments}
    ours = {"run_id": source.run_id, "origin": source.origin, "outcome": row.outcome.value, "value": row.value}
    return {"details": {}, **given, **ours}


def _spent(experiment: Columns) -> Columns | None:
    """Return the proposal that an experiment's costs are booked on; the ledger sums costs over proposals."""
    usd, tokens = experiment.get("usd"), experiment.get("tokens")
    if not usd and not tokens:
        return None
    same = ("run_id", "number", "hypothesis", "category", "origin", "proposer")
    return {
        **{name: experiment[name] for name in same if name in experiment},
        "attempt": 0,
        "status": "accepted",
        "usd": usd or 0.0,
        "tokens_in": tokens or 0,
        "created": experiment["started"],
    }


def _from_jsonl(source: _Source) -> list[FinishedExperiment]:
    """Read our own JSON lines."""
    known = {*Experiment.model_fields, "measurements", "looks", "run"}
    surplus = sorted({name for row in source.log.rows for name in row.record if name not in known})
    if surplus:
        source.notes.append(f"Left out: the keys {', '.join(surplus)}, which this release does not know.")
    return [_jsonl_experiment(source, row) for row in source.log.rows]


def _jsonl_experiment(source: _Source, row: LogRow) -> FinishedExperiment:
    record = row.record
    experiment = _complete(source, row, _checked(source, row, _EXPERIMENT, record))
    experiment["sequence"] = _checked(source, row, _SEQUENCE, record).get("sequence")
    measurements, kept_measurements = _children(source, row, _MEASUREMENT, "measurements")
    looks, kept_looks = _children(source, row, _LOOK, "looks")
    columns = {name: record[name] for name in (*_NOT_OURS, "origin") if name in record}
    columns |= {name: None for name in (*_COSTS, "started", "ended") if name in record and record[name] is None}
    absent = [name for name in (*_NOT_OURS, "origin", "looks", "run") if name not in record]
    kept = {"columns": columns, "measurements": kept_measurements, "looks": kept_looks, "without": absent}
    experiment["details"] = {**experiment["details"], IMPORTED: {name: value for name, value in kept.items() if value}}
    return FinishedExperiment(experiment, measurements, looks, _spent(experiment))


def _children(source: _Source, row: LogRow, model: type[BaseModel], name: str) -> tuple[list[Columns], list[Columns]]:
    """Return the rows that a line has under a key, and the ids that they had in their ledger."""
    found = row.record.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise source.wrong(row, f"{name} is no list of objects")
    rows: list[Columns] = []
    for one in found:
        columns = {key: value for key, value in _checked(source, row, model, one).items() if value is not None}
        for key in ("started", "at"):
            if key in columns:
                columns[key] = source.past(row, columns[key])
        rows.append(columns)
    return rows, [{key: one[key] for key in ("id", "experiment_id") if key in one} for one in found]


_READERS: Mapping[str, Callable[[_Source], list[FinishedExperiment]]] = {
    "results.tsv": _from_results,
    "jsonl": _from_jsonl,
    "pi": _from_pi,
    "csv": _from_csv,
}
