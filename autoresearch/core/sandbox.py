"""How a candidate's processes are kept apart from the machine: four levels, and what each of them needs.

    bubblewrap  namespaces: a file system that holds only what is shown, no network, no other process to be seen
    landlock    rules of the kernel on files, sockets and signals, for one process and all its children
    limits      resource limits alone: files and network are open
    none        time and output are bounded, nothing else

Every level is tried before it is believed: `resolve` runs a process inside, which must fail to read, to write and to
connect where it may not, and must succeed where it may. The answer is kept for the life of this process.

How to use it, from an adapter:

    level = Level(run.sandbox)                     # RunContext carries the level as one of the four words
    confinement = Confinement(readable=(artifact, train_dir), writable=(scratch,), hidden=(holdout_dir,), gpu=True)
    run_process(argv, cwd=scratch, log=run.log, limits=Limits(60), level=level, confinement=confinement)

and from the loop, once per session:

    level = resolve("auto")                        # or what the person asked for; raises EnvironmentNotReadyError
    RunContext(..., sandbox=level.value)

Where rules overlap, the deeper path wins, and `hidden` wins on the same path. The system, the Python environment and
this package are readable without being named. The environment variables HOME and TMPDIR lead to a private, empty
folder that is deleted afterwards. `limits` and `none` show everything and ignore the confinement's paths; `limits`
still counts what is written below `writable` (`Limits.disk_mb`).
"""

from __future__ import annotations

import functools
import importlib.machinery
import marshal
import os
import shutil
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import CodeType

from autoresearch.core import bubblewrap, landlock, seccomp
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

__all__ = ["Confinement", "Level", "Probe", "Wrapped", "best_level", "gpu_devices", "probe", "resolve", "wrap"]


class Level(Enum):
    """How far a process is kept apart; strongest first."""

    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "landlock"
    LIMITS = "limits"
    NONE = "none"

    @property
    def confines(self) -> bool:
        """Whether files and network are out of reach at this level."""
        return self in (Level.BUBBLEWRAP, Level.LANDLOCK)


