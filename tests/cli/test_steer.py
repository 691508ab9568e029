"""Steering a run at work from outside, and the clear word where none is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoresearch.core.driver import RunResult
from autoresearch.core.ledger import Ledger
from tests.cli.conftest import invoke
from tests.cli.filling import make_workspace, work

SECONDS = 20.0


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; fail when it does not within a while."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


@contextmanager
def at_work(root: Path, steps: list[tuple[str, str]], **choices: object) -> Iterator[list[RunResult]]:
    """Run in a thread; the list holds the result once the run ended."""
    results: list[RunResult] = []
    thread = threading.Thread(target=lambda: results.append(work(make_workspace(root), steps, **choices)))
    thread.start()
    try:
        yield results
    finally:
        thread.join(SECONDS)
        assert not thread.is_alive()


def waits_for(root: Path, number: int) -> Callable[[], bool]:
    """Return whether experiment `number` is in flight."""

    def holds() -> bool:
        path = root / ".autoresearch" / "ledger.db"
        if not path.is_file() or "experiment" not in invoke("status", "-w", root).stdout:
            return False
        return f"experiment {number}," in invoke("status", "-w", root).stdout

    return holds


@pytest.mark.parametrize(
    "arguments", [["pause"], ["resume"], ["stop"], ["approve", "1"], ["reject", "1"]], ids=" ".join
)
def test_without_a_run_at_work_there_is_nobody_to_tell(filled: Path, arguments: list[str]) -> None:
    """A command to a run that nobody works on fails with what to do, and leaves no message for a later session."""
    result = invoke(*arguments, "-w", filled)
    assert result.exit_code == 1
    assert f"nobody to {arguments[0]}" in result.stderr and "autoresearch run -w" in result.stderr
    with Ledger.open(filled / ".autoresearch" / "ledger.db") as ledger:
        assert [row for row in ledger.pending(ledger.runs()[0].id) if row.command != "note"] == []


def test_a_note_waits_for_the_next_session(tmp_path: Path) -> None:
    """A note needs no run at work: it is kept for the proposer."""
    root = make_workspace(tmp_path / "w")
    work(root, [], experiments=0)
    result = invoke("note", "Try small numbers.", "-w", root)
    assert result.exit_code == 0 and "when the run goes on" in result.stdout
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        assert ledger.notes(ledger.runs()[0].id) == ["Try small numbers."]


def test_approve_and_reject_answer_the_experiment_that_waits(tmp_path: Path) -> None:
    """A waiting experiment is shown by status and measured or reverted as told; others are refused with the reason."""
    root = tmp_path / "w"
    with at_work(root, [("Halve it.", "4"), ("Halve again.", "2")], approve=True, experiments=2) as results:
        until(waits_for(root, 1))
        wrong = invoke("approve", "7", "-w", root)
        assert wrong.exit_code == 1 and "it has not begun" in wrong.stderr
        assert "it is kept" in invoke("approve", "0", "-w", root).stderr
        assert invoke("approve", "1", "-w", root).stdout.endswith("to approve experiment 1.\n")
        until(waits_for(root, 2))
        assert invoke("reject", "2", "-w", root).exit_code == 0
    assert (results[0].status.kept, results[0].status.reverted) == (1, 1)


def test_pause_resume_and_stop(tmp_path: Path) -> None:
    """A paused run says so and goes on when told; a stopped one ends with that reason."""
    root = tmp_path / "w"
    steps = [("Halve it.", "4"), ("Halve again.", "2"), ("And again.", "1")]
    with at_work(root, steps, approve=True, experiments=3) as results:
        until(waits_for(root, 1))
        assert invoke("pause", "-w", root).stdout.endswith("It pauses after the experiment in progress.\n")
        invoke("approve", "1", "-w", root)
        until(lambda: "paused; go on with autoresearch resume" in invoke("status", "-w", root).stdout)
        assert invoke("resume", "-w", root).exit_code == 0
        until(waits_for(root, 2))
        assert "experiment 2, numbers: Halve again." in invoke("status", "-w", root).stdout
        invoke("stop", "-w", root)
    assert results[0].status.experiments == 1
    assert results[0].status.state == "stopped"
