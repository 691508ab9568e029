"""A workspace as a dashboard sees it: opened to read, asked cheaply whether anything changed, and in which state."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import quote

from autoresearch.core import lock
from autoresearch.core.errors import AutoresearchError
from autoresearch.core.ledger import Ledger, Run
from autoresearch.core.progress import Progress, progress_file, read_progress
from autoresearch.core.words import clean
from autoresearch.core.workspace import Layout

LOG_BYTES = 8_000
LOG_LINES = 40
LOG_COLUMNS = 400
"""The end of a log that is shown; a candidate may print lines without end."""


class Condition(Enum):
    """What a workspace is to somebody who wants to look at it."""

    GONE = "gone"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Look:
    """A workspace at one moment.

    Attributes:
        condition: Whether there is anything to see.
        sentence: What a person is told about it; empty where nothing is out of the ordinary.
        runs: Its runs, oldest first.
        at_work: Whether a process is at work in it.
        can_steer: Whether messages can be left for its runs.
    """

    condition: Condition
    sentence: str = ""
    runs: tuple[Run, ...] = ()
    at_work: bool = False
    can_steer: bool = False


Mark = tuple[object, ...]
"""Something that differs when a file may have changed."""


class Watched:
    """One workspace. Methods are called one at a time, `mark` and `look` from any thread."""

    def __init__(self, key: str, layout: Layout) -> None:
        self.key = key
        self.layout = layout
        self.name = clean(layout.root.name) or "workspace"
        self._opened = ExitStack()
        self._pulse: sqlite3.Connection | None = None
        self._file: Mark = ()
        self.ledger: Ledger | None = None

    def mark(self) -> Mark:
        """Return something that differs from the last time where a reader might see something else."""
        return (self._file_now(), self._data_version(), self._at_work())

    def note_mark(self) -> Mark:
        """Return the same of what the process at work notes beside the ledger."""
        return _stamp(progress_file(self.layout))

    def log_mark(self, run: str, number: int) -> Mark:
        """Return the same of the log of an experiment."""
        return _stamp(self.log_file(run, number))

    def log_file(self, run: str, number: int) -> Path:
        """Return where an experiment's candidate writes."""
        return self.layout.experiment(run, number) / "run.log"

    def look(self) -> Look:
        """Open what is there, as far as it can be opened, and say in which state it is."""
        if not self.layout.root.is_dir():
            self.close()
            return Look(
                Condition.GONE,
                f"The folder {self.layout.root} is gone: it was moved or deleted. This page goes on where it comes "
                "back; of a workspace that was moved: autoresearch dashboard -w DIR",
            )
        if not self.layout.ledger.is_file():
            self.close()
            return self._without_a_run()
        try:
            ledger = self._open()
            runs = tuple(ledger.runs())
        except AutoresearchError as error:
            self.close()
            return Look(Condition.UNREADABLE, clean(str(error), lines=True))
        if not runs:
            return self._without_a_run()
        said = ""
        if ledger.is_copy:
            said = (
                "This ledger cannot be read as it is, because an older version wrote it or its folder is read-only: "
                "what is shown is a copy, and the buttons are off. autoresearch status brings an old one up to date."
            )
        return Look(Condition.OPEN, said, runs, self._at_work(), can_steer=not ledger.is_copy)

    def progress(self) -> Progress | None:
        """Return what the process at work does at this moment; None without one, or where it does not say."""
        return read_progress(self.layout) if self._at_work() else None

    def log_tail(self, run: str, number: int) -> str:
        """Return the end of what a candidate has printed so far, clean and short."""
        try:
            with self.log_file(run, number).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - LOG_BYTES))
                data = file.read(LOG_BYTES)
        except OSError:
            return ""  # no candidate has printed anything yet, or its folder was tidied away
        whole = data if size <= LOG_BYTES else data.partition(b"\n")[2] or data
        return tail_of(whole.decode("utf-8", errors="replace"))

    def close(self) -> None:
        """Let go of the files."""
        self._opened.close()
        self._pulse, self.ledger, self._file = None, None, ()

    def _open(self) -> Ledger:
        """Return the open ledger; opened again where another file lies there, or a copy has become old."""
        if self.ledger is None or self._file_now() != self._file:
            self.close()
            self.ledger = self._opened.enter_context(Ledger.watching(self.layout.ledger))
            self._file = self._file_now()
            if not self.ledger.is_copy:
                address = f"file:{quote(str(self.layout.ledger))}?mode=ro"
                pulse = sqlite3.connect(address, uri=True, check_same_thread=False)
                self._pulse = self._opened.enter_context(closing(pulse))
        return self.ledger

    def _file_now(self) -> Mark:
        """Return which file the ledger is; of a copy, and before it is opened, also how old it is."""
        path = self.layout.ledger
        if self.ledger is None or self.ledger.is_copy:
            return (_stamp(path), _stamp(path.with_name(f"{path.name}-wal")))
        return _stamp(path)[:2]

    def _data_version(self) -> object:
        if self._pulse is None:
            return None
        try:
            return self._pulse.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            return str(error)  # the file changed under it: whoever looks now finds out how

    def _at_work(self) -> bool:
        try:
            return lock.is_held(self.layout)
        except AutoresearchError:
            return False  # a lock that may not be read is not ours to judge; its ledger still is

    def _without_a_run(self) -> Look:
        if self._at_work():
            return Look(Condition.EMPTY, "A run is being prepared; it shows here as soon as it begins.", at_work=True)
        return Look(
            Condition.EMPTY, f"No run has begun here yet. Begin one: autoresearch run -w {clean(str(self.layout.root))}"
        )


def _stamp(path: Path) -> Mark:
    """Return device, inode, time and size of a file; nothing where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)


def tail_of(text: str) -> str:
    """Return the last lines of a log, none of them long."""
    lines = clean(text, lines=True).splitlines()[-LOG_LINES:]
    return "\n".join(line if len(line) <= LOG_COLUMNS else f"{line[:LOG_COLUMNS]}…" for line in lines)


def keyed(layouts: Sequence[Layout]) -> list[Watched]:
    """Return the workspaces under keys that can stand in an address, each its own; one that is named twice once."""
    found: dict[str, Watched] = {}
    for layout in dict.fromkeys(layouts):
        key, count = re.sub(r"[^A-Za-z0-9_]+", "-", layout.root.name).strip("-") or "workspace", 1
        while (name := key if count == 1 else f"{key}-{count}") in found:
            count += 1
        found[name] = Watched(name, layout)
    return list(found.values())
