"""A run at work in a thread of this process, whose proposals come from the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from autoresearch.core import driver
from autoresearch.core.driver import RunResult, run
from autoresearch.core.ledger import Experiment, Ledger, ProposalRow
from autoresearch.core.proposers import mcp
from autoresearch.core.proposers.exchange import Answer, FileText, Request
from autoresearch.core.proposers.mcp import McpProposer
from autoresearch.mcp_server.desk import Desk
from autoresearch.mcp_server.models import NextRequest
from tests.core.fakes import Listening, SquareAdapter

PATIENCE = 60.0
"""Seconds after which a test gives up; none takes more than a few."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for answers and wishes often: nothing here takes long."""
    monkeypatch.setattr(mcp, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(driver, "POLL_SECONDS", 0.01)


@dataclass
class AtWork:
    """A run in a thread, and the desk of an agent beside it."""

    root: Path
    desk: Desk
    thread: threading.Thread
    reporter: Listening
    ended: list[RunResult | BaseException] = field(default_factory=list)

    def until(self, *states: str, said: str = "") -> NextRequest:
        """Return the first answer of `next_request` in one of some states that says something."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.desk.next_request("")
            if found.state in states and said in found.said:
                return found
            time.sleep(0.01)
        raise AssertionError(f"no state of {states}; the run is {found.state}: {found.said}")

    def asked(self, number: int | None = None) -> Request:
        """Return the open request once there is one."""
        found = self.until("asked", "stopped")
        assert found.request is not None, found.said
        assert number is None or found.request.number == number
        return found.request

    def propose(self, text: str, number: int | None = None) -> None:
        """Answer the open request with a number."""
        self.desk.propose(answer(self.asked(number), text))

    def result(self) -> RunResult:
        """Return how the run ended, once it has."""
        self.thread.join(PATIENCE)
        assert self.ended, "the run goes on"
        assert isinstance(self.ended[0], RunResult), self.ended[0]
        return self.ended[0]


def answer(request: Request, text: str, hypothesis: str = "") -> Answer:
    """Return the answer that writes `text` into the artifact of `SquareAdapter`."""
    files = [FileText(path="number.txt", text=text)]
    said = hypothesis or f"Try {text}."
    return Answer(request=request.request, hypothesis=said, category="constants", files=files)


@contextmanager
def at_work(root: Path, adapter: Any = None, **choices: Any) -> Iterator[AtWork]:
    """Begin a run in a thread; it is stopped afterwards where it has not ended."""
    choices = {"policy": "greedy", "baseline_runs": 1, "confirm": False, "proposer": McpProposer(), **choices}
    reporter = Listening()

    def work() -> None:
        try:
            working.ended.append(run(adapter or SquareAdapter(), workspace=root, reporter=reporter, **choices))
        except BaseException as error:  # noqa: BLE001 - a thread's exception is the test's to judge
            working.ended.append(error)

    working = AtWork(root, Desk(root, root), threading.Thread(target=work), reporter)
    working.thread.start()
    end = time.monotonic() + PATIENCE
    while not working.ended and not _begun(root) and time.monotonic() < end:
        time.sleep(0.01)
    try:
        yield working
    finally:
        while working.thread.is_alive():
            with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
                run_row = ledger.latest_run()
                assert run_row is not None
                ledger.send(run_row.id, "stop")
            working.thread.join(0.5)


def _begun(root: Path) -> bool:
    path = root / ".autoresearch" / "ledger.db"
    if not path.is_file():
        return False
    with Ledger.open(path) as ledger:
        row = ledger.latest_run()
        return row is not None and any(session.ended is None for session in ledger.sessions(row.id))


def experiments(root: Path) -> list[Experiment]:
    """Return the experiments of the latest run."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        row = ledger.latest_run()
        return [] if row is None else ledger.experiments(row.id)


def proposals(root: Path) -> list[ProposalRow]:
    """Return the proposals of the latest run, that of the baseline left out."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        row = ledger.latest_run()
        return [] if row is None else [proposal for proposal in ledger.proposals(row.id) if proposal.number > 0]