@dataclass(frozen=True, slots=True)
class Confinement:
    """What a process may see of this machine.

    Attributes:
        readable: Files and folders shown read-only, beside the system and the Python environment.
        writable: The folders it may write; the first is its own. They must exist.
        hidden: Files and folders that stay out of reach even below a readable one: held-out data, `.autoresearch`.
            What is neither readable nor writable needs no mention here.
        gpu: Whether it may use the machine's GPUs, if there are any.
    """

    readable: tuple[Path, ...]
    writable: tuple[Path, ...]
    hidden: tuple[Path, ...] = ()
    gpu: bool = False

    def check(self, cwd: Path) -> None:
        """Refuse what cannot be laid on, at whatever level.

        Raises:
            ValueError: If a path is shown and hidden, or the working directory is not shown.
            EnvironmentNotReadyError: If something that should be shown is missing.
        """
        shown = (*self.readable, *self.writable)
        for path in shown:
            if not _reachable(path):
                raise EnvironmentNotReadyError(
                    f"{path} should be shown to the experiment, and there is no such file or folder.\n"
                    "Run the same command again; what belongs to an experiment is made anew."
                )
        real, hidden = [path.resolve() for path in shown], {path.resolve() for path in self.hidden}
        for path in real:
            if path in hidden:
                raise ValueError(f"{path} is both shown and hidden; hide what lies below it instead.")
        if not any(cwd.resolve().is_relative_to(path) for path in real):
            raise ValueError(f"The working directory {cwd} is neither readable nor writable by the confinement.")


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether a level works on this machine.

    Attributes:
        level: The level.
        works: Whether a process was run inside and found everything as it should be.
        reason: One sentence when it does not work.
        advice: What to do about it, at most a few lines.
    """

    level: Level
    works: bool
    reason: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A command made ready to be confined.

    Attributes:
        argv: What to start instead of the command.
        env: Its environment.
        pass_fds: Descriptors that it inherits for the launcher, beside those of the caller.
        private: The folder behind its HOME and TMPDIR; what is in it counts as written by the command.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...]
    private: Path


def resolve(asked: str) -> Level:
    """Return the level to work at.

    Args:
        asked: `auto` for the strongest that works here, or a level's name.

    Raises:
        UsageError: If there is no such level.
        EnvironmentNotReadyError: If the level that was asked for does not work here; says what to do.
    """
    if asked == "auto":
        return best_level()
    try:
        level = Level(asked)
    except ValueError as error:
        names = ", ".join(["auto", *(level.value for level in Level)])
        raise UsageError(f"There is no sandbox level {asked!r}.\nChoose one of {names}.") from error
    tried = probe(level)
    if not tried.works:
        raise EnvironmentNotReadyError(
            f"The sandbox level {asked} does not work on this machine: {tried.reason}\n{tried.advice}\n"
            f"Or take the strongest level that works here: --sandbox auto (now {best_level().value})."
        )
    return level


def best_level() -> Level:
    """Return the strongest level that works on this machine."""
    return next(level for level in Level if probe(level).works)


@functools.cache
def probe(level: Level) -> Probe:
    """Try a level by running something inside; the answer is kept for the life of this process."""
    if not level.confines:
        return Probe(level, True)
    obstacle = bubblewrap.obstacle() if level is Level.BUBBLEWRAP else _landlock_obstacle()
    if obstacle is not None:
        return Probe(level, False, *obstacle)
    complaint = _try_out(level)
    if complaint is None:
        return Probe(level, True)
    advice = bubblewrap.advice(complaint) if level is Level.BUBBLEWRAP else _LANDLOCK_ADVICE
    return Probe(level, False, complaint, advice)


_LANDLOCK_ADVICE = "Use a kernel of 6.2 or newer with Landlock switched on (lsm=landlock,... on its command line)."


def _landlock_obstacle() -> tuple[str, str] | None:
    if not sys.platform.startswith("linux"):
        return "Landlock is a part of Linux.", "Run on Linux, or in a virtual machine or container with Linux."
    if not seccomp.supported():
        return (
            "the filter of system calls that goes with it is written for x86-64 and ARM64 only.",
            "Install bubblewrap, which needs no such filter.",
        )
    version = landlock.abi()
    if version == 0:
        return "this kernel has no Landlock, or the container does not let it be used.", _LANDLOCK_ADVICE
    if version < landlock.LOWEST_ABI:
        return f"this kernel has version {version} of Landlock, and {landlock.LOWEST_ABI} is needed.", _LANDLOCK_ADVICE
    return None


# ---- Making a command ready


def wrap(
    argv: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    level: Level,
    confinement: Confinement,
    limits: Mapping[int, int],
    status: int,
    stack: ExitStack,
) -> Wrapped:
    """Make a command ready to run at a level that confines; what it opens is closed by `stack`.

    Args:
        argv: The command.
        cwd: Its working directory, which the confinement must show.
        env: Its whole environment; HOME and TMPDIR are replaced.
        level: `BUBBLEWRAP` or `LANDLOCK`.
        confinement: What it may see.
        limits: Resource limits by number (`resource.RLIMIT_...`).
        status: Write end of a pipe on which the launcher reports, see `launcher.py`; it must be inherited.
        stack: Closes and deletes what was made for the command.

    Raises:
        ValueError: If the confinement contradicts itself or does not show the working directory.
        EnvironmentNotReadyError: If something that should be shown is missing, or no private folder can be made.
    """
    confinement.check(cwd)
    private = _private_folder(stack)
    named = [path.resolve() for path in (cwd, *confinement.readable, *confinement.writable)]
    system = (*_system(confinement.gpu), *python_environment(named))
    hidden = tuple({path.resolve() for path in confinement.hidden} | {path for path in _foreign() if path not in named})
    gpus = gpu_devices() if confinement.gpu else ()
    filter_ = seccomp.program(own_network=level is Level.BUBBLEWRAP) if seccomp.supported() else b""
    # Bubblewrap reports a signal as an exit code, so that somebody inside must see how the command really ended.
    launch: dict[str, object] = {
        "argv": list(argv),
        "limits": list(limits.items()),
        "stay": level is Level.BUBBLEWRAP,
        "landlock": None,
        "seccomp": filter_,
    }
    outer: tuple[str, ...] = ()
    descriptors: tuple[int, ...] = ()
    home = private
    if level is Level.BUBBLEWRAP:
        home = bubblewrap.PRIVATE
        files = {path: _opened(path, stack) for path in _etc()}
        arguments = bubblewrap.arguments(
            system=system,
            readable=confinement.readable,
            writable=confinement.writable,
            hidden=hidden,
            devices=gpus,  # it brings the common ones itself
            files=files,
            private=private,
            nothing=_nothing(stack) if any(path.is_file() for path in hidden) else private,
            cwd=cwd.absolute(),
        )
        descriptors = tuple(files.values())
        if filter_:
            descriptors = (*descriptors, _in_memory(filter_, stack))
            arguments += ["--seccomp", str(descriptors[-1])]
        descriptors = (*descriptors, _in_memory(b"".join(os.fsencode(part) + b"\0" for part in arguments), stack))
        outer = (*bubblewrap.command(descriptors[-1]), "--")
    else:
        rules = landlock.rules(
            landlock.abi(),
            readable=(*system, *_etc(), *_PROC, *confinement.readable),
            listed=[path for path in search_path() if path.is_dir()],
            writable=(*confinement.writable, private),
            devices=(*_DEVICES, *gpus),
            hidden=hidden,
        )
        launch["landlock"] = (rules.handled, rules.size, list(rules.allowed))
    descriptors = (*descriptors, _in_memory(marshal.dumps((_launcher(), launch)), stack))
    return Wrapped(
        (*outer, sys.executable, "-I", "-S", "-c", _LAUNCH, str(descriptors[-1]), str(status)),
        {**_without_places(env), "HOME": str(home), "TMPDIR": str(home)},
        (status, *descriptors),
        private,
    )


def _without_places(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name no folder of the person's; those would be missing inside."""
    return {name: value for name, value in env.items() if not name.startswith("XDG_") and name not in ("TMP", "TEMP")}


