"""Clocks that are set back, and machines that sleep."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autoresearch.core import CandidateError, Measurement, RunContext, Split, moments
from autoresearch.core.driver import run
from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow
from autoresearch.core.moments import Moments, slept
from tests.core.fakes import FakeProposer, SquareAdapter, make_workspace

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def moments_of(wall: list[datetime], steady: list[float], since: datetime | None = None) -> Moments:
    walls, steadies = iter(wall), iter(steady)
    return Moments(since, wall=lambda: next(walls), steady=lambda: next(steadies))


def test_a_clock_that_is_right_is_followed() -> None:
    """The stamps are those of the system, a step forward included."""
    clock = moments_of([NOON, NOON + timedelta(seconds=5), NOON + timedelta(days=1)], [0.0, 5.0, 6.0])
    assert [clock.now(), clock.now()] == [NOON + timedelta(seconds=5), NOON + timedelta(days=1)]


def test_a_clock_set_back_goes_on_from_where_it_was() -> None:
    """Stamps rise by what really passed."""
    clock = moments_of([NOON, NOON - timedelta(days=300), NOON - timedelta(days=300)], [0.0, 7.0, 9.0])
    assert [clock.now(), clock.now()] == [NOON + timedelta(seconds=7), NOON + timedelta(seconds=9)]


def test_a_session_never_begins_before_what_is_written_down() -> None:
    """A clock that was set back between two sessions does not reorder them."""
    clock = moments_of([NOON, NOON], [0.0, 1.0], since=NOON + timedelta(hours=2))
    assert clock.now() == NOON + timedelta(hours=2, seconds=1)


def test_short_naps_are_rounding() -> None:
    """Clocks read one after the other differ by a hair; a second and more is sleep."""
    assert slept(100.0, 100.5) is None
    assert slept(100.0, 400.2) == "the machine was asleep for 300 s in the middle of it"


def test_a_run_under_a_clock_that_runs_backwards_has_rising_stamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stamp of the ledger rises with the order in which things happened, and no duration is negative."""
    root = make_workspace(tmp_path / "w")
    hours = iter(range(10_000))
    monkeypatch.setattr(
        moments, "Moments", lambda since: Moments(since, wall=lambda: NOON - timedelta(hours=next(hours)))
    )
    for script in (["2", "1"], ["0.5", "0.4"]):
        run(
            SquareAdapter(),
            workspace=root,
            proposer=FakeProposer(script),
            policy="greedy",
            experiments=2,
            confirm=False,
        )
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        run_id = ledger.runs()[-1].id
        rows, sessions = ledger.experiments(run_id), ledger.sessions(run_id)
        measured = ledger.run_measurements(run_id)
    stamps = []
    for row in sorted(rows, key=lambda row: row.sequence or 0):
        stamps += [row.started, *(m.started for m in measured[row.id]), row.ended]
    known = [stamp for stamp in stamps if stamp is not None]
    assert len(known) == len(stamps) and known == sorted(known)
    assert sessions[0].ended is not None and sessions[0].ended <= sessions[1].started
    assert all(row.seconds >= 0 for row in rows)


class Sleepy(SquareAdapter):
    """Falls asleep, together with its machine, while the measurements of `naps` are taken."""

    naps: tuple[int, ...] = ()
    asleep = 0.0

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        if len(self.measured) in self.naps:
            self.asleep += 600.0
        return super().measure(artifact, seed=seed, split=split, run=run)


@pytest.fixture
def sleepy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sleepy]:
    adapter = Sleepy()
    adapter.naps = ()
    monkeypatch.setattr(moments, "asleep_seconds", lambda: adapter.asleep)
    yield adapter


def go(root: Path, adapter: Sleepy, script: list[str | Exception]) -> tuple[list[Experiment], list[MeasurementRow]]:
    run(adapter, workspace=root, proposer=FakeProposer(script), policy="greedy", experiments=1, confirm=False)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        rows = ledger.experiments(ledger.runs()[-1].id)
        return rows, ledger.measurements(rows[1].id)


def test_a_measurement_through_which_the_machine_slept_is_taken_again(tmp_path: Path, sleepy: Sleepy) -> None:
    """The first value is written down as disturbed and not judged."""
    sleepy.naps = (2,)
    rows, measured = go(make_workspace(tmp_path / "w"), sleepy, ["2"])
    assert [row.disturbed for row in measured] == ["the machine was asleep for 600 s in the middle of it", None]
    assert rows[1].outcome == "kept"


def test_a_crash_through_which_the_machine_slept_is_not_booked_on_the_candidate(tmp_path: Path, sleepy: Sleepy) -> None:
    """A limit may have run out in its sleep: the same candidate is tried again, without a repair."""
    sleepy.naps = (2,)

    def out_of_time(text: str) -> None:
        if len(sleepy.measured) == 3:
            raise CandidateError("took longer than its limit")

    sleepy.fault = out_of_time
    rows, measured = go(make_workspace(tmp_path / "w"), sleepy, ["2"])
    assert (rows[1].outcome, rows[1].repairs, len(measured)) == ("kept", 0, 1)


def test_a_machine_that_sleeps_every_time_gives_no_verdict(tmp_path: Path, sleepy: Sleepy) -> None:
    """Three tries, then the candidate is inconclusive with the reason."""
    sleepy.naps = tuple(range(2, 99))
    rows, measured = go(make_workspace(tmp_path / "w"), sleepy, ["2"])
    assert rows[1].outcome == "inconclusive" and "asleep for 600 s" in rows[1].reason and len(measured) == 3
