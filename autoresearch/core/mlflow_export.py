"""Writes a run for MLflow, through its own client: at once as a folder with its database, or as the run goes.

MLflow refuses its older layout of plain files since 3.13, and every 3.x opens the database. `mlflow-skinny` writes it,
which is no dependency: its tables are MLflow's business and change with it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from autoresearch.core.adapter import Outcome
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.formats import EPOCH, as_jsonl, imported
from autoresearch.core.ledger import Experiment, LiveLook, MeasurementRow, Run
from autoresearch.core.memory import Measurements
from autoresearch.core.words import clean

DATABASE = "mlflow.db"
LINES = "experiments.jsonl"
"""Our JSON lines beside the database: what `import` reads of such a folder."""

LONGEST = 5_000
"""Characters of a tag; MLflow cuts them at 8,000 bytes or refuses them."""

_AT_ONCE = 900
"""Metrics in one call; MLflow takes 1,000 entities."""


def write_mlflow(
    folder: Path,
    run: Run,
    experiments: Sequence[Experiment],
    measurements: Measurements,
    looks: Mapping[int, Sequence[LiveLook]],
) -> str:
    """Write a run as one MLflow experiment with a run for each finished experiment; return the database's URI.

    The metric is the mean of what was judged; every single measurement stands beside it as `NAME.treatment` or
    `NAME.control`, step by step. A crashed experiment is a failed run without the metric.

    Args:
        folder: New or empty.
        run: The run.
        experiments: Its experiments.
        measurements: By experiment id.
        looks: What live tests showed, by experiment id.

    Raises:
        UsageError: If the folder is not empty.
        EnvironmentNotReadyError: If MLflow is missing or the folder cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or next(folder.iterdir(), None) is not None):
        raise UsageError(f"{folder} is not empty, and nothing is ever written over.\nName a new folder: -o DIR")
    made = client_class()
    uri = f"sqlite:///{folder / DATABASE}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _removed_on_failure(folder), quiet():
            _fill(made(tracking_uri=uri), folder, run, experiments, measurements, looks)
            (folder / LINES).write_text(as_jsonl(experiments, measurements, run, looks), encoding="utf-8")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{folder} cannot be written: {error.strerror}.\nName another folder: -o DIR"
        ) from error
    return uri


