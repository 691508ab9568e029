"""One run at a time in a workspace: a lock that the system drops with the process, and a note on who holds it."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.workspace import Layout


@contextmanager
def held(layout: Layout) -> Iterator[None]:
    """Hold the workspace's lock.

    Raises:
        UsageError: If another process holds it; names the process, its host, since when, and its run.
        EnvironmentNotReadyError: If the workspace cannot be written.
    """
    import filelock

    # Not zero: `is_held` takes the lock for an instant to see whether it is free.
    lock = filelock.FileLock(layout.lock, timeout=1)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise UsageError(
            f"Another run is at work in {layout.root}: {_owner(layout)}.\n"
            "Wait for it, stop it with autoresearch stop, or use another workspace: -w DIR"
        ) from error
    except OSError as error:
        raise _unwritable(layout, error) from error
    now = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        _write_note(layout, {"pid": os.getpid(), "host": socket.gethostname(), "since": now})
        yield
    finally:
        _owner_file(layout).unlink(missing_ok=True)
        lock.release()


def name_run(layout: Layout, run_id: str) -> None:
    """Add to the note of the lock that this process holds which run it works on.

    Raises:
        EnvironmentNotReadyError: If the workspace cannot be written.
    """
    _write_note(layout, {**json.loads(_owner_file(layout).read_text(encoding="utf-8")), "run": run_id})


def is_held(layout: Layout) -> bool:
    """Say whether a process is at work in the workspace right now; works where nothing can be written, too."""
    if not layout.lock.exists():
        return False
    if sys.platform == "win32":
        return _is_held_by_trying(layout)
    import fcntl

    try:
        descriptor = os.open(layout.lock, os.O_RDONLY)
    except OSError as error:
        raise _unreadable(layout, error) from error
    try:
        # Shared, so that two who ask at once do not take each other for a run.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _is_held_by_trying(layout: Layout) -> bool:
    import filelock

    lock = filelock.FileLock(layout.lock, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        return True
    lock.release()
    return False


def _write_note(layout: Layout, note: dict[str, Any]) -> None:
    """Replace the note whole, so that whoever is refused at this moment reads the old or the new one."""
    path = _owner_file(layout)
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(json.dumps(note), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise _unwritable(layout, error) from error


def _unwritable(layout: Layout, error: OSError) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"{layout.state} cannot be written: {error.strerror}.\n"
        "Free some space or make it writable, then run the same command again; it goes on where it stopped."
    )


def _unreadable(layout: Layout, error: OSError) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"{layout.lock} cannot be read: {error.strerror}.\nIt must be a file that you may read."
    )


def _owner_file(layout: Layout) -> Path:
    return layout.state / "owner.json"


def _owner(layout: Layout) -> str:
    """Return who holds the lock in a few words; the note may be missing for an instant while it changes hands."""
    try:
        owner = json.loads(_owner_file(layout).read_text(encoding="utf-8"))
        text = f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (OSError, ValueError, KeyError):
        return "its process left no note"
    return f"{text}, run {owner['run']}" if "run" in owner else text
