"""Tables that other tools read, written from ledger rows."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from autoresearch.core.adapter import Direction, Metric, Outcome, Split
from autoresearch.core.ledger import IMPORT_ADAPTER, Experiment, LiveLook, MeasurementRow, Run
from autoresearch.core.memory import Measurements, undisturbed

IMPORTED = "imported"
"""Key in an experiment's details for what an import kept of the source beside the ledger's columns."""

LOG_KEYS = ("number", "outcome", "category", "hypothesis", "value", "commit", "seconds")


def log_rows(experiments: Sequence[Experiment]) -> list[dict[str, Any]]:
    """Return the finished experiments with the keys of `log --json`, the baseline first."""
    return [
        {
            "number": row.number,
            "outcome": row.outcome,
            "category": row.category,
            "hypothesis": row.hypothesis,
            "value": row.value,
            "commit": row.kept_commit or row.candidate_commit,
            "seconds": row.seconds,
        }
        for row in experiments
        if row.outcome is not None
    ]


def results_tsv(metric_name: str, experiments: Sequence[Experiment], measurements: Measurements) -> str:
    """Return the table in the columns of karpathy/autoresearch: commit, metric, memory_gb, status, description.

    Status is `keep`, `crash` (with the 0.000000 that the original writes there) or `discard` for everything else.
    """
    lines = [results_line(row, measurements.get(row.id, ())) for row in experiments if row.outcome is not None]
    return "".join([results_header(metric_name), *lines])


def results_header(metric_name: str) -> str:
    """Return the first line of `results_tsv`."""
    return f"commit\t{metric_name}\tmemory_gb\tstatus\tdescription\n"


def results_line(row: Experiment, measurements: Sequence[MeasurementRow]) -> str:
    """Return the line of a finished experiment in `results_tsv`."""
    commit = (row.kept_commit or row.candidate_commit or "")[:7]
    description = " ".join(row.hypothesis.split())
    peak = _peak_memory_gb(row, measurements)
    return f"{commit}\t{_value(row)}\t{peak:.1f}\t{_status(row)}\t{description}\n"


def _value(row: Experiment) -> str:
    """Return the value; a crash has the original's 0, and what else was not measured has none."""
    if row.value is None and row.outcome != Outcome.CRASHED.value:
        return ""
    return f"{row.value or 0.0:.6f}"


def _status(row: Experiment) -> str:
    if row.outcome == Outcome.KEPT.value:
        return "keep"
    return "crash" if row.outcome == Outcome.CRASHED.value else "discard"


def _peak_memory_gb(row: Experiment, measurements: Sequence[MeasurementRow]) -> float:
    """Return the peak memory in GiB; 0.0, as in the original, where nobody measured it."""
    peaks = [m.secondary.get("peak_vram_mb", 0.0) for m in undisturbed(measurements)]
    return max(peaks, default=0.0) / 1024 or float(imported(row).get("memory_gb", 0.0))


def imported(row: Experiment) -> Mapping[str, Any]:
    """Return what an import kept of the source beside the ledger's columns; empty for an experiment of our own."""
    found = row.details.get(IMPORTED, {})
    return found if isinstance(found, dict) else {}


def costs_known(run: Run) -> bool:
    """Say whether what a run cost is known; other tools' logs do not say it."""
    return run.adapter != IMPORT_ADAPTER or run.options.get("format") in ("jsonl", "csv")


# ---- JSON lines


def as_jsonl(
    experiments: Sequence[Experiment],
    measurements: Measurements,
    run: Run | None = None,
    looks: Mapping[int, Sequence[LiveLook]] | None = None,
) -> str:
    """Return one JSON object a line with everything that the ledger holds of each finished experiment.

    Args:
        experiments: Those of a run.
        measurements: By experiment id.
        run: The run, so that each line says what was measured and by which rules; None leaves that out.
        looks: What live tests showed, by experiment id.
    """
    about = None if run is None else run_as_json(run)
    lines = []
    for row in experiments:
        if row.outcome is None:
            continue
        record = row.model_dump(mode="json")
        record["measurements"] = [m.model_dump(mode="json") for m in measurements.get(row.id, ())]
        record["looks"] = [look.model_dump(mode="json") for look in (looks or {}).get(row.id, ())]
        if about is not None:
            record["run"] = about
        lines.append(json.dumps(_as_it_was(record, row), ensure_ascii=False, sort_keys=True))
    return "".join(f"{line}\n" for line in lines)


RUN_KEYS = (
    "adapter", "adapter_distribution", "adapter_version", "metric", "policy", "policy_parameters", "proposer", "model",
    "seed", "budget_seconds", "device", "stop_reason", "baseline_commit", "evaluator_fingerprint", "noise_sd",
    "noise_dof", "created", "ended",
)  # fmt: skip
"""What each of our JSON lines says of its run."""


def run_as_json(run: Run) -> dict[str, Any] | None:
    """Return what JSON lines say of a run; of one that was imported from them what they said, None if nothing."""
    if run.adapter == IMPORT_ADAPTER and run.options.get("format") == "jsonl":
        found = run.options.get("run")
        return found if isinstance(found, dict) else None
    record = run.model_dump(mode="json")
    return {key: record[key] for key in RUN_KEYS}