def client_class() -> Any:
    """Return MLflow's client, or say that its package is missing."""
    # It would report the use of its functions to its makers over the network.
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise EnvironmentNotReadyError(
            f"MLflow's database is written by MLflow itself, and it cannot be imported: {error}.\n"
            "Install its small package: pip install mlflow-skinny"
        ) from error
    return MlflowClient


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the tables that MLflow makes from being told line by line."""
    loggers = [logging.getLogger(name) for name in ("mlflow", "alembic")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Mirror:
    """One MLflow experiment that bears a run's id, with a run for each experiment; nothing is written twice.

    Args:
        client: MLflow's client.
        run: The run.
        artifacts: Address of the folder where MLflow would keep artifacts; None leaves it to the server.
    """

    def __init__(self, client: Any, run: Run, artifacts: str | None) -> None:
        self._client, self._run = client, run
        known = client.get_experiment_by_name(run.id)
        self._place = known.experiment_id if known is not None else self._made(artifacts)
        self._written = set() if known is None else self._numbers()

    def write(self, row: Experiment, measurements: Sequence[MeasurementRow], looks: Sequence[LiveLook]) -> None:
        """Write a finished experiment, unless it is there."""
        if row.number not in self._written:
            _write_row(self._client, self._place, row, _metrics(self._run, row, measurements, looks))
            self._written.add(row.number)

    def _made(self, artifacts: str | None) -> str:
        run = self._run
        about = {
            "adapter": run.adapter,
            "policy": run.policy,
            "proposer": run.proposer,
            "model": run.model,
            "metric": str(run.metric["name"]),
            "unit": str(run.metric["unit"]),
            "direction": str(run.metric["direction"]),
            "seed": str(run.seed),
        }
        return str(self._client.create_experiment(run.id, artifact_location=artifacts, tags=_named(about)))

    def _numbers(self) -> set[int]:
        """Return the experiments that are there; one that a kill left half written is taken away and written anew."""
        found: set[int] = set()
        page = None
        while True:
            rows = self._client.search_runs([self._place], max_results=1000, page_token=page)
            for row in rows:
                number = row.data.tags.get("autoresearch.number", "")
                if row.info.status == "RUNNING":
                    self._client.delete_run(row.info.run_id)
                elif number.isdecimal():
                    found.add(int(number))
            page = rows.token
            if not page:
                return found


def _fill(
    client: Any,
    folder: Path,
    run: Run,
    experiments: Sequence[Experiment],
    measurements: Measurements,
    looks: Mapping[int, Sequence[LiveLook]],
) -> None:
    mirror = Mirror(client, run, (folder / "artifacts").as_uri())
    for row in experiments:
        if row.outcome is not None:
            mirror.write(row, measurements.get(row.id, ()), looks.get(row.id, ()))


def _write_row(client: Any, place: str, row: Experiment, metrics: Sequence[tuple[str, float, int, int]]) -> None:
    from mlflow.entities import Metric, Param

    name = f"{row.number:04d} {clean(row.hypothesis)[:80]}".strip()
    made = client.create_run(place, start_time=_milliseconds(row.started), tags=_tags(row), run_name=name)
    params = [Param(_key(change["knob"]), change["new"][:LONGEST]) for change in row.changes]
    if params:
        client.log_batch(made.info.run_id, params=list({param.key: param for param in params}.values())[:100])
    entries = [Metric(_key(name), value, at, step) for name, value, at, step in metrics]
    for start in range(0, len(entries), _AT_ONCE):
        client.log_batch(made.info.run_id, metrics=entries[start : start + _AT_ONCE])
    failed = row.outcome in (Outcome.CRASHED.value, Outcome.INVALID.value)
    ended = _milliseconds(row.ended or row.started)
    client.set_terminated(made.info.run_id, status="FAILED" if failed else "FINISHED", end_time=ended)


def _metrics(
    run: Run, row: Experiment, measurements: Sequence[MeasurementRow], looks: Sequence[LiveLook]
) -> list[tuple[str, float, int, int]]:
    """Return (name, value, milliseconds, step) of everything that is a number; what is absent is left out."""
    name, at = str(run.metric["name"]), _milliseconds(row.ended or row.started)
    single = {
        name: row.value,
        **{key: getattr(row, key) for key in ("effect", "effect_low", "effect_high", "p_better", "e_win", "e_lose")},
        "usd": row.usd,
        "tokens": row.tokens,
        "seconds": row.seconds,
    }
    unknown = imported(row).get("unmeasured", ())
    found = [(key, float(value), at, 0) for key, value in single.items() if value is not None and key not in unknown]
    for step, taken in enumerate(measurements):
        moment = _milliseconds(taken.started)
        kind = f"{taken.arm}.disturbed" if taken.disturbed is not None else taken.arm
        found.append((f"{name}.{kind}", taken.value, moment, step))
        if taken.arm == "treatment":
            found += [(key, float(value), moment, step) for key, value in taken.secondary.items() if key != name]
    for look in looks:
        moment = _milliseconds(look.at)
        found += [(f"{look.arm}.{key}", getattr(look, key), moment, look.look) for key in ("n", "total", "total_sq")]
    return found


def _tags(row: Experiment) -> dict[str, str]:
    words = {
        "number": str(row.number),
        "outcome": row.outcome or "",
        "category": row.category,
        "reason": row.reason,
        "parent": "" if row.parent_number is None else str(row.parent_number),
        "commit": row.kept_commit or row.candidate_commit or "",
        "proposer": row.proposer,
        "origin": row.origin,
        "diff": row.diff,
    }
    note = f"{clean(row.hypothesis)}\n\n{clean(row.reason)}".strip()
    return {**_named(words), "mlflow.note.content": note[:LONGEST]}


def _named(words: Mapping[str, str]) -> dict[str, str]:
    return {f"autoresearch.{name}": clean(text, lines=True)[:LONGEST] for name, text in words.items() if text}


def _key(name: str) -> str:
    """Return a name as MLflow takes it for metrics and parameters."""
    return re.sub(r"[^\w.\- :/]", "_", name)[:250].strip("/. ") or "unnamed"


def _milliseconds(moment: datetime) -> int:
    return int((moment - EPOCH).total_seconds() * 1000)
