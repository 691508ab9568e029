"""`autoresearch gc`: what can be made again goes, and nothing else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from autoresearch.core import lock
from autoresearch.core.ledger import Experiment, Ledger
from autoresearch.core.workspace import Layout
from tests.cli.conftest import invoke
from tests.cli.filling import fill, make_workspace, work
from tests.json_docs import as_documented


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with a kept, a crashed and a reverted experiment."""
    return fill(tmp_path / "w")


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def refs(root: Path) -> list[str]:
    return git(root, "for-each-ref", "--format=%(refname)").split()


def everything(root: Path) -> dict[str, bytes]:
    """Return path -> content of every file of a workspace but the databases' own and the lock's."""
    own = (".autoresearch/checkpoints.db", ".autoresearch/ledger.db", ".autoresearch/lock", ".git/")
    return {
        name: path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not (name := path.relative_to(root).as_posix()).startswith(own)
    }


def rows(root: Path) -> list[Experiment]:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        return ledger.experiments(ledger.runs()[-1].id)


def test_what_git_holds_too_goes_and_everything_else_stays(root: Path) -> None:
    """Copies of artifacts of finished experiments, leftovers of kills; logs, results and the user's files stay."""
    (root / "mine.txt").write_text("mine")
    folder = next(root.glob(".autoresearch/experiments/*/0002"))
    (folder / "scratch-0-0-treatment").mkdir()
    (folder / "scratch-0-0-treatment" / "weights.bin").write_bytes(bytes(200_000))
    before, refs_before, rows_before = everything(root), refs(root), [row.model_dump() for row in rows(root)]
    told = invoke("gc", "-w", root, "--dry-run")
    assert everything(root) == before, "a dry run removes nothing"
    assert "scratch-0-0-treatment  0.2 MB" in told.stdout and "Would remove" in told.stdout.splitlines()[-1]
    done = json.loads(invoke("gc", "-w", root, "--json").stdout)
    gone = set(before) - set(everything(root))
    assert gone and all("/artifact-" in name or "/scratch-" in name for name in gone)
    assert {name.split("/")[3] for name in gone} == {"0002", "0003"}, "baseline and incumbent stay"
    assert done["removed"] is True and done["bytes"] == sum(len(before[name]) for name in gone)
    assert refs(root) == refs_before and [row.model_dump() for row in rows(root)] == rows_before
    assert invoke("gc", "-w", root).stdout.startswith("Removed 0 folders, 0 refs of rejected candidates, 0 checkpoints")
    work(root, [("Go on.", "3")], experiments=1)
    assert rows(root)[-1].outcome == "kept", "the run goes on as if nothing had been"


def test_rejected_candidates_go_only_where_asked(root: Path) -> None:
    """By number, by age, or both; kept steps, the branch and the baseline never."""
    assert invoke("gc", "-w", root, "--older-than", "1").exit_code == 0
    assert sum("/0" in ref for ref in refs(root)) == 2, "nothing is a day old"
    assert invoke("gc", "-w", root, "--older-than", "1", "--keep-last", "0").exit_code == 0
    assert sum("/0" in ref for ref in refs(root)) == 2, "a ref must meet both"
    found = as_documented("gc", invoke("gc", "-w", root, "--keep-last", "1", "--dry-run", "--json").stdout)
    assert [ref["number"] for ref in found["refs"]] == [2]
    invoke("gc", "-w", root, "--keep-last", "1")
    run = rows(root)[0].run_id
    assert refs(root) == [
        f"refs/autoresearch/{run}/0003",
        f"refs/autoresearch/{run}/baseline",
        f"refs/heads/autoresearch/{run}",
    ]
    invoke("gc", "-w", root, "--older-than", "0")
    assert len(refs(root)) == 2
    assert git(root, "fsck", "--strict", "--no-dangling") == ""
    assert "\n+5\n" in invoke("show", "3", "--diff", "-w", root).stdout, "the ledger keeps the diff"


def test_refs_stay_where_the_branch_is_gone(root: Path) -> None:
    """A rejected candidate's parents are the kept steps: without the branch its ref may be all that holds them."""
    run = rows(root)[0].run_id
    git(root, "update-ref", "-d", f"refs/heads/autoresearch/{run}")
    result = invoke("gc", "-w", root, "--keep-last", "0")
    assert f"The refs of run {run} stay" in result.stdout
    assert sum("/0" in ref for ref in refs(root)) == 2


def test_an_experiment_in_flight_keeps_what_it_needs(tmp_path: Path) -> None:
    """Its folder and its checkpoint stay; those of a run that nobody can go on with go."""
    root = make_workspace(tmp_path / "w")
    interrupted = [("Stop here.", "4"), ("Never asked.", "3")]
    for new in (False, True):
        with pytest.raises(RuntimeError):
            work(root, [*interrupted[:1], RuntimeError("pulled the plug")], experiments=2, new=new)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        old, latest = (run.id for run in ledger.runs())
        for run in (old, latest):
            begun = ledger.experiment(run, 1)
            assert begun is not None
            ledger.begin_experiment(Experiment(run_id=run, number=2, session_id=begun.session_id))
    for run in (old, latest):
        (root / ".autoresearch" / "experiments" / run / "0002" / "artifact-0").mkdir(parents=True)
    found = json.loads(invoke("gc", "-w", root, "--json").stdout)
    assert found["checkpoints"] == [f"{old}/2"]
    assert f".autoresearch/experiments/{old}/0002/artifact-0" in [folder["path"] for folder in found["folders"]]
    assert (root / ".autoresearch" / "experiments" / latest / "0002" / "artifact-0").is_dir()


def test_a_run_at_work_is_left_alone(root: Path) -> None:
    """Refused, naming the process; nothing goes."""
    before = everything(root)
    layout = Layout(root)
    with lock.held(layout):
        result = invoke("gc", "-w", root)
        held = everything(root)
    assert result.exit_code == 1 and "Another run is at work" in result.stderr
    held.pop(".autoresearch/owner.json")
    assert held == before


def test_a_link_is_removed_and_what_it_points_to_stays(root: Path, tmp_path: Path) -> None:
    """A folder that a candidate turned into a link leads nowhere."""
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_text("precious")
    link = next(root.glob(".autoresearch/experiments/*/0003")) / "artifact-9"
    link.symlink_to(outside, target_is_directory=True)
    assert invoke("gc", "-w", root).exit_code == 0
    assert not link.is_symlink() and (outside / "file").read_text() == "precious"
