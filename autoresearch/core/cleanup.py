"""What a workspace may do without: what can be made again from ledger and repository, and what nobody wants any more.

Never touched: the ledger, the kept steps, baseline and incumbent with their folders, the logs, what an experiment in
flight needs, and everything outside the workspace's own folder and refs.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from autoresearch.core.errors import EnvironmentNotReadyError
from autoresearch.core.ledger import IMPORT_ADAPTER, Experiment, Ledger, Run
from autoresearch.core.memory import incumbent_of
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout

_LAID_OUT = ("scratch-*", "artifact-*", "incumbent")
"""In an experiment's folder: scratch folders, and copies of artifacts, which git holds."""


@dataclass(frozen=True, slots=True)
class Removable:
    """What may go.

    Attributes:
        folders: Folders and files below the workspace's own, with the bytes in each.
        refs: Run -> number -> commit of rejected candidates whose refs may go.
        threads: Checkpoints that nobody will resume, by name.
        kept_back: Sentences on what was asked for and stays all the same.
    """

    folders: tuple[tuple[Path, int], ...]
    refs: dict[str, dict[int, str]]
    threads: tuple[str, ...]
    kept_back: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes in the folders."""
        return sum(size for _, size in self.folders)

    @property
    def n_refs(self) -> int:
        """Number of refs of all runs."""
        return sum(len(found) for found in self.refs.values())


def removable(
    layout: Layout,
    ledger: Ledger,
    *,
    now: datetime,
    older_than_days: float | None = None,
    keep_last: int | None = None,
) -> Removable:
    """Find what may go; nothing is changed.

    Args:
        layout: The workspace.
        ledger: Its ledger.
        now: The moment that ages are counted to.
        older_than_days: Refs of rejected candidates that ended longer ago may go; None: age is no reason to.
        keep_last: Refs of rejected candidates beyond the last so many of each run may go; None: number is no reason to.
            Where both are given, a ref goes only if both say so.
    """
    runs = [run for run in ledger.runs() if run.adapter != IMPORT_ADAPTER]  # those have neither refs nor folders
    going_on = {run.adapter: run.id for run in runs}  # only the last run of an adapter is ever resumed
    experiments = {run.id: ledger.experiments(run.id) for run in runs}
    live = {(run_id, row.number) for run_id in going_on.values() for row in experiments[run_id] if row.outcome is None}
    refs, kept_back = {}, []
    if older_than_days is not None or keep_last is not None:
        store = Store.open(layout.root)
        before = None if older_than_days is None else now - timedelta(days=older_than_days)
        for run in runs:
            sentence = _needs_its_refs(store, run, experiments[run.id])
            if sentence is not None:
                kept_back.append(sentence)
                continue
            found = _old_refs(store.rejected(run.id), experiments[run.id], before, keep_last)
            if found:
                refs[run.id] = found
    return Removable(
        folders=tuple((path, _size(path)) for path in _folders(layout, runs, experiments, live)),
        refs=refs,
        threads=tuple(_old_threads(layout, live)),
        kept_back=tuple(kept_back),
    )


def remove(layout: Layout, found: Removable) -> None:
    """Remove what was found; the caller holds the workspace's lock. What is gone already is fine.

    Raises:
        EnvironmentNotReadyError: If something cannot be removed.
    """
    try:
        for path, _ in found.folders:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{error.filename} cannot be removed: {error.strerror}.\nMake it yours, then give the command again."
        ) from error
    if found.refs:
        store = Store.open(layout.root)
        for run_id, rejected in found.refs.items():
            store.forget(run_id, rejected)
    _drop_threads(layout, found.threads)


def _folders(
    layout: Layout, runs: Sequence[Run], experiments: dict[str, list[Experiment]], live: set[tuple[str, int]]
) -> Iterator[Path]:
    for run in runs:
        incumbent = incumbent_of(experiments[run.id])
        # What people are shown in a live test may be served from the folder of the incumbent or of the baseline.
        shown = {0} if incumbent is None else {0, incumbent.number}
        for row in experiments[run.id]:
            if (run.id, row.number) in live or row.number in shown:
                continue
            for pattern in _LAID_OUT:
                yield from sorted(layout.experiment(run.id, row.number).glob(pattern))
        for name in ("artifact", "scratch"):
            left = layout.state / "fresh" / run.id / name  # of a confirmation that was killed
            if left.exists():
                yield left


def _needs_its_refs(store: Store, run: Run, experiments: Sequence[Experiment]) -> str | None:
    """Return why no ref of a run may go: without its branch they are all that leads to the kept steps."""
    incumbent = incumbent_of(experiments)
    if incumbent is None or store.head(run.id) == incumbent.kept_commit:
        return None
    return (
        f"The refs of run {run.id} stay: its branch autoresearch/{run.id} is gone or was moved, and without it they "
        "may be all that holds the kept steps."
    )


def _old_refs(
    rejected: dict[int, str], experiments: Sequence[Experiment], before: datetime | None, keep_last: int | None
) -> dict[int, str]:
    ended = {row.number: row.ended for row in experiments if row.outcome is not None and row.number > 0}
    order = sorted(number for number in rejected if number in ended)
    beyond = set(order if keep_last is None else order[: max(0, len(order) - keep_last)])
    found = {}
    for number in order:
        end = ended[number]
        if number in beyond and (before is None or (end is not None and end < before)):
            found[number] = rejected[number]
    return found


def _old_threads(layout: Layout, live: set[tuple[str, int]]) -> list[str]:
    if not layout.checkpoints.is_file():
        return []
    wanted = {f"{run_id}/{number}" for run_id, number in live}
    try:
        with closing(sqlite3.connect(f"{layout.checkpoints.as_uri()}?mode=ro", uri=True)) as connection:
            names = [row[0] for row in connection.execute("SELECT DISTINCT thread_id FROM checkpoints")]
    except sqlite3.Error:
        return []  # damaged or without tables: the next run makes it anew
    return sorted(name for name in names if name not in wanted)


def _drop_threads(layout: Layout, threads: Sequence[str]) -> None:
    if not threads:
        return
    with closing(sqlite3.connect(layout.checkpoints)) as connection:
        with connection:
            for table in ("checkpoints", "writes"):
                connection.executemany(f"DELETE FROM {table} WHERE thread_id = ?", [(name,) for name in threads])
        connection.execute("VACUUM")


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; links count as nothing."""
    if path.is_symlink():
        return 0
    if path.is_file():
        return path.stat().st_size
    return sum(_sizes(path.rglob("*")))


def _sizes(paths: Iterable[Path]) -> Iterator[int]:
    for path in paths:
        if path.is_file() and not path.is_symlink():
            yield path.stat().st_size
