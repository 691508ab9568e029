"""Child processes: bounded in time, processor, memory and output, and dead to the last grandchild when they end.

The result of a child arrives as JSON lines on a pipe that the runner opened, never by reading its output. A second
pipe, the lifeline, carries nothing: a child that called `die_with_parent` ends as soon as the runner is gone, so that a
run killed with SIGKILL leaves nothing behind.

How far a child is kept apart from the machine is said by its level, see `sandbox.py`; how a run is started, bounded,
reported and ended is the same at every level.

POSIX only. How every process of a command is found and ended is told in `processtree.py`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

from autoresearch.core.diskuse import DiskUse
from autoresearch.core.errors import EnvironmentNotReadyError
from autoresearch.core.processtree import MARK, ProcessTree, adopt_orphans
from autoresearch.core.sandbox import Confinement, Level, gpu_devices, wrap

__all__ = [
    "Finished",
    "Limits",
    "child_environment",
    "die_with_parent",
    "has_result_pipe",
    "run_process",
    "send_message",
    "tail",
]

RESULT_FD = "AUTORESEARCH_RESULT_FD"
LIFELINE_FD = "AUTORESEARCH_LIFELINE_FD"

Message = Mapping[str, Any]

# A training curve of thousands of points fits well into a line of 1 MiB; a child that sends more is broken or hostile.
_MAX_MESSAGE_BYTES = 1 << 20
_MAX_MESSAGES_BYTES = 16 << 20
_MAX_STATUS_BYTES = 1 << 12
# Output beyond the bound is dropped; a child that goes on to sixteen times the bound only burns the runner's processor.
_OUTPUT_STOP_FACTOR = 16
# One walk over the process table costs 1 to 5 ms; four a second stay near one per cent of a core.
_SAMPLE_SECONDS = 0.25
_READ_BYTES = 1 << 16

# fmt: off
_ALLOWED = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "TEMP", "TMP",
    "VIRTUAL_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "CC", "CXX",
})
# fmt: on
_ALLOWED_PREFIXES = (
    "LC_",
    "PYTHON",
    "CUDA_",
    "NVIDIA_",
    "NCCL_",
    "ROCM_",
    "HIP_",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "VECLIB_",
    "KMP_",
    "XDG_",
    "TORCH",
    "PYTORCH_",
    "TRITON_",
)
_SECRET = re.compile(r"^ANTHROPIC_|KEY|TOKEN|SECRET|PASSW|CREDENTIAL|COOKIE|_AUTH", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child process may use before it is ended.

    Attributes:
        wall_seconds: Seconds from its start.
        cpu_seconds: Processor seconds of the whole process tree; None without.
        memory_mb: Resident memory of the whole tree in MiB (shared pages count once per process); None without.
        output_mb: Output kept in the log, in MiB. More is dropped, and a child that writes 16 times as much is ended.
        disk_mb: MiB that it may add to the folders it writes, and size of its largest file; None without.
        processes: Processes alive at one time; None without.
    """

    wall_seconds: float
    cpu_seconds: float | None = None
    memory_mb: int | None = None
    output_mb: float = 16.0
    disk_mb: float | None = None
    processes: int | None = 512


@dataclass(frozen=True, slots=True)
class Finished:
    """How a child process ended.

    Attributes:
        returncode: Exit status; minus the signal's number where a signal ended it.
        seconds: Wall-clock seconds from start to end.
        cpu_seconds: Processor seconds of the child and its descendants; of those that were killed as last seen alive.
        messages: What arrived on the result pipe, in order.
        stopped: One sentence when the runner ended it (a limit, or a broken message); None when it ended by itself.
    """

    returncode: int
    seconds: float
    cpu_seconds: float
    messages: tuple[Message, ...]
    stopped: str | None

    @property
    def ending(self) -> str:
        """How it ended, as the predicate of a sentence without its full stop: `ended with exit code 1`."""
        if self.stopped is not None:
            return f"was stopped: {self.stopped.rstrip('.')}"
        if self.returncode >= 0:
            return f"ended with exit code {self.returncode}"
        hint = " (often the system ran out of memory)" if -self.returncode == signal.SIGKILL else ""
        try:
            name = signal.Signals(-self.returncode).name
        except ValueError:  # real-time signals have numbers without names
            name = f"signal {-self.returncode}"
        return f"was killed by {name}{hint}"


