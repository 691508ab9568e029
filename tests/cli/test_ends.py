"""How a run ends that somebody or something ends: signals, a closed terminal, a full disk, a second run."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from autoresearch.core.ledger import Ledger, Session
from tests.cli.conftest import invoke
from tests.cli.plugins import HILL, write_package

AUTORESEARCH = [sys.executable, "-c", "from autoresearch.cli import main; main()"]


def start(packages: Path, *words: str | Path, **how: object) -> subprocess.Popen[str]:
    """Start the command line in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    process: subprocess.Popen[str] = subprocess.Popen(
        [*AUTORESEARCH, *map(str, words)],
        env=environment,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how},  # type: ignore[call-overload]
    )
    STARTED.append(process)
    return process


STARTED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    """End what a test that failed left behind."""
    yield
    for process in STARTED:
        with process:  # closes the pipes and waits
            process.kill()
    STARTED.clear()


def write_slow(packages: Path, changes: Mapping[str, str]) -> None:
    """Write the package `hill` with changes to its source."""
    source = HILL
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    write_package(packages, "hill", source, {"autoresearch.adapters": {"hill": "hill:create_adapter"}})


@pytest.fixture
def slow(packages: Path) -> Path:
    """The package `hill`, whose pause is for candidates alone, so that a run soon comes to measuring one."""
    write_slow(packages, {"time.sleep(self.pause)": "time.sleep(self.pause if text != START else 0)"})
    return packages


def wait_for(what: str, there: object) -> None:
    """Wait until `there()` is true."""
    for _ in range(600):
        if there():  # type: ignore[operator]
            return
        time.sleep(0.1)
    pytest.fail(f"{what} did not come about within a minute")


def measuring(root: Path) -> bool:
    """Say whether the second experiment is being measured."""
    return any(root.glob(".autoresearch/experiments/*/0001/scratch-*"))


def last_session(root: Path) -> Session:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        session = ledger.sessions(ledger.runs()[-1].id)[-1]
        assert ledger.runs()[-1].state == "stopped" and ledger.runs()[-1].stop_reason == session.reason
        return session


def at_work(slow: Path, root: Path, **how: object) -> subprocess.Popen[str]:
    """Return a run in the middle of its first experiment, which takes a minute."""
    process = start(slow, "run", "--adapter", "hill", "-w", root, "--set", "pause=60", "-n", "2", "--no-confirm", **how)
    wait_for("the first experiment", lambda: measuring(root) or process.poll() is not None)
    return process


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGTERM, "interrupted at once by a request to terminate"),
        (signal.SIGHUP, "interrupted at once because the terminal was closed"),
    ],
)
def test_a_request_to_end_ends_at_once_with_its_reason(
    slow: Path, tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    """The experiment in flight stays open, the ledger says who ended the session and when."""
    root = tmp_path / "w"
    process = at_work(slow, root)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err
    session = last_session(root)
    assert session.reason == reason and session.ended is not None
    assert f"Ended: {reason}" in out


def test_a_closed_terminal_ends_the_run_with_a_reason(slow: Path, tmp_path: Path) -> None:
    """The terminal is gone for good, so nothing can be said; the ledger says it."""
    root = tmp_path / "w"
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = at_work(
        slow, root, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, preexec_fn=take_terminal
    )
    os.close(theirs)
    os.close(ours)
    assert process.wait(60) in (1, 130)
    assert last_session(root).reason == "interrupted at once because the terminal was closed"


def test_a_run_outlives_its_terminal_where_it_was_told_to(slow: Path, tmp_path: Path) -> None:
    """Under nohup, or disowned, the run goes on although every line that it draws leads nowhere."""
    root = tmp_path / "w"
    ours, theirs = pty.openpty()

    def take_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    words = ("run", "--adapter", "hill", "-w", root, "--set", "pause=1", "-n", "2", "--no-confirm")
    everywhere = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = start(slow, *words, **everywhere, start_new_session=True, preexec_fn=take_terminal)
    wait_for("the first experiment", lambda: measuring(root) or process.poll() is not None)
    os.close(theirs)
    os.close(ours)
    process.wait(60)
    assert last_session(root).reason == "experiments: 2 of 2 done"


def test_a_request_to_end_while_preparing_is_answered(packages: Path, tmp_path: Path) -> None:
    """One sentence and the code of an interrupt; the next run begins as if nothing had been."""
    begins = "def prepare(self, workspace):"
    write_slow(packages, {begins: f"{begins}\n        time.sleep(self.pause)"})
    root = tmp_path / "w"
    process = start(packages, "run", "--adapter", "hill", "-w", root, "--set", "pause=60")
    wait_for("the lock", (root / ".autoresearch" / "owner.json").exists)
    time.sleep(1.0)  # from the lock to the preparation
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "by a request to terminate while preparing; nothing was measured." in out + err
    assert not (root / ".autoresearch" / "owner.json").exists()
    again = start(packages, "run", "--adapter", "hill", "-w", root, "--set", "pause=0", "-n", "1", "-q")
    assert again.wait(60) == 0


DYING = """
import os, signal, time, typer
app = typer.Typer()

@app.command()
def wait(name: str) -> None:
    try:
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(60)
    finally:
        print("tidied up")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_every_command_tidies_up_when_it_is_asked_to_end(packages: Path, name: str) -> None:
    """A request to terminate and a closed terminal are answered as Ctrl-C is, and nothing stays changed after it."""
    write_package(packages, "dying", DYING, {"autoresearch.commands": {"dying": "dying:app"}})
    before = signal.getsignal(getattr(signal, name))
    result = invoke("dying", name)
    assert (result.exit_code, result.stdout) == (130, "tidied up\n")
    assert signal.getsignal(getattr(signal, name)) is before


def test_a_second_run_is_refused_and_told_by_whom(slow: Path, tmp_path: Path) -> None:
    """Process, host, time and run are named; what is refused changes nothing, and listings go on working."""
    root = tmp_path / "w"
    process = at_work(slow, root)
    second = start(slow, "run", "-w", root)
    _, err = second.communicate(timeout=60)
    assert second.returncode == 1
    assert re.search(rf"process {process.pid} on \S+ since 20\d\d-\S+, run hill-\d{{8}}-\d{{6}}\.\n", err), err
    status = start(slow, "status", "-w", root, "--json")
    out, err = status.communicate(timeout=60)
    assert json.loads(out)["state"] == "running", err
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert last_session(root).pid == process.pid


def can_mount() -> bool:
    """Say whether a user may make a small file system here, in name spaces of their own."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    command = ["unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]
    tried = subprocess.run(command, capture_output=True, check=False)
    return tried.returncode == 0


