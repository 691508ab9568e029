"""Kill it anywhere and run it again: nothing is lost, nothing is there twice."""

from __future__ import annotations

import multiprocessing
import random
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from autoresearch.core.ledger import Experiment, Ledger
from autoresearch.core.store import Store
from tests.core.fakes import make_workspace
from tests.core.killed_run import killed_lanes, killed_run
from tests.core.town import COPY, make_town, rates_of

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.core.killed_run"])

EXPECTED = ["kept", "kept", "reverted", "crashed", "reverted", "invalid", "kept"]
"""Outcomes of the baseline and six experiments of `killed_run`; the fourth is cut early."""

ENDING = 4
"""Steps that write down why the session ended; after the first of them the next `run` rightly begins a new session."""


def in_process(root: Path, kill_at: int | None, experiments: int = 6) -> int:
    return ended(CONTEXT.Process(target=killed_run, args=(str(root), kill_at, experiments)))


def ended(process: multiprocessing.process.BaseProcess) -> int:
    process.start()
    process.join(120)
    assert process.exitcode is not None, "the run hangs"
    return process.exitcode


def check_workspace(root: Path, expected: list[str], kills: int) -> None:
    """Ledger, refs, files and checkpoints agree, and only what was in flight was measured twice."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        run = ledger.runs()[-1]
        assert len(ledger.runs()) == 1
        rows = ledger.experiments(run.id)
        measured = ledger.run_measurements(run.id)
    assert [row.number for row in rows] == list(range(len(expected)))
    assert [row.outcome for row in rows] == expected
    sequences = [row.sequence or 0 for row in rows]
    assert sequences == sorted(set(sequences))
    store = Store.open(root)
    kept = [row for row in rows if row.outcome == "kept"]
    assert store.head(run.id) == kept[-1].kept_commit
    history = git(root, "rev-list", f"autoresearch/{run.id}").split()
    assert history == [row.kept_commit for row in reversed(kept)]
    rejected = git(root, "for-each-ref", "--format=%(refname)", f"refs/autoresearch/{run.id}/0*").split()
    assert len(rejected) == sum(row.outcome != "kept" for row in rows)
    assert git(root, "fsck", "--strict", "--no-dangling") == ""
    table = (root / "results.tsv").read_text().splitlines()
    assert len(table) == 1 + len(expected)
    for row in rows:
        keys = Counter((m.arm, m.repair, m.look, m.attempt) for m in measured.get(row.id, []))
        assert set(keys.values()) <= {1}
        if row.number > 0 and row.value is not None:
            assert sorted(keys) == [("control", 0, 1, 0), ("treatment", 0, 0, 0)]
            laid_out = root / f".autoresearch/experiments/{run.id}/{row.number:04d}/incumbent/number.txt"
            assert laid_out.read_text() == store.read(row.parent_commit, ("number.txt",)).files["number.txt"]
    written = sum(len(found) for found in measured.values())
    without_value = 3 * expected.count("crashed") + sum(
        row.outcome == "invalid" or row.reason.startswith("early") for row in rows
    )
    taken = len((root / "measured.txt").read_text().splitlines())
    assert written + without_value <= taken <= written + without_value + kills
    assert not list((root / ".autoresearch").glob("experiments/*/*/scratch-*"))
    assert (root / ".autoresearch" / "incumbent" / "weights.bin").read_text() == incumbent_text(store, kept[-1])
    assert (root / ".autoresearch" / "checkpoints.db").stat().st_size < 200_000


def incumbent_text(store: Store, row: Experiment) -> str:
    return store.read(row.kept_commit or "", ("number.txt",)).files["number.txt"]


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def test_a_kill_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """SIGKILL before or after a step of kept, reverted, crashed, early and invalid experiments, then one resume."""
    root = make_workspace(tmp_path / "whole")
    assert in_process(root, None) == 0
    check_workspace(root, EXPECTED, kills=0)
    steps = int((root / "steps.txt").read_text())
    assert steps > 100
    # All steps take minutes; others of them are tried here each time, all of them by `make test-all`.
    chosen = random.Random().sample(range(steps - ENDING), 6)
    for kill_at in chosen:
        kill_and_resume(tmp_path / f"killed-{kill_at}", kill_at)


@pytest.mark.slow
def test_a_kill_at_every_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The same at every single step."""
    root = make_workspace(tmp_path / "whole")
    assert in_process(root, None) == 0
    for kill_at in range(int((root / "steps.txt").read_text()) - ENDING):
        kill_and_resume(tmp_path / f"killed-{kill_at}", kill_at)


def kill_and_resume(root: Path, kill_at: int) -> None:
    make_workspace(root)
    assert in_process(root, kill_at) == -9, f"step {kill_at} was not reached"
    assert in_process(root, None) == 0, f"no resume after a kill at step {kill_at}"
    try:
        check_workspace(root, EXPECTED, kills=1)
    except AssertionError as error:
        raise AssertionError(f"after a kill at step {kill_at}: {error}") from error


def test_a_run_killed_again_and_again_still_ends_right(tmp_path: Path) -> None:
    """Kills at random steps over one run; every resume goes a little further."""
    root = make_workspace(tmp_path / "w")
    chance = random.Random()
    kills = 0
    while kills < 8 and in_process(root, chance.randrange(20, 90)) == -9:
        kills += 1
    assert kills > 1
    if kills == 8:
        assert in_process(root, None) == 0
    check_workspace(root, EXPECTED, kills=kills)