_LAUNCH = """
import marshal, sys
with open(int(sys.argv[1]), "rb") as file:
    code, spec = marshal.load(file)
exec(code)
main(spec, int(sys.argv[2]))
"""


@functools.cache
def _launcher() -> CodeType:
    """Return the launcher's code; compiling it takes longer than running it, and is the same for every process."""
    path = Path(__file__).with_name("launcher.py")
    return compile(path.read_text(encoding="utf-8"), str(path), "exec", dont_inherit=True)


def _private_folder(stack: ExitStack) -> Path:
    """Make the command's own place for temporary files, gone when `stack` ends."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="autoresearch-sandbox-"))
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"No folder for temporary files can be made in {tempfile.gettempdir()}: {error.strerror}.\n"
            "Free some space there, or name another folder in TMPDIR."
        ) from error
    stack.callback(_remove, folder)
    return folder


def _nothing(stack: ExitStack) -> Path:
    """Make a file that nobody can read, to lay over others."""
    descriptor, name = tempfile.mkstemp(prefix="autoresearch-nothing-")
    stack.callback(os.remove, name)
    os.fchmod(descriptor, 0)
    os.close(descriptor)
    return Path(name)


def _opened(path: Path, stack: ExitStack) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    stack.callback(os.close, descriptor)
    return descriptor


def _remove(folder: Path) -> None:
    """Delete a folder of the command's, in which it may have closed some to us."""
    for path, names, _ in os.walk(folder):
        for name in names:
            inner = Path(path, name)
            if not inner.is_symlink():
                inner.chmod(0o700)
    shutil.rmtree(folder)


def _in_memory(content: bytes, stack: ExitStack) -> int:
    """Return a descriptor to read `content` from, of any length and with no name."""
    descriptor = os.memfd_create("autoresearch")
    stack.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


# ---- What everybody may see

_DEVICES = tuple(Path("/dev", name) for name in ("null", "zero", "full", "random", "urandom"))
# Of /etc what libraries read and what holds no secret.
_ETC = ("group", "hosts", "ld.so.cache", "localtime", "nsswitch.conf", "passwd")
_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store", "/etc/alternatives")
# The kernel's figures, and the process's own entry. Those of other processes show command lines.
_PROC = tuple(
    Path("/proc", name)
    for name in (
        "self",
        "cpuinfo",
        "devices",
        "driver",
        "filesystems",
        "loadavg",
        "meminfo",
        "modules",
        "stat",
        "sys",
        "uptime",
        "version",
        "vmstat",
    )
)


# Where people keep projects inside the system's folders; a common place for them in containers.
_FOREIGN = ("/usr/src", "/usr/local/src")
# What drivers of GPUs want beside their device files.
_GPU_FOLDERS = (
    *("/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module"),
    *("/opt/rocm", "/etc/OpenCL", "/etc/nvidia", "/etc/vulkan"),
)


@functools.cache
def _system(gpu: bool) -> tuple[Path, ...]:
    """Return the folders of the operating system that programs need."""
    names = (*_FOLDERS, *(_GPU_FOLDERS if gpu else ("/sys/devices/system",)))
    return tuple(filter(_reachable, map(Path, names)))


def _foreign() -> list[Path]:
    return [path.resolve() for path in map(Path, _FOREIGN) if path.is_dir() and any(path.iterdir())]


def _etc() -> list[Path]:
    return [path for path in (Path("/etc", name) for name in _ETC) if _reachable(path)]


def _reachable(path: Path) -> bool:
    """Say whether a path is there; Path.exists raises where a folder on the way is closed to this user."""
    return os.access(path, os.F_OK)


def gpu_devices(root: Path = Path("/dev")) -> tuple[Path, ...]:
    """Return the device files of this machine's GPUs, of whatever maker; none where there is no GPU."""
    return tuple(sorted(path for pattern in ("nvidia*", "dri", "kfd", "dxg") for path in root.glob(pattern)))


