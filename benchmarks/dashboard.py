"""How fast and how large the dashboard is: `python -m benchmarks.dashboard [--experiments N] [--pages N]`.

Three questions, each asked of a real server over loopback:

- How long until a page of a long run is there? Just after the start, when nothing is read yet (`cold`: what is missing
  then arrives on the open page, `complete`), and afterwards (`warm`).
- How long from an experiment's end in the ledger until the last of many open pages has its row? Pages only listen, as a
  browser does; the picture follows when it is drawn.
- Does memory stay flat? An hour of a run, shortened: every simulated ten seconds an experiment ends, a note and a log
  change all the time, pages listen, and one leaves and comes back.

Bars: first paint 1 s, update 100 ms at 50 pages, memory at the end within 10 % of what it was after a quarter.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import selectors
import socket
import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow
from autoresearch.core.progress import progress_file
from autoresearch.core.workspace import Layout
from benchmarks.report import fill, spend_proposals

FIRST_PAINT_SECONDS = 1.0
UPDATE_SECONDS = 0.1
GROWTH = 0.10


@contextmanager
def served(root: Path) -> Iterator[tuple[str, int, int]]:
    """Serve a workspace in a process of its own; yields address, port and process id."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(str(root), there), daemon=True)
    process.start()
    port = here.recv()
    here.recv()
    try:
        yield f"http://127.0.0.1:{port}", port, process.pid or 0
    finally:
        process.terminate()
        process.join()


def _serve(root: str, pipe: multiprocessing.connection.Connection) -> None:
    from autoresearch.web.dashboard.serve import opened

    dashboard = opened([Layout(Path(root))], host="127.0.0.1", port=0, token=None)
    pipe.send(dashboard.guard.port)
    dashboard.serve(lambda: pipe.send("ready"))


def got(url: str) -> tuple[float, str]:
    """Return the seconds until a page is there, and the page."""
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    return time.perf_counter() - began, text


class Listeners:
    """Pages that stay open: connections that read their stream and remember when a text came."""

    def __init__(self, port: int, path: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._wanted = b""
        self._tails: dict[int, bytes] = {}
        self._heard: dict[int, float] = {}
        self._sockets = [self._connect(port, path) for _ in range(count)]
        self._stopped = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _connect(self, port: int, path: str) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port))
        made.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        made.setblocking(False)
        self._selector.register(made, selectors.EVENT_READ)
        return made

    def _listen(self) -> None:
        while not self._stopped:
            for key, _ in self._selector.select(0.2):
                data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
                text = self._tails.get(key.fd, b"") + data
                if self._wanted and self._wanted in text and key.fd not in self._heard:
                    self._heard[key.fd] = time.perf_counter()
                self._tails[key.fd] = text[-200:]

    def expect(self, text: str) -> None:
        """Begin to wait for a text."""
        self._wanted = b""
        self._heard = {}
        self._wanted = text.encode()

    def last(self, seconds: float = 30.0) -> float:
        """Return when the last of the pages had it."""
        end = time.perf_counter() + seconds
        while len(self._heard) < len(self._sockets):
            if time.perf_counter() > end:
                raise TimeoutError(f"{len(self._heard)} of {len(self._sockets)} pages heard {self._wanted!r}.")
            time.sleep(0.001)
        return max(self._heard.values())

    def close(self) -> None:
        """Leave."""
        self._stopped = True
        self._thread.join()
        for one in self._sockets:
            one.close()


def end_one(ledger: Ledger, number: int, hypothesis: str) -> float:
    """Let an experiment begin and end; returns the moment just before its end is written."""
    row = ledger.begin_experiment(
        Experiment(run_id="made-up", session_id=1, number=number, hypothesis=hypothesis, category="numerics")
    )
    ledger.add_measurement(MeasurementRow(experiment_id=row.id, value=0.99, seconds=9.0))
    began = time.perf_counter()
    ledger.finish_experiment(row.id, outcome="reverted", value=0.99, effect=-0.001, seconds=9.0)
    return began