def run_process(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    log: Path,
    limits: Limits,
    env: Mapping[str, str] | None = None,
    on_message: Callable[[Message], None] | None = None,
    level: Level = Level.LIMITS,
    confinement: Confinement | None = None,
) -> Finished:
    """Run a command to its end, or until a limit ends it, and leave no process of it behind.

    The command runs in a session of its own, without input. Its output and errors are appended to `log` while it runs.

    Args:
        argv: The program and its arguments.
        cwd: Working directory.
        log: File to append to; made with its folder where it is missing.
        limits: When to end it.
        env: Variables on top of `child_environment()`.
        on_message: Called in this thread with every message as it arrives. What it raises ends the child.
        level: How far it is kept apart from the machine. `NONE` bounds time and output only.
        confinement: What it may see and write; None: nothing but its working directory.

    Raises:
        EnvironmentNotReadyError: If the machine is at fault: the program, a directory or a GPU is missing, the sandbox
            does not start, disk or memory is full although the child kept to its limits, or a process of it cannot be
            ended.
        KeyboardInterrupt: If the person interrupts; the process tree is dead by then.
    """
    if level is Level.NONE:
        limits = replace(limits, cpu_seconds=None, memory_mb=None, disk_mb=None, processes=None)
    confinement = confinement or Confinement(readable=(), writable=(cwd,))
    gpus = gpu_devices() if confinement.gpu else ()
    oom_kills = _oom_kills()
    with ExitStack() as stack:
        output = _Log(log, int(limits.output_mb * (1 << 20)))
        stack.callback(output.close)
        messages = _Messages(on_message)
        command = [os.fspath(part) for part in argv]
        child = _Child.start(command, cwd, env or {}, limits, level, confinement, stack)
        try:
            stopped = _watch(child, output, messages, limits)
        finally:
            child.end()
        stopped = child.drain(output, messages) or stopped
        if stopped is None:
            child.told.demand_started(log)
        if child.returncode == -signal.SIGKILL and stopped is None and _oom_kills() > oom_kills:
            stopped = _out_of_memory(child.peak_memory_mb)
        if child.returncode != 0 and not all(path.exists() for path in gpus):
            raise EnvironmentNotReadyError(
                "A GPU disappeared while the experiment ran.\nLook at `dmesg` and the driver; a restart may be needed."
            )
        # Of a process tree that was killed nobody waited for the members, bubblewrap's above all.
        cpu_seconds = max(child.cpu_seconds, child.seen_cpu_seconds)
        return Finished(child.returncode, child.seconds, cpu_seconds, tuple(messages.received), stopped)


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child: an allow-list of this process's variables without any secret, plus `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in _ALLOWED or name.startswith(_ALLOWED_PREFIXES)) and not _SECRET.search(name)
    }
    # Python buffers what it writes to a pipe; the log could not be followed while the child runs.
    return {"PYTHONUNBUFFERED": "1", **kept, **(extra or {})}


# ---- The child's side


def has_result_pipe() -> bool:
    """Say whether this process was started by `run_process`."""
    return RESULT_FD in os.environ


def send_message(message: Message) -> None:
    """Send one JSON object to the runner. Call it in a process that `run_process` started.

    Raises:
        RuntimeError: If this process has no result pipe.
        TypeError: If the message is not JSON.
        ValueError: If it is longer than 1 MiB.
    """
    if not has_result_pipe():
        raise RuntimeError(f"There is no runner to send a message to: {RESULT_FD} is not set.")
    line = json.dumps(dict(message), separators=(",", ":")).encode() + b"\n"
    if len(line) > _MAX_MESSAGE_BYTES:
        raise ValueError(f"A message of {len(line)} bytes is too long; {_MAX_MESSAGE_BYTES} are allowed.")
    descriptor = int(os.environ[RESULT_FD])
    while line:
        line = line[os.write(descriptor, line) :]


def die_with_parent() -> None:
    """End this process and its process group as soon as the runner is gone, even when the runner was killed.

    Does nothing where no runner started this process.
    """
    if LIFELINE_FD not in os.environ:
        return
    descriptor = int(os.environ[LIFELINE_FD])
    threading.Thread(target=_await_end_of_runner, args=(descriptor,), name="lifeline", daemon=True).start()


