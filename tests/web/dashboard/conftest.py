"""Dashboards over workspaces that are made up, filled by a real run, or at work under the test's own lock."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra dashboard is not installed")

from starlette.testclient import TestClient

from autoresearch.core import lock
from autoresearch.core.ledger import Experiment, Ledger, Run, Session
from autoresearch.core.memory import metric_as_json
from autoresearch.core.workspace import Layout
from autoresearch.web.dashboard import app
from autoresearch.web.dashboard.guard import Guard
from autoresearch.web.dashboard.hall import Hall
from autoresearch.web.dashboard.watched import keyed
from benchmarks.report import METRIC

HOST = "127.0.0.1:8470"


class Bench:
    """A workspace whose run is at work as long as its lock is held; experiments begin and end as a test says."""

    def __init__(self, root: Path, *, experiments: int = 0, limits: dict[str, Any] | None = None) -> None:
        self.root = root
        self.layout = Layout(root)
        self._stack = ExitStack()
        self.layout.state.mkdir(parents=True)
        self.ledger = self._stack.enter_context(Ledger.open(self.layout.ledger))
        self.run = self.ledger.add_run(
            Run(id="r1", adapter="none", metric=metric_as_json(METRIC), policy="greedy", proposer="script")
        )
        self.session = self.ledger.add_session(Session(run_id="r1", limits=limits or {}, first_number=1))
        for number in range(experiments + 1):
            self.end(self.begin(number), "kept" if number in (0, 1) else "reverted")

    def work(self) -> Bench:
        """Hold the lock as the process of a run does."""
        self._stack.enter_context(lock.held(self.layout))
        return self

    def begin(self, number: int, hypothesis: str = "", **fields: Any) -> Experiment:
        fields = {"category": "size", "diff": f"--- a/x\n+++ b/x\n-old\n+new {number}\n", **fields}
        words = hypothesis or f"Idea {number}"
        return self.ledger.begin_experiment(
            Experiment(run_id="r1", session_id=self.session.id, number=number, hypothesis=words, **fields)
        )

    def end(self, row: Experiment, outcome: str = "reverted", **fields: Any) -> Experiment:
        value = None if outcome == "crashed" else 1.0 - 0.01 * row.number
        fields = {"value": value, "effect": 0.01 if row.number else None, "reason": f"because {outcome}", **fields}
        if outcome == "kept":
            fields.setdefault("kept_commit", f"{row.number:040x}")
        return self.ledger.finish_experiment(row.id, outcome=outcome, **fields)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine, a page waits for what it shows."""
    monkeypatch.setattr(app, "FIRST_PAINT_SECONDS", 60.0)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A run with a baseline, a keep and two reverts, and nobody at work."""
    made = Bench(tmp_path / "bench", experiments=3, limits={"experiments": 10, "max_usd": 2.0, "hours": 8})
    yield made
    made.close()


@contextmanager
def client_of(*roots: Path, guard: Guard | None = None, host: str = HOST) -> Iterator[TestClient]:
    """Open a dashboard and return what asks it, as a browser at `host` would."""
    hall = Hall(keyed([Layout(root) for root in roots]))
    served = app.create_app(hall, guard or Guard("127.0.0.1", 8470))
    with TestClient(served, base_url=f"http://{host}") as client:
        yield client


def words(page: str) -> str:
    """Return what a page says, without its markup."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"(?s)^.*?<body[^>]*>", "", page))).split())


def run_page(client: TestClient, workspace: str = "bench") -> str:
    """Return the page of the latest run of a workspace."""
    answer = client.get(f"/w/{workspace}")
    assert answer.status_code == 200, answer.text
    return answer.text


def settled(client: TestClient, words: str, workspace: str = "bench") -> str:
    """Return the page once it holds `words`; pictures and sections come a moment after the rest."""
    end = time.monotonic() + 30.0
    while words not in (page := run_page(client, workspace)):
        assert time.monotonic() < end, f"{words!r} never came"
        time.sleep(0.05)
    return page
