"""The dashboard as a server: what it listens on, what it sends by itself, and how it ends."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoresearch.core.errors import UsageError
from autoresearch.web.dashboard.serve import Dashboard, opened, token_for
from tests.cli.conftest import invoke
from tests.web.dashboard.conftest import Bench
from tests.web.dashboard.serving import serving


@contextmanager
def stream_of(dashboard: Dashboard, path: str, **headers: str) -> Iterator[http.client.HTTPResponse]:
    """Open a stream of events as a browser does."""
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.guard.port, timeout=60.0)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/event-stream")
    try:
        yield answer
    finally:
        connection.close()


def heard(stream: http.client.HTTPResponse, words: str) -> str:
    """Read events until one holds the words, and return everything that came."""
    text, end = "", time.monotonic() + 60.0
    while words not in text:
        line = stream.readline().decode()
        assert line and time.monotonic() < end, f"{words!r} never came"
        text += line
    return text


def test_an_experiment_that_ends_comes_to_every_open_page(bench: Bench) -> None:
    """Two pages of a run and the overview hear of it; a page that was gone meanwhile hears what it missed."""
    bench.work()
    with serving(bench.root) as dashboard:
        path = "/w/bench/r1/events"
        with (
            stream_of(dashboard, path) as one,
            stream_of(dashboard, path) as two,
            stream_of(dashboard, "/events") as all,
        ):
            first = heard(one, "What it cost")
            heard(two, "What it cost")
            heard(all, "3 experiments")
            row = bench.begin(4, "Halve the batch")
            heard(one, "at work on experiment 4 (Halve the batch)")
            bench.end(row, "kept")
            heard(two, "5 of 5 experiments")
            heard(all, "4 experiments")
            second = heard(one, '<tr class="kept"><td><input type="checkbox" name="pick" value="4"')
        seen = [line.removeprefix("id: ") for line in (first + second).splitlines() if line.startswith("id: ")]
        assert seen == sorted(seen, key=int) and len(seen) == len(set(seen))
        with stream_of(dashboard, path, **{"Last-Event-ID": seen[-1]}) as again:
            bench.begin(5, "Widen it")
            news = heard(again, "Widen it")
            assert "Halve the batch" not in news.partition("event: now")[0]


def test_log_and_phase_come_while_nothing_is_written_to_the_ledger(bench: Bench) -> None:
    """What the candidate prints and how far it is reaches an open page by itself."""
    from tests.web.dashboard.test_pages import note

    bench.work()
    row = bench.begin(4)
    with serving(bench.root) as dashboard, stream_of(dashboard, "/w/bench/r1/events") as stream:
        heard(stream, "measuring")
        folder = bench.layout.experiment("r1", row.number)
        folder.mkdir(parents=True)
        (folder / "run.log").write_text("step 7 of 9\n", encoding="utf-8")
        note(bench, share=0.77, words="training, loss 1.2")
        heard(stream, "training, loss 1.2")
        (folder / "run.log").write_text("step 8 of 9\n", encoding="utf-8")
        heard(stream, "step 8 of 9")


def test_it_ends_though_pages_stay_open(bench: Bench) -> None:
    """A stream that is listened to ends with the server instead of holding it up."""
    with serving(bench.root) as dashboard, stream_of(dashboard, "/w/bench/r1/events") as stream:
        heard(stream, "event: head")


def test_a_port_that_is_taken_is_a_sentence(bench: Bench) -> None:
    """It says so, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        answer = invoke("dashboard", "-w", bench.root, "--no-open", "--port", str(other.getsockname()[1]))
        assert answer.exit_code == 1 and "is taken: another program listens there" in answer.output
        assert "--port 0 finds a free one" in answer.output


def test_a_token_is_made_where_one_is_needed() -> None:
    """None on loopback, a long one elsewhere, never a short one; the address bears it."""
    assert token_for("127.0.0.1", None) == token_for("::1", None) == token_for("localhost", None) == ""
    for host in ("0.0.0.0", "192.0.2.7", "::", "example.org"):
        assert len(token_for(host, None)) > 40
    assert token_for("127.0.0.1", "correct-horse-battery") == "correct-horse-battery"
    with pytest.raises(UsageError, match="can be guessed"):
        token_for("127.0.0.1", "short")
    asked = opened([], host="127.0.0.1", port=0, token="correct-horse-battery")
    asked.listening.close()
    assert asked.url == f"http://127.0.0.1:{asked.guard.port}/?token=correct-horse-battery"


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is a signal on POSIX only")
def test_control_c_ends_it_cleanly(bench: Bench) -> None:
    """The command prints its address, and Ctrl-C ends it with exit code 0 and without a traceback."""
    command = [sys.executable, "-m", "autoresearch", "dashboard", "-w", str(bench.root), "--port", "0", "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as run:
        assert run.stdout is not None
        address = run.stdout.readline().strip()
        assert address.startswith("Dashboard: http://127.0.0.1:")
        port = int(address.rstrip("/").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
        connection.request("GET", "/")
        assert connection.getresponse().status == 200
        connection.close()
        run.send_signal(signal.SIGINT)
        _, told = run.communicate(timeout=60.0)
    assert run.returncode == 0 and "Traceback" not in told


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    """A folder that is no workspace is refused before anything listens."""
    answer = invoke("dashboard", "-w", tmp_path, "--no-open", "--port", "0")
    assert answer.exit_code == 1 and "is no workspace" in answer.output
