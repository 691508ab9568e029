"""Reads what a keep-or-revert loop wrote, ours or another tool's, into one shape that can be audited.

Known shapes, told apart by their content and never by their name (`KNOWN_SHAPES`). Words for outcomes are translated to
ours; a word that nobody knows is refused, because counting it as anything would be a guess. A value that was not
measured is absent: the 0 that other tools write for a crash never counts as one.

Source of the shapes: the README and program of karpathy/autoresearch; the log of davebcn87/pi-autoresearch
(`autoresearch.jsonl`: `config` lines, each of which begins a new run, and one line a run); the results log of
uditgoenka/autoresearch (`autoresearch-results.tsv`: a comment with the direction, then iteration 0 as the baseline).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoresearch.core.adapter import Direction, Outcome
from autoresearch.core.errors import UsageError

KNOWN_SHAPES: tuple[str, ...] = (
    "results.tsv of karpathy/autoresearch and of autoresearch export: a header with commit, the metric, status",
    "autoresearch-results.tsv of uditgoenka/autoresearch: a header with iteration, commit, metric, delta, status",
    "autoresearch.jsonl of pi-autoresearch: lines with type config, then lines with metric and status",
    "the JSON lines and the CSV of autoresearch export",
    "ledger.db of autoresearch, or the workspace that holds it",
)
"""What `read_log` reads, one sentence each."""

_STATUSES: Mapping[str, Outcome | None] = {
    "baseline": Outcome.KEPT,
    "keep": Outcome.KEPT,
    "kept": Outcome.KEPT,
    "discard": Outcome.REVERTED,
    "discarded": Outcome.REVERTED,
    "revert": Outcome.REVERTED,
    "reverted": Outcome.REVERTED,
    "inconclusive": Outcome.INCONCLUSIVE,
    "crash": Outcome.CRASHED,
    "crashed": Outcome.CRASHED,
    "metric-error": Outcome.CRASHED,
    "checks_failed": Outcome.INVALID,
    "invalid": Outcome.INVALID,
    # Rows about the work itself: no candidate was measured.
    "no-op": None,
    "hook-blocked": None,
    "blocked": None,
    "refine": None,
    "pivot": None,
    "search": None,
    "drift": None,
}

_KNOWN_COLUMNS = frozenset(
    {"iteration", "experiment", "timestamp", "commit", "memory_gb", "delta", "guard", "status", "description"}
)
"""Columns of the two tables that never hold the metric."""

_SQLITE = b"SQLite format 3\x00"
_LARGEST = 256 * 1024 * 1024  # bytes; logs have kilobytes, and a wrong file should not fill the memory

_LARGEST_VALUE = 1e100
"""Squares of larger values come near the end of double precision."""

_LOWER = frozenset(
    {"bpb", "loss", "nll", "perplexity", "ppl", "latency", "time", "duration", "runtime", "seconds", "sec", "ms", "us"}
    | {"µs", "ns", "error", "errors", "failures", "mse", "rmse", "mae", "wer", "cer", "size", "bytes", "kb", "mb", "gb"}
    | {"memory", "cost"}
)
_HIGHER = frozenset(
    {"accuracy", "acc", "auc", "f1", "bleu", "rouge", "score", "reward", "throughput", "coverage", "passed"}
    | {"conversions", "revenue"}
)


@dataclass(frozen=True, slots=True)
class LogRow:
    """One experiment of a log.

    Attributes:
        line: Line in the file, from 1; the number of the experiment where it comes from a ledger.
        label: How the log names it: its number, else its commit, else empty.
        outcome: What became of it.
        value: The metric; None where it was not measured. Finite.
        runs: Number of measurements that `value` is the mean of.
        description: What was tried, in the log's words.
        record: The row as the log has it, by column or key; empty where it comes from a ledger.
    """

    line: int
    label: str
    outcome: Outcome
    value: float | None
    runs: int = 1
    description: str = ""
    record: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ExperimentLog:
    """A log as read.

    Attributes:
        shape: Which known shape it has, in a few words.
        metric: Name of the metric; empty where the log has none.
        direction: Which way is better, where the log says so; None where it does not.
        rows: Experiments in order, the baseline first.
        notes: Sentences about what was left out or read in a special way.
        replicates: Values of repeated measurements of one artifact each, at least two a group, search data only.
        noise: Standard deviation that the metric states; None without.
        unit: Unit of the metric, where the log says so.
        header: What the log says of the run as a whole: pi's configuration, `run` of our JSON lines.
    """

    shape: str
    metric: str
    direction: Direction | None
    rows: tuple[LogRow, ...]
    notes: tuple[str, ...] = ()
    replicates: tuple[tuple[float, ...], ...] = ()
    noise: float | None = None
    unit: str = ""
    header: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def read_log(path: Path, *, metric: str | None = None, run: str | None = None, whole: bool = False) -> ExperimentLog:
    """Read a log of any known shape.

    Args:
        path: The file, or a workspace of ours.
        metric: Column that holds the metric, for a table where that is not clear.
        run: Which run, where the file holds several: an id of ours, or the number (from 1) of a `config` line of pi's.
            None: the last.
        whole: Take a log as it is, to keep it: the first row may lack its value, as the baseline of a live run does,
            and a file of a ledger is refused.

    Raises:
        UsageError: If the file cannot be read, has no known shape, or a line of it makes no sense; names the line.
    """
    ledger = _ledger_in(path)
    if ledger is not None and whole:
        raise UsageError(
            f"{path} is a ledger of autoresearch, and needs no import.\n"
            "Look at its workspace where it lies (-w DIR), or export it there and import the file."
        )
    if ledger is not None:
        return _from_ledger(ledger, run)
    text = _text(path)
    first = next((line for line in _lines(text) if line.strip() and not line.lstrip().startswith("#")), "")
    if not first:
        raise UsageError(f"{path} holds no line of a log.\nName the log that the tool wrote; known are:\n{_shapes()}")
    if first.lstrip().startswith("{"):
        log = _from_json_lines(path, text, run, whole=whole)
    elif run is not None:
        raise UsageError(f"{path} is a table, and a table holds one run.\nLeave --run out.")
    elif "\t" in first:
        log = _from_table(path, text, metric, whole=whole)
    elif {"number", "outcome", "value"} <= set(next(csv.reader([first]), [])):
        log = _from_csv(path, text, whole=whole)
    else:
        raise _unknown(path, f"its first line is {_shown(first)}")
    if not log.rows:
        raise UsageError(f"{path} holds no experiment, only a header.\nCome back once something was measured.")
    return log


def direction_of(metric: str) -> Direction | None:
    """Return which way is better as far as the metric's name tells; None where it does not, or says both.

    Example:
        >>> direction_of("val_bpb"), direction_of("latency_ms"), direction_of("tokens_per_second")
        (<Direction.MINIMIZE: 'minimize'>, <Direction.MINIMIZE: 'minimize'>, None)
    """
    words = {word for word in re.split(r"[^a-z0-9µ]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", metric).lower()) if word}
    lower, higher = bool(words & _LOWER), bool(words & _HIGHER)
    if lower == higher or "per" in words:
        return None
    return Direction.MINIMIZE if lower else Direction.MAXIMIZE


def _shapes() -> str:
    return "\n".join(f"  {shape}" for shape in KNOWN_SHAPES)


def _unknown(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} has no shape that is known: {why}.\nThese are read:\n{_shapes()}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{path} has {path.stat().st_size / 1e6:.0f} MB, and no log has.\nName the log itself.")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.\nName the log that the tool wrote.") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unknown(path, "it is no UTF-8 text") from error


def _lines(text: str) -> list[str]:
    """Return the lines of a text; marks inside of a description that Unicode calls line ends are none here."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


