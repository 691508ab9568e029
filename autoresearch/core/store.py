"""The store: baseline, candidates and kept steps as git objects, without touching anything that the user sees.

Only git's plumbing is used, with an index of its own in a temporary file: no checkout, no staging area, no hook, no
signature, no branch but `autoresearch/<run>`. Commits carry a fixed identity and the dates they are given, so the same
step made twice is the same commit, which is what makes a run that was killed go on without a second one.

    refs/heads/autoresearch/<run>       the incumbent; every kept step is a commit on it
    refs/autoresearch/<run>/baseline    where it began
    refs/autoresearch/<run>/NNNN        candidate of experiment NNNN that was not kept
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from autoresearch.core.artifact import Artifact, in_scope
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, UsageError

__all__ = ["ReviewBranch", "Step", "Store"]

_REGULAR = "100644"
_EXECUTABLE = "100755"

# Which files belong to the artifact cannot be told from a tree that holds the rest of the repository too, and a file
# that a candidate removes must go. So each commit says it, in its last line, as a JSON list of paths.
_MANIFEST = "Artifact-Files: "

_SETTINGS = (
    # A `reference-transaction` hook would run with every kept step.
    "core.hooksPath=/dev/null",
    # These would leave helper files or processes of the private index in the user's repository.
    "core.splitIndex=false",
    "core.fsmonitor=false",
    # Another encoding would change the commit's bytes, and with them its id, from one machine to the next.
    "i18n.commitEncoding=UTF-8",
)
_REMEMBERED = 8

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _Entry:
    mode: str
    blob: str


_TreeKey = tuple[str | None, frozenset[tuple[str, _Entry]], frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The files of a commit in the workspace's folder, and which of them are the artifact (None: not said)."""

    entries: Mapping[str, _Entry]
    manifest: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Step:
    """One commit of a branch for reviewers: the artifact of `commit`, with a message of its own."""

    commit: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ReviewBranch:
    """A branch that was written for reviewers.

    Attributes:
        base: The commit that it begins on; None where the repository had none of the user's own.
        as_found: The commit that brings the artifact as the run found it; None where the base has it like that.
        commits: One for each step, in order.
    """

    base: str | None
    as_found: str | None
    commits: tuple[str, ...]


