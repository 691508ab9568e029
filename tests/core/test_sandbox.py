"""The sandbox: what a process inside can reach at each level, and that it ends and is reported alike at all of them."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from autoresearch.core import bubblewrap, executor, landlock, sandbox, seccomp
from autoresearch.core.diskuse import DiskUse
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.executor import Finished, Limits, run_process, tail
from autoresearch.core.sandbox import Confinement, Level

STRONG = [Level.BUBBLEWRAP, Level.LANDLOCK]


def need(level: Level) -> Level:
    tried = sandbox.probe(level)
    if not tried.works:
        pytest.skip(f"{level.value} does not work here: {tried.reason}")
    return level


@pytest.fixture(params=STRONG, ids=lambda level: level.value)
def strong(request: pytest.FixtureRequest) -> Level:
    """Each level that confines, where it works."""
    return need(request.param)


@pytest.fixture(params=list(Level), ids=lambda level: level.value)
def level(request: pytest.FixtureRequest) -> Level:
    """Every level that works here."""
    return need(request.param)


# Without importing the package: a bare interpreter starts in a tenth of the time.
PRELUDE = """
import json, os, sys
def send(message):
    os.write(int(os.environ["AUTORESEARCH_RESULT_FD"]), json.dumps(message).encode() + b"\\n")
"""


def run(
    folder: Path, code: str, level: Level, confinement: Confinement | None = None, env=None, **limits: float
) -> Finished:
    return run_process(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        cwd=folder,
        log=folder.parent / f"{folder.name}.log",
        limits=Limits(**{"wall_seconds": 30.0, **limits}),
        env=env,
        level=level,
        confinement=confinement,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The one writable folder."""
    own = tmp_path / "own"
    own.mkdir()
    return own


def log_of(folder: Path) -> str:
    return tail(folder.parent / f"{folder.name}.log")


# ---- What can be reached

ATTEMPTS = """
import ctypes, socket, subprocess
runner, port, udp_port, place = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
libc = ctypes.CDLL(None, use_errno=True)

def system_call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def read(path):
    with open(path, "rb") as file:
        assert file.read(1)

def to_write(path):
    os.close(os.open(path, os.O_WRONLY))

def connect(family, kind, address):
    with socket.socket(family, kind) as end:
        end.connect(address)
        end.send(b"key")

def through_a_link():
    os.symlink(place + "/secret", "link")
    read("link")

def by_another_name():
    os.link(place + "/secret", "name")
    read("name")

def moved():
    os.rename(place + "/victim", "victim")

def uncovered():
    command = "umount '%s/data/hidden' 2>/dev/null; cat '%s/data/hidden/labels'" % (place, place)
    subprocess.run(["unshare", "-Urm", "sh", "-c", command], check=True, capture_output=True)

attempts = {
    "read a file": lambda: read(place + "/secret"),
    "list a folder": lambda: os.listdir(place).index("secret"),
    "learn that a file exists": lambda: os.stat(place + "/secret"),
    "read through a link": through_a_link,
    "read by a hard link": by_another_name,
    "read through the root of a process": lambda: read("/proc/self/root" + place + "/secret"),
    "read what is hidden below a readable folder": lambda: read(place + "/data/hidden/labels"),
    "read a hidden file": lambda: read(place + "/data/answers"),
    "uncover what is hidden": uncovered,
    "read the log": lambda: os.close(os.open(place + "/own.log", os.O_RDONLY)),
    "read the runner's environment": lambda: read("/proc/%d/environ" % runner),
    "read the runner's memory": lambda: os.close(os.open("/proc/%d/mem" % runner, os.O_RDONLY)),
    "see the runner's open files": lambda: os.listdir("/proc/%d/fd" % runner)[0],
    "see the runner's command line": lambda: read("/proc/%d/cmdline" % runner),
    "signal the runner": lambda: os.kill(runner, 0),
    "write a file": lambda: to_write(place + "/victim"),
    "make a file": lambda: os.close(os.open(place + "/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
    "empty a file": lambda: os.truncate(place + "/victim", 0),
    "move a file": moved,
    "delete a file": lambda: os.remove(place + "/victim2"),
    "change the mode of a file": lambda: os.chmod(place + "/victim3", 0o600),
    "change the time of a file": lambda: os.utime(place + "/victim3"),
    "write into the readable folder": lambda: to_write(place + "/data/text"),
    "change the mode of what is readable": lambda: os.chmod(place + "/data/text", 0o600),
    "connect": lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
    "send a datagram": lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", udp_port)),
    "connect to a socket with a path": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, place + "/data/socket"),
    "connect to an abstract socket": lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, "\\0autoresearch-%d" % runner),
}
if os.uname().machine == "x86_64":
    attempts["ask the kernel's keyring"] = lambda: system_call(250, 0, -3, 1)

found = {}
for name, attempt in attempts.items():
    try:
        attempt()
        found[name] = ""
    except Exception as error:
        found[name] = type(error).__name__ + ": " + str(error)
send(found)
"""

# What succeeds inside bubblewrap without reaching anybody: the place lies below a temporary folder, and the one inside
# is private; its network is its own.
HARMLESS = {Level.BUBBLEWRAP: {"make a file", "send a datagram"}, Level.LANDLOCK: set()}
# What does reach something, as docs/security.md says: show no folder with a socket in it.
OPEN = {Level.BUBBLEWRAP: {"connect to a socket with a path"}, Level.LANDLOCK: {"learn that a file exists"}}


