"""`autoresearch checkout`: the artifact of an experiment, never over anything."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import invoke
from tests.cli.filling import fill


@pytest.mark.parametrize(
    ("which", "text", "said"),
    [
        ("best", "4\n", "Wrote experiment 1 (kept)"),
        ("1", "4\n", "Wrote experiment 1 (kept)"),
        ("2", "c\n", "Wrote experiment 2 (crashed)"),
        ("3", "5\n", "Wrote experiment 3 (reverted)"),
        ("baseline", "8\n", "Wrote the baseline (kept)"),
    ],
)
def test_every_artifact_can_be_had(filled: Path, tmp_path: Path, which: str, text: str, said: str) -> None:
    """Kept or not, by number or by name; a folder that is not there is made, parents included."""
    folder = tmp_path / "deep" / "out"
    result = invoke("checkout", which, folder, "-w", filled)
    assert result.exit_code == 0 and result.stdout.startswith(said), result.output
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"number.txt": text}
    assert [path.name for path in folder.parent.iterdir()] == ["out"], "nothing is left beside it"


def test_json_says_what_was_written(filled: Path, tmp_path: Path) -> None:
    """Run, number, commit, folder and files; an empty folder will do."""
    result = invoke("checkout", "1", tmp_path, "-w", filled, "--json")
    about = json.loads(result.stdout)
    assert (about["number"], about["folder"], about["files"]) == (1, str(tmp_path), ["number.txt"])
    assert len(about["commit"]) == 40


def test_nothing_is_ever_written_over(filled: Path, tmp_path: Path) -> None:
    """A file, a link, a folder that holds anything at all: refused, and left as it was."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".hidden").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "full"):
        result = invoke("checkout", "1", tmp_path / name, "-w", filled)
        assert result.exit_code == 1 and "Name a new or an empty" in result.stderr
    assert (tmp_path / "file").read_text() == (tmp_path / "full" / ".hidden").read_text() == "mine"
    assert not (tmp_path / "full" / "number.txt").exists()


def test_the_workspace_is_no_place_for_it(filled: Path, tmp_path: Path) -> None:
    """Neither by its path nor through a link."""
    (tmp_path / "link").symlink_to(filled)
    for folder in (filled / "out", filled / ".autoresearch" / "out", tmp_path / "link" / "out", filled):
        result = invoke("checkout", "1", folder, "-w", filled)
        assert result.exit_code == 1 and "lies in the workspace" in result.stderr
        assert not (filled / "out").exists()


def test_an_artifact_that_git_has_collected_is_said_to_be_gone(tmp_path: Path) -> None:
    """Its ref was removed and the repository cleaned; the diff is still to be had."""
    root = fill(tmp_path / "w")
    invoke("gc", "-w", root, "--keep-last", "0")
    assert invoke("checkout", "3", tmp_path / "still", "-w", root).exit_code == 0, "git has not collected it yet"
    subprocess.run(["git", "gc", "-q", "--prune=now"], cwd=root, check=True)
    result = invoke("checkout", "3", tmp_path / "gone", "-w", root)
    assert result.exit_code == 1 and "git has collected it" in result.stderr
    assert f"autoresearch show 3 --diff -w {root}" in result.stderr
    assert invoke("checkout", "best", tmp_path / "best", "-w", root).exit_code == 0