@dataclass(frozen=True)
class Store:
    """A git repository that holds the runs of one workspace. Make one with `Store.open`.

    Every method may raise `EnvironmentNotReadyError` when git fails: disk full, repository damaged, no permission.

    Attributes:
        workspace: The folder of the artifact.
        git_dir: The repository.
        prefix: Path of the workspace inside the repository, ending in `/`; empty when it is the top.
        hash_name: Hash of the repository's objects, `sha1` or `sha256`.
    """

    workspace: Path
    git_dir: Path
    prefix: str
    hash_name: str
    # Commits never change, so what was read once holds; the loop asks for the incumbent in every step.
    _snapshots: dict[str, _Snapshot] = field(default_factory=dict, repr=False, compare=False)
    _artifacts: dict[tuple[str, tuple[str, ...]], Artifact] = field(default_factory=dict, repr=False, compare=False)
    _trees: dict[_TreeKey, str] = field(default_factory=dict, repr=False, compare=False)
    _indexes: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def open(cls, workspace: Path) -> Store:
        """Use the repository that the workspace lies in; make one in the workspace where there is none.

        Raises:
            UsageError: If there is no such folder.
            EnvironmentNotReadyError: If git is missing or refuses the repository.
        """
        if not workspace.is_dir():
            raise UsageError(f"There is no workspace at {workspace}.\nMake one: autoresearch init --adapter ml DIR")
        found = _locate(workspace)
        if found is None:
            _checked(_git(["init", "--quiet"], cwd=workspace), "init")
            found = _checked(_git(_LOCATE, cwd=workspace), "rev-parse")
        bare, hash_name, git_dir, prefix = os.fsdecode(found).split("\n", 3)
        if bare == "true":
            raise UsageError(f"{workspace} lies inside a bare repository.\nUse a folder outside of it as workspace.")
        return cls(workspace, Path(git_dir), prefix.removesuffix("\n"), hash_name)

    def baseline(self, run_id: str, artifact: Artifact, *, at: datetime) -> str:
        """Commit the artifact as found on top of HEAD's tree and begin the run's branch there; return the commit.

        Asked again for the same run it returns the commit that is there, however far the branch has gone.

        Raises:
            UsageError: If git refuses the branch's name, or a branch stands in its way.
        """
        known = self._resolve(_baseline_ref(run_id))
        if known is not None:
            return known
        head = self._resolve("HEAD")
        before = self._snapshot(head).entries if head is not None else {}
        modes = {path: self._mode_as_found(path, before.get(path)) for path in artifact.files}
        commit = self._commit(
            artifact, head, removed=(), modes=modes, message=f"Begin autoresearch run {run_id}", at=at
        )
        return self._begin_refs(run_id, commit)

    def commit(self, artifact: Artifact, *, parent: str, message: str, at: datetime) -> str:
        """Write a commit of the artifact on top of `parent` and return its id; no ref points to it yet.

        The same arguments give the same id. Files of the parent's artifact that this one lacks are gone; everything
        else in the repository stays as the parent has it.

        Raises:
            UsageError: If `parent` was not made by a store.
            CandidateError: If a file of the artifact stands where the repository has a folder, or the other way round.
        """
        before = self._snapshot(parent)
        if before.manifest is None:
            raise UsageError(f"Commit {parent} is no step of an autoresearch run, so nothing can be based on it.")
        removed = before.manifest - artifact.files.keys()
        modes = {path: _mode(before.entries.get(path)) for path in artifact.files}
        return self._commit(artifact, parent, removed=removed, modes=modes, message=message, at=at)

    def keep(self, run_id: str, commit: str, *, parent: str) -> None:
        """Move the run's branch from `parent` to `commit`; fine when it is there already.

        Raises:
            UsageError: If the branch is somewhere else: somebody moved it.
        """
        ref = _branch(run_id)
        moved = self._git(["update-ref", "-m", "autoresearch: keep", ref, commit, parent])
        if moved.returncode == 0:
            return
        head = self._resolve(ref)
        if head == commit:
            return
        if head == parent:
            _checked(moved, "update-ref")
        raise UsageError(
            f"The branch autoresearch/{run_id} should be at {parent[:12]} and is at {(head or 'no commit')[:12]}: "
            "somebody else moved it.\n"
            f"Put it back to go on: git -C {shlex.quote(str(self.workspace))} update-ref {ref} {parent}"
        )

    def reject(self, run_id: str, number: int, commit: str) -> None:
        """Point a ref at a candidate that was not kept, so that the idea is not lost."""
        _checked(self._git(["update-ref", f"refs/autoresearch/{run_id}/{number:04d}", commit]), "update-ref")

    def rejected(self, run_id: str) -> dict[int, str]:
        """Return number -> commit of the run's candidates that were not kept and still have a ref."""
        prefix = f"refs/autoresearch/{run_id}/"
        listing = _checked(
            self._git(["for-each-ref", "--format=%(objectname) %(refname)", prefix]), "for-each-ref"
        ).decode()
        found = {}
        for line in listing.splitlines():
            commit, _, ref = line.partition(" ")
            number = ref.removeprefix(prefix)
            if number.isdecimal():
                found[int(number)] = commit
        return found

    def forget(self, run_id: str, rejected: Mapping[int, str]) -> None:
        """Remove the refs of candidates that were not kept, unless one points somewhere else by now.

        Their objects stay until git collects garbage by itself; nothing of the user's repository is pruned here.
        """
        commands = "".join(
            f"delete refs/autoresearch/{run_id}/{number:04d} {commit}\n" for number, commit in rejected.items()
        )
        if commands:
            _checked(self._git(["update-ref", "--stdin"], stdin=commands.encode()), "update-ref")

    def holds(self, commit: str) -> bool:
        """Say whether there is such a commit; one that no ref leads to may be gone after `git gc`."""
        return self._resolve(commit) is not None

    def lay_out(self, commit: str, folder: Path) -> tuple[str, ...]:
        """Write the artifact of a commit into a folder, which must be new or empty; return the paths.

        All or nothing: the files are written beside the folder first. Executable files stay executable.

        Raises:
            UsageError: If something is in the way, or no store made the commit.
            EnvironmentNotReadyError: If the folder cannot be written.
        """
        paths = self.paths(commit)
        _demand_empty(folder)
        entries, artifact = self._snapshot(commit).entries, self.read(commit, ("**",))
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".autoresearch-", dir=folder.parent) as beside:
                made = Path(beside) / "artifact"
                made.mkdir()
                artifact.write(made)
                for path in paths:
                    if entries[path].mode == _EXECUTABLE:
                        (made / path).chmod((made / path).stat().st_mode | 0o111)
                # Over an empty folder this is one step; a file that came meanwhile makes it fail.
                made.replace(folder)
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"{folder} cannot be written: {error.strerror}.\nName another folder; nothing was left behind."
            ) from error
        return tuple(sorted(paths))

    def read(self, commit: str, globs: Iterable[str]) -> Artifact:
        """Return the artifact of a commit: those of its files, in the workspace's folder, that a glob matches.

        Of a commit that no store made, every file that matches is returned.

        Raises:
            UsageError: If there is no such commit, or a file is no UTF-8 text.
        """
        patterns = tuple(globs)
        known = self._artifacts.get((commit, patterns))
        if known is not None:
            return known
        snapshot = self._snapshot(commit)
        blobs = {
            path: entry.blob
            for path, entry in snapshot.entries.items()
            if entry.mode in (_REGULAR, _EXECUTABLE)
            and (snapshot.manifest is None or path in snapshot.manifest)
            and in_scope(path, patterns)
        }
        contents = self._blobs(list(blobs.values()))
        artifact = Artifact({path: _text(path, commit, data) for path, data in zip(blobs, contents, strict=True)})
        _remember(self._artifacts, (commit, patterns), artifact)
        return artifact

    def paths(self, commit: str) -> frozenset[str]:
        """Return the paths of a step's artifact; asks git for nothing where this store made the step.

        Raises:
            UsageError: If no store made the commit.
        """
        manifest = self._snapshot(commit).manifest
        if manifest is None:
            raise UsageError(f"Commit {commit} is no step of an autoresearch run, so it holds no artifact.")
        return manifest

    def head(self, run_id: str) -> str | None:
        """Return the commit of the incumbent, None where the run has no branch."""
        return self._resolve(_branch(run_id))

    def review_branch(self, name: str, baseline: str, steps: Sequence[Step], *, first: Step) -> ReviewBranch:
        """Write a new branch with one commit for each step, each changing what the step changed and nothing else.

        It begins on HEAD where the files that the steps touch are there as the run found them, else where the run
        began; a run that began on files that were not committed gets a commit of those before its steps. Author is who
        git's settings name. Nothing that is checked out changes.

        Args:
            name: Of the branch.
            baseline: The run's baseline.
            steps: Commits of the run, in order, each on top of the one before.
            first: What the commit of the artifact as found would say.

        Raises:
            UsageError: If there is such a branch, or git refuses the name.
        """
        self._demand_free(name)
        touched = {path for step in (baseline, *(step.commit for step in steps)) for path in self.paths(step)}
        base = self._review_base(baseline, touched)
        tip, before = base, self._snapshot(base).entries if base is not None else {}
        commits = []
        for step in (first, *steps):
            after = {path: entry for path, entry in self._snapshot(step.commit).entries.items() if path in touched}
            changed = {path: entry for path, entry in after.items() if before.get(path) != entry}
            gone = [path for path in sorted(touched) if path in before and path not in after]
            before = after
            if step is first and not changed and not gone:
                continue
            tree = self._new_tree(tip, changed, gone)
            message = f"{step.message.replace(chr(0), '').strip()}\n"
            tip = self._write_commit(tree, tip, message, step.at, self._user())
            commits.append(tip)
        if tip is None:
            raise UsageError(f"There is no step to write, so that the branch {name} would be empty.")
        self._create_branch(name, tip)
        as_found = commits.pop(0) if len(commits) > len(steps) else None
        return ReviewBranch(base, as_found, tuple(commits))

    def _demand_free(self, name: str) -> None:
        named = self._git(["check-ref-format", f"refs/heads/{name}"]).returncode == 0
        if not named or name.startswith("-") or name == "HEAD":
            raise UsageError(f"{name!r} is no name that git takes for a branch.\nName another: --branch NAME")
        there = self._git(["show-ref", "--verify", "--quiet", f"refs/heads/{name}"]).returncode == 0
        head = self._git(["symbolic-ref", "--quiet", "HEAD"]).stdout.decode(errors="replace").strip()
        if there or head == f"refs/heads/{name}":
            raise UsageError(
                f"There is a branch {name} already, and none is ever written over.\nName another: --branch NAME"
            )

    def _review_base(self, baseline: str, touched: Iterable[str]) -> str | None:
        """Return HEAD where it has these files as the run found them, else the commit that the run began on."""
        head, found = self._resolve("HEAD"), self._snapshot(baseline).entries
        if head is not None:
            entries = self._snapshot(head).entries
            if all(entries.get(path) == found.get(path) for path in touched):
                return head
        return self._resolve(f"{baseline}^")

    def _user(self) -> Mapping[str, str]:
        """Return the author as git's settings name them; nobody where they name none."""
        named = [self._git(["config", "--get", f"user.{key}"]).stdout for key in ("name", "email")]
        name, email = (os.fsdecode(value).strip() for value in named)
        if not name or not email:
            return {}
        roles = ("AUTHOR", "COMMITTER")
        return {f"GIT_{role}_{key}": value for role in roles for key, value in (("NAME", name), ("EMAIL", email))}

    def _create_branch(self, name: str, commit: str) -> None:
        none = "0" * len(commit)
        made = self._git(["update-ref", "-m", "autoresearch: export", f"refs/heads/{name}", commit, none])
        if made.returncode != 0:
            raise UsageError(f"The branch {name} cannot be made: {_complaint(made)}.\nName another: --branch NAME")

    # Writing

    def _commit(
        self,
        artifact: Artifact,
        parent: str | None,
        *,
        removed: Iterable[str],
        modes: Mapping[str, str],
        message: str,
        at: datetime,
    ) -> str:
        before = self._snapshot(parent).entries if parent is not None else {}
        entries = {path: _Entry(modes[path], self._blob_id(text)) for path, text in artifact.files.items()}
        changed = {path: entry for path, entry in entries.items() if before.get(path) != entry}
        gone = [path for path in removed if path in before]
        after = {path: entry for path, entry in before.items() if path not in set(gone)} | entries
        _refuse_collisions(after, [path for path in changed if path not in before])
        self._write_blobs([artifact.files[path] for path in changed])
        tree = self._write_tree(parent, changed, gone)
        commit = self._write_commit(tree, parent, _message(message, artifact), at)
        _remember(self._snapshots, commit, _Snapshot(after, frozenset(artifact.files)))
        return commit

    def _blob_id(self, text: str) -> str:
        data = text.encode()
        return hashlib.new(self.hash_name, b"blob %d\0" % len(data) + data).hexdigest()

    def _write_blobs(self, texts: Sequence[str]) -> None:
        """Write all texts in one process; one process a file would cost its start each time."""
        if not texts:
            return
        with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
            paths = [Path(folder) / str(number) for number in range(len(texts))]
            for path, text in zip(paths, texts, strict=True):
                path.write_bytes(text.encode())
            # Filters would turn line ends around where the user's settings say so.
            command = ["hash-object", "-w", "--no-filters", "--stdin-paths"]
            _checked(self._git(command, stdin="".join(f"{path}\n" for path in paths).encode()), "hash-object")

    def _write_tree(self, parent: str | None, changed: Mapping[str, _Entry], gone: Sequence[str]) -> str:
        """Return the tree of `parent` with these changes; a kept step's is asked for twice, first as a candidate's."""
        key = (parent, frozenset(changed.items()), frozenset(gone))
        tree = self._trees.get(key)
        if tree is None:
            tree = self._new_tree(parent, changed, gone)
            _remember(self._trees, key, tree)
        return tree

    def _new_tree(self, parent: str | None, changed: Mapping[str, _Entry], gone: Sequence[str]) -> str:
        none = "0" * (2 * hashlib.new(self.hash_name).digest_size)
        # The folders around the workspace are the user's, and their names need not be UTF-8.
        prefix = os.fsencode(self.prefix)
        lines = [f"0 {none}\t".encode() + prefix + f"{path}\0".encode() for path in gone]
        lines += [
            f"{entry.mode} {entry.blob}\t".encode() + prefix + f"{path}\0".encode() for path, entry in changed.items()
        ]
        with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            if parent is not None:
                Path(index["GIT_INDEX_FILE"]).write_bytes(self._index_of(parent, Path(folder)))
            stdin = b"".join(lines)
            _checked(self._git(["update-index", "-z", "--index-info"], env=index, stdin=stdin), "update-index")
            # A partial clone lacks blobs that no candidate touches; asking for them would go to the network.
            return _id(self._git(["write-tree", "--missing-ok"], env=index), "write-tree")

    def _index_of(self, commit: str, folder: Path) -> bytes:
        """Return a private index of a commit's tree; many candidates in a row have the same parent."""
        known = self._indexes.get(commit)
        if known is None:
            path = folder / "parent"
            _checked(self._git(["read-tree", commit], env={"GIT_INDEX_FILE": str(path)}), "read-tree")
            known = path.read_bytes()
            _remember(self._indexes, commit, known)
        return known

    def _write_commit(
        self, tree: str, parent: str | None, message: str, at: datetime, identity: Mapping[str, str] | None = None
    ) -> str:
        parents = ["-p", parent] if parent is not None else []
        stdin, env = message.encode("utf-8", errors="replace"), {**_identity(at), **(identity or {})}
        return _id(self._git(["commit-tree", tree, *parents], env=env, stdin=stdin), "commit-tree")

    def _begin_refs(self, run_id: str, commit: str) -> str:
        """Make branch and baseline ref together; return the baseline, that of another process if it was faster."""
        commands = "".join(f"create {ref} {commit}\n" for ref in (_branch(run_id), _baseline_ref(run_id)))
        made = self._git(["update-ref", "-m", "autoresearch: begin", "--stdin"], stdin=commands.encode())
        if made.returncode == 0:
            return commit
        other = self._resolve(_baseline_ref(run_id))
        if other is None:
            raise UsageError(
                f"The branch autoresearch/{run_id} cannot be made: {_complaint(made)}.\n"
                "Rename the branch that stands in its way (git branch -m OLD NEW), then run the same command again."
            )
        return other

    def _mode_as_found(self, path: str, entry: _Entry | None) -> str:
        if entry is not None:
            return _mode(entry)
        found = self.workspace / path
        return _EXECUTABLE if found.is_file() and found.stat().st_mode & 0o100 else _REGULAR

    # Reading

    def _resolve(self, name: str) -> str | None:
        found = self._git(["rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"])
        return found.stdout.decode().strip() if found.returncode == 0 else None

    def _snapshot(self, commit: str) -> _Snapshot:
        known = self._snapshots.get(commit)
        if known is None:
            if self._resolve(commit) is None:
                raise UsageError(f"There is no commit {commit} in {self.git_dir}.\nWas the repository replaced?")
            known = _Snapshot(self._entries(commit), self._manifest(commit))
            _remember(self._snapshots, commit, known)
        return known

    def _entries(self, commit: str) -> dict[str, _Entry]:
        command = ["ls-tree", "-r", "-z", "--full-tree", commit]
        if self.prefix:
            command += ["--", f":(literal){self.prefix}"]
        listing = os.fsdecode(_checked(self._git(command), "ls-tree"))
        entries = {}
        for line in listing.split("\0")[:-1]:
            attributes, _, path = line.partition("\t")
            mode, _, blob = attributes.split(" ")
            entries[path.removeprefix(self.prefix)] = _Entry(mode, blob)
        return entries

    def _manifest(self, commit: str) -> frozenset[str] | None:
        raw = _checked(self._git(["cat-file", "commit", commit]), "cat-file").decode("utf-8", errors="replace")
        last = raw.rstrip("\n").rpartition("\n")[2]
        if not last.startswith(_MANIFEST):
            return None
        return frozenset(json.loads(last.removeprefix(_MANIFEST)))

    def _blobs(self, ids: Sequence[str]) -> list[bytes]:
        if not ids:
            return []
        data = _checked(
            self._git(["cat-file", "--batch"], stdin="".join(f"{blob}\n" for blob in ids).encode()), "cat-file"
        )
        blobs, position = [], 0
        for blob in ids:
            end = data.index(b"\n", position)
            header = data[position:end].split(b" ")
            if header[1] != b"blob":
                raise EnvironmentNotReadyError(f"The repository {self.git_dir} lacks {blob}.\nCheck it: git fsck")
            size = int(header[2])
            blobs.append(data[end + 1 : end + 1 + size])
            position = end + 1 + size + 1
        return blobs

    def _git(
        self, arguments: Sequence[str], *, env: Mapping[str, str] | None = None, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        # Naming the repository makes git skip the search for it, and hold to it when another one appears further down.
        return _git(arguments, cwd=self.workspace, env={"GIT_DIR": str(self.git_dir), **(env or {})}, stdin=stdin)


_LOCATE = ("rev-parse", "--is-bare-repository", "--show-object-format", "--absolute-git-dir", "--show-prefix")


def _locate(workspace: Path) -> bytes | None:
    """Ask git for the repository of a folder; None where there is none."""
    found = _git(_LOCATE, cwd=workspace)
    if found.returncode == 0:
        return found.stdout
    if b"not a git repository" in found.stderr:
        return None
    if b"dubious ownership" in found.stderr:
        raise EnvironmentNotReadyError(
            f"The repository of {workspace} belongs to somebody else, and git does not trust it.\n"
            f"If you do: git config --global --add safe.directory {workspace}"
        )
    raise _failed(found, "rev-parse")


def _git(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    settings = [part for setting in _SETTINGS for part in ("-c", setting)]
    # The caller may itself be a git hook, with an index and a repository in its environment that are not meant for us.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", *settings, *arguments],
            cwd=cwd,
            env={**inherited, "LC_ALL": "C", **(env or {})},
            input=stdin,
            capture_output=True,
            check=False,
            # Out of reach of Ctrl-C: the first one lets the experiment finish, and that needs git.
            process_group=0,
        )
    except FileNotFoundError as error:
        raise EnvironmentNotReadyError(
            "git is not installed, and kept steps are stored as its commits.\n"
            "Install it (https://git-scm.com/downloads) and run the same command again."
        ) from error


def _checked(finished: subprocess.CompletedProcess[bytes], command: str) -> bytes:
    if finished.returncode != 0:
        raise _failed(finished, command)
    return finished.stdout


def _id(finished: subprocess.CompletedProcess[bytes], command: str) -> str:
    return _checked(finished, command).decode().strip()


def _failed(finished: subprocess.CompletedProcess[bytes], command: str) -> EnvironmentNotReadyError:
    if b"No space left" in finished.stderr:
        return EnvironmentNotReadyError(
            "git cannot write a commit: the disk is full.\n"
            "Free some space and run the same command again; it goes on where it stopped."
        )
    return EnvironmentNotReadyError(
        f"git {command} failed: {_complaint(finished)}.\n"
        "Check the repository (git fsck) and run the same command again."
    )


def _complaint(finished: subprocess.CompletedProcess[bytes]) -> str:
    lines = finished.stderr.decode("utf-8", errors="replace").strip().splitlines()
    return lines[-1].rstrip(".") if lines else f"exit code {finished.returncode}"


def _demand_empty(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"{folder} exists already and is no folder.\nName a new or an empty one.")
    if folder.is_dir() and next(folder.iterdir(), None) is not None:
        raise UsageError(f"{folder} is not empty, and nothing is ever written over.\nName a new or an empty folder.")


def _branch(run_id: str) -> str:
    return f"refs/heads/autoresearch/{run_id}"


def _baseline_ref(run_id: str) -> str:
    return f"refs/autoresearch/{run_id}/baseline"


def _identity(at: datetime) -> dict[str, str]:
    """Return a fixed author and date: git asks for neither, and the same step has the same id on every machine."""
    date = f"@{int(at.timestamp())} +0000"
    variables: dict[str, str] = {}
    for role in ("AUTHOR", "COMMITTER"):
        variables |= {
            f"GIT_{role}_NAME": "autoresearch",
            f"GIT_{role}_EMAIL": "autoresearch@localhost",
            f"GIT_{role}_DATE": date,
        }
    return variables


def _message(message: str, artifact: Artifact) -> str:
    # git refuses NUL in a message, and a hypothesis comes from a model.
    return f"{message.replace(chr(0), '').strip()}\n\n{_MANIFEST}{json.dumps(list(artifact.files))}\n"


def _mode(entry: _Entry | None) -> str:
    """Return the mode for a file's new content; a link becomes the file that it was read as."""
    return entry.mode if entry is not None and entry.mode in (_REGULAR, _EXECUTABLE) else _REGULAR


def _refuse_collisions(entries: Mapping[str, _Entry], added: Sequence[str]) -> None:
    """A path cannot be a file and a folder at once; only added files can bring that about."""
    if not added:
        return
    folders = {str(parent) for path in entries for parent in Path(path).parents}
    for path in added:
        blocked = path if path in folders else next((str(p) for p in Path(path).parents if str(p) in entries), None)
        if blocked is not None:
            raise CandidateError(f"{path} cannot be added: {blocked} is a file and a folder at once.")


def _text(path: str, commit: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} in commit {commit[:12]} is not UTF-8 text, and an artifact is text.") from error


def _remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Keep the latest few; a run of days would otherwise fill the memory."""
    known[key] = value
    while len(known) > _REMEMBERED:
        del known[next(iter(known))]