def first_paint(root: Path) -> None:
    with served(root) as (url, _, _):
        cold, page = got(f"{url}/w/w/made-up")
        began = time.perf_counter()
        while "What it cost" not in page:
            time.sleep(0.05)
            _, page = got(f"{url}/w/w/made-up")
        complete = cold + time.perf_counter() - began
        warm = [got(f"{url}/w/w/made-up") for _ in range(10)]
    seconds = statistics.median(one for one, _ in warm)
    size = len(warm[-1][1].encode()) / 1000
    print(
        f"first paint   cold {cold:.2f} s (complete after {complete:.1f} s), warm {seconds:.2f} s, {size:,.0f} KB",
        end="",
    )
    print(f"   {'ok' if max(cold, seconds) < FIRST_PAINT_SECONDS else 'TOO SLOW'}: bar {FIRST_PAINT_SECONDS:g} s")


def updates(root: Path, experiments: int, pages: int, rounds: int) -> None:
    taken = []
    with served(root) as (url, port, _), Ledger.open(Layout(root).ledger) as ledger:
        page = ""
        while "What it cost" not in page:
            page = got(f"{url}/w/w/made-up")[1]
        listeners = Listeners(port, "/w/w/made-up/events", pages)
        time.sleep(2.0)
        for at in range(rounds):
            words = f"Update number {at} of the benchmark"
            listeners.expect(words)
            began = end_one(ledger, experiments + 1 + at, words)
            taken.append(listeners.last() - began)
            time.sleep(4.0)
        listeners.close()
    median, worst = statistics.median(taken), max(taken)
    print(
        f"update        median {1000 * median:.0f} ms, worst {1000 * worst:.0f} ms of {rounds} at {pages} pages", end=""
    )
    print(f"   {'ok' if median < UPDATE_SECONDS else 'TOO SLOW'}: bar {1000 * UPDATE_SECONDS:.0f} ms for the median")


def memory(root: Path, seconds: float, pages: int, steps: int = 360) -> list[float]:
    """Run `steps` experiments in so many seconds; return the server's memory, in MB, after every tenth."""
    layout = Layout(root)
    wait, sizes = seconds / steps, []
    with served(root) as (url, port, pid), Ledger.open(layout.ledger) as ledger:
        listeners = Listeners(port, "/w/w/made-up/events", pages)
        first = max(row.number for row in ledger.experiments("made-up")) + 1
        for step in range(steps):
            until = time.monotonic() + wait
            number = first + step
            folder = layout.experiment("made-up", number)
            folder.mkdir(parents=True)
            row = {"phase": "observe", "number": number, "words": "training", "began": time.time()}
            for part in range(4):
                (folder / "run.log").write_text(f"step {part} of experiment {number}\n" * 200, encoding="utf-8")
                curve = [[at / 40, 2.0 - at / 50] for at in range(10 * part)]
                noted = progress_file(layout)
                noted.with_suffix(".partial").write_text(json.dumps({**row, "share": part / 4, "curve": curve}))
                noted.with_suffix(".partial").replace(noted)
                time.sleep(max(0.0, (until - time.monotonic()) / (4 - part)))
            end_one(ledger, number, f"Experiment {step} of the hour")
            if step % 10 == 0:
                got(f"{url}/w/w/made-up?text={step}")
                sizes.append(psutil.Process(pid).memory_info().rss / 2**20)
            if step % 60 == 59:
                listeners.close()
                listeners = Listeners(port, "/w/w/made-up/events", pages)
        listeners.close()
    return sizes


def tell_memory(sizes: list[float]) -> None:
    early, late = sizes[len(sizes) // 4], sizes[-1]
    growth = late / early - 1
    print(
        f"memory        {sizes[0]:.0f} MB at first, {early:.0f} MB after a quarter, {late:.0f} MB after an hour", end=""
    )
    print(f" ({growth:+.1%})   {'ok' if growth < GROWTH else 'GROWS'}: bar {GROWTH:.0%}")


def main() -> None:
    """Ask the three questions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=6.0, help="For the hour of simulated run.")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "w"
        Layout(root).state.mkdir(parents=True)
        fill(Layout(root).ledger, arguments.experiments)
        spend_proposals(Layout(root).ledger, "made-up", arguments.experiments)
        first_paint(root)
        updates(root, arguments.experiments, arguments.pages, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "w"
        Layout(root).state.mkdir(parents=True)
        fill(Layout(root).ledger, 500)
        tell_memory(memory(root, 60.0 * arguments.minutes, 5))


if __name__ == "__main__":
    main()
