"""Live tests from end to end, on people who are drawn by lot."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from autoresearch.core import (
    ArmTotals,
    Direction,
    EnvironmentNotReadyError,
    GateReport,
    LiveExperiment,
    Look,
    Metric,
    MetricKind,
    Outcome,
    Scope,
    UsageError,
    driver,
    live,
)
from autoresearch.core.driver import RunResult, run
from autoresearch.core.ledger import Experiment, Ledger
from tests.core.fakes import FakeProposer, Listening, make_workspace

PER_LOOK = 400


@dataclass
class Crowd:
    """The artifact is a conversion rate; every look brings 400 people an arm, 28 looks at most."""

    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)
    finished: list[tuple[str, Outcome]] = field(default_factory=list)
    report: GateReport = field(default_factory=GateReport)
    crossed: list[int | None] = field(default_factory=list)
    arms: tuple[str, ...] = ("control", "treatment")
    most: int = 28
    forgotten: int = 0
    wait: float = 0.0

    @property
    def metric(self) -> Metric:
        return Metric("conversion", "", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.2)

    @property
    def scope(self) -> Scope:
        return Scope(("number.txt",))

    def start(self, experiment: LiveExperiment) -> None:
        self.rates[experiment.id] = (
            float((experiment.control / "number.txt").read_text()),
            float((experiment.treatment / "number.txt").read_text()),
        )

    def observe(self, experiment_id: str) -> Sequence[ArmTotals]:
        self.looks[experiment_id] = self.looks.get(experiment_id, 0) + 1
        n = PER_LOOK * self.looks[experiment_id]
        totals = []
        for arm, rate in zip(self.arms, self.rates[experiment_id], strict=False):
            dice = random.Random(f"{experiment_id[-4:]}{arm}")
            converted = sum(dice.random() < rate for _ in range(n))
            gone = self.forgotten if self.looks[experiment_id] == 2 else 0
            totals.append(ArmTotals(arm, n - gone, converted - gone, converted - gone))
        return totals

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        self.finished.append((experiment_id[-4:], outcome))

    def gates(self, experiment_id: str, crossed: Look | None) -> GateReport:
        self.crossed.append(None if crossed is None else crossed.treatment.n // PER_LOOK)
        return self.report

    def wait_seconds(self, experiment_id: str) -> float:
        return self.wait

    def ending(self, experiment_id: str) -> str | None:
        return "The traffic is used up." if self.looks[experiment_id] >= self.most else None


def go(root: Path, script: list[str | Exception], adapter: Crowd, **choices: object) -> RunResult:
    return run(adapter, workspace=root, proposer=FakeProposer(script), **choices)  # type: ignore[arg-type]


def experiments(root: Path) -> list[Experiment]:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        return ledger.experiments(ledger.runs()[-1].id)


def looks(root: Path, number: int) -> int:
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        row = ledger.experiment(ledger.runs()[-1].id, number)
        assert row is not None
        return len({look.look for look in ledger.live_looks(row.id)})


def test_people_decide_what_is_kept(tmp_path: Path) -> None:
    """A clear gain is kept and is the control of the next test, a clear loss is reverted; both by their e-values."""
    root, crowd = make_workspace(tmp_path / "w", "0.05"), Crowd()
    result = go(root, ["0.09", "0.04"], crowd, experiments=2)
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "kept", "reverted"]
    assert rows[1].e_win is not None and rows[1].e_win >= 20 and rows[2].e_lose is not None and rows[2].e_lose >= 5
    assert rows[1].value == pytest.approx(0.09, abs=0.02)
    assert crowd.finished == [("0001", Outcome.KEPT), ("0002", Outcome.REVERTED)]
    assert [rates[0] for rates in crowd.rates.values()] == [0.05, 0.09], "the control is the incumbent"
    assert result.status.baseline == pytest.approx(0.05, abs=0.02)
    assert result.status.believed_gain == pytest.approx(0.04, abs=0.02)


def test_traffic_that_is_used_up_settles_nothing(tmp_path: Path) -> None:
    """Without a verdict at the end of the traffic a test is inconclusive."""
    root = make_workspace(tmp_path / "w", "0.05")
    go(root, ["0.055"], Crowd(most=2), experiments=1)
    row = experiments(root)[1]
    assert row.outcome == "inconclusive" and row.reason.startswith("The traffic is used up.")
    assert looks(root, 1) == 2


@pytest.mark.parametrize(
    ("report", "outcome", "reason"),
    [
        (GateReport(invalid="The split is broken."), "invalid", "The split is broken."),
        (GateReport(harm="complaints rose."), "reverted", "harm: complaints rose."),
    ],
)
def test_gates_cannot_be_argued_with(tmp_path: Path, report: GateReport, outcome: str, reason: str) -> None:
    """A gate ends a test at its first look, however good the lift."""
    root = make_workspace(tmp_path / "w", "0.05")
    go(root, ["0.5"], Crowd(report=report), experiments=1)
    row = experiments(root)[1]
    assert (row.outcome, row.reason) == (outcome, reason) and looks(root, 1) == 1


def test_what_must_be_said_beside_a_verdict_is_in_its_reason(tmp_path: Path) -> None:
    """Whoever reads a keep reads what it rests on."""
    root = make_workspace(tmp_path / "w", "0.05")
    go(root, ["0.09"], Crowd(report=GateReport(note="Not drawn by chance.")), experiments=1)
    kept = experiments(root)[1]
    assert kept.outcome == "kept" and kept.reason is not None and kept.reason.endswith("Not drawn by chance.")


def test_a_verdict_waits_for_its_week(tmp_path: Path) -> None:
    """While a gate holds, a line that was crossed keeps the test going; the traffic's end lifts the hold."""
    root = make_workspace(tmp_path / "w", "0.05")
    crowd = Crowd(report=GateReport(hold="The week is not over."), most=5)
    go(root, ["0.5"], crowd, experiments=1)
    assert experiments(root)[1].outcome == "kept" and looks(root, 1) == 5
    assert crowd.crossed == [1] * 5, "the look that crossed the line stays the same"


