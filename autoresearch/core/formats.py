"""Tables that other tools read, written from ledger rows."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoresearch.core.adapter import Outcome
from autoresearch.core.ledger import Experiment, MeasurementRow
from autoresearch.core.memory import Measurements, undisturbed

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
    peak = _peak_memory_gb(measurements)
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


def _peak_memory_gb(measurements: Sequence[MeasurementRow]) -> float:
    """Return the peak memory in GiB; 0.0, as in the original, where nobody measured it."""
    peaks = [m.secondary.get("peak_vram_mb", 0.0) for m in undisturbed(measurements)]
    return max(peaks, default=0.0) / 1024


def as_jsonl(experiments: Sequence[Experiment], measurements: Measurements) -> str:
    """Return one JSON object a line with everything that the ledger holds of each finished experiment."""
    lines = []
    for row in experiments:
        if row.outcome is None:
            continue
        record = row.model_dump(mode="json")
        record["measurements"] = [m.model_dump(mode="json") for m in measurements.get(row.id, ())]
        lines.append(json.dumps(record, ensure_ascii=False, sort_keys=True))
    return "".join(f"{line}\n" for line in lines)


def as_csv(experiments: Sequence[Experiment]) -> str:
    """Return a table with a header line; texts are quoted where they need it."""
    columns = (
        "number", "parent_number", "outcome", "category", "hypothesis", "value", "effect", "effect_low", "effect_high",
        "p_better", "reason", "kept_commit", "candidate_commit", "usd", "tokens", "seconds", "started", "ended",
    )  # fmt: skip
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in experiments:
        if row.outcome is not None:
            writer.writerow([_cell(getattr(row, column)) for column in columns])
    return buffer.getvalue()


def _cell(value: object) -> object:
    """Return a cell that a spreadsheet shows as text even where it looks like a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"
    return "" if value is None else value


def write_by_rename(path: Path, text: str) -> None:
    """Write a text so that a reader sees the old one or the new one, never half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
