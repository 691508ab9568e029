"""Every process that a command started, however it tries to leave, and its end.

On Linux an orphan that left the session is found as well, because the runner adopts it.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import psutil

from autoresearch.core.errors import EnvironmentNotReadyError

__all__ = ["MARK", "ProcessTree", "adopt_orphans"]

MARK = "AUTORESEARCH_PROCESS"
"""The environment variable that tells the processes of one command from those of another."""

_KILL_SECONDS = 10.0

_adopting = False


def adopt_orphans() -> None:
    """On Linux, let orphaned descendants become children of this process instead of init's, so that they are found."""
    global _adopting
    if _adopting or not sys.platform.startswith("linux"):
        return
    set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER in linux/prctl.h
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(set_child_subreaper, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise EnvironmentNotReadyError(
            f"This system does not let a process adopt its orphans (prctl: {os.strerror(number)}), so background "
            "processes of a candidate could outlive it.\nRun outside the restriction, or in a container that allows it."
        )
    _adopting = True


class ProcessTree:
    """Every process that a command started, however it tries to leave.

    A member is a descendant of the command, a process of its session, one that still carries its mark in the
    environment, or an orphan that the runner adopted since the command started. Members seen once are remembered,
    whatever they change later.
    """

    # Commands that are running, one for each thread that runs one.
    roots: ClassVar[set[int]] = set()
    # Held while a command is started, so that nobody takes it for an orphan before it is among the roots.
    starting: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, root: int, mark: str) -> None:
        self._root = root
        self._since = psutil.Process(root).create_time() if _adopting else math.inf
        self._mark = f"{MARK}={mark}".encode()
        self._known: dict[int, psutil.Process] = {}
        self._runner = psutil.Process()

    @property
    def pids(self) -> list[int]:
        """The members that the last look found."""
        return list(self._known)

    def usage(self) -> tuple[float, float]:
        """Return processor seconds and resident MiB of the living members, children they waited for included."""
        cpu_seconds, memory = 0.0, 0
        for process in self._members():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                cpu_seconds += times.user + times.system + times.children_user + times.children_system
                memory += process.memory_info().rss
        return cpu_seconds, memory / (1 << 20)

    def kill(self, root_ended: Callable[[], bool]) -> float:
        """Kill members until none is left; return the processor seconds of the adopted ones.

        Args:
            root_ended: Collects the root's exit status if there is one and says whether it has ended.
        """
        deadline = time.monotonic() + _KILL_SECONDS
        cpu_seconds = 0.0
        clean = 0
        while True:
            ended = root_ended()
            members = self._members()
            for process in members:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            cpu_seconds += sum(_reap(process.pid) for process in members if process.pid != self._root)
            # The process table is no snapshot: a member that forks and ends during one look can be missed with its
            # successor, but not in two looks in a row.
            clean = clean + 1 if ended and not members else 0
            if clean == 2:
                self.roots.discard(self._root)
                return cpu_seconds
            if time.monotonic() > deadline:
                raise _cannot_kill(self._root, members)
            if not clean:
                time.sleep(0.002)

    def _members(self) -> list[psutil.Process]:
        with self.starting:
            children = self._runner.children(recursive=True)
            roots = set(self.roots)
        parents = {process.pid: _parent(process) for process in children}
        members: dict[int, psutil.Process] = {}
        for process in children:  # parents come before their children
            pid = process.pid
            known = parents[pid] in members or self._known.get(pid) == process
            if known or pid == self._root or (pid not in roots and self._is_mine(process, parents[pid])):
                members[pid] = process
        for pid, process in self._known.items():
            if pid not in members and process.is_running() and not _is_zombie(process):
                members[pid] = process
        self._known = dict(members)
        return list(members.values())

    def _is_mine(self, process: psutil.Process, parent: int) -> bool:
        """Say whether a process that is no known member's child belongs to this command nevertheless."""
        try:
            session = os.getsid(process.pid)
            if session == self._root:
                return True
            marks = [line for line in _environment(process.pid) if line.startswith(f"{MARK}=".encode())]
            return self._mark in marks if marks else self._is_adopted(process, parent, session)
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False

    def _is_adopted(self, process: psutil.Process, parent: int, session: int) -> bool:
        """Say whether the runner became the parent of a process that left its command's session and environment.

        What the runner starts by itself shares its session, unless it runs as a command; and a process that was there
        before the command is not its orphan.
        """
        if parent != self._runner.pid or session in self.roots or session == os.getsid(0):
            return False
        return bool(process.create_time() >= self._since)


def _environment(pid: int) -> list[bytes]:
    """Return a process's environment; empty where it is another user's, or the system has no /proc."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError):
        return []


def _parent(process: psutil.Process) -> int:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return 0


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _reap(pid: int) -> float:
    """Collect an adopted process that has ended and return its processor seconds; 0 while it lives or is not ours."""
    try:
        ended, _, used = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return 0.0
    return float(used.ru_utime + used.ru_stime) if ended else 0.0


def _cannot_kill(root: int, members: Sequence[psutil.Process]) -> EnvironmentNotReadyError:
    names = ", ".join(str(process.pid) for process in members) or str(root)
    return EnvironmentNotReadyError(
        f"Process {names} of the experiment does not end although it was killed {_KILL_SECONDS:g} s ago; "
        "it waits for a device or a file system.\nEnd it by hand (perhaps by a restart) and run the same command again."
    )
