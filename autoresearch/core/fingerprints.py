"""What judged an experiment, named by hashes: the evaluator with its data, and the files that never change."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.core.adapter import ExplainsFingerprint, OffersFingerprint, Scope
from autoresearch.core.artifact import Artifact, in_scope
from autoresearch.core.errors import EnvironmentNotReadyError
from autoresearch.core.workspace import CONFIG_NAME, PROGRAM_NAME, RESULTS_NAME

_SETTLED_NS = 2_000_000_000
"""A file that changed less than this before it was hashed may change again within one tick of its time stamp."""

_MAY_CHANGE = frozenset({CONFIG_NAME, PROGRAM_NAME, RESULTS_NAME})
"""Settings and the word to the proposer are people's to change, and the table is written anew all the time."""

_Stamp = tuple[int, int, int, int, int]


class FileHashes:
    """SHA-256 of files by path, for the price of a `stat` where nothing was touched since the last time.

    A file counts as untouched while device, inode, size, time of change and time of modification are the same. Programs
    can set the time of modification, but not the time of change; what gets past this is a clock set back to the very
    nanosecond, or a disk that was written without its file system. A file that changed within the last two seconds is
    read again. The first look of a process reads everything.
    """

    def __init__(self) -> None:
        self._known: dict[Path, tuple[_Stamp, str]] = {}

    def of(self, path: Path) -> str:
        """Return the hash of a file as hexadecimal.

        Raises:
            OSError: If it cannot be read.
        """
        stamp = _stamp(path)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        # The stamp from before the reading: a change meanwhile shows the next time.
        if time.time_ns() - stamp[-1] > _SETTLED_NS:
            self._known[path] = (stamp, found)
        else:
            self._known.pop(path, None)
        return found

    def of_all(self, paths: Iterable[Path]) -> str:
        """Return one hash over files, in the order given."""
        return hashlib.sha256("".join(self.of(path) for path in paths).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Judge:
    """What a value depends on besides the candidate.

    Attributes:
        evaluator: The adapter's fingerprint of evaluator and data; empty where it names none.
        readonly: Path -> SHA-256 of the scope's read-only files.
    """

    evaluator: str
    readonly: Mapping[str, str]

    def as_json(self, moment: str) -> dict[str, str]:
        """Return two hashes, with keys that end in `moment` (`before`, `after`)."""
        joined = "".join(f"{path}\0{found}\0" for path, found in sorted(self.readonly.items()))
        return {
            f"evaluator_{moment}": self.evaluator,
            f"readonly_{moment}": hashlib.sha256(joined.encode()).hexdigest(),
        }


@dataclass(frozen=True)
class Watch:
    """Looks at what judges, as often as wanted; one per session, because it remembers what it has read.

    Attributes:
        adapter: The adapter.
        scope: Its scope.
        root: Folder of the workspace.
    """

    adapter: object
    scope: Scope
    root: Path
    _hashes: FileHashes = field(default_factory=FileHashes, repr=False)

    def look(self) -> Judge:
        """Return what judges now.

        Raises:
            EnvironmentNotReadyError: If one of its files cannot be read.
        """
        try:
            return Judge(
                fingerprint_of(self.adapter), {name: self._hashes.of(self.root / name) for name in self._names()}
            )
        except OSError as error:
            raise EnvironmentNotReadyError(
                f"{error.filename} belongs to what judges a candidate and cannot be read: {error.strerror}.\n"
                "Put it back and run again; the run goes on where it stopped."
            ) from error

    def _names(self) -> list[str]:
        """Return the read-only files, without what a wide glob matches besides and people or the loop write."""
        names = set()
        for pattern in self.scope.readonly:
            for path in self.root.glob(f"{pattern}/*" if pattern.endswith("**") else pattern):
                relative = path.relative_to(self.root)
                name = relative.as_posix()
                if path.is_file() and name not in _MAY_CHANGE and in_scope(name, ("**",)):
                    names.add(name)
        # The loop works on copies, so the workspace's own artifact may be edited while a run is at work.
        return sorted(name for name in names if not in_scope(name, self.scope.editable))


def fingerprint_of(adapter: object) -> str:
    """Return the evaluator's fingerprint; empty where the adapter names none."""
    return adapter.evaluator_fingerprint() if isinstance(adapter, OffersFingerprint) else ""


def explained(adapter: object, since: str) -> str | None:
    """Return in a sentence what differs from the evaluator of that fingerprint; None where nobody knows."""
    if not isinstance(adapter, ExplainsFingerprint) or fingerprint_of(adapter) == since:
        return None
    changed = adapter.changed_since(since)
    more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
    return f"Changed since the run began: {', '.join(changed[:5])}{more}." if changed else None


def demand_same(run_id: str, began: Judge, now: Judge) -> None:
    """Raise EnvironmentNotReadyError where what judges is not what it was when the run began."""
    if now.evaluator != began.evaluator:
        raise EnvironmentNotReadyError(
            f"The evaluator or its data changed since run {run_id} began, so new values could not be compared.\n"
            "What was being measured is not booked. Put the old data or release back and run again, or begin a new "
            "run: --new"
        )
    changed = [
        path for path in sorted({*began.readonly, *now.readonly}) if began.readonly.get(path) != now.readonly.get(path)
    ]
    if changed:
        raise EnvironmentNotReadyError(
            f"{', '.join(changed[:5])} changed since run {run_id} began, and by the scope it never changes.\n"
            "What was being measured is not booked. Put it back as it was and run again, or begin a new run: --new"
        )


def artifact_in(folder: Path, paths: Iterable[str]) -> Artifact | None:
    """Return the artifact that lies in a folder; None where a file is gone, a link, or no text any more."""
    files = {}
    for path in paths:
        place = folder / path
        if place.is_symlink() or not place.is_file():
            return None
        try:
            files[path] = place.read_bytes().decode()
        except UnicodeDecodeError:
            return None
    return Artifact(files)


def _stamp(path: Path) -> _Stamp:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
