"""Workspaces in odd places: every repository that git can make, and a machine where git was never set up."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.core.driver import run
from autoresearch.core.ledger import Ledger
from autoresearch.core.store import Store
from tests.core.fakes import FakeProposer, SquareAdapter, make_workspace


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=u", "-c", "user.email=u@example.org", "-c", "commit.gpgsign=false"]
    no_hooks = ["-c", "core.hooksPath=/dev/null"]
    done = subprocess.run(["git", *identity, *no_hooks, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def begun(folder: Path, *how: str) -> Path:
    """Make a repository with a commit, something staged, something changed and something untracked."""
    root = make_workspace(folder)
    git(root, "init", "-q", "-b", "main", *how)
    (root / "other.txt").write_text("one\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    (root / "staged.txt").write_text("staged")
    git(root, "add", "staged.txt")
    (root / "other.txt").write_text("two\n")
    (root / "untracked.txt").write_text("precious")
    return root


def odd_config(tmp_path: Path) -> Path:
    """Signs every commit with a program that fails, has hooks that refuse everything, turns line ends around."""
    root = begun(tmp_path / "w")
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("pre-commit", "commit-msg", "reference-transaction", "post-index-change", "update"):
        (hooks / name).write_text("#!/bin/sh\nexit 1\n")
        (hooks / name).chmod(0o755)
    for key, value in {
        "commit.gpgsign": "true",
        "tag.gpgsign": "true",
        "gpg.program": "/bin/false",
        "core.autocrlf": "true",
        "core.safecrlf": "true",
        "core.hooksPath": str(hooks),
        "core.fsmonitor": "/bin/false",
        "core.logAllRefUpdates": "always",
        "i18n.commitEncoding": "latin1",
        "user.useConfigOnly": "true",
    }.items():
        git(root, "config", key, value)
    (root / ".gitattributes").write_text("*.txt text eol=crlf\n")
    return root


def sha256(tmp_path: Path) -> Path:
    """Objects are named by SHA-256."""
    return begun(tmp_path / "w", "--object-format=sha256")


def detached(tmp_path: Path) -> Path:
    """No branch is checked out."""
    root = begun(tmp_path / "w")
    git(root, "checkout", "-q", "--detach")
    return root


def linked_worktree(tmp_path: Path) -> Path:
    """The workspace is a second working tree of a repository elsewhere."""
    root = begun(tmp_path / "first")
    git(root, "worktree", "add", "-q", str(tmp_path / "second"), "-b", "side")
    (tmp_path / "second" / "untracked.txt").write_text("precious")
    return tmp_path / "second"


def shallow(tmp_path: Path) -> Path:
    """A clone of the last commit alone."""
    origin = begun(tmp_path / "origin")
    git(origin, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "clone")
    (tmp_path / "clone" / "untracked.txt").write_text("precious")
    return tmp_path / "clone"


def unborn(tmp_path: Path) -> Path:
    """A repository without a commit, whose name has blanks and an umlaut."""
    root = make_workspace(tmp_path / "Mein Versuch ü" / "größer kleiner")
    git(root, "init", "-q")
    (root / "staged.txt").write_text("staged")
    git(root, "add", "staged.txt")
    (root / "untracked.txt").write_text("precious")
    return root


def state_of(root: Path) -> dict[str, object]:
    """Return everything that is the user's: index, HEAD, branches but ours, status, and what untracked files hold."""
    return {
        "index": Path(git(root, "rev-parse", "--git-path", "index").strip()),
        "bytes": (root / git(root, "rev-parse", "--git-path", "index").strip()).read_bytes(),
        "head": (root / git(root, "rev-parse", "--git-path", "HEAD").strip()).read_text(),
        "branches": [line for line in git(root, "for-each-ref").splitlines() if "autoresearch/" not in line],
        "stash": git(root, "stash", "list"),
        "untracked": (root / "untracked.txt").read_text(),
    }


@pytest.mark.parametrize("place", [odd_config, sha256, detached, linked_worktree, shallow, unborn])
def test_a_run_is_at_home_in_every_repository(place: Callable[[Path], Path], tmp_path: Path) -> None:
    """Kept steps and rejected candidates are there, and nothing that was the user's has changed by a byte."""
    root = place(tmp_path)
    before = state_of(root)
    (root / "number.txt").write_bytes(b"3\r\n")
    proposer = FakeProposer(["2\r\n", "9\r\n"])
    run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", experiments=2, confirm=False)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        rows = ledger.experiments(ledger.runs()[-1].id)
    assert [row.outcome for row in rows] == ["kept", "kept", "reverted"]
    store = Store.open(root)
    texts = [store.read(row.candidate_commit or "", ("number.txt",)).files["number.txt"] for row in rows]
    assert texts == ["3\r\n", "2\r\n", "9\r\n"]
    store.lay_out(rows[1].kept_commit or "", tmp_path / "out")
    assert (tmp_path / "out" / "number.txt").read_bytes() == b"2\r\n"
    assert state_of(root) == before
    assert git(root, "fsck", "--strict", "--no-dangling") == ""


def test_a_home_that_cannot_be_written_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No home, no identity, no configuration: the run needs none of them."""
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/dev/null/nowhere")
    root = make_workspace(tmp_path / "w")
    proposer = FakeProposer(["2"])
    result = run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", experiments=1, confirm=False)
    assert result.status.kept == 1


def test_an_executable_file_stays_one(tmp_path: Path) -> None:
    """In the commits, and where a candidate is laid out."""
    root = make_workspace(tmp_path / "w")
    (root / "number.txt").chmod(0o755)
    proposer = FakeProposer(["2"])
    run(SquareAdapter(), workspace=root, proposer=proposer, policy="greedy", experiments=1, confirm=False)
    store = Store.open(root)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        kept = ledger.experiments(ledger.runs()[-1].id)[1].kept_commit
    store.lay_out(kept or "", tmp_path / "out")
    assert (tmp_path / "out" / "number.txt").stat().st_mode & 0o111