@pytest.mark.slow
def test_forty_kills_over_sixty_experiments_change_no_outcome(tmp_path: Path) -> None:
    """At random steps: in the end everything is as in a run that nobody killed."""
    whole = make_workspace(tmp_path / "whole")
    assert in_process(whole, None, 60) == 0
    with Ledger.open(whole / ".autoresearch" / "ledger.db") as ledger:
        rows = ledger.experiments(ledger.runs()[-1].id)
    check_workspace(whole, [row.outcome or "" for row in rows], kills=0)
    root = make_workspace(tmp_path / "killed")
    chance = random.Random()
    # A session needs about ten steps to begin, and sixty experiments have about 3,000.
    for kill in range(40):
        assert in_process(root, chance.randrange(10, 110), 60) == -9, f"ended before kill {kill}"
    assert in_process(root, None, 60) == 0
    check_workspace(root, [row.outcome or "" for row in rows], kills=40)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        again = ledger.experiments(ledger.runs()[-1].id)
    assert [(row.fingerprint, row.value) for row in again] == [(row.fingerprint, row.value) for row in rows]


PAGES = {"a": 0.05, "b": 0.05, "c": 0.05}

EXPECTED_IN_LANES = ["kept", "kept", "inconclusive", "inconclusive", "inconclusive", "kept"]
"""The baseline; two treatments of lane a and two of b, one of c. Then comes the winner of b once more, or twice where a
kill let it be tried again before c was kept."""


def lanes_in_process(root: Path, kill_at: int | None) -> int:
    return ended(CONTEXT.Process(target=killed_lanes, args=(str(root), kill_at)))


def check_lanes(root: Path) -> None:
    """Ledger, refs and what people see agree: one row and at most one commit for each experiment, nothing twice."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        (run,) = ledger.runs()
        rows, looks = ledger.experiments(run.id), ledger.live_looks_of(range(100))
        proposed = [row.number for row in ledger.proposals(run.id)]
    first, again = rows[:6], rows[6:]
    assert [row.outcome for row in first] == EXPECTED_IN_LANES
    assert [(row.lane, row.family) for row in first[1:]] == [("a", 2), ("a", 2), ("b", 2), ("b", 2), ("c", 1)]
    assert [(row.outcome, row.details["again"]) for row in again] in (
        [("kept", 3)],
        [("inconclusive", 3), ("kept", 6)],
    )
    assert proposed == [row.number for row in rows] == list(range(len(rows))), "nothing is proposed twice"
    assert all(len(found) == len({(row.look, row.arm) for row in found}) for found in looks.values())
    kept = sorted((row for row in rows if row.outcome == "kept"), key=lambda row: row.sequence or 0)
    assert [row.number for row in kept] == [0, 1, 5, rows[-1].number]
    history = git(root, "rev-list", f"autoresearch/{run.id}").split()
    assert history == [row.kept_commit for row in reversed(kept)]
    rejected = git(root, "for-each-ref", "--format=%(refname)", f"refs/autoresearch/{run.id}/0*").split()
    assert [int(name[-4:]) for name in rejected] == [row.number for row in rows if row.outcome != "kept"]
    standing = rates_of(Store.open(root).read(history[0], (COPY,)))
    assert standing == {"a": 0.2, "b": 0.3, "c": 0.2}
    assert (root / "everybody.txt").read_text().splitlines()[-1] == str(standing)
    finished = Counter((root / "finished.txt").read_text().splitlines())
    assert sorted(finished) == [f"{row.number:04d} {row.outcome}" for row in rows[1:]]
    assert sum(finished.values()) <= len(finished) + 1, "only what was in flight is finished twice"
    with sqlite3.connect(root / ".autoresearch" / "checkpoints.db") as checkpoints:
        assert checkpoints.execute("SELECT count(*) FROM checkpoints").fetchone() == (0,)


def kill_lanes_and_resume(root: Path, kill_at: int) -> None:
    make_town(root, PAGES)
    assert lanes_in_process(root, kill_at) == -9, f"step {kill_at} was not reached"
    assert lanes_in_process(root, None) == 0, f"no resume after a kill at step {kill_at}"
    try:
        check_lanes(root)
    except AssertionError as error:
        raise AssertionError(f"after a kill at step {kill_at}: {error}") from error


def test_a_kill_among_several_lanes_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """SIGKILL at any step of five treatments in three lanes: one winner is kept, one tried again, one put on top."""
    root = make_town(tmp_path / "whole", PAGES)
    assert lanes_in_process(root, None) == 0
    check_lanes(root)
    steps = int((root / "steps.txt").read_text())
    for kill_at in random.Random().sample(range(steps - ENDING), 3):
        kill_lanes_and_resume(tmp_path / f"killed-{kill_at}", kill_at)


@pytest.mark.slow
def test_a_kill_at_every_step_of_several_lanes_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """The same at every single step."""
    root = make_town(tmp_path / "whole", PAGES)
    assert lanes_in_process(root, None) == 0
    for kill_at in range(int((root / "steps.txt").read_text()) - ENDING):
        kill_lanes_and_resume(tmp_path / f"killed-{kill_at}", kill_at)