def test_a_stop_while_people_are_awaited_leaves_the_test_running(tmp_path: Path) -> None:
    """`autoresearch stop` ends the run and not the test; the next run takes the same test up again."""
    root, crowd = make_workspace(tmp_path / "w", "0.05"), Crowd(wait=600)

    def stop(number: int, name: str) -> None:
        if (number, name) == (1, "observe"):
            with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
                ledger.send(ledger.runs()[-1].id, "stop")

    listening = Listening(on_phase=stop)
    result = go(root, ["0.09"], crowd, experiments=1, reporter=listening)
    assert any("the first look is in 10 min" in said for said in listening.said)
    assert result.reason.startswith("interrupted while the test goes on") and crowd.finished == []
    crowd.wait = 0.0
    assert go(root, [], crowd).status.kept == 1
    assert len(crowd.rates) == 1 and crowd.finished == [("0001", Outcome.KEPT)]


def test_hours_end_while_people_are_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was given a night ends in the morning; its test goes on, and the next run takes it up afresh."""
    root, crowd, passed = make_workspace(tmp_path / "w", "0.05"), Crowd(wait=5.0), [0.0]
    monkeypatch.setattr(
        driver, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0], sleep=time.sleep)
    )

    def night(number: int, name: str) -> None:
        if (number, name) == (1, "observe"):
            passed[0] = 8 * 3600.0

    result = go(root, ["0.09"], crowd, experiments=1, hours=8, reporter=Listening(on_phase=night))
    assert result.reason.startswith("hours: 8 used") and crowd.finished == []
    crowd.wait = 0.0
    assert go(root, [], crowd, experiments=1).status.kept == 1


def test_a_new_run_ends_the_test_that_an_earlier_one_left_going(tmp_path: Path) -> None:
    """Nobody would ever look at it again, and its surface could hold no other."""
    root, crowd = make_workspace(tmp_path / "w", "0.05"), Crowd(wait=60)

    def stop(number: int, name: str) -> None:
        if (number, name) == (1, "observe"):
            with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
                ledger.send(ledger.runs()[-1].id, "stop")

    go(root, ["0.09"], crowd, experiments=1, reporter=Listening(on_phase=stop))
    crowd.wait = 0.0
    assert go(root, ["0.09"], crowd, experiments=1, new=True).status.kept == 1
    assert crowd.finished == [("0001", Outcome.INCONCLUSIVE), ("0001", Outcome.KEPT)]
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        left = ledger.experiment(ledger.runs()[0].id, 1)
    assert left is not None and left.outcome == "inconclusive" and "new run" in left.reason


def test_arms_that_were_not_shown_are_refused(tmp_path: Path) -> None:
    """An adapter that reports other arms than the two is at fault, and nothing is booked."""
    root = make_workspace(tmp_path / "w", "0.05")
    with pytest.raises(EnvironmentNotReadyError, match="has the arms control, treatment, and the adapter reports a, b"):
        go(root, ["0.09"], Crowd(arms=("a", "b")), experiments=1)


@pytest.mark.parametrize("policy", ["bayes", "greedy"])
def test_repeated_measurements_rules_do_not_judge_people(tmp_path: Path, policy: str) -> None:
    """The policies of measured adapters are refused with the one that fits."""
    with pytest.raises(UsageError, match="arrives from people"):
        go(make_workspace(tmp_path / "w", "0.05"), ["0.09"], Crowd(), policy=policy, experiments=1)


def test_a_person_forgotten_between_looks_breaks_nothing(tmp_path: Path) -> None:
    """Sums never fall: they name nobody, and a race judges what was added."""
    root = make_workspace(tmp_path / "w", "0.05")
    go(root, ["0.055"], Crowd(most=3, forgotten=PER_LOOK + 5), experiments=1)
    assert experiments(root)[1].outcome == "inconclusive" and looks(root, 1) == 3


@pytest.mark.parametrize(
    ("days", "words"),
    [(12.2, "12 days left at most; so far"), (0.4, "ends within a day or two; so far"), (None, "so far")],
)
def test_a_test_that_goes_on_says_how_long_at_most(days: float | None, words: str) -> None:
    """The days stand before the reason, and nothing where the adapter does not know them."""

    class Patient(Crowd):
        def days_left(self, experiment_id: str) -> float | None:
            return days

    assert live.progress(Patient(), Experiment(run_id="r", number=1, session_id=1), "so far") == (0.0, words)
    assert live.progress(Crowd(), Experiment(run_id="r", number=1, session_id=1), "so far") == (0.0, "so far")
