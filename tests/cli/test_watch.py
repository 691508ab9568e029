"""`autoresearch watch`: a run at work, one that is over, one that was killed, and none."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.cli.watching import Seen, drawn, page
from autoresearch.core import lock
from autoresearch.core.ledger import Ledger
from autoresearch.core.progress import Progress
from autoresearch.core.workspace import Layout
from tests.cli.conftest import invoke
from tests.json_docs import as_documented


@pytest.fixture
def copied(filled: Path, tmp_path: Path) -> Path:
    """The filled workspace, to be changed."""
    return Path(shutil.copytree(filled, tmp_path / "copy"))


@pytest.fixture
def at_work(hill: Path, here: Path) -> Iterator[Path]:
    """A workspace whose run goes on in another process until the test ends."""
    folder = here / "w"
    assert invoke("init", "--adapter", "hill", folder).exit_code == 0
    environment = {**os.environ, "PYTHONPATH": str(hill)}
    command = [sys.executable, "-m", "autoresearch", "run", "-w", str(folder), "-q", "-n", "40", "--set", "pause=0.15"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            layout = Layout(folder)
            while not (layout.ledger.is_file() and lock.is_held(layout) and _has_finished(layout)):
                assert process.poll() is None, "the run has ended before it was watched"
                time.sleep(0.05)
            yield folder
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _has_finished(layout: Layout) -> bool:
    with Ledger.watching(layout.ledger) as ledger:
        run = ledger.latest_run()
        return run is not None and any(row.outcome is not None for row in ledger.experiments(run.id))


def watching(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "autoresearch", "watch", *map(str, arguments)]


def test_a_run_that_is_over_is_shown_as_it_ended(copied: Path) -> None:
    """The watching ends at once, with the reason of the run and its last experiments."""
    result = invoke("watch", "-w", copied)
    assert result.exit_code == 0, result.output
    assert "No run is in progress" in result.stdout and "ended: " in result.stdout
    assert "  1  kept" in result.stdout and "\x1b" not in result.output and "\u202e" not in result.output


def test_a_workspace_without_a_run_says_so(here: Path, hill: Path) -> None:
    """Nothing to watch is a sentence with the command that begins a run."""
    invoke("init", "--adapter", "hill", "w")
    for arguments in ((), ("--once",)):
        result = invoke("watch", "-w", "w", *arguments)
        assert result.exit_code == 0 and "No run has begun here yet" in result.stdout


def test_work_beside_a_run_that_is_over_is_not_taken_for_the_run(copied: Path) -> None:
    """While `confirm` or a preparation holds the workspace, what an earlier session noted is not shown as news."""
    with lock.held(Layout(copied)):
        result = invoke("watch", "-w", copied, "--once")
    assert "measuring anew" in result.stdout and "No run is in progress" not in result.stdout


def test_a_killed_run_is_called_killed(copied: Path) -> None:
    """A run without a process and without a word is no run at work."""
    with Ledger.open(Layout(copied).ledger) as ledger:
        run = ledger.latest_run()
        assert run is not None
        ledger.update_run(run.id, state="running", stop_reason=None)
    result = invoke("watch", "-w", copied)
    assert "ended without a word" in result.stdout and "autoresearch run -w" in result.stdout


def test_a_newer_ledger_is_refused_in_a_sentence(copied: Path) -> None:
    """Who watches with an old release is told to update it."""
    connection = sqlite3.connect(Layout(copied).ledger)
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    result = invoke("watch", "-w", copied)
    assert result.exit_code == 1 and "newer" in result.stderr and "Traceback" not in result.stderr


def test_json_lines_have_the_documented_keys(copied: Path) -> None:
    """A run that is over is one line, of the shape that docs/json.md names."""
    result = invoke("watch", "-w", copied, "--json")
    state = as_documented("watch", result.stdout)
    assert state["at_work"] is False and state["status"]["state"] == "stopped"
    assert [row["number"] for row in state["last"]] == [0, 1, 2, 3]


def test_a_run_at_work_is_followed_and_left_alone(at_work: Path) -> None:
    """One look names phase and limits; JSON lines follow; an interrupt ends the watching and not the run."""
    once = invoke("watch", "-w", at_work, "--once")
    assert once.exit_code == 0, once.output
    assert "\nnow " in once.stdout and "of 40" in once.stdout and "No run is in progress" not in once.stdout
    with subprocess.Popen(
        watching("-w", at_work, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert "Watching ended" in process.stderr.read()
    states = [as_documented("watch", line) for line in lines]
    assert all(state["at_work"] for state in states)
    assert len({json.dumps([state["phase"], state["number"], len(state["last"])]) for state in states}) > 1
    assert lock.is_held(Layout(at_work)), "the run goes on"


def test_on_a_terminal_the_page_is_drawn_in_place_and_ends_with_the_run(at_work: Path) -> None:
    """A terminal gets one page that is drawn again; where the run is stopped, its last state stays."""
    parent, child = pty.openpty()
    with subprocess.Popen(
        watching("-w", at_work), stdout=child, stdin=child, stderr=child, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(child)
        text = _read_until(parent, "now ")
        assert invoke("stop", "-w", at_work).exit_code == 0
        text += _read_until(parent, "No run is in progress")
        text += _rest(parent)
        assert process.wait() == 0
    os.close(parent)
    assert "\x1b[" in text and "stopped by a person" in text
    assert "\x1b[31m" not in text, "no colour with NO_COLOR"


def _read_until(descriptor: int, words: str) -> str:
    text = ""
    while words not in text:
        assert select.select([descriptor], [], [], 60)[0], f"nothing about {words!r} in {text!r}"
        text += os.read(descriptor, 65536).decode("utf-8", "replace")
    return text


def _rest(descriptor: int) -> str:
    text = ""
    while True:
        try:
            more = os.read(descriptor, 65536)
        except OSError:
            return text
        if not more:
            return text
        text += more.decode("utf-8", "replace")


def test_a_pipe_hears_of_changes_only(at_work: Path) -> None:
    """Without a terminal there is a line per phase or finished experiment, and no control code."""
    with subprocess.Popen(watching("-w", at_work), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert invoke("stop", "-w", at_work).exit_code == 0
        rest = process.stdout.read()
        assert process.wait() == 0
    assert len(set(lines)) == 3
    assert "No run is in progress" in rest and "\x1b" not in "".join(lines) + rest


def test_a_falling_curve_falls() -> None:
    """The first column is the highest, the last one the lowest that can be seen."""
    rows = drawn([4.0, 3.0, 2.0, 1.0], 10).splitlines()
    assert rows[0] == "█" and rows[-1] == "███▁" and len(rows) == 4
    assert drawn([4.0, 1.0], 10, ascii_only=True).splitlines() == ["*", "*", "*", "**"]


def test_many_points_are_drawn_in_few_columns_the_last_one_included() -> None:
    """A curve never takes more columns than there are, and a flat one is a line."""
    rows = drawn([float(value) for value in range(1000)], 20).splitlines()
    assert max(map(len, rows)) == 20 and rows[0].endswith("█")
    assert drawn([2.0] * 5, 20) == "▁▁▁▁▁"


def test_a_workspace_that_is_being_prepared_shows_how_far() -> None:
    """Before there is a run, the note of the process tells what it does."""
    seen = Seen(True, "A run is being prepared.", progress=Progress(share=0.5, words="shard 3 of 6"))
    text = page(seen, width=60, where="")
    assert "preparing 50%, shard 3 of 6" in text and max(map(len, text.splitlines())) <= 60
