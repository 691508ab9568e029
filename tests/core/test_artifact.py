"""What can be said about an artifact without running it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core import Artifact, Scope, UsageError
from autoresearch.core.artifact import in_scope, out_of_scope

TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r"), max_size=40)


def test_reading_takes_what_the_globs_match(tmp_path: Path) -> None:
    """Folders that belong to git and to us are never part of an artifact."""
    for name in ("train.py", "src/a.py", "src/deep/b.py", "notes.md", ".autoresearch/x.py", ".git/y.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found = Artifact.read(tmp_path, ["*.py", "**/*.py"])
    assert list(found.files) == ["src/a.py", "src/deep/b.py", "train.py"]
    assert list(Artifact.read(tmp_path, ["src/**"]).files) == ["src/a.py", "src/deep/b.py"]


def test_line_ends_survive_reading_and_writing(tmp_path: Path) -> None:
    """An artifact is copied byte for byte."""
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo\nthree\r")
    Artifact.read(tmp_path, ["a.txt"]).write(tmp_path / "copy")
    assert (tmp_path / "copy" / "a.txt").read_bytes() == b"one\r\ntwo\nthree\r"


def test_a_link_out_of_the_workspace_is_refused(tmp_path: Path) -> None:
    """An artifact that lies elsewhere could be changed behind the loop's back."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a.txt").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(UsageError, match=r"a\.txt is a link"):
        Artifact.read(tmp_path / "w", ["*.txt"])


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """The message names the file and the byte."""
    (tmp_path / "a.txt").write_bytes(b"ab\xff")
    with pytest.raises(UsageError, match=r"a\.txt is not UTF-8 text \(byte 2\)"):
        Artifact.read(tmp_path, ["*.txt"])


@given(st.dictionaries(st.sampled_from(["a", "b", "c/d"]), TEXTS), st.dictionaries(st.sampled_from(["a", "b"]), TEXTS))
def test_fingerprints_differ_exactly_when_artifacts_do(first: dict[str, str], second: dict[str, str]) -> None:
    """Equal artifacts, and only they, share a fingerprint."""
    one, two = Artifact(first), Artifact(second)
    assert (one.fingerprint == two.fingerprint) == (first == second)


def test_a_diff_can_be_applied_by_git(tmp_path: Path) -> None:
    """The diff is a real patch: changed, new and removed files, with and without a newline at the end."""
    before = Artifact({"a.txt": "one\ntwo\nthree", "b.txt": "gone\n"})
    after = Artifact({"a.txt": "one\n2\nthree\n", "c/d.txt": "new"})
    before.write(tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply"], cwd=tmp_path, input=before.diff(after), text=True, check=True)
    assert Artifact.read(tmp_path, ["*.txt", "c/*.txt"]) == after


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("train.py", True),
        ("src/deep/x.py", True),
        ("src/x.txt", False),
        ("../train.py", False),
        ("src/../../x.py", False),
        ("/train.py", False),
        (".git/hooks/x.py", False),
        ("sub/train.py", False),
    ],
)
def test_scope_is_kept(path: str, inside: bool) -> None:
    """Paths that climb out, are absolute or belong to git are never in scope."""
    assert in_scope(path, ("train.py", "src/**/*.py")) is inside


def test_changes_outside_the_scope_are_found() -> None:
    """Added, changed and removed files count alike."""
    before = Artifact({"train.py": "1", "prepare.py": "2", "old.py": "3"})
    after = Artifact({"train.py": "9", "prepare.py": "8", "new.py": "7"})
    assert out_of_scope(before, after, Scope(("train.py",))) == ("new.py", "old.py", "prepare.py")
