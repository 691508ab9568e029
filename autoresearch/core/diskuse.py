"""What a process tree has written: bytes on disk below its folders, and in files that it deleted and still holds."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from autoresearch.core.errors import EnvironmentNotReadyError

__all__ = ["DiskUse", "free_bytes"]

_MIB = 1 << 20
_BLOCK = 512  # the unit of st_blocks, whatever the file system's own
_MOST_FILES = 100_000
# Below this much space, git, SQLite and the log cannot be relied on any more.
_RESERVE_BYTES = 16 * _MIB
# Looking costs the runner's processor: one part in twenty of the time at most, however many files there are.
_PAUSE_FACTOR = 20.0


def free_bytes(folder: Path) -> int:
    """Return the bytes that a user who is not root can still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class DiskUse:
    """Watches folders for what is written into them after this object was made.

    Args:
        folders: Where the process may write.
        limit_mb: Most MiB that may be added; None without.
        free: Tells how much space is left.

    Raises:
        EnvironmentNotReadyError: If there is hardly any space to begin with.
    """

    def __init__(
        self, folders: Sequence[Path], limit_mb: float | None, free: Callable[[Path], int] = free_bytes
    ) -> None:
        self._folders = folders
        self._limit_mb = limit_mb
        self._free = free
        self._next = 0.0
        self._demand_space()
        self._before = _written(folders)[0] if limit_mb is not None else 0

    def exceeded(self, pids: Iterable[int]) -> str | None:
        """Return a sentence when more was written than allowed.

        Args:
            pids: The processes whose deleted files count.

        Raises:
            EnvironmentNotReadyError: If the disk is full although the limit was kept.
        """
        now = time.monotonic()
        if now < self._next:
            return None
        reason = None if self._limit_mb is None else self._crossed(self._limit_mb, pids)
        if reason is None:
            self._demand_space()
        self._next = time.monotonic() + _PAUSE_FACTOR * (time.monotonic() - now)
        return reason

    def _crossed(self, limit_mb: float, pids: Iterable[int]) -> str | None:
        size, files = _written(self._folders)
        added_mb = (size - self._before + _deleted(pids)) / _MIB
        if added_mb > limit_mb:
            return f"It wrote {added_mb:.0f} MiB to disk; its limit is {limit_mb:g} MiB."
        if files > _MOST_FILES:
            return f"It made more than {_MOST_FILES:,} files."
        return None

    def _demand_space(self) -> None:
        for folder in self._folders:
            free = self._free(folder)
            if free < _RESERVE_BYTES:
                raise EnvironmentNotReadyError(
                    f"The disk that holds {folder} is full: {free // _MIB} MiB are free, and a measurement is not "
                    f"trusted with less than {_RESERVE_BYTES // _MIB}.\n"
                    "Free some space and run the same command again; it goes on where it stopped."
                )


def _written(folders: Iterable[Path]) -> tuple[int, int]:
    """Return bytes on disk and number of files below some folders; stops counting where there are far too many."""
    size = files = 0
    for folder in folders:
        for entry in _walk(folder):
            with suppress(FileNotFoundError):
                size += entry.stat(follow_symlinks=False).st_blocks * _BLOCK
            files += 1
            if files > _MOST_FILES:
                return size, files
    return size, files


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [os.fspath(folder)]
    while waiting:
        # A folder can vanish, or be closed by its owner, between two looks; what was in it is then not counted.
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _deleted(pids: Iterable[int]) -> int:
    """Return the bytes of regular files without a name that processes hold open, in memory or on disk; Linux only."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(FileNotFoundError, PermissionError, ProcessLookupError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with suppress(FileNotFoundError, PermissionError):
                    status = entry.stat()
                    if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                        found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return sum(found.values())
