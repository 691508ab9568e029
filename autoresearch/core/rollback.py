"""Taking kept steps back: what a person no longer wants, and everything that was built on it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from autoresearch.core import live, memory
from autoresearch.core.adapter import Adapter, LiveAdapter, Outcome, RollsBack, Workspace
from autoresearch.core.errors import UsageError
from autoresearch.core.ledger import Experiment, Ledger, Run
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What was taken back.

    Attributes:
        run: Id of the run.
        numbers: Experiments that are no longer kept, in the order in which they were kept.
        ended: The experiments in flight that stood on them and ended with them.
        incumbent: Number of the experiment that is the incumbent now; 0 is the baseline.
    """

    run: str
    numbers: tuple[int, ...]
    ended: tuple[int, ...]
    incumbent: int


def roll_back(
    layout: Layout, ledger: Ledger, run: Run, number: int | None, adapter: Adapter | LiveAdapter, why: str
) -> RolledBack:
    """Take a kept experiment back, with every later one; the incumbent before it is the incumbent again.

    Their commits stay as refs and their rows say why they are no longer kept. A kill in between is mended by rolling
    back again. The caller holds the workspace's lock.

    Args:
        layout: The workspace.
        ledger: Its ledger.
        run: The run.
        number: The experiment to take back; None: the last kept one.
        adapter: The run's adapter; a live one shows the incumbent at once.
        why: Whose word it is and their reason, for the ledger.

    Raises:
        UsageError: If nothing was kept, or that experiment is not kept.
    """
    rows = ledger.experiments(run.id)
    # In lanes an experiment may be kept after one that began later, and on more than what it was compared with.
    steps = sorted((row for row in rows if row.outcome == Outcome.KEPT.value), key=lambda row: row.sequence or 0)
    first = steps.index(_first([row for row in steps if row.number > 0], number, run))
    gone, back_to = steps[first:], steps[first - 1].kept_commit or ""
    flying = [row for row in rows if row.outcome is None and row.number > 0]
    store = Store.open(layout.root)
    for row in gone:
        store.reject(run.id, row.number, row.kept_commit or "")
    store.keep(run.id, back_to, parent=gone[-1].kept_commit or "")
    _show(layout, store, run, adapter, back_to, flying)
    for row in flying:
        # What it was compared with is not the incumbent any more.
        why_ended = "The incumbent that it was compared with was rolled back."
        ledger.finish_experiment(row.id, outcome=Outcome.INCONCLUSIVE.value, reason=why_ended)
    for row in reversed(gone):
        ledger.take_back(row.id, f"{why} It was kept before: {row.reason}")
    shutil.rmtree(layout.incumbent, ignore_errors=True)  # outputs of an incumbent that is none any more
    incumbent = memory.incumbent_of(ledger.experiments(run.id))
    assert incumbent is not None, "the baseline cannot be taken back"
    return RolledBack(run.id, tuple(row.number for row in gone), tuple(row.number for row in flying), incumbent.number)


def _first(kept: list[Experiment], number: int | None, run: Run) -> Experiment:
    if not kept:
        raise UsageError(f"Run {run.id} has kept nothing, so there is nothing to take back.")
    if number is None:
        return kept[-1]
    for row in kept:
        if row.number == number:
            return row
    raise UsageError(
        f"Experiment {number} of run {run.id} is not kept; kept are {', '.join(str(row.number) for row in kept)}.\n"
        "Name one of these."
    )


def _show(
    layout: Layout, store: Store, run: Run, adapter: Adapter | LiveAdapter, commit: str, flying: list[Experiment]
) -> None:
    """Have a live adapter end every test in flight and show the former incumbent to everybody."""
    if not isinstance(adapter, RollsBack):
        return
    workspace = Workspace(layout.root, dict(run.options))
    with tempfile.TemporaryDirectory(prefix="autoresearch-") as name:
        store.read(commit, adapter.scope.editable).write(Path(name))
        ends: list[str | None] = [live.test_id(row) for row in flying]
        for ended in ends or [None]:
            adapter.roll_back(workspace, Path(name), ended)
