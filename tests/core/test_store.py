"""The store, on real git repositories."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoresearch.core.artifact import Artifact
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, UsageError
from autoresearch.core.store import Store

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FIRST = Artifact({"train.py": "depth = 2\n"})
SECOND = Artifact({"train.py": "depth = 3\n"})
THIRD = Artifact({"train.py": "depth = 4\n"})


def git(folder: Path, *arguments: str) -> str:
    finished = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.fixture(autouse=True)
def no_identity(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git find neither a name nor a configuration of the machine."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with an artifact and no repository, with a name that needs care."""
    folder = tmp_path / "Läufe und Äpfel"
    folder.mkdir()
    FIRST.write(folder)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A user's repository with history, whose checkout is dirty in every way."""
    folder = tmp_path / "their project"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "config", "user.name", "Somebody")
    git(folder, "config", "user.email", "somebody@example.org")
    (folder / "train.py").write_text("depth = 1\n")
    (folder / "README.md").write_text("theirs\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Their first commit")
    git(folder, "branch", "other")
    (folder / "train.py").write_text("depth = 2\n")
    (folder / "README.md").write_text("theirs, staged\n")
    git(folder, "add", "README.md")
    (folder / "README.md").write_text("theirs, changed after staging\n")
    (folder / "untracked.txt").write_text("precious\n")
    return folder


def state_of(folder: Path) -> dict[str, object]:
    """Everything a user can see of a repository, the store's own refs excepted."""
    refs = git(folder, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    files = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts]
    inside = [path.relative_to(folder / ".git") for path in (folder / ".git").rglob("*") if path.is_file()]
    return {
        "index": (folder / ".git/index").read_bytes(),
        "config": (folder / ".git/config").read_bytes(),
        "head": (folder / ".git/HEAD").read_bytes(),
        "files": {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files},
        "modes": {path: path.stat().st_mode for path in files},
        "times": {path: path.stat().st_mtime_ns for path in files},
        "refs": [ref for ref in refs if "autoresearch/" not in ref],
        "inside": {path for path in inside if path.parts[0] not in ("objects", "refs", "logs")},
        "status": git(folder, "--no-optional-locks", "status", "--porcelain=v2", "--branch"),
    }


def test_repository_is_made_where_there_is_none(workspace: Path):
    """A workspace outside any repository gets one of its own, and opening it again changes nothing."""
    first = Store.open(workspace)
    assert (workspace / ".git").is_dir()
    assert Store.open(workspace) == first
    assert first.prefix == ""


def test_whole_run_without_identity_or_history(workspace: Path):
    """Baseline, kept and rejected steps work in a fresh repository on a machine without a git identity."""
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(SECOND, parent=baseline, message="Deepen the model", at=AT)
    store.keep("r1", kept, parent=baseline)
    rejected = store.commit(THIRD, parent=kept, message="Deepen it again", at=AT)
    store.reject("r1", 2, rejected)
    assert store.head("r1") == kept
    assert store.read(kept, ["*.py"]) == SECOND
    assert git(workspace, "rev-parse", "refs/autoresearch/r1/0002") == rejected
    assert git(workspace, "log", "--format=%s", "autoresearch/r1").splitlines() == [
        "Deepen the model",
        "Begin autoresearch run r1",
    ]
    assert git(workspace, "fsck", "--strict") == ""


def test_users_repository_is_left_alone(repository: Path):
    """Checkout, staging area, untracked files, branches and settings are byte for byte as before."""
    before = state_of(repository)
    store = Store.open(repository)
    baseline = store.baseline("r1", Artifact.read(repository, ["*.py"]), at=AT)
    kept = store.commit(THIRD, parent=baseline, message="Deepen", at=AT)
    store.keep("r1", kept, parent=baseline)
    store.reject("r1", 2, store.commit(SECOND, parent=kept, message="Flatten", at=AT))
    store.read(kept, ["*.py"])
    assert state_of(repository) == before
    assert git(repository, "fsck", "--strict") == ""


def test_steps_change_only_the_artifact(repository: Path):
    """What was committed besides the artifact is in every step as committed, dirty or not."""
    store = Store.open(repository)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(THIRD, parent=baseline, message="Deepen", at=AT)
    assert git(repository, "show", f"{kept}:README.md") == "theirs"
    assert git(repository, "diff", "--name-only", "main", kept) == "train.py"
    assert git(repository, "rev-parse", f"{baseline}^") == git(repository, "rev-parse", "main")


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_folder_around_the_workspace_whose_name_is_no_utf8(repository: Path):
    """A folder that an older system named in Latin-1 is in every step as it is called."""
    name = os.fsdecode(b"l\xe4ufe")
    (repository / name).mkdir()
    store = Store.open(repository / name)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(SECOND, parent=baseline, message="Deepen", at=AT)
    assert store.read(kept, ["*.py"]) == SECOND
    listing = subprocess.run(["git", "ls-tree", "-rz", kept], cwd=repository, capture_output=True, check=True).stdout
    assert b"\tl\xe4ufe/train.py\0" in listing