def _as_it_was(record: dict[str, Any], row: Experiment) -> dict[str, Any]:
    """Return the record of an imported experiment as its file had it: numbers of rows are another ledger's there."""
    kept = imported(row)
    if not kept:
        return record
    details = {key: value for key, value in record["details"].items() if key != IMPORTED}
    unknown = dict.fromkeys(kept.get("unmeasured", ()))
    record = {**record, "details": details, **unknown, **kept.get("columns", {})}
    for name in ("measurements", "looks"):
        for found, columns in zip(record[name], kept.get(name, ()), strict=False):
            found.update(columns)
    for name in kept.get("without", ()):
        record.pop(name, None)
    return record


# ---- CSV

_CSV_COLUMNS = (
    "number", "parent_number", "outcome", "category", "hypothesis", "value", "effect", "effect_low", "effect_high",
    "p_better", "reason", "kept_commit", "candidate_commit", "usd", "tokens", "seconds", "started", "ended",
)  # fmt: skip


def as_csv(
    experiments: Sequence[Experiment], measurements: Measurements | None = None, metric: Metric | None = None
) -> str:
    """Return a table with a header line; texts are quoted where they need it.

    `values` are the candidate's undisturbed measurements, separated by blanks.
    """
    lines = [_csv_line([*_CSV_COLUMNS, "values", "metric", "unit", "direction"])]
    name = [metric.name, metric.unit, metric.direction.value] if metric is not None else ["", "", ""]
    for row in experiments:
        if row.outcome is not None:
            values = [repr(m.value) for m in _judged((measurements or {}).get(row.id, ()))]
            unknown = imported(row).get("unmeasured", ())
            cells = [None if column in unknown else getattr(row, column) for column in _CSV_COLUMNS]
            lines.append(_csv_line([_cell(cell) for cell in [*cells, " ".join(values), *name]]))
    return "".join(lines)


def _csv_line(cells: Sequence[object]) -> str:
    # Ended by CRLF the writer quotes cells that hold either of the two; by LF alone it leaves a CR bare, which ends the
    # line for whoever reads it.
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\r\n").writerow(cells)
    return buffer.getvalue().removesuffix("\r\n") + "\n"


def _judged(measurements: Sequence[MeasurementRow]) -> list[MeasurementRow]:
    """Return the measurements of the candidate that its decision was made on."""
    return [m for m in undisturbed(measurements) if m.arm == "treatment" and m.split == Split.SEARCH.value]


_FORMULA = ("=", "+", "-", "@")


def _cell(value: object) -> object:
    """Return a cell that a spreadsheet shows as text even where it looks like a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return "" if value is None else value


def text_of_cell(cell: str) -> str:
    """Return the text that `as_csv` wrote into a cell."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


# ---- The log of pi-autoresearch

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

PI_VERDICT = ("category", "outcome", "reason", "effect", "effect_low", "effect_high", "p_better")
"""What of an experiment stands under `asi` in pi's log, which is free for notes."""

PI_STATUS = {Outcome.KEPT.value: "keep", Outcome.CRASHED.value: "crash", Outcome.INVALID.value: "checks_failed"}


def as_pi(run: Run, experiments: Sequence[Experiment], measurements: Measurements) -> str:
    """Return the log of pi-autoresearch (`.auto/log.jsonl`): a configuration, then one object a finished experiment.

    A value that was not measured has no key `metric`. pi numbers its runs from 1, the baseline being the first.
    """
    metric = run.metric
    better = "lower" if metric["direction"] == Direction.MINIMIZE.value else "higher"
    name = run.options.get("name", run.id) if run.adapter == IMPORT_ADAPTER else run.id
    lines: list[dict[str, Any]] = [
        {
            "type": "config",
            "name": name,
            "metricName": metric["name"],
            "metricUnit": metric["unit"],
            "bestDirection": better,
        }
    ]
    lines += [_pi_entry(row, measurements.get(row.id, ())) for row in experiments if row.outcome is not None]
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)


def _pi_entry(row: Experiment, measurements: Sequence[MeasurementRow]) -> dict[str, Any]:
    commit = (row.kept_commit or row.candidate_commit or "")[:7]
    notes = {name: getattr(row, name) for name in PI_VERDICT if getattr(row, name) not in (None, "")}
    return {
        "run": row.number + 1,
        "commit": commit,
        **({} if row.value is None else {"metric": row.value}),
        "metrics": imported(row).get("metrics") or _means(_judged(measurements)),
        "status": PI_STATUS.get(row.outcome or "", "discard"),
        "description": row.hypothesis,
        "timestamp": ((row.ended or row.started) - EPOCH) // timedelta(milliseconds=1),
        "segment": 0,
        "confidence": None,
        "asi": {**{name: value for name, value in row.details.items() if name != IMPORTED}, **notes},
    }


def _means(measurements: Sequence[MeasurementRow]) -> dict[str, float]:
    """Return the mean of every secondary number that all of the measurements have."""
    if not measurements:
        return {}
    names = [name for name in measurements[0].secondary if all(name in m.secondary for m in measurements)]
    return {name: math.fsum(m.secondary[name] for m in measurements) / len(measurements) for name in names}


def write_by_rename(path: Path, text: str) -> None:
    """Write a text so that a reader sees the old one or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