# Tables


def _from_table(path: Path, text: str, metric: str | None, *, whole: bool) -> ExperimentLog:
    """Read karpathy's, uditgoenka's or our own tab-separated table."""
    direction = _declared_direction(text)
    lines = [
        (number, line)
        for number, line in enumerate(_lines(text), start=1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    header = [cell.strip() for cell in lines[0][1].split("\t")]
    twice = [name for name in dict.fromkeys(header) if header.count(name) > 1]
    if twice:
        raise UsageError(f"{path} has the column {twice[0]} twice, and they may differ.\nRename or delete one of them.")
    column = _metric_column(path, header, metric)
    notes: list[str] = []
    rows: list[LogRow] = []
    for number, line in lines[1:]:
        cells = [cell.strip() for cell in line.split("\t")]
        if cells == header:
            continue  # a header written again when the tool was started again
        may_lack = whole and not rows
        row = _table_row(path, number, dict(zip(header, cells, strict=False)), column, notes, may_lack=may_lack)
        if row is not None:
            rows.append(row)
    by_iteration = "iteration" in header
    shape = "iterations (uditgoenka/autoresearch)" if by_iteration else "results.tsv (karpathy/autoresearch)"
    return _without_impossible_zeros(ExperimentLog(shape, column, direction, tuple(rows), _counted(notes)))


def _declared_direction(text: str) -> Direction | None:
    """Return the direction of a comment like `# metric_direction: lower_is_better`."""
    match = re.search(r"^\s*#\s*metric_direction\s*:\s*(lower|higher)", text, re.MULTILINE | re.IGNORECASE)
    return None if match is None else direction_from_word(match[1])


def direction_from_word(word: object) -> Direction | None:
    """Return the direction that a log names: `lower` or `higher`, or our own words; None for any other."""
    known = {"lower": Direction.MINIMIZE, "higher": Direction.MAXIMIZE, **{one.value: one for one in Direction}}
    return known.get(str(word).lower())


def _metric_column(path: Path, header: Sequence[str], metric: str | None) -> str:
    """Return the column that holds the metric.

    Raises:
        UsageError: If a needed column is missing, or it is not clear which one is the metric.
    """
    named = f"its columns are {', '.join(header)}"
    if not {"status", "commit", "description", "iteration"} & set(header):
        raise _unknown(path, named)
    if "status" not in header:
        raise UsageError(f"{path} has no column status, so nothing tells what was kept; {named}.")
    if metric is not None:
        if metric not in header:
            raise UsageError(f"{path} has no column {metric}; {named}.\nName one of them with --metric.")
        return metric
    if "metric" in header:
        return "metric"
    candidates = [name for name in header if name not in _KNOWN_COLUMNS]
    # Both tables have the metric right behind the commit; further columns are secondary.
    after_commit = header[header.index("commit") + 1] if "commit" in header[:-1] else ""
    if after_commit in candidates:
        return after_commit
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise UsageError(f"{path} has no column with the metric; {named}.")
    raise UsageError(f"{path} does not tell which column is the metric; {named}.\nName it with --metric.")


def _table_row(
    path: Path, line: int, cells: Mapping[str, str], column: str, notes: list[str], *, may_lack: bool
) -> LogRow | None:
    label = cells.get("iteration") or cells.get("commit", "")
    if "status" not in cells:
        raise UsageError(f"{path}, line {line}: the row ends before the column status.\nCorrect the line.")
    outcome = _outcome(path, line, cells["status"])
    if outcome is None:
        notes.append("without a candidate (no-op, blocked and the like)")
        return None
    if _is_part_of_batch(cells) and outcome is Outcome.KEPT:
        notes.append("of a parallel batch that its main row repeats")
        return None
    if cells.get("guard", "").lower() == "fail" and outcome is Outcome.REVERTED:
        outcome = Outcome.INVALID
    value = _value(path, line, cells.get(column, ""), outcome, notes, may_lack=may_lack)
    return LogRow(line, label, outcome, value, description=cells.get("description", ""), record=cells)


def _is_part_of_batch(cells: Mapping[str, str]) -> bool:
    """Say whether a row is one worker's of a parallel batch: `5a` beside the main row `5`."""
    return re.fullmatch(r"\d+[a-z]+", cells.get("iteration", "")) is not None


def _outcome(path: Path, line: int, status: str) -> Outcome | None:
    """Return the outcome that a status word means; None for a row that is no experiment.

    Raises:
        UsageError: If the word is unknown.
    """
    # `keep (reworked)` and `discard (axis regression)` say why in brackets.
    word = re.sub(r"\s*\(.*\)$", "", status.strip()).lower()
    try:
        return _STATUSES[word]
    except KeyError:
        known = ", ".join(_STATUSES)
        raise UsageError(
            f"{path}, line {line}: the status {_shown(status)} is unknown.\nKnown are {known}; correct the line."
        ) from None


def _value(
    path: Path, line: int, cell: object, outcome: Outcome, notes: list[str], *, may_lack: bool = False
) -> float | None:
    """Return the value of a row, None where it was not measured; a kept row may lack it only where that is said.

    Raises:
        UsageError: If a kept row has no finite value, or a cell is no number at all.
    """
    if may_lack and cell in (None, ""):
        return None
    if outcome in (Outcome.CRASHED, Outcome.INVALID):
        return None  # tools write 0 here, or the value of a candidate that failed its checks
    if cell is None or (isinstance(cell, str) and cell.strip() in ("", "-")):
        number = math.nan
    elif isinstance(cell, bool) or not isinstance(cell, str | int | float):
        raise UsageError(f"{path}, line {line}: the value {_shown(str(cell))} is no number.\nCorrect the line.")
    else:
        try:
            number = float(cell)
        except (ValueError, OverflowError) as error:
            raise UsageError(
                f"{path}, line {line}: the value {_shown(str(cell))} is no number.\nCorrect the line."
            ) from error
    if abs(number) > _LARGEST_VALUE and math.isfinite(number):
        raise UsageError(
            f"{path}, line {line}: the value {_shown(str(cell))} is larger than any measurement.\nCorrect the line."
        )
    if math.isfinite(number):
        return number
    if outcome is Outcome.KEPT:
        raise UsageError(
            f"{path}, line {line}: a kept row needs a finite value and has "
            f"{'none' if cell is None else _shown(str(cell))}.\n"
            "What came after it cannot be judged; correct the line, or cut the log there."
        )
    notes.append("reverted without a finite value (empty, nan or inf)")
    return None


def _counted(reasons: Sequence[str]) -> tuple[str, ...]:
    """Return one sentence for each reason, with how often it came."""
    return tuple(f"Left out: {_rows(reasons.count(reason))} {reason}." for reason in dict.fromkeys(reasons))


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _without_impossible_zeros(log: ExperimentLog) -> ExperimentLog:
    """Return the log with reverted zeros absent where every kept value is above zero.

    Some tools write 0 for a run that printed no number and call it reverted. Where lower is better, it would be the
    best value of all, and yet it was not kept.
    """
    kept = [row.value for row in log.rows if row.outcome is Outcome.KEPT and row.value is not None]
    zeros = sum(row.value == 0 and row.outcome is not Outcome.KEPT for row in log.rows)
    if not zeros or not kept or min(kept) <= 0:
        return log
    rows = tuple(
        replace(row, value=None) if row.value == 0 and row.outcome is not Outcome.KEPT else row for row in log.rows
    )
    note = f"Left out: {_rows(zeros)} reverted with the value 0, which stands for no measurement there."
    return replace(log, rows=rows, notes=(*log.notes, note))


# Ours: JSON lines, CSV, ledger


def _from_csv(path: Path, text: str, *, whole: bool) -> ExperimentLog:
    """Read `autoresearch export --format csv`."""
    notes: list[str] = []
    rows: list[LogRow] = []
    for line, record in _csv_records(path, text):
        outcome = _outcome(path, line, record["outcome"] or "")
        if outcome is not None:
            value = _value(path, line, record["value"], outcome, notes, may_lack=whole and not rows)
            label, description = record["number"] or "", record.get("hypothesis") or ""
            rows.append(LogRow(line, label, outcome, value, description=description, record=record))
    first = rows[0].record if rows else {}
    return ExperimentLog(
        "csv (autoresearch export)",
        first.get("metric") or "",
        direction_from_word(first.get("direction")),
        tuple(rows),
        _counted(notes),
        unit=first.get("unit") or "",
    )


def _csv_records(path: Path, text: str) -> Iterator[tuple[int, dict[str, str | None]]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    while True:
        try:
            record = next(reader, None)
        except csv.Error as error:
            line = reader.line_num + 1  # where the row begins; it may go on to the end of the file
            raise UsageError(f"{path}, line {line}: this is no CSV: {error}.\nCorrect the line.") from error
        if record is None:
            return
        if None in record:
            raise UsageError(f"{path}, line {reader.line_num}: the row has more cells than the header.")
        yield reader.line_num, record


def _from_json_lines(path: Path, text: str, run: str | None, *, whole: bool) -> ExperimentLog:
    """Read pi's log or our own JSON lines, whichever the first record is."""
    records = list(_records(path, text))
    if any("outcome" in record and "number" in record for _, record in records):
        return _from_our_lines(path, records, run, whole=whole)
    if any(record.get("type") == "config" or {"metric", "status"} <= set(record) for _, record in records):
        return _without_impossible_zeros(_from_pi(path, records, run, whole=whole))
    raise _unknown(path, f"its first object has the keys {', '.join(list(records[0][1])[:8]) or 'none'}")


def _records(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, content in enumerate(_lines(text), start=1):
        if not content.strip():
            continue
        try:
            record = json.loads(content)
        except (ValueError, RecursionError) as error:  # a ValueError that is no JSONDecodeError: a number too long
            raise UsageError(f"{path}, line {line}: this is no JSON: {_shown(content)}.\nCorrect the line.") from error
        if not isinstance(record, dict):
            raise UsageError(f"{path}, line {line}: an object was expected, not {_shown(content)}.")
        yield line, record


def _from_pi(
    path: Path, records: Sequence[tuple[int, Mapping[str, Any]]], run: str | None, *, whole: bool
) -> ExperimentLog:
    """Read `autoresearch.jsonl`; every config line after results begins a new run, the last of which is meant."""
    parts: list[tuple[Mapping[str, Any], list[tuple[int, Mapping[str, Any]]]]] = []
    for line, record in records:
        if record.get("type") == "config":
            if parts and not parts[-1][1]:
                parts.pop()  # configured anew before anything was measured
            parts.append((record, []))
        elif "status" in record:
            parts = parts or [({}, [])]
            parts[-1][1].append((line, record))
    parts = [part for part in parts if part[1]]
    config, lines = _chosen(path, parts, run)
    notes: list[str] = []
    rows: list[LogRow] = []
    for line, record in lines:
        outcome = _outcome(path, line, str(record["status"]))
        may_lack = whole and not rows
        if "metric" not in record and outcome is Outcome.KEPT and not may_lack:
            raise UsageError(f"{path}, line {line}: the key metric is missing.")
        if outcome is not None:
            value = _value(path, line, record.get("metric"), outcome, notes, may_lack=may_lack)
            label, description = (
                str(record.get("run") or record.get("commit") or ""),
                str(record.get("description") or ""),
            )
            rows.append(LogRow(line, label, outcome, value, description=description, record=record))
    metric = str(config.get("metricName") or config.get("metric_name") or "")
    direction = direction_from_word(config.get("bestDirection") or config.get("direction"))
    several = (f"The file holds {len(parts)} runs; --run N chooses another than the last.",) if len(parts) > 1 else ()
    notes_said = several if run is None else ()
    unit = str(config.get("metricUnit") or "")
    said = (*notes_said, *_counted(notes))
    return ExperimentLog("pi-autoresearch", metric, direction, tuple(rows), said, unit=unit, header=config)


def _chosen(
    path: Path, parts: Sequence[tuple[Mapping[str, Any], list[tuple[int, Mapping[str, Any]]]]], run: str | None
) -> tuple[Mapping[str, Any], list[tuple[int, Mapping[str, Any]]]]:
    if not parts:
        raise UsageError(f"{path} holds no experiment, only its configuration.\nCome back once something was measured.")
    if run is None:
        return parts[-1]
    if not run.isdecimal() or not 1 <= int(run) <= len(parts):
        raise UsageError(f"{path} has no run {run!r}; they are numbered from 1 to {len(parts)}.")
    return parts[int(run) - 1]


def _from_our_lines(
    path: Path, records: Sequence[tuple[int, Mapping[str, Any]]], run: str | None, *, whole: bool
) -> ExperimentLog:
    """Read `autoresearch export --format jsonl`."""
    ids = list(dict.fromkeys(str(record.get("run_id", "")) for _, record in records))
    wanted = ids[-1] if run is None else run
    if wanted not in ids:
        raise UsageError(f"{path} has no run {wanted!r}; it has {', '.join(ids)}.")
    notes: list[str] = []
    rows: list[LogRow] = []
    groups = []
    for line, record in records:
        if str(record.get("run_id", "")) != wanted:
            continue
        outcome = _outcome(path, line, str(record.get("outcome")))
        if outcome is None:
            continue
        measured = [_judged_value(path, line, m) for m in _judged(_measurements(path, line, record))]
        value = _value(path, line, record.get("value"), outcome, notes, may_lack=whole and not rows)
        runs = max(1, len(measured))
        label, description = str(record.get("number", "")), str(record.get("hypothesis", ""))
        rows.append(LogRow(line, label, outcome, value, runs, description, record))
        groups.append(tuple(measured))
    header = _object(rows[0].record.get("run")) if rows else {}
    metric = _object(header.get("metric"))
    return ExperimentLog(
        "JSON lines (autoresearch export)",
        str(metric.get("name") or ""),
        direction_from_word(metric.get("direction")),
        tuple(rows),
        _counted(notes),
        tuple(group for group in groups if len(group) > 1),
        noise=metric["noise"] if isinstance(metric.get("noise"), float) else None,
        unit=str(metric.get("unit") or ""),
        header=header,
    )


def _object(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _measurements(path: Path, line: int, record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the measurements of a record of ours.

    Raises:
        UsageError: If they are no list of objects, or one of them has a repair that is no number.
    """
    found = record.get("measurements", [])
    if not isinstance(found, list) or not all(
        isinstance(m, dict) and isinstance(m.get("repair", 0), int) for m in found
    ):
        raise UsageError(
            f"{path}, line {line}: the measurements are not as autoresearch export writes them: {_shown(str(found))}.\n"
            "Export the run again, or correct the line."
        )
    return found


def _judged(measurements: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the measurements of the candidate, in our own format, that its decision was made on."""
    last = max((m.get("repair", 0) for m in measurements), default=0)
    return [
        m
        for m in measurements
        if m.get("arm") == "treatment"
        and m.get("split") == "search"
        and m.get("repair", 0) == last
        and m.get("disturbed") is None
    ]


def _judged_value(path: Path, line: int, measurement: Mapping[str, Any]) -> float:
    value = measurement.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{path}, line {line}: the measured value {_shown(str(value))} is no finite number.")
    return float(value)


def _ledger_in(path: Path) -> Path | None:
    """Return the ledger that is meant: the file itself, or that of a workspace; None for any other file.

    Raises:
        UsageError: If the path is a folder without a ledger, or is not there.
    """
    if path.is_dir():
        for ledger in (path / ".autoresearch" / "ledger.db", path / "ledger.db"):
            if ledger.is_file():
                return ledger
        raise UsageError(
            f"{path} is a folder without a ledger of autoresearch.\nName a log in it; known are:\n{_shapes()}"
        )
    try:
        with path.open("rb") as file:
            return path if file.read(len(_SQLITE)) == _SQLITE else None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.\nName the log that the tool wrote.") from error


def _from_ledger(path: Path, run_id: str | None) -> ExperimentLog:
    """Read a run of our own ledger, by default the latest."""
    from autoresearch.core.ledger import Ledger
    from autoresearch.core.memory import metric_from_json

    with Ledger.reading(path) as ledger:
        run = ledger.latest_run() if run_id is None else ledger.run(run_id)
        if run is None:
            raise UsageError(f"{path} holds no run yet.\nAudit it once something was measured.")
        metric = metric_from_json(run.metric)
        measurements = ledger.run_measurements(run.id)
        rows, groups = [], []
        for row in ledger.experiments(run.id):
            if row.outcome is None:
                continue
            taken = [m.model_dump() for m in measurements.get(row.id, ())]
            measured = tuple(float(m["value"]) for m in _judged(taken))
            outcome = Outcome(row.outcome)
            value = None if outcome in (Outcome.CRASHED, Outcome.INVALID) else row.value
            rows.append(LogRow(row.number, str(row.number), outcome, value, max(1, len(measured)), row.hypothesis))
            groups.append(measured)
    replicates = tuple(group for group in groups if len(group) > 1)
    return ExperimentLog(
        f"ledger, run {run.id}", metric.name, metric.direction, tuple(rows), (), replicates, metric.noise
    )