@dataclass(frozen=True)
class Place:
    """A folder outside with things that a process may want, and what it got of them."""

    path: Path
    found: dict[str, str]
    datagrams: list[bytes]


def attempt_everything(path: Path, level: Level) -> Place:
    data, own = path / "data", path / "own"
    (data / "hidden").mkdir(parents=True)
    own.mkdir()
    for name in ("secret", "victim", "victim2", "victim3", "data/text", "data/answers", "data/hidden/labels"):
        (path / name).write_text(name)
        (path / name).chmod(0o644)
    confinement = Confinement((data,), (own,), hidden=(data / "hidden", data / "answers"))
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        named.bind(str(data / "socket"))
        named.listen()
        abstract.bind(f"\0autoresearch-{os.getpid()}")
        abstract.listen()
        finished = run_process(
            [
                sys.executable,
                "-c",
                PRELUDE + ATTEMPTS,
                *map(str, (os.getpid(), tcp.getsockname()[1], udp.getsockname()[1], path)),
            ],
            cwd=own,
            log=path / "own.log",
            limits=Limits(60),
            level=level,
            confinement=confinement,
        )
        datagrams = [udp.recv(10)] if select.select([udp], [], [], 0)[0] else []
    assert finished.messages, tail(path / "own.log")
    return Place(path, dict(finished.messages[0]), datagrams)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[Level, Place]:
    """Everything attempted at every level that works here."""
    working = [level for level in Level if sandbox.probe(level).works]
    return {level: attempt_everything(tmp_path_factory.mktemp(level.value), level) for level in working}


def test_nothing_outside_is_reached(strong: Level, places: dict[Level, Place]):
    """A confined process gets at no file, process or network of the machine, but for what is listed above."""
    reached = {name for name, error in places[strong].found.items() if not error}
    assert reached == HARMLESS[strong] | OPEN[strong]


def test_nothing_outside_is_changed(strong: Level, places: dict[Level, Place]):
    """After all attempts every file outside is as it was, there is no new one, and no datagram arrived."""
    place = places[strong]
    for name in ("victim", "victim2", "victim3", "data/text"):
        assert (place.path / name).read_text() == name
        assert (place.path / name).stat().st_mode & 0o777 == 0o644
    assert not (place.path / "new").exists()
    assert place.datagrams == []