def in_small_place(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script where `folder` is a file system of 3 MB; `$@` is the command line."""
    mount = f"mount -t tmpfs -o size=3m none {folder} && cd {folder} && {script}"
    return subprocess.run(
        ["unshare", "-Urm", "sh", "-c", mount, "sh", *AUTORESEARCH],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(folder.parent / "packages")},
    )


@pytest.mark.skipif(not can_mount(), reason="needs a small file system, and this user may not mount one here")
def test_a_full_disk_ends_the_run_with_a_sentence_and_a_freed_one_goes_on(hill: Path, tmp_path: Path) -> None:
    """Nothing is booked on a candidate, and once there is room the run goes on where it stopped."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = in_small_place(
        folder,
        '"$@" run --adapter hill -w w -n 3 -q --no-confirm && dd if=/dev/zero of=fill bs=1k 2>/dev/null;'
        ' echo; echo "== full"; "$@" run -w w -n 3 -q --no-confirm; echo "code $?";'
        ' rm fill; echo "== free"; "$@" run -w w -n 3 -q --no-confirm; echo "code $?"; "$@" log -w w --json;'
        " git -C w fsck --strict --no-dangling",
    )
    assert "Traceback" not in done.stderr, done.stderr
    full, free = done.stdout.split("== full")[1].split("== free")
    assert "code 1" in full, done.stdout + done.stderr
    assert "full" in done.stderr and "Free some space" in done.stderr
    assert "code 0" in free, done.stdout + done.stderr
    rows = json.loads(free[free.index("[") : free.rindex("]") + 1])
    assert [row["number"] for row in rows] == list(range(len(rows))) and len(rows) >= 4
    assert "crashed" not in {row["outcome"] for row in rows}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_sentence(filled: Path) -> None:
    """A full disk behind `>` is no bug of ours: exit code 1 and no trace."""
    for words in (("log",), ("show",), ("status", "--json"), ("export",), ("--help",)):
        place = [] if words == ("--help",) else ["-w", str(filled)]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [*AUTORESEARCH, *words, *place], stdout=full, stderr=subprocess.PIPE, text=True, check=False
            )
        assert done.returncode == 1, done.stderr
        assert done.stderr.splitlines()[0] == f"The output could not be written: {os.strerror(errno.ENOSPC)}."
        assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 2


@pytest.mark.skipif(not can_mount(), reason="needs a small file system, and this user may not mount one here")
def test_a_workspace_that_cannot_be_written_can_be_read(hill: Path, tmp_path: Path) -> None:
    """Listings, audit and checkout work on a read-only file system; a run is refused with a sentence."""
    folder = tmp_path / "small"
    folder.mkdir()
    out = tmp_path / "out"
    done = in_small_place(
        folder,
        '"$@" run --adapter hill -w w -n 1 -q --no-confirm >/dev/null && mount -o remount,ro none .;'
        ' for words in "status --json" "log --json" "show" "export" "checkout best ' + str(out) + '";'
        ' do "$@" $words -w w >/dev/null; echo "$words: $?"; done;'
        ' "$@" audit w --noise 0.1 >/dev/null; echo "audit: $?";'
        ' for words in "run -n 1" "pause" "gc"; do "$@" $words -w w; echo "$words: $?"; done',
    )
    assert "Traceback" not in done.stderr, done.stderr
    codes = {line.rpartition(": ")[0].split()[0]: line.rpartition(": ")[2] for line in done.stdout.splitlines()}
    assert {name: codes[name] for name in ("status", "log", "show", "export", "checkout")} == dict.fromkeys(
        ("status", "log", "show", "export", "checkout"), "0"
    ), done.stdout + done.stderr
    assert (codes["run"], codes["pause"], codes["gc"]) == ("1", "1", "1"), done.stdout + done.stderr
    assert "cannot be written: Read-only file system." in done.stderr
    assert (out / "hill.py").is_file()