def _await_end_of_runner(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


# ---- The runner's side


@dataclass
class _Log:
    """Appends output to a file and stops at a bound, with one line that says so."""

    path: Path
    limit: int
    seen: int = 0
    _file: IO[bytes] = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def write(self, data: bytes) -> None:
        room = self.limit - self.seen
        self.seen += len(data)
        if room < 0 or not data:
            return
        if len(data) > room:
            bound = self.limit / (1 << 20)
            data = data[:room] + f"\n[autoresearch] Output beyond {bound:g} MiB is dropped.\n".encode()
            self.limit = -1  # the marker is written once
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def close(self) -> None:
        self._file.close()


def _cannot_write(path: Path, error: OSError) -> EnvironmentNotReadyError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentNotReadyError(
            f"The disk that holds {path} is full, so the log of the experiment cannot be written.\n"
            "Free some space and run the same command again; it goes on where it stopped."
        )
    return EnvironmentNotReadyError(
        f"The log {path} cannot be written: {error.strerror}.\nMake the folder writable and run the same command again."
    )


class _BrokenMessage(Exception):
    """The child wrote something into the result pipe that is no message; the text says what."""


@dataclass
class _Messages:
    """Cuts the result pipe into JSON objects."""

    on_message: Callable[[Message], None] | None
    received: list[Message] = field(default_factory=list)
    _rest: bytearray = field(default_factory=bytearray)
    _total: int = 0

    def write(self, data: bytes) -> None:
        self._total += len(data)
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        if self._total > _MAX_MESSAGES_BYTES or any(len(line) > _MAX_MESSAGE_BYTES for line in (*lines, rest)):
            raise _BrokenMessage("It wrote more into the result pipe than messages may hold.")
        self._rest = rest
        for line in lines:
            self._receive(bytes(line))

    def finish(self) -> None:
        """Take what came without a line end: the child died while it wrote."""
        if self._rest:
            raise _BrokenMessage("It ended in the middle of a message.")

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _BrokenMessage("It wrote a line into the result pipe that is not JSON.") from error
        if not isinstance(message, dict):
            raise _BrokenMessage("It wrote a line into the result pipe that is not a JSON object.")
        self.received.append(message)
        if self.on_message is not None:
            self.on_message(message)


def _watch(child: _Child, output: _Log, messages: _Messages, limits: Limits) -> str | None:
    """Pass on what the child writes until it ends (None) or must be ended (the reason)."""
    deadline = child.started + limits.wall_seconds
    next_sample = child.started + _SAMPLE_SECONDS
    while True:
        now = time.monotonic()
        try:
            if child.pump(output, messages, max(0.0, min(deadline, next_sample) - now)):
                return None
        except _BrokenMessage as error:
            return str(error)
        now = time.monotonic()
        if now >= deadline:
            return f"It ran longer than its limit of {limits.wall_seconds:g} s of wall-clock time."
        if output.seen > limits.output_mb * (1 << 20) * _OUTPUT_STOP_FACTOR:
            return f"It wrote more than {limits.output_mb * _OUTPUT_STOP_FACTOR:g} MiB of output."
        if now >= next_sample:
            next_sample = now + _SAMPLE_SECONDS
            reason = _exceeded(child, limits) or child.disk.exceeded(child.tree.pids)
            if reason is not None:
                return reason


def _exceeded(child: _Child, limits: Limits) -> str | None:
    """Sample the tree, which also keeps sight of its members, and name the limit that it has crossed."""
    cpu_seconds, memory_mb = child.tree.usage()
    child.peak_memory_mb = max(child.peak_memory_mb, memory_mb)
    child.seen_cpu_seconds = cpu_seconds
    processes = len(child.tree.pids)
    if limits.cpu_seconds is not None and cpu_seconds > limits.cpu_seconds:
        return f"It used more than its limit of {limits.cpu_seconds:g} s of processor time."
    if limits.memory_mb is not None and memory_mb > limits.memory_mb:
        return f"It used {memory_mb:.0f} MiB of memory; its limit is {limits.memory_mb} MiB."
    if limits.processes is not None and processes > limits.processes:
        return f"It started {processes} processes; its limit is {limits.processes} at a time."
    return None


def _oom_kills() -> int:
    """Return how many processes this system has ended for want of memory; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0  # not Linux
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _out_of_memory(peak_memory_mb: float) -> str:
    """Say that the child ate the machine's memory, or raise: a small victim is the machine's fault."""
    total_mb = psutil.virtual_memory().total / (1 << 20)
    if peak_memory_mb > total_mb / 2:
        return f"The machine ran out of memory while it used {peak_memory_mb:.0f} of {total_mb:.0f} MiB."
    raise EnvironmentNotReadyError(
        f"The machine ran out of memory and ended the experiment, which used only {peak_memory_mb:.0f} of "
        f"{total_mb:.0f} MiB.\nEnd other programs and run the same command again; it goes on where it stopped."
    )


@dataclass
class _Child:
    """A started command with its inward pipes and its process tree."""

    process: subprocess.Popen[bytes]
    tree: ProcessTree
    output: int
    results: int
    status: int
    pidfd: int | None
    selector: selectors.BaseSelector
    started: float
    disk: DiskUse
    told: _Status
    peak_memory_mb: float = 0.0
    seen_cpu_seconds: float = 0.0
    returncode: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    _ended: bool = False

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        limits: Limits,
        level: Level,
        confinement: Confinement,
        stack: ExitStack,
    ) -> _Child:
        """Start the command. Every descriptor that stays open here is closed by `stack`."""
        if not cwd.is_dir():
            raise _cannot_start(argv[0], cwd, FileNotFoundError())
        confinement.check(cwd)
        adopt_orphans()
        output_read, output_write = _pipe(stack)
        result_read, result_write = _pipe(stack)
        status_read, status_write = _pipe(stack)
        lifeline_read, _ = _pipe(stack)  # its write end stays open for as long as the runner lives
        mark = uuid.uuid4().hex
        own = {RESULT_FD: str(result_write), LIFELINE_FD: str(lifeline_read), MARK: mark}
        environment = child_environment({**env, **own})
        inherited: tuple[int, ...] = (result_write, lifeline_read)
        resources, folders = _resource_limits(limits, level), confinement.writable
        program = argv[0]
        if level.confines:
            wrapped = wrap(argv, cwd, environment, level, confinement, resources, status_write, stack)
            argv, environment, folders = wrapped.argv, dict(wrapped.env), (*folders, wrapped.private)
            inherited += wrapped.pass_fds
        disk = DiskUse(folders, limits.disk_mb)
        started = time.monotonic()
        with ProcessTree.starting:
            process = _spawn(argv, cwd, environment, output_write, inherited)
            ProcessTree.roots.add(process.pid)
        if not level.confines:
            _limit(process.pid, resources)
        for descriptor in (output_write, result_write, status_write, lifeline_read):
            os.close(descriptor)
        _offer_to_the_oom_killer(process.pid)  # and with it whatever it starts from now on
        pidfd = _open_pidfd(process.pid, stack)
        selector = _listen((output_read, result_read, status_read), pidfd, stack)
        told = _Status(level, program, cwd)
        tree = ProcessTree(process.pid, mark)
        return cls(process, tree, output_read, result_read, status_read, pidfd, selector, started, disk, told)

    def pump(self, output: _Log, messages: _Messages, timeout: float) -> bool:
        """Wait for something to happen and pass it on; say whether the child has ended."""
        if self.pidfd is None:
            timeout = min(timeout, 0.02)  # without a descriptor for the process, its end is found by asking
        sinks: dict[int, _Sink] = {self.output: output, self.results: messages, self.status: self.told}
        for key, _ in self.selector.select(timeout):
            if key.fd != self.pidfd and not _pass_on(key.fd, sinks[key.fd]):
                self.selector.unregister(key.fd)
        return self._poll()

    def drain(self, output: _Log, messages: _Messages) -> str | None:
        """Pass on what is left in the pipes after the end; return what is wrong with the messages, if anything."""
        open_ = {key.fd for key in self.selector.get_map().values()}
        for descriptor, sink in ((self.output, output), (self.status, self.told)):
            if descriptor in open_:
                _pass_on(descriptor, sink, to_the_end=True)
        self.returncode = self.told.returncode(self.returncode)
        try:
            if self.results in open_:
                _pass_on(self.results, messages, to_the_end=True)
            messages.finish()
        except _BrokenMessage as error:
            return str(error)
        return None

    def end(self) -> None:
        """Kill the whole tree and collect the exit status; harmless when everything has ended already."""
        self.cpu_seconds += self.tree.kill(self._poll)

    def _poll(self) -> bool:
        if self._ended:
            return True
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if pid == 0:
            return False
        self._ended = True
        self.seconds = time.monotonic() - self.started
        self.cpu_seconds += used.ru_utime + used.ru_stime
        self.peak_memory_mb = max(self.peak_memory_mb, used.ru_maxrss / _MAXRSS_PER_MIB)
        self.returncode = os.waitstatus_to_exitcode(status)
        self.process.returncode = self.returncode  # Popen would wait for the status that is already collected
        return True


class _Sink(Protocol):
    """Takes what arrives on a pipe."""

    def write(self, data: bytes) -> None: ...


@dataclass
class _Status:
    """What the launcher in front of a confined command says; see `launcher.py`."""

    level: Level
    program: str
    cwd: Path
    _text: bytes = b""

    def write(self, data: bytes) -> None:
        self._text = (self._text + data)[:_MAX_STATUS_BYTES]

    def _told(self, word: str) -> str | None:
        """Return what followed a word when it was said last; None where it was not said."""
        lines = (line.partition(" ") for line in self._text.decode("ascii", "replace").splitlines())
        return next((rest for first, _, rest in reversed(list(lines)) if first == word), None)

    def returncode(self, of_the_sandbox: int) -> int:
        """Return the command's own exit status, as `Finished` has it."""
        if self.level is not Level.BUBBLEWRAP:
            return of_the_sandbox
        ended = self._told("ended")
        if of_the_sandbox == 0 and ended is not None and re.fullmatch(r"-?\d{1,3}", ended):
            return int(ended)
        return 128 - of_the_sandbox if of_the_sandbox > 128 else of_the_sandbox  # the launcher was killed

    def demand_started(self, log: Path) -> None:
        """Raise `EnvironmentNotReadyError` if the command was never reached."""
        ready, failed = self._told("ready") is not None, self._told("failed")
        if failed is not None and not (ready and self.level is Level.BUBBLEWRAP):
            number, _, step = failed.partition(" ")
            error = OSError(int(number), os.strerror(int(number)))
            if step == "start":
                raise _cannot_start(self.program, self.cwd, error, self.level)
            raise _sandbox_failed(self.level, f"it could not {step} ({error.strerror})")
        if self.level.confines and not ready:
            raise _sandbox_failed(self.level, tail(log, lines=1) or "it ended without a word")


def _sandbox_failed(level: Level, reason: str) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"The sandbox ({level.value}) did not start: {reason}.\n"
        "Ask `autoresearch doctor` which level works on this machine, or choose another: --sandbox LEVEL."
    )


