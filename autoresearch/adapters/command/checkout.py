"""The files of a git checkout: listed, copied once per session, and laid out anew for every measurement.

A copy and not links: a measurement may write wherever it likes without the checkout or the next one noticing, and a
link to a script would lead Python to the modules that lie beside the original.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoresearch.core import Artifact, EnvironmentNotReadyError, FileHashes, InvalidCandidateError, UsageError

STATE = ".autoresearch"

_Stamp = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Base:
    """A copy of everything in the checkout that a candidate does not change.

    Attributes:
        folder: Where it lies.
        files: Its files and links, relative POSIX paths, sorted.
        executable: Editable files that are executable in the checkout.
    """

    folder: Path
    files: tuple[str, ...]
    executable: frozenset[str]

    def manifest(self, hashes: FileHashes) -> dict[str, str]:
        """Return path -> what a file is: its hash or the target of a link, and whether it is executable.

        Raises:
            OSError: If a file cannot be read.
        """
        found = {}
        for name in self.files:
            path = self.folder / name
            mode = path.lstat().st_mode
            content = path.readlink() if stat.S_ISLNK(mode) else hashes.of(path)
            found[name] = f"{content}{' executable' if mode & 0o100 else ''}"
        return found

    def fingerprint(self, hashes: FileHashes) -> str:
        """Return one hash over the manifest.

        Raises:
            OSError: If a file cannot be read.
        """
        return hashlib.sha256(json.dumps(self.manifest(hashes)).encode()).hexdigest()

    def changed_since(self, fingerprint: str, hashes: FileHashes) -> tuple[str, ...]:
        """Return the files in which this copy differs from an earlier one of that fingerprint, if it is remembered."""
        path = _manifest_path(self.folder.parent, fingerprint)
        if not path.is_file():
            return ()
        before, now = json.loads(path.read_text(encoding="utf-8")), self.manifest(hashes)
        return tuple(sorted(name for name in {*before, *now} if before.get(name) != now.get(name)))


def files_of(folder: Path) -> tuple[str, ...]:
    """Return what belongs to a checkout, relative to `folder`: tracked files, and new ones that git does not ignore.

    Raises:
        UsageError: If the folder lies in no checkout.
        EnvironmentNotReadyError: If git is missing or fails.
    """
    found: list[str] = []
    for name in _listed(folder):
        path = folder / name
        if path.is_dir() and not path.is_symlink():  # a submodule, or a checkout inside the checkout
            found += [f"{name.rstrip('/')}/{inner}" for inner in files_of(path)]
        elif os.path.lexists(path):  # a tracked file may be deleted
            found.append(name)
    return tuple(sorted(set(found)))


def ignored(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the files that git ignores."""
    asked = "".join(f"{name}\0" for name in names).encode("utf-8", "surrogateescape")
    if not asked:
        return ()
    done = _git(folder, "check-ignore", "-z", "--stdin", stdin=asked)
    if done.returncode not in (0, 1):
        raise _git_failed(done)
    return _names(done.stdout)


def take_base(
    folder: Path, store: Path, *, editable: Artifact, link: Sequence[str], hashes: FileHashes | None = None
) -> Base:
    """Copy the checkout, editable and linked files left out, and return the copy; an earlier copy goes.

    Args:
        folder: The checkout.
        store: Folder of ours for copies.
        editable: The files that a candidate may change.
        link: Files and folders that are used where they lie.
        hashes: Remembers what was read.

    Raises:
        UsageError: If the folder lies in no checkout.
        EnvironmentNotReadyError: If something cannot be read or written.
    """
    names = [name for name in files_of(folder) if name not in editable.files and not _below(name, (STATE, *link))]
    fresh = store / "new"
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in names:
            _copy(folder / name, fresh / name)
        executable = frozenset(name for name in editable.files if os.access(folder / name, os.X_OK))
        copy, hashes = Base(fresh, tuple(names), executable), hashes or FileHashes()
        print_ = copy.fingerprint(hashes)
        _manifest_path(store, print_).write_text(json.dumps(copy.manifest(hashes)), encoding="utf-8")
        kept = store / print_[:16]
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)
        for old in store.iterdir():
            if old != kept and old.is_dir():  # what an earlier copy held stays known
                shutil.rmtree(old)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The checkout {folder} cannot be copied to {store}: {error.strerror} ({error.filename}).\n"
            "Put that right and run the same command again."
        ) from error
    return Base(kept, tuple(names), executable)


def copy_checkout(checkout: Path, folder: Path, *, link: Sequence[str]) -> None:
    """Copy a checkout into a folder for a run of its own; where the folder is one already, compare.

    Args:
        checkout: What is copied: tracked files, and new ones that git does not ignore.
        folder: Where to.
        link: Files and folders of the checkout that are used where they lie: links lead to them.

    Raises:
        UsageError: If `checkout` is none, or something differs in a folder that is a copy already.
        EnvironmentNotReadyError: If something cannot be read or written.
    """
    names = [name for name in files_of(checkout) if not _below(name, (STATE, *link))]
    try:
        if (folder / ".git").exists():
            _demand_same(checkout, folder, names, link)
            return
        shutil.rmtree(folder, ignore_errors=True)  # a copy that was cut off
        folder.mkdir(parents=True)
        for name in names:
            _copy(checkout / name, folder / name)
        for name in link:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(checkout / name)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"The checkout {checkout} cannot be copied to {folder}: {error.strerror} ({error.filename}).\n"
            "Put that right and run the same command again."
        ) from error