def python_environment(named: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return what this interpreter and its packages are made of: files and folders to read.

    Args:
        named: Real paths that a command works with. A Python in whose folder one of them lies, or the person's home,
            shows its libraries and not that folder: `python -m venv .` makes a workspace of it, or the other way round.
    """
    prefixes = {Path(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix)}
    others = (Path.home().resolve(), *named)
    shared = {prefix for prefix in prefixes if any(path.is_relative_to(prefix.resolve()) for path in others)}
    return _python_environment(frozenset(prefixes - shared), frozenset(shared))


@functools.lru_cache(maxsize=16)
def _python_environment(whole: frozenset[Path], shared: frozenset[Path]) -> tuple[Path, ...]:
    paths = {*whole, *(path for prefix in shared for path in _libraries(prefix))}
    paths |= {Path(sys.executable).resolve(), Path(__file__).parents[1]}
    if site.ENABLE_USER_SITE:
        paths.add(Path(site.getusersitepackages()))
    for entry in search_path():
        paths |= set(_importable(entry))
    return tuple(sorted(filter(_reachable, paths)))


def _libraries(prefix: Path) -> Iterator[Path]:
    """Yield what makes a Python's folder a Python, and nothing that may lie beside it."""
    yield from (prefix / name for name in ("lib", "lib64", "include", "pyvenv.cfg"))
    yield from (prefix / "bin").glob("python*")


@functools.cache
def search_path() -> tuple[Path, ...]:
    """Return where modules are looked for outside the Python installation, as with `pip install -e` and PYTHONPATH.

    The folder of this process's own script, and its working directory, are none of the command's business.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    ours = {Path.cwd(), *([Path(main).parent.absolute()] if main else [])}
    ours -= {Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    prefixes = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix)]
    entries = [Path(entry) for entry in sys.path if Path(entry).is_absolute()]
    return tuple(
        entry
        for entry in dict.fromkeys(entries)
        if entry not in ours and _reachable(entry) and not any(entry.is_relative_to(prefix) for prefix in prefixes)
    )


def _importable(entry: Path) -> Iterator[Path]:
    """Yield the packages and modules of a folder, and not what happens to lie beside them (.env, .git, data)."""
    if entry.is_file() or entry.name in ("site-packages", "dist-packages"):
        yield entry
        return
    suffixes = tuple(importlib.machinery.all_suffixes())
    for path in entry.iterdir():
        if path.is_dir():
            if (path / "__init__.py").exists() or path.suffix in (".dist-info", ".egg-info"):
                yield path
        elif path.name.endswith(suffixes):
            yield path


# ---- Trying a level

_TRIAL = """
import socket, sys
port, secret, outside, inside = int(sys.argv[1]), *sys.argv[2:]
def works(action):
    try:
        action()
    except OSError:
        return False
    return True
complaints = []
works(lambda: open(outside, "w").close())  # it may land in a private folder; whoever tries the level looks
if works(lambda: open(secret).read()):
    complaints.append("a file that is not shown could be read")
if not works(lambda: open(inside, "w").close()):
    complaints.append("its own folder could not be written")
if works(lambda: socket.create_connection(("127.0.0.1", port), timeout=5).close()):
    complaints.append("a connection could be made")
print("; ".join(complaints) or "confined")
"""


def _try_out(level: Level) -> str | None:
    """Run something inside; return what is wrong, as a sentence, or None."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="autoresearch-probe-")))
        (folder / "secret").write_text("secret")
        own = folder / "own"
        own.mkdir()
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        paths = [str(folder / "secret"), str(folder / "outside"), str(own / "inside")]
        argv = [sys.executable, "-I", "-S", "-c", _TRIAL, str(listener.getsockname()[1]), *paths]
        read, write = os.pipe()
        stack.callback(os.close, read)
        stack.callback(os.close, write)
        wrapped = wrap(
            argv,
            cwd=own,
            env={"PATH": os.defpath},
            level=level,
            confinement=Confinement((), (own,)),
            limits={},
            status=write,
            stack=stack,
        )
        try:
            done = subprocess.run(
                wrapped.argv,
                cwd=own,
                env=dict(wrapped.env),
                pass_fds=wrapped.pass_fds,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TRIAL_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"a trial inside did not end within {_TRIAL_SECONDS:g} s."
        if (folder / "outside").exists():
            return "a trial inside could write a file outside."
        answer = done.stdout.strip()
        if answer == "confined" and (own / "inside").exists():
            return None
        os.set_blocking(read, False)
        told = answer or done.stderr.strip() or _read(read) or f"it ended with exit code {done.returncode}"
        return f"a trial inside failed: {told.splitlines()[-1]}."


_TRIAL_SECONDS = 30.0


def _read(descriptor: int) -> str:
    try:
        return os.read(descriptor, 4096).decode(errors="replace").strip()
    except BlockingIOError:
        return ""