def test_modes_are_preserved(repository: Path):
    """An executable file stays executable, be it committed or only found so."""
    (repository / "new.sh").write_text("#!/bin/sh\n")
    (repository / "new.sh").chmod(0o755)
    store = Store.open(repository)
    baseline = store.baseline("r1", Artifact.read(repository, ["*.sh", "*.py"]), at=AT)
    changed = Artifact({"run.sh": "#!/bin/sh\necho\n", "new.sh": "#!/bin/sh\necho\n", "train.py": "x = 1\n"})
    kept = store.commit(changed, parent=baseline, message="Say something", at=AT)
    listing = git(repository, "ls-tree", kept).splitlines()
    modes = {line.split("\t")[1]: line.split()[0] for line in listing}
    assert modes == {"README.md": "100644", "new.sh": "100755", "run.sh": "100755", "train.py": "100644"}


def test_link_becomes_the_file_it_was_read_as(repository: Path):
    """A link in the scope is stored as a file with the text that was read through it."""
    (repository / "alias.py").symlink_to("train.py")
    git(repository, "add", "alias.py")
    git(repository, "commit", "--quiet", "-m", "Add a link", "alias.py")
    artifact = Artifact.read(repository, ["alias.py"])
    store = Store.open(repository)
    baseline = store.baseline("r1", artifact, at=AT)
    assert git(repository, "ls-tree", baseline, "alias.py").split()[0] == "100644"
    assert store.read(baseline, ["alias.py"]) == artifact


def test_workspace_inside_a_repository(repository: Path):
    """A workspace in a subfolder changes nothing outside of it, and globs count from the workspace."""
    workspace = repository / "sub" / "Ördner x"
    workspace.mkdir(parents=True)
    FIRST.write(workspace)
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(SECOND, parent=baseline, message="Deepen", at=AT)
    assert store.read(kept, ["train.py"]) == SECOND
    assert git(repository, "show", f"{kept}:train.py") == "depth = 1"
    assert git(repository, "-c", "core.quotePath=false", "diff", "--name-only", "main", kept) == (
        "sub/Ördner x/train.py"
    )


def test_linked_worktree(repository: Path, tmp_path: Path):
    """A linked worktree is a workspace like any other; its refs are those of the repository."""
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"), "other")
    store = Store.open(tmp_path / "linked")
    baseline = store.baseline("r1", FIRST, at=AT)
    assert git(repository, "rev-parse", "autoresearch/r1") == baseline
    assert git(tmp_path / "linked", "status", "--porcelain") == ""


def test_sha256_repository(workspace: Path):
    """A repository with SHA-256 objects works."""
    git(workspace, "init", "--quiet", "--object-format=sha256")
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(SECOND, parent=baseline, message="Deepen", at=AT)
    store.keep("r1", kept, parent=baseline)
    assert len(kept) == 64
    assert store.read(kept, ["*.py"]) == SECOND


def test_same_step_is_the_same_commit(workspace: Path):
    """Committing the same step again, in another process, gives the same id; another date gives another."""
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    first = store.commit(SECOND, parent=baseline, message="Deepen", at=AT)
    again = Store.open(workspace).commit(SECOND, parent=baseline, message="Deepen", at=AT)
    later = store.commit(SECOND, parent=baseline, message="Deepen", at=AT.replace(year=2027))
    assert first == again != later


def test_baseline_is_made_once(workspace: Path):
    """Asked again after kept steps, the baseline is the old one and the branch stays."""
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(SECOND, parent=baseline, message="Deepen", at=AT)
    store.keep("r1", kept, parent=baseline)
    assert Store.open(workspace).baseline("r1", SECOND, at=AT.replace(year=2027)) == baseline
    assert store.head("r1") == kept


def test_keeping_twice_is_fine(workspace: Path):
    """A step that is the incumbent already is kept without complaint."""
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(SECOND, parent=baseline, message="Deepen", at=AT)
    store.keep("r1", kept, parent=baseline)
    store.keep("r1", kept, parent=baseline)
    assert store.head("r1") == kept


def test_moved_branch_is_not_overwritten(workspace: Path):
    """A branch that somebody else moved stops the step and stays where it is."""
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    theirs = store.commit(SECOND, parent=baseline, message="Theirs", at=AT)
    mine = store.commit(THIRD, parent=baseline, message="Mine", at=AT)
    store.keep("r1", theirs, parent=baseline)
    with pytest.raises(UsageError, match="somebody else moved it"):
        store.keep("r1", mine, parent=baseline)
    assert store.head("r1") == theirs