def _demand_same(checkout: Path, folder: Path, names: Sequence[str], link: Sequence[str]) -> None:
    """Refuse a checkout that is not what the copy was taken of."""
    there = {name for name in files_of(folder) if not _below(name, (STATE, *link))}
    changed = sorted(
        {*names} ^ there | {name for name in there & {*names} if not _same(checkout / name, folder / name)}
    )
    if changed:
        raise UsageError(
            f"{', '.join(changed[:3])} in {checkout} changed since it was copied to {folder}, and runs that begin with "
            "different files are no comparison.\nPut that back, or compare in another folder: -w DIR"
        )


def _same(one: Path, other: Path) -> bool:
    if one.is_symlink() or other.is_symlink():
        return one.is_symlink() and other.is_symlink() and one.readlink() == other.readlink()
    executable = [path.stat().st_mode & 0o100 for path in (one, other)]
    return executable[0] == executable[1] and filecmp.cmp(one, other, shallow=False)


@dataclass(frozen=True, slots=True)
class Tree:
    """A candidate laid out with the rest of the checkout, ready to be measured once.

    Attributes:
        folder: Where it lies.
        stamps: What the files looked like that never change.
    """

    folder: Path
    stamps: Mapping[str, _Stamp]

    def changed(self) -> tuple[str, ...]:
        """Return the files outside the artifact that were changed or removed since the tree was laid out.

        Times of modification can be set back, times of change cannot.
        """
        return tuple(name for name, stamp in self.stamps.items() if _stamp(self.folder / name) != stamp)


def lay_out(base: Base, artifact: Path, folder: Path, links: Mapping[str, Path]) -> Tree:
    """Write a candidate and the rest of its checkout into `folder`, which must not exist.

    Args:
        base: Everything that never changes.
        artifact: Folder with the candidate's files.
        folder: Where to.
        links: Relative path -> what lies there in the checkout and is used from there.

    Raises:
        InvalidCandidateError: If a file of the candidate would land outside of the copy.
        EnvironmentNotReadyError: If something cannot be read or written.
    """
    try:
        folder.mkdir(parents=True)
        for name in base.files:
            _copy(base.folder / name, folder / name)
        for path in sorted(path for path in artifact.rglob("*") if path.is_file()):
            name = path.relative_to(artifact).as_posix()
            if _below(name, links) or not (folder / name).resolve().is_relative_to(folder.resolve()):
                raise InvalidCandidateError(f"{name} lies behind a link, and what is linked never changes.")
            _copy(path, folder / name)
            if name in base.executable:
                (folder / name).chmod(0o755)
        for name, target in links.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target, target_is_directory=target.is_dir())
        stamps = {name: stamp for name in base.files if (stamp := _stamp(folder / name)) is not None}
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"A candidate cannot be laid out in {folder}: {error.strerror} ({error.filename}).\n"
            "Put that right and run the same command again; it goes on where it stopped."
        ) from error
    return Tree(folder, stamps)


def _manifest_path(store: Path, fingerprint: str) -> Path:
    return store / f"{fingerprint[:16]}.json"


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a link; only whether a file is executable is taken along."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    shutil.copyfile(source, target)
    if source.stat().st_mode & 0o100:
        target.chmod(0o755)


def _below(name: str, roots: Iterable[str]) -> bool:
    return any(name == root or name.startswith(f"{root.rstrip('/')}/") for root in roots)


def _listed(folder: Path) -> Iterator[str]:
    done = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if done.returncode != 0:
        if b"not a git repository" in done.stderr:
            raise UsageError(
                f"{folder} is no git checkout, and the command adapter improves files of one.\n"
                "Go to one or name it with -w DIR; a folder becomes one with git init."
            )
        raise _git_failed(done)
    yield from _names(done.stdout)


def _names(output: bytes) -> tuple[str, ...]:
    return tuple(os.fsdecode(name) for name in output.split(b"\0") if name)


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["git", *arguments], cwd=folder, input=stdin, capture_output=True, env={**os.environ, "LC_ALL": "C"}
        )
    except FileNotFoundError as error:
        if not folder.is_dir():
            raise UsageError(f"There is no folder {folder}.") from error
        raise EnvironmentNotReadyError("git cannot be started: there is no such program.\nInstall git.") from error


def _git_failed(done: subprocess.CompletedProcess[bytes]) -> EnvironmentNotReadyError:
    said = done.stderr.decode("utf-8", "replace").strip()
    return EnvironmentNotReadyError(f"git could not list the files of the checkout: {said}\nMend that and run again.")