# ru_maxrss is in KiB on Linux and in bytes on macOS.
_MAXRSS_PER_MIB = 1 << 20 if sys.platform == "darwin" else 1 << 10
# A process counts once for every thread here, and trainings have many; the watch counts processes and says so.
_TASKS_PER_PROCESS = 16


def _resource_limits(limits: Limits, level: Level) -> dict[int, int]:
    """Return the limits that the system itself holds: they hold between two looks as well."""
    if level is Level.NONE:
        return {}
    found = {resource.RLIMIT_CORE: 0}
    if limits.disk_mb is not None:
        found[resource.RLIMIT_FSIZE] = int(limits.disk_mb * (1 << 20))
    # In a user namespace only its own processes count; elsewhere all of this user's do, which are not ours to bound.
    if limits.processes is not None and level is Level.BUBBLEWRAP:
        found[resource.RLIMIT_NPROC] = limits.processes * _TASKS_PER_PROCESS
    return found


def _limit(pid: int, resources: Mapping[int, int]) -> None:
    """Lower the limits of a process that has just started; where the system cannot, the watch alone bounds it."""
    if not hasattr(resource, "prlimit"):  # Linux only
        return
    with suppress(ProcessLookupError):  # it has ended already
        for which, amount in resources.items():
            _, hard = resource.prlimit(pid, which)
            amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
            resource.prlimit(pid, which, (amount, amount))