def test_one_of_two_concurrent_steps_wins(workspace: Path):
    """Of several processes that keep at the same time exactly one succeeds."""
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    steps = [store.commit(SECOND, parent=baseline, message=f"Step {n}", at=AT) for n in range(4)]
    lost: list[str] = []

    def keep(step: str) -> None:
        try:
            Store.open(workspace).keep("r1", step, parent=baseline)
        except (UsageError, EnvironmentNotReadyError):
            lost.append(step)

    threads = [threading.Thread(target=keep, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lost) == 3
    assert store.head("r1") in set(steps) - set(lost)


def test_removed_and_added_files(repository: Path):
    """A file that a candidate removes is gone from its commit, one that it adds is there, the rest stays."""
    store = Store.open(repository)
    before = Artifact({"train.py": "import old\n", "old.py": "x = 1\n"})
    baseline = store.baseline("r1", before, at=AT)
    after = Artifact({"train.py": "import pkg.new\n", "pkg/new.py": "x = 2\n"})
    kept = Store.open(repository).commit(after, parent=baseline, message="Move", at=AT)
    assert git(repository, "ls-tree", "-r", "--name-only", kept).split() == [
        "README.md",
        "pkg/new.py",
        "run.sh",
        "train.py",
    ]
    assert Store.open(repository).read(kept, ["**/*.py"]) == after


def test_file_may_take_the_place_of_a_folder(workspace: Path):
    """A folder whose files are all removed may become a file, and the other way round."""
    store = Store.open(workspace)
    folder = Artifact({"model/a.py": "a\n", "model/b.py": "b\n"})
    file = Artifact({"model": "one\n"})
    baseline = store.baseline("r1", folder, at=AT)
    step = store.commit(file, parent=baseline, message="Join", at=AT)
    back = store.commit(folder, parent=step, message="Part", at=AT)
    assert store.read(step, ["**/*"]) == file
    assert Store.open(workspace).read(back, ["**/*"]) == folder


@pytest.mark.parametrize("path", ["docs", "README.md/train.py"])
def test_file_in_the_place_of_a_folder_is_the_candidates_fault(repository: Path, path: str):
    """A file cannot stand where the repository has a folder, nor below a file."""
    (repository / "docs").mkdir()
    (repository / "docs/a.md").write_text("a\n")
    git(repository, "add", "docs")
    git(repository, "commit", "--quiet", "-m", "Document", "docs")
    store = Store.open(repository)
    baseline = store.baseline("r1", FIRST, at=AT)
    with pytest.raises(CandidateError, match="a file and a folder at once"):
        store.commit(FIRST.replace({path: "x\n"}), parent=baseline, message="Confuse", at=AT)


def test_artifact_is_what_was_found(repository: Path):
    """A committed file that the user deleted is no part of the artifact, though a glob matches it."""
    (repository / "extra.py").write_text("x\n")
    git(repository, "add", "extra.py")
    git(repository, "commit", "--quiet", "-m", "Add", "extra.py")
    (repository / "extra.py").unlink()
    store = Store.open(repository)
    found = Artifact.read(repository, ["*.py"])
    assert Store.open(repository).read(store.baseline("r1", found, at=AT), ["*.py"]) == found


def test_foreign_commit_is_read_by_globs_alone(repository: Path):
    """Of a commit that the store did not make, every matching file is read; nothing can be based on it."""
    store = Store.open(repository)
    head = git(repository, "rev-parse", "main")
    assert store.read(head, ["*.py", "*.md"]).files == {"README.md": "theirs\n", "train.py": "depth = 1\n"}
    with pytest.raises(UsageError, match="no step of an autoresearch run"):
        store.commit(FIRST, parent=head, message="Deepen", at=AT)


@pytest.mark.parametrize("text", ["a\r\nb\r\n", "no line end", "", "Ünïcode 🙂\n", "\ufeffmarked\n"])
def test_text_survives_byte_for_byte(workspace: Path, text: str):
    """Line ends, missing ones, empty files and any character come back as they were, whatever the user's settings."""
    git(workspace, "init", "--quiet")
    git(workspace, "config", "core.autocrlf", "true")
    (workspace / ".gitattributes").write_text("* text=auto eol=crlf\n")
    artifact = Artifact({"train.py": text})
    commit = Store.open(workspace).baseline("r1", artifact, at=AT)
    assert Store.open(workspace).read(commit, ["*.py"]) == artifact


def test_users_settings_do_not_interfere(repository: Path):
    """Hooks do not run, nothing is signed, no helper file of the private index appears."""
    hooks = repository / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("reference-transaction", "post-index-change", "pre-commit", "commit-msg", "post-commit"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{repository.parent}/hook-ran'\nexit 1\n")
        (hooks / name).chmod(0o755)
    for setting in ("commit.gpgSign=true", "core.splitIndex=true", "i18n.commitEncoding=latin1"):
        git(repository, "config", *setting.split("="))
    store = Store.open(repository)
    baseline = store.baseline("r1", FIRST, at=AT)
    kept = store.commit(SECOND, parent=baseline, message="Größer", at=AT)
    store.keep("r1", kept, parent=baseline)
    assert not (repository.parent / "hook-ran").exists()
    assert "gpgsig" not in git(repository, "cat-file", "commit", kept)
    assert "encoding" not in git(repository, "cat-file", "commit", kept)
    assert list((repository / ".git").glob("sharedindex*")) == []


def test_callers_git_variables_do_not_interfere(workspace: Path, repository: Path, monkeypatch: pytest.MonkeyPatch):
    """Run from a git hook, with another repository and index in the environment, the store uses its own."""
    before = state_of(repository)
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(repository / ".git/index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repository))
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    store.keep("r1", store.commit(SECOND, parent=baseline, message="Deepen", at=AT), parent=baseline)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name)
    assert state_of(repository) == before
    assert store.git_dir == (workspace / ".git").resolve()


def test_hostile_message_is_only_text(workspace: Path):
    """A hypothesis with NUL, or one that imitates the list of files, changes nothing but the message."""
    store = Store.open(workspace)
    baseline = store.baseline("r1", FIRST, at=AT)
    message = 'Deepen\0\n\nArtifact-Files: ["other.py"]'
    step = store.commit(SECOND, parent=baseline, message=message, at=AT)
    assert Store.open(workspace).read(step, ["*.py"]) == SECOND


def test_branch_in_the_way_is_named(repository: Path):
    """A branch called autoresearch leaves no room for ours, and the message says what to do."""
    git(repository, "branch", "autoresearch")
    with pytest.raises(UsageError, match="Rename the branch that stands in its way"):
        Store.open(repository).baseline("r1", FIRST, at=AT)


def test_unknown_run_has_no_head(workspace: Path):
    """A run without a branch has no incumbent."""
    assert Store.open(workspace).head("r1") is None


def test_unknown_commit_is_named(workspace: Path):
    """Reading a commit that is not there is an error, not an empty artifact."""
    with pytest.raises(UsageError, match="There is no commit 1234567"):
        Store.open(workspace).read("1234567", ["*.py"])


def test_binary_file_is_refused(repository: Path):
    """A file that is no text cannot be read as an artifact."""
    (repository / "blob.py").write_bytes(b"\xff\xfe")
    git(repository, "add", "blob.py")
    git(repository, "commit", "--quiet", "-m", "Add", "blob.py")
    with pytest.raises(UsageError, match=r"blob\.py in commit .* is not UTF-8 text"):
        Store.open(repository).read(git(repository, "rev-parse", "HEAD"), ["*.py"])


def test_missing_git_is_the_machines_fault(workspace: Path, monkeypatch: pytest.MonkeyPatch):
    """Without git the message says what to install."""
    monkeypatch.setenv("PATH", str(workspace))
    with pytest.raises(EnvironmentNotReadyError, match="git is not installed"):
        Store.open(workspace)


def test_missing_workspace_is_named(tmp_path: Path):
    """A folder that is not there is named, with the command that makes it."""
    with pytest.raises(UsageError, match="There is no workspace"):
        Store.open(tmp_path / "gone")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_repository_is_not_trusted(workspace: Path):
    """A repository that git does not trust is reported with git's remedy; none is made inside it."""
    git(workspace, "init", "--quiet")
    for path in (workspace, workspace / ".git"):
        os.chown(path, 12345, 12345)
    with pytest.raises(EnvironmentNotReadyError, match=r"safe\.directory"):
        Store.open(workspace)


ARTIFACTS = st.dictionaries(
    st.sampled_from(["train.py", "a.py", "pkg/b.py", "pkg/ü c.py"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12),
    min_size=1,
).map(Artifact)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(ARTIFACTS, st.booleans()), max_size=5), first=ARTIFACTS)
def test_head_is_the_last_kept_artifact(
    tmp_path_factory: pytest.TempPathFactory, first: Artifact, steps: list[tuple[Artifact, bool]]
):
    """After any sequence of outcomes the branch holds the last kept artifact, or the baseline."""
    folder = tmp_path_factory.mktemp("run")
    store = Store.open(folder)
    incumbent, commit = first, store.baseline("r1", first, at=AT)
    for number, (candidate, kept) in enumerate(steps, start=1):
        step = store.commit(candidate, parent=commit, message=f"Step {number}", at=AT)
        if kept:
            store.keep("r1", step, parent=commit)
            incumbent, commit = candidate, step
        else:
            store.reject("r1", number, step)
    fresh = Store.open(folder)
    assert fresh.head("r1") == commit
    assert fresh.read(commit, ["**/*.py"]) == incumbent
