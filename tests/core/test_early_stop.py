from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autoresearch.core import CandidateError, Direction, Measurement, Metric, RunContext, Scope, Split, Workspace
from autoresearch.core.driver import run
from autoresearch.core.ledger import Ledger
from autoresearch.core.workspace import Layout, read_settings
from tests.core.fakes import FakeProposer, Listening, SquareAdapter, make_workspace

POINTS = [step / 50 for step in range(1, 51)]


@dataclass
class CurveAdapter:
    """The artifact is a number, and its curve falls to it from 10 above."""

    metric: Metric = field(default_factory=lambda: Metric("height", "", Direction.MINIMIZE, noise=0.01))
    scope: Scope = field(default_factory=lambda: Scope(("number.txt",)))
    points: list[tuple[str, int, float]] = field(default_factory=list)

    def prepare(self, workspace: Workspace) -> None:
        """Nothing to prepare."""

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        text = (artifact / "number.txt").read_text(encoding="utf-8").strip()
        curve = []
        for share in POINTS:
            value = float(text) + 0.001 * seed + 10 * (1 - share) ** 2
            curve.append((share, value))
            self.points.append((text, seed, share))
            reason = run.hopeless(share, value)
            if reason is not None:
                raise CandidateError(reason, early=True)
        return Measurement(curve[-1][1], seed, 1.0, curve=tuple(curve))

    def last_share(self, text: str) -> float:
        return max(share for name, _, share in self.points if name == text)


TEACHERS = [str(3 + 0.5 * step) for step in range(1, 7)]
"""Candidates that stay a little behind and are measured to their end."""


def run_it(folder: Path, adapter: CurveAdapter, script: list[str], early_stop: bool | None) -> list[tuple[str, str]]:
    run(
        adapter,
        workspace=make_workspace(folder),
        proposer=FakeProposer(script),
        policy="greedy",
        experiments=len(script),
        early_stop=early_stop,
        confirm=False,
    )
    with Ledger.open(Layout(folder).ledger) as ledger:
        rows = ledger.experiments(ledger.runs()[0].id)
        assert all(row.value is None for row in rows if row.reason.startswith("early"))
        return [(row.outcome or "", row.reason) for row in rows[1:]]


def test_a_hopeless_candidate_is_cut_once_the_run_has_taught_what_gaps_come_to(tmp_path: Path) -> None:
    """It ends as reverted, with a reason in figures and without a value, well before its budget is used up."""
    adapter = CurveAdapter()
    outcome, reason = run_it(tmp_path, adapter, [*TEACHERS, "9"], True)[-1]
    assert outcome == "reverted"
    assert reason.startswith("early: after ")
    assert "its curve is 6 behind the incumbent's" in reason
    assert "its chance of ending better is" in reason
    assert adapter.last_share("9") < 0.6


def test_nothing_is_cut_unless_the_run_asks_for_it(tmp_path: Path) -> None:
    """Early stopping is an option: without it, every candidate is measured to its end."""
    adapter = CurveAdapter()
    found = run_it(tmp_path, adapter, [*TEACHERS, "9"], None)
    assert not any(reason.startswith("early") for _, reason in found)
    assert adapter.last_share("9") == 1.0


def test_the_first_candidates_of_a_run_are_measured_to_their_end(tmp_path: Path) -> None:
    """Before curves have ended, nobody knows what gaps come to."""
    adapter = CurveAdapter()
    assert [reason.startswith("early") for _, reason in run_it(tmp_path, adapter, ["9", "11"], True)] == [False] * 2


def test_the_workspace_can_ask_for_early_stopping(tmp_path: Path) -> None:
    """`early_stop` is a key of the table [run]."""
    (tmp_path / "autoresearch.toml").write_text("[run]\nearly_stop = true\n", encoding="utf-8")
    assert read_settings(Layout(tmp_path)).early_stop is True
    (tmp_path / "autoresearch.toml").write_text("[run]\n", encoding="utf-8")
    assert read_settings(Layout(tmp_path)).early_stop is False


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_wish_that_cannot_be_met_is_said(tmp_path: Path, early_stop: bool) -> None:
    """An adapter without curves measures everything to its end, and who asked for early stopping is told."""
    said = Listening()
    run(
        SquareAdapter(),
        workspace=make_workspace(tmp_path),
        proposer=FakeProposer(["2"]),
        policy="greedy",
        experiments=1,
        early_stop=early_stop,
        confirm=False,
        reporter=said,
    )
    assert any(text.startswith("Nothing can be stopped early here") for text in said.said) is early_stop