def _spawn(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    output: int,
    pass_fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=pass_fds,
            start_new_session=True,
        )
    except OSError as error:
        raise _cannot_start(argv[0], cwd, error) from error


def _cannot_start(program: str, cwd: Path, error: OSError, level: Level = Level.NONE) -> EnvironmentNotReadyError:
    if not cwd.is_dir():
        return EnvironmentNotReadyError(
            f"{program} cannot be started in {cwd}: there is no such folder.\n"
            "Run the same command again; a missing folder of an experiment is made anew."
        )
    found = shutil.which(program) is not None
    if level.confines and found:
        return EnvironmentNotReadyError(
            f"{program} cannot be started inside the sandbox: it is not to be seen there.\n"
            "Install it where the system keeps its programs, or choose another level: --sandbox LEVEL."
        )
    # With a folder on PATH that is closed to this user, the system says "permission denied" of a missing program.
    if not found and not Path(program).exists():
        return EnvironmentNotReadyError(
            f"{program} cannot be started: there is no such program.\nInstall it, or put its folder on PATH."
        )
    return EnvironmentNotReadyError(
        f"{program} cannot be started: {error.strerror}.\n"
        "The machine is short of a resource or forbids it; put that right and run the same command again."
    )


def _offer_to_the_oom_killer(pid: int) -> None:
    """Where memory runs out, let Linux end the candidate and not the run that would record it."""
    # A courtesy: a child that has ended, a system without /proc and a read-only one do without.
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("500")


