"""One run at a time in a workspace: a lock that the system drops with the process, and a note on who holds it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.workspace import Layout


@contextmanager
def held(layout: Layout) -> Iterator[None]:
    """Hold the workspace's lock.

    Raises:
        UsageError: If another process holds it; names the process.
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
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    try:
        try:
            _owner_file(layout).write_text(json.dumps(owner), encoding="utf-8")
        except OSError as error:
            raise _unwritable(layout, error) from error
        yield
    finally:
        _owner_file(layout).unlink(missing_ok=True)
        lock.release()


def is_held(layout: Layout) -> bool:
    """Say whether a process is at work in the workspace right now."""
    import filelock

    if not layout.lock.exists():
        return False
    lock = filelock.FileLock(layout.lock, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        return True
    lock.release()
    return False


def _unwritable(layout: Layout, error: OSError) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"{layout.state} cannot be written: {error.strerror}.\n"
        "Free some space or make it writable, then run the same command again; it goes on where it stopped."
    )


def _owner_file(layout: Layout) -> Path:
    return layout.state / "owner.json"


def _owner(layout: Layout) -> str:
    """Return who holds the lock in a few words; the note may be missing for an instant while it changes hands."""
    try:
        owner = json.loads(_owner_file(layout).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return "its process left no note"
    return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