def test_limits_stop_none_of_it(places: dict[Level, Place]):
    """At `limits` every attempt succeeds: the attempts are real ones, and the level keeps nothing apart."""
    refused = {name: error for name, error in places[Level.LIMITS].found.items() if error}
    by_the_machine = {"uncover what is hidden", "read the runner's memory"}  # namespaces, Yama
    assert refused.keys() <= by_the_machine, refused
    assert places[Level.LIMITS].datagrams == [b"key"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root owns the kernel's settings")
def test_root_cannot_change_the_kernel(strong: Level, folder: Path):
    """Started by root, a confined process cannot change a kernel setting through /proc/sys."""
    run(folder, "open('/proc/sys/kernel/core_pattern', 'r+b')", strong)
    assert "Error: [Errno" in log_of(folder)


def test_no_capabilities_inside(folder: Path):
    """Whoever starts the loop, a command inside bubblewrap has no capability and cannot get one."""
    need(Level.BUBBLEWRAP)
    run(folder, "print(open('/proc/self/status').read())", Level.BUBBLEWRAP)
    found = dict(line.split(":", 1) for line in log_of(folder).splitlines() if ":" in line)
    assert {name: int(found[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == dict.fromkeys(
        ("CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )
    assert found["NoNewPrivs"].strip() == "1"


def test_there_is_no_other_room_to_write(strong: Level, folder: Path):
    """Nothing can be made in the root, among the devices, in the system, in Python's folders or in what was hidden."""
    (folder.parent / "shown" / "hidden").mkdir(parents=True)
    hidden = folder.parent / "shown" / "hidden"
    places = ["/", "/dev", "/etc", "/usr", "/proc", "/sys/devices/system", sys.prefix, str(hidden.parent), str(hidden)]
    code = f"""
    for place in {places!r}:
        try:
            os.close(os.open(place + "/autoresearch-made-this", os.O_CREAT | os.O_WRONLY))
            print(place)
        except OSError:
            pass
    """
    finished = run(folder, code, strong, Confinement((hidden.parent,), (folder,), (hidden,)))
    assert finished.returncode == 0
    assert log_of(folder) == ""


def test_home_is_private_and_empty(strong: Level, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """HOME and TMPDIR are an empty folder that can be written and is gone afterwards, and not the person's."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    code = """
    import pathlib, tempfile
    home = pathlib.Path.home()
    names = os.listdir(home)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("x")
    os.mkdir(home / "closed")
    (home / "closed" / "file").touch()
    send({"home": str(home), "same": tempfile.gettempdir() == str(home), "names": names, "all": dict(os.environ)})
    """
    finished = run(folder, code, strong, env={"XDG_CACHE_HOME": str(Path.home())})
    assert finished.returncode == 0, log_of(folder)
    message = finished.messages[0]
    assert message["home"] != str(Path.home())
    assert message["same"] is True
    # What else is there are folders on the way to its own, to this package and to Python.
    shown = (folder, Path(__file__), Path(sys.prefix), Path(sys.base_prefix))
    assert set(message["names"]) <= {part for path in shown for part in path.resolve().parts}
    assert str(Path.home()) not in message["all"].values()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_closed_folders_are_deleted_too(folder: Path):
    """A private folder is deleted even when the command closed folders in it, and links out of it are left alone."""
    outside, private = folder / "outside", folder / "private"
    outside.mkdir(mode=0o700)
    (private / "a" / "b").mkdir(parents=True)
    (private / "a" / "link").symlink_to(outside)
    (private / "a" / "b").chmod(0)
    outside.chmod(0o500)
    sandbox._remove(private)
    assert not private.exists()
    assert outside.stat().st_mode & 0o777 == 0o500


def test_shown_folders_can_be_used(level: Level, folder: Path, tmp_path: Path):
    """What is readable can be read, what is writable written, and what is shown again below a hidden folder too."""
    inner = tmp_path / "cache" / "run" / "candidate"
    inner.mkdir(parents=True)
    (inner / "train.py").write_text("x = 1")
    (tmp_path / "cache" / "labels").write_text("secret")
    (tmp_path / "with Umläut").mkdir()
    confinement = Confinement(
        (tmp_path / "cache", inner, tmp_path / "with Umläut"), (folder,), (tmp_path / "cache" / "run",)
    )
    code = f"""
    import pathlib
    pathlib.Path("result").write_text(pathlib.Path({str(inner / "train.py")!r}).read_text())
    pathlib.Path("deep/er").mkdir(parents=True)
    os.rename("result", "deep/er/result")
    os.listdir({str(tmp_path / "with Umläut")!r})
    """
    finished = run(folder, code, level, confinement)
    assert finished.returncode == 0, log_of(folder)
    assert (folder / "deep" / "er" / "result").read_text() == "x = 1"


def test_writable_below_hidden(strong: Level, tmp_path: Path):
    """A run's own folder works inside the workspace's hidden one, whose other entries stay out of reach."""
    own = tmp_path / "ws" / ".autoresearch" / "own"
    own.mkdir(parents=True)
    (tmp_path / "ws" / ".autoresearch" / "ledger.db").write_text("secret")
    (tmp_path / "ws" / "program.md").write_text("public")
    code = f"""
    open("made", "w").close()
    open({str(tmp_path / "ws" / "program.md")!r}).read()
    open({str(tmp_path / "ws" / ".autoresearch" / "ledger.db")!r}).read()
    """
    confinement = Confinement((tmp_path / "ws",), (own,), (tmp_path / "ws" / ".autoresearch",))
    finished = run(own, code, strong, confinement)
    assert (own / "made").exists()
    assert finished.returncode == 1
    assert "ledger.db" in tail(own.parent / "own.log").splitlines()[-1]


def test_paths_through_links(strong: Level, folder: Path, tmp_path: Path):
    """Folders named through symbolic links are found under the names that the adapter used."""
    (tmp_path / "real" / "data").mkdir(parents=True)
    (tmp_path / "real" / "data" / "text").write_text("text")
    (tmp_path / "link").symlink_to("real")
    code = f"send({{'text': open({str(tmp_path / 'link' / 'data' / 'text')!r}).read()}})"
    finished = run(folder, code, strong, Confinement((tmp_path / "link" / "data",), (folder,)))
    assert finished.messages == ({"text": "text"},), log_of(folder)


def test_environment_works_inside(strong: Level, folder: Path):
    """The installed packages can be imported, threads and child processes can be started."""
    code = """
    import subprocess, threading
    import numpy, psutil
    from autoresearch.core import executor
    thread = threading.Thread(target=print)
    thread.start()
    thread.join()
    assert executor.has_result_pipe()
    executor.send_message({"version": list(sys.version_info[:3]), "prefix": sys.prefix, "argv0": sys.executable})
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    """
    finished = run(folder, code, strong)
    assert finished.returncode == 0, log_of(folder)
    expected = {"version": list(sys.version_info[:3]), "prefix": sys.prefix, "argv0": sys.executable}
    assert finished.messages == (expected,)


def test_secrets_do_not_enter(level: Level, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """No level lets a key of the environment in, by name or by value."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret-value")
    finished = run(folder, "send(dict(os.environ))", level)
    assert "sk-secret-value" not in json.dumps(finished.messages[0])


def test_workers_share_memory_under_bubblewrap(folder: Path):
    """Worker processes with locks and queues work under bubblewrap, as a data loader needs them."""
    need(Level.BUBBLEWRAP)
    finished = run(
        folder, "import multiprocessing\nprint(multiprocessing.Pool(2).map(abs, [-1, -2]))", Level.BUBBLEWRAP
    )
    assert finished.returncode == 0
    assert log_of(folder) == "[1, 2]"


# ---- How it ends


def ending(folder: Path, code: str, level: Level, **limits: float) -> str:
    return run(folder, code, level, **limits).ending


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", "ended with exit code 0"),
        ("sys.exit(3)", "ended with exit code 3"),
        ("os._exit(139)", "ended with exit code 139"),
        ("os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("os.kill(os.getpid(), 15)", "was killed by SIGTERM"),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL (often the system ran out of memory)"),
        ("import signal; os.kill(os.getpid(), signal.SIGRTMIN)", f"was killed by {signal.SIGRTMIN.name}"),
    ],
)
def test_endings_are_reported_alike(level: Level, folder: Path, code: str, expected: str):
    """Exit codes and signals are told apart at every level, also where an exit code looks like a signal."""
    assert ending(folder, code, level) == expected


def test_launcher_killed_from_inside(folder: Path):
    """A command that kills what stands above it inside ends the sandbox and is told as killed."""
    need(Level.BUBBLEWRAP)
    assert "SIGKILL" in ending(folder, "import time; os.kill(os.getppid(), 9); time.sleep(20)", Level.BUBBLEWRAP)


@pytest.mark.parametrize("words", ["failed 28 start", "ended 99999999", "ended nonsense", "ended 0", "x" * 9000])
def test_forged_report_of_the_launcher(folder: Path, words: str):
    """A command that writes into the launcher's pipe cannot blame the machine for its end, nor upset the runner."""
    need(Level.BUBBLEWRAP)
    code = f"""
    results = int(os.environ["AUTORESEARCH_RESULT_FD"])
    for descriptor in set(range(3, 40)) - {{results}}:
        try:
            os.write(os.open(f"/proc/{{os.getppid()}}/fd/{{descriptor}}", os.O_WRONLY), b"{words}\\n")
        except OSError:
            pass
    sys.exit(4)
    """
    # Too much of it leaves no room for what the launcher has to say; then it is the sandbox's own exit code.
    assert ending(folder, code, Level.BUBBLEWRAP) == f"ended with exit code {0 if len(words) > 4096 else 4}"


def test_wall_limit(level: Level, folder: Path):
    """Every level ends a command at its wall-clock limit with the same words."""
    finished = run(folder, "import time; time.sleep(60)", level, wall_seconds=0.6)
    assert finished.stopped == "It ran longer than its limit of 0.6 s of wall-clock time."
    assert finished.returncode == -signal.SIGKILL


def named(word: str) -> list[psutil.Process]:
    """Return living processes with a word on their command line; inside, process numbers are others."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if word in (process.info["cmdline"] or []) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


@pytest.mark.parametrize("end", ["", "time.sleep(60)"], ids=["ends", "stopped"])
def test_daemon_dies(level: Level, folder: Path, end: str):
    """A grandchild that forked twice, called setsid and emptied its environment dies with its command."""
    word = f"daemon-{folder.parent.name}-{os.getpid()}"
    code = f"""
    import time
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            argv = [sys.executable, "-c", "import time; open('up', 'w').close(); time.sleep(120)", {word!r}]
            os.execve(sys.executable, argv, {{}})
        os._exit(0)
    os.waitpid(first, 0)
    while not os.path.exists("up"):
        time.sleep(0.01)
    {end}
    """
    run(folder, code, level, wall_seconds=1.5 if end else 30)
    assert (folder / "up").exists(), log_of(folder)
    assert named(word) == []


def test_processor_time_is_measured(level: Level, folder: Path):
    """Processor seconds of a grandchild are reported at every level."""
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    finished = run(folder, f"import subprocess; subprocess.run([sys.executable, '-c', {burn!r}])", level)
    assert 0.3 <= finished.cpu_seconds < 2


# `none` bounds time and output only.
@pytest.fixture(params=[Level.BUBBLEWRAP, Level.LANDLOCK, Level.LIMITS], ids=lambda level: level.value)
def bounded(request: pytest.FixtureRequest) -> Level:
    """Each level that bounds what a command uses, where it works."""
    return need(request.param)


def test_memory_limit(bounded: Level, folder: Path):
    """A command that takes more memory than allowed is ended with a sentence."""
    finished = run(folder, "import time; held = b'x' * (200 << 20); time.sleep(60)", bounded, memory_mb=120)
    assert "its limit is 120 MiB" in (finished.stopped or "")


def test_process_limit(bounded: Level, folder: Path):
    """A command that starts too many processes is ended with a sentence, and all of them are gone."""
    word = f"swarm-{folder.parent.name}-{os.getpid()}"
    code = f"""
    import subprocess, time
    for _ in range(12):
        subprocess.Popen(["sh", "-c", "sleep 60; exit $0", {word!r}])
    time.sleep(60)
    """
    finished = run(folder, code, bounded, processes=8)
    assert "its limit is 8 at a time" in (finished.stopped or "")
    assert named(word) == []


def test_none_bounds_time_and_output_only(folder: Path):
    """At `none` a command may use more memory, processes and disk than the limits say."""
    code = """
    import subprocess, time
    held = b"x" * (100 << 20)
    open("file", "wb").write(held)
    children = [subprocess.Popen(["sleep", "1"]) for _ in range(4)]
    time.sleep(0.8)
    """
    finished = run(folder, code, Level.NONE, memory_mb=50, processes=2, disk_mb=10)
    assert (finished.returncode, finished.stopped) == (0, None)


def test_fork_bomb(bounded: Level, folder: Path):
    """Processes that double without end are ended, all of them."""
    word = f"bomb-{folder.parent.name}-{os.getpid()}"
    code = """
    import time
    for _ in range(7):  # 128 of them is enough to tell, and does not hurt where the test fails
        os.fork()
    time.sleep(60)
    """
    argv = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), word]
    limits = Limits(30, processes=30)
    finished = run_process(argv, cwd=folder, log=folder.parent / "own.log", limits=limits, level=bounded)
    assert "at a time" in (finished.stopped or "")
    assert named(word) == []


def test_disk_limit(bounded: Level, folder: Path):
    """A command that fills the disk in many files is ended with a sentence."""
    code = """
    import time
    for number in range(40):
        with open(f"file{number}", "wb") as file:
            file.write(os.urandom(1 << 20))
        time.sleep(0.02)
    time.sleep(60)
    """
    finished = run(folder, code, bounded, disk_mb=8)
    assert "MiB to disk; its limit is 8 MiB" in (finished.stopped or "")


def test_deleted_files_count(bounded: Level, folder: Path):
    """Files that were deleted and are still open count as written."""
    code = """
    import time
    held = []
    for number in range(12):
        file = open("file", "wb", buffering=0)
        os.remove("file")
        file.write(os.urandom(1 << 20))
        held.append(file)
    time.sleep(60)
    """
    finished = run(folder, code, bounded, disk_mb=8)
    assert "MiB to disk; its limit is 8 MiB" in (finished.stopped or "")


def test_temporary_files_count(strong: Level, folder: Path):
    """What a command writes into its private folder counts as well."""
    code = """
    import tempfile, time
    for number in range(12):
        with open(tempfile.gettempdir() + f"/{number}", "wb") as file:
            file.write(os.urandom(1 << 20))
    time.sleep(60)
    """
    finished = run(folder, code, strong, disk_mb=8)
    assert "MiB to disk; its limit is 8 MiB" in (finished.stopped or "")


def test_file_size_limit(bounded: Level, folder: Path):
    """One file cannot grow past the limit even between two looks at the disk."""
    code = """
    with open("file", "wb", buffering=0) as file:  # with a hole, so that nobody looks at a full folder in between
        file.seek((2 << 20) - 1)
        file.write(b"x")
        try:
            file.write(b"x")
        except OSError as error:
            print(error.strerror)
    """
    finished = run(folder, code, bounded, disk_mb=2)
    assert finished.returncode == 0
    assert log_of(folder) == "File too large"
    assert (folder / "file").stat().st_size == 2 << 20


def test_killed_runner_leaves_no_command(strong: Level, folder: Path):
    """SIGKILL of the runner ends a command that called `die_with_parent`, and under bubblewrap any command."""
    word = f"orphan-{folder.parent.name}-{os.getpid()}"
    inner = "import time\nopen('up', 'w').close()\ntime.sleep(60)"
    if strong is Level.LANDLOCK:
        inner = "from autoresearch.core.executor import die_with_parent\ndie_with_parent()\n" + inner
    code = f"""
    from pathlib import Path
    from autoresearch.core.executor import Limits, run_process
    from autoresearch.core.sandbox import Level
    argv = [sys.executable, "-c", {inner!r}, {word!r}]
    run_process(argv, cwd=Path.cwd(), log=Path("../inner.log"), limits=Limits(60), level=Level({strong.value!r}))
    """
    process = subprocess.Popen([sys.executable, "-c", PRELUDE + textwrap.dedent(code)], cwd=folder)
    wait_for(lambda: (folder / "up").exists())
    known = {child.pid for child in psutil.Process().children()}
    process.kill()
    process.wait()
    wait_for(lambda: named(word) == [])
    # Orphans come to this process, because it adopts for other tests; the outer one first, then the inner ones.
    while orphans := [child for child in psutil.Process().children() if child.pid not in known]:
        orphans[0].wait(10)


def wait_for(condition, seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_no_descriptor_leaks(strong: Level, folder: Path):
    """Running a confined command leaves no open descriptor behind, also when it cannot be started."""
    run(folder, "pass", strong)
    before = psutil.Process().num_fds()
    run(folder, "pass", strong)
    with pytest.raises(EnvironmentNotReadyError):
        run_process(["no-such-program"], cwd=folder, log=folder.parent / "own.log", limits=Limits(5), level=strong)
    assert psutil.Process().num_fds() == before


# ---- Faults of the machine


def test_missing_program(level: Level, folder: Path):
    """A missing program is the machine's fault at every level, in the same words."""
    with pytest.raises(EnvironmentNotReadyError, match="no-such-program cannot be started: there is no such program"):
        run_process(["no-such-program"], cwd=folder, log=folder.parent / "own.log", limits=Limits(5), level=level)


def test_program_that_is_not_shown(strong: Level, folder: Path, tmp_path: Path):
    """A program that exists and is not shown inside is named as that."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with pytest.raises(EnvironmentNotReadyError, match="not to be seen there"):
        run_process([program], cwd=folder, log=folder.parent / "own.log", limits=Limits(5), level=strong)


@pytest.mark.parametrize("kind", ["readable", "writable"])
def test_missing_folder(level: Level, folder: Path, tmp_path: Path, kind: str):
    """A folder that should be shown and is gone is the machine's fault."""
    gone = (tmp_path / "gone",)
    confinement = Confinement(gone, (folder,)) if kind == "readable" else Confinement((), (folder, *gone))
    with pytest.raises(EnvironmentNotReadyError, match="gone should be shown"):
        run(folder, "pass", level, confinement)


def test_contradictions_are_refused(level: Level, folder: Path, tmp_path: Path):
    """A path that is shown and hidden, or a working directory that is not shown, is a mistake of the adapter."""
    with pytest.raises(ValueError, match="both shown and hidden"):
        run(folder, "pass", level, Confinement((), (folder,), (folder,)))
    (tmp_path / "another").mkdir()
    with pytest.raises(ValueError, match="neither readable nor writable"):
        run(folder, "pass", level, Confinement((), (tmp_path / "another",)))


def test_sandbox_that_does_not_start(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A bubblewrap that fails stops the run with its own words; it is not booked on the candidate."""
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(EnvironmentNotReadyError, match="did not start: bwrap: setting up uid map") as caught:
        run(folder, "pass", Level.BUBBLEWRAP)
    assert "autoresearch doctor" in str(caught.value)


def test_full_disk_is_the_machines_fault(folder: Path):
    """A disk without room stops the run before and while a command writes, if it kept to its own limit."""
    with pytest.raises(EnvironmentNotReadyError, match="is full: 1 MiB are free"):
        DiskUse([folder], 100, free=lambda path: 1 << 20)
    room = iter([1 << 30, 1 << 30, 1 << 20])
    disk = DiskUse([folder], 100, free=lambda path: next(room))
    assert disk.exceeded([]) is None
    disk._next = 0.0
    with pytest.raises(EnvironmentNotReadyError, match="is full"):
        disk.exceeded([])


def test_crossing_the_limit_is_the_commands_fault(folder: Path):
    """Where a command crossed its own limit, a full disk is its doing."""
    room = iter([1 << 30, 1 << 20])
    disk = DiskUse([folder], 1, free=lambda path: next(room))
    (folder / "file").write_bytes(os.urandom(3 << 20))
    assert disk.exceeded([]) == "It wrote 3 MiB to disk; its limit is 1 MiB."


def test_what_was_there_before_does_not_count(folder: Path):
    """Only what is added is counted; a hole takes no space, and links are not followed."""
    (folder / "before").write_bytes(os.urandom(3 << 20))
    (folder / "out").symlink_to(folder.parent)
    disk = DiskUse([folder], 1)
    with (folder / "hole").open("wb") as file:
        file.truncate(50 << 20)
    (folder.parent / "elsewhere").write_bytes(os.urandom(3 << 20))
    assert disk.exceeded([]) is None


def test_too_many_files(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Empty files use up a disk too."""
    monkeypatch.setattr("autoresearch.core.diskuse._MOST_FILES", 50)
    disk = DiskUse([folder], 1)
    for number in range(60):
        (folder / str(number)).touch()
    assert disk.exceeded([]) == "It made more than 50 files."


def test_small_victim_of_the_oom_killer(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A small command that the system ended for want of memory is no fault of the candidate."""
    counts = iter([3, 4])
    monkeypatch.setattr(executor, "_oom_kills", lambda: next(counts))
    with pytest.raises(EnvironmentNotReadyError, match="ran out of memory and ended the experiment"):
        run(folder, "os.kill(os.getpid(), 9)", Level.LIMITS)


def test_large_victim_of_the_oom_killer():
    """A command that held most of the memory when the system ran out is at fault itself."""
    total = psutil.virtual_memory().total / (1 << 20)
    assert "ran out of memory while it used" in executor._out_of_memory(0.8 * total)


def test_lost_gpu(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A GPU whose device file goes away while a command fails is the machine's fault."""
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr(executor, "gpu_devices", lambda: (device,))
    code = f"os.remove({str(device)!r}); sys.exit(1)"
    with pytest.raises(EnvironmentNotReadyError, match="A GPU disappeared"):
        run(folder, code, Level.LIMITS, Confinement((), (folder,), gpu=True))


# ---- Choosing a level


@pytest.fixture
def forget() -> Iterator[None]:
    """Try the levels anew in this test, and again after it."""
    sandbox.probe.cache_clear()
    yield
    sandbox.probe.cache_clear()


def test_auto_takes_the_strongest(forget: None):
    """`auto` is the first level in the order of strength that works."""
    works = [level for level in Level if sandbox.probe(level).works]
    assert sandbox.resolve("auto") is sandbox.best_level() is works[0]


def test_every_name_resolves():
    """A level's name is the level; another word is refused with the names."""
    assert sandbox.resolve("limits") is Level.LIMITS
    assert sandbox.resolve("none") is Level.NONE
    with pytest.raises(UsageError, match="auto, bubblewrap, landlock, limits, none"):
        sandbox.resolve("docker")


def test_missing_bubblewrap(forget: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Without bubblewrap the next level is taken, and asking for it says how to install it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentNotReadyError, match="apt install bubblewrap"):
        sandbox.resolve("bubblewrap")
    assert sandbox.best_level() is not Level.BUBBLEWRAP


def test_broken_bubblewrap_is_found_out(forget: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A bubblewrap that is installed and fails does not count, and its complaint is shown."""
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    tried = sandbox.probe(Level.BUBBLEWRAP)
    assert not tried.works
    assert "No permissions to create new namespace" in tried.reason


def test_bubblewrap_that_lets_everything_through_is_found_out(
    forget: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """A program that runs the command without confining it does not count as a sandbox."""
    (tmp_path / "bwrap").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    tried = sandbox.probe(Level.BUBBLEWRAP)
    assert not tried.works
    assert "a file outside" in tried.reason


@pytest.mark.parametrize(
    ("switch", "value", "word"),
    [
        ("_RESTRICTED_BY_APPARMOR", "1", "/etc/apparmor.d/bwrap"),
        ("_ALLOWED_BY_DEBIAN", "0", "unprivileged_userns_clone=1"),
        ("_MOST_NAMESPACES", "0", "max_user_namespaces"),
        (None, "", "Inside a container"),
    ],
)
def test_advice_fits_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, switch: str | None, value: str, word: str
):
    """The advice names the switch of this system that keeps bubblewrap from working."""
    for name in ("_RESTRICTED_BY_APPARMOR", "_ALLOWED_BY_DEBIAN", "_MOST_NAMESPACES"):
        path = tmp_path / name
        if name == switch:
            path.write_text(f"{value}\n")
        monkeypatch.setattr(bubblewrap, name, path)
    assert word in bubblewrap.advice("bwrap: No permissions to create new namespace")


def test_other_systems_fall_back(forget: None, monkeypatch: pytest.MonkeyPatch):
    """On macOS neither strong level is tried, and `auto` is `limits`."""
    monkeypatch.setattr(sys, "platform", "darwin")
    assert sandbox.resolve("auto") is Level.LIMITS
    with pytest.raises(EnvironmentNotReadyError, match="Landlock is a part of Linux"):
        sandbox.resolve("landlock")


@pytest.mark.parametrize(("version", "word"), [(0, "has no Landlock"), (2, "has version 2 of Landlock")])
def test_old_kernels(forget: None, monkeypatch: pytest.MonkeyPatch, version: int, word: str):
    """A kernel whose Landlock is too old is told apart from one without."""
    monkeypatch.setattr(landlock, "abi", lambda: version)
    monkeypatch.setattr(seccomp, "supported", lambda: True)
    assert word in sandbox.probe(Level.LANDLOCK).reason


@pytest.mark.parametrize("version", [3, 4, 5])
def test_older_landlock_confines_too(version: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With what older kernels offer, files and network are out of reach as well."""
    need(Level.LANDLOCK)
    monkeypatch.setattr(landlock, "abi", lambda: version)
    (tmp_path / "secret").write_text("secret")
    code = f"""
    import socket
    secret = {str(tmp_path / "secret")!r}
    for action in (lambda: open(secret), socket.socket, lambda: os.truncate(secret, 0)):
        try:
            action()
            print("worked")
        except PermissionError:
            print("refused")
    """
    run(folder, code, Level.LANDLOCK)
    assert log_of(folder).split() == ["refused"] * 3
    assert (tmp_path / "secret").read_text() == "secret"


# ---- What everybody may see


def test_search_path_shows_packages_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a checkout on the search path, packages and modules are shown, and no secret that lies beside them."""
    for name in ("package/__init__.py", "module.py", ".env", ".git/config", "notes.txt", "data/labels.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(path.name for path in sandbox._importable(tmp_path)) == ["module.py", "package"]


def test_folder_of_the_own_script_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the runner's script lies is none of the command's business, unless PYTHONPATH names it."""
    for name in ("scripts", "packages"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(tmp_path / "scripts" / "mine.py"), raising=False)
    monkeypatch.setattr(
        sys, "path", [str(tmp_path / "scripts"), str(tmp_path / "packages"), "/no/such/folder", sys.prefix]
    )
    assert sandbox.search_path.__wrapped__() == (tmp_path / "packages",)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "scripts"))
    assert sandbox.search_path.__wrapped__() == (tmp_path / "scripts", tmp_path / "packages")


def test_workspace_in_the_pythons_own_folder(strong: Level, tmp_path: Path):
    """Where a virtual environment was made in the workspace itself, its libraries are shown and the rest is not."""
    venv.create(tmp_path, symlinks=True)
    own = tmp_path / ".autoresearch" / "own"
    own.mkdir(parents=True)
    (tmp_path / ".autoresearch" / "ledger.db").write_text("secret")
    package = Path(sandbox.__file__).parents[2]
    code = f"""
    import sys
    from pathlib import Path
    sys.path[:0] = [{str(package)!r}, *{[path for path in sys.path if path]!r}]
    from autoresearch.core.executor import Limits, run_process
    from autoresearch.core.sandbox import Confinement, Level
    code = "import sys; print(sys.prefix); print(open({str(tmp_path / ".autoresearch" / "ledger.db")!r}).read())"
    own = Path({str(own)!r})
    argv = [sys.executable, "-c", code]
    run_process(argv, cwd=own, log=Path("log"), limits=Limits(30), level=Level({strong.value!r}))
    """
    python = tmp_path / "bin" / "python"
    subprocess.run([python, "-c", textwrap.dedent(code)], check=True, cwd=tmp_path)
    log = (tmp_path / "log").read_text()
    assert log.startswith(f"{tmp_path}\n")
    assert "secret" not in log
    assert "ledger.db" in log.splitlines()[-1]


def test_home_is_not_part_of_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A Python that is installed into the person's home shows its libraries and not the home."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "lib").mkdir()
    assert tmp_path in sandbox.python_environment()
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    shown = sandbox.python_environment()
    assert tmp_path not in shown
    assert tmp_path / "lib" in shown


def test_projects_among_the_systems_folders(
    strong: Level, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A place for projects inside a folder of the system stays out of reach, but for what is shown of it."""
    system, projects = tmp_path / "system", tmp_path / "system" / "src"
    (projects / "mine").mkdir(parents=True)
    for path in (system / "library", projects / "secret", projects / "mine" / "data"):
        path.write_text("text")
    monkeypatch.setattr(sandbox, "_FOREIGN", (str(projects),))
    monkeypatch.setattr(sandbox, "_system", lambda gpu, real=sandbox._system: (*real(gpu), system))
    code = f"""
    for path in ({str(system / "library")!r}, {str(projects / "mine" / "data")!r}, {str(projects / "secret")!r}):
        try:
            print(open(path).read())
        except OSError:
            print("refused")
    """
    run(folder, code, strong, Confinement((projects / "mine",), (folder,)))
    assert log_of(folder).split() == ["text", "text", "refused"]


def test_gpu_devices_of_every_maker(tmp_path: Path):
    """Device files of NVIDIA, AMD and Intel GPUs are found, and nothing else."""
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "kfd", "sda", "null"):
        (tmp_path / name).touch()
    (tmp_path / "dri").mkdir()
    found = [path.name for path in sandbox.gpu_devices(tmp_path)]
    assert found == ["dri", "kfd", "nvidia-uvm", "nvidia0", "nvidiactl"]


def test_devices_pass_through(strong: Level, folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A device of the GPU can be opened inside when it is asked for, and not otherwise."""
    device = Path("/dev/loop-control")
    if not device.exists() or not os.access(device, os.R_OK | os.W_OK):
        pytest.skip("needs a device file that may be opened")
    monkeypatch.setattr(sandbox, "gpu_devices", lambda: (device,))
    code = f"os.open({str(device)!r}, os.O_RDWR)"
    assert run(folder, code, strong, Confinement((), (folder,), gpu=True)).returncode == 0, log_of(folder)
    assert run(folder, code, strong, Confinement((), (folder,))).returncode == 1


# ---- Rules


def rules_of(version: int = 7, **paths) -> dict[str, int]:
    given = {name: paths.get(name, ()) for name in ("readable", "listed", "writable", "devices", "hidden")}
    return dict(landlock.rules(version, **given).allowed)


def test_hidden_is_left_out_of_the_rules(tmp_path: Path):
    """A readable folder with something hidden in it becomes its other entries, and no link is followed."""
    for name in ("a/hidden/x", "a/b/file", "c/file"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "a" / "link").symlink_to("/")
    allowed = rules_of(readable=[tmp_path], hidden=[tmp_path / "a" / "hidden"])
    assert sorted(allowed) == [str(tmp_path / "a" / "b"), str(tmp_path / "c")]


def test_rights_of_older_kernels():
    """Only rights that a kernel knows are named: ioctl on devices from 5 on, network from 4, scopes from 6."""
    empty = dict.fromkeys(("readable", "listed", "writable", "devices", "hidden"), ())
    by_version = {version: landlock.rules(version, **empty) for version in (3, 4, 5, 6, 7)}
    assert [rules.size for rules in by_version.values()] == [8, 16, 16, 24, 24]
    assert [rules.handled[0].bit_length() for rules in by_version.values()] == [15, 15, 16, 16, 16]
    assert [rules.handled[1] for rules in by_version.values()] == [0, 3, 3, 3, 3]
    assert [rules.handled[2] for rules in by_version.values()] == [0, 0, 0, 3, 3]


# ---- The filter of system calls

ALLOW, REFUSE, NO_SOCKET = 0x7FFF0000, 0x00050001, 0x0005000D


def verdict(program: bytes, architecture: int, number: int, first: int = 0) -> int:
    """Run a packet filter as the kernel does."""
    memory = struct.pack("<IIQQ", number, architecture, 0, first)
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator = position = 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        if code == 0x20:
            accumulator = struct.unpack_from("<I", memory, value)[0]
        elif code == 0x06:
            return value
        else:
            met = accumulator == value if code == 0x15 else accumulator >= value
            position += if_true if met else if_false


X86, ARM = 0xC000003E, 0xC00000B7


@pytest.mark.parametrize(
    ("machine", "audit", "socket_", "keyctl", "fchmodat", "read"),
    [("x86_64", X86, 41, 250, 268, 0), ("aarch64", ARM, 198, 219, 53, 63)],
)
def test_filter(
    monkeypatch: pytest.MonkeyPatch, machine: str, audit: int, socket_: int, keyctl: int, fchmodat: int, read: int
):
    """The filter refuses foreign calls, the keyring and io_uring always, and sockets by what the sandbox has."""
    monkeypatch.setattr(sandbox.seccomp.platform, "machine", lambda: machine)
    for own_network in (True, False):
        program = seccomp.program(own_network=own_network)
        assert verdict(program, audit, read) == ALLOW
        assert verdict(program, 0x40000003, read) == REFUSE  # a 32-bit program
        assert verdict(program, audit, keyctl) == REFUSE
        assert verdict(program, audit, 425) == REFUSE  # io_uring_setup
        assert verdict(program, audit, socket_, 40) == NO_SOCKET  # AF_VSOCK
        assert verdict(program, audit, socket_, 38) == NO_SOCKET  # AF_ALG
        for family in (1, 2, 10, 16):
            assert verdict(program, audit, socket_, family) == (ALLOW if own_network else NO_SOCKET)
        assert verdict(program, audit, fchmodat) == (ALLOW if own_network else REFUSE)
    if machine == "x86_64":
        assert verdict(program, X86, 0x40000000 + 41) == REFUSE


HEADERS = [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")]


@pytest.mark.skipif(not any(path.exists() for path in HEADERS), reason="needs the headers of Linux on x86-64")
def test_call_numbers():
    """The numbers of system calls are those of the system's headers, as far as these know them."""
    header = next(path for path in HEADERS if path.exists()).read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", header)}
    ours = seccomp._MACHINES["x86_64"].calls
    assert {name: known[name] for name in ours if name in known} == {name: ours[name] for name in ours if name in known}
    assert len(set(ours) & set(known)) > 25


def test_launcher_imports_little():
    """The launcher loads a handful of modules: every one more is paid for by every process."""
    launcher = Path(sandbox.__file__).with_name("launcher.py")
    imports = {line.split()[1] for line in launcher.read_text().splitlines() if line.startswith("import ")}
    assert imports == {"os", "resource", "sys"}