def _pipe(stack: ExitStack) -> tuple[int, int]:
    read, write = os.pipe()
    stack.callback(_close, read, os.fstat(read).st_ino)
    stack.callback(_close, write, os.fstat(write).st_ino)
    return read, write


def _close(descriptor: int, inode: int) -> None:
    """Close a descriptor unless it was closed before and now belongs to something else."""
    with suppress(OSError):
        if os.fstat(descriptor).st_ino == inode:
            os.close(descriptor)


def _listen(pipes: tuple[int, ...], pidfd: int | None, stack: ExitStack) -> selectors.BaseSelector:
    selector = stack.enter_context(selectors.DefaultSelector())
    for descriptor in pipes:
        os.set_blocking(descriptor, False)
        selector.register(descriptor, selectors.EVENT_READ)
    if pidfd is not None:
        selector.register(pidfd, selectors.EVENT_READ)
    return selector


def _open_pidfd(pid: int, stack: ExitStack) -> int | None:
    if not hasattr(os, "pidfd_open"):  # Linux only
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # before Linux 5.3, and in some containers
            return None
        raise
    stack.callback(os.close, descriptor)
    return descriptor


def _pass_on(descriptor: int, sink: _Sink, *, to_the_end: bool = False) -> bool:
    """Move what can be read now into `sink`; return False at the end of the stream."""
    while True:
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        sink.write(data)
        if not to_the_end:
            return True


# ---- Reading a log

_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # strings: titles, links
    r"|[ -/]*[0-~])"
)
# Control characters, and the marks that reorder text on a screen.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def tail(path: Path, *, lines: int = 60, max_bytes: int = 16_384) -> str:
    """Return the end of a log as plain text: no escape sequences, no control characters, bounded.

    Of a line that was overwritten in place (a progress bar) only the last state is kept.

    Args:
        path: The log. A file that does not exist yet reads as empty: nothing has been written.
        lines: Most lines to return.
        max_bytes: Most bytes to read from the end.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            text = file.read(max_bytes).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    if size > max_bytes:
        text = text.partition("\n")[2] or text  # the first line is cut, unless there is only one
    cleaned = (_clean(line) for line in text.split("\n"))
    return "\n".join(list(cleaned)[-lines - 1 :] if text.endswith("\n") else list(cleaned)[-lines:]).rstrip("\n")


def _clean(line: str) -> str:
    line = _ESCAPES.sub("", line)
    return _CONTROLS.sub("", line.rstrip("\r").rpartition("\r")[2]).rstrip()
