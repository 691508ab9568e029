"""A run as pages see it: the believed incumbent along the way, live tests look by look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.ledger import Experiment, Ledger, LiveLook, MeasurementRow
from autoresearch.core.readmodel import RunReader, RunView, live_points, status_of, view_of
from benchmarks.report import fill as fill_ledger
from tests.cli.filling import fill, make_workspace, work
from tests.core.fakes import make_workspace as make_number
from tests.core.test_live import Crowd, go


@contextmanager
def opened(root: Path) -> Iterator[tuple[Ledger, RunView]]:
    """Open the latest run of a workspace."""
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        run = ledger.latest_run()
        assert run is not None
        yield ledger, view_of(ledger, run, at_work=False)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("measured") / "w")


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_number(tmp_path_factory.mktemp("tested") / "w", "0.05")
    go(root, ["0.058", "0.09"], Crowd(), experiments=2)
    return root


def test_the_way_begins_at_the_baseline_and_ends_at_the_incumbent(measured: Path) -> None:
    """The last standing is what the status says; each lies inside its interval; the baseline has none to speak of."""
    with opened(measured) as (ledger, view):
        first, *_, last = view.standings
        assert view.status == status_of(ledger, view.run, at_work=False)
        assert first.number == 0 and first.value == pytest.approx(view.status.baseline or 0.0)
        assert last.value == pytest.approx(view.status.incumbent or 0.0)
        for one in view.standings:
            assert one.low is not None and one.high is not None and one.low <= one.value <= one.high
        assert last.low is not None and last.high is not None and last.high - last.low > 0.01


def test_a_rule_without_an_interval_has_no_band(tmp_path: Path) -> None:
    """`greedy` believes values; its standings have no ends."""
    root = make_workspace(tmp_path / "w")
    work(root, [("Halve it.", "4"), ("Again.", "2")], experiments=2, policy="greedy", confirm=False)
    with opened(root) as (_, view):
        assert [one.number for one in view.standings] == [0, 1, 2]
        assert all(one.low is None and one.high is None for one in view.standings)
        assert view.standings[-1].value == 2.0


def test_the_evidence_of_kept_experiments_is_at_hand(measured: Path) -> None:
    """What was kept, the baseline included, has its looks; the rest can be asked for."""
    with opened(measured) as (_, view):
        kept = {row.id: row.number for row in view.experiments if row.outcome == "kept"}
        assert {kept[id] for id in view.looks} == {0, 1} and not view.live
        assert [row.number for row in view.kept] == [1] and view.confirmed == frozenset()


def test_a_live_test_is_judged_at_every_look(tested: Path) -> None:
    """The last look of a kept test has the e-value that the ledger holds, the first one not yet."""
    with opened(tested) as (ledger, view):
        row = view.experiments[2]
        points = live_points(ledger, view, row)
        assert view.live and [point.look for point in points] == list(range(1, len(points) + 1))
        assert points[-1].verdict.e_win == pytest.approx(row.e_win)
        assert points[-1].control.n == 400 * len(points)
        assert view.standings[0].number == 0 and view.standings[-1].value == pytest.approx(view.status.incumbent or 0.0)


def test_of_many_looks_evenly_chosen_ones_are_judged(tested: Path) -> None:
    """The last look is always among them, and no more than asked for come back."""
    with opened(tested) as (ledger, view):
        row = view.experiments[1]
        whole = live_points(ledger, view, row)
        assert len(whole) > 3
        some = live_points(ledger, view, row, most=3)
        assert len(some) <= 3 and some[-1] == whole[-1] and set(some) <= set(whole)


def test_a_test_that_goes_on_is_seen(tmp_path: Path) -> None:
    """A run whose first test has not ended is live, and the test's looks are there."""
    root = make_number(tmp_path / "w", "0.05")
    go(root, [], Crowd(), experiments=1)
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        run = ledger.latest_run()
        assert run is not None
        session = ledger.sessions(run.id)[0]
        row = ledger.begin_experiment(Experiment(run_id=run.id, number=1, session_id=session.id))
        arms = [ArmTotals("control", 400, 20.0, 20.0), ArmTotals("treatment", 400, 30.0, 30.0)]
        ledger.add_live_look(
            [
                LiveLook(experiment_id=row.id, look=0, arm=arm.arm, n=arm.n, total=arm.total, total_sq=arm.total_sq)
                for arm in arms
            ]
        )
        view = view_of(ledger, run, at_work=True)
        assert view.live and view.in_flight is not None and view.looks[row.id]
        (point,) = live_points(ledger, view, row)
        assert point.verdict.effect == pytest.approx(0.5)


def test_reading_on_gives_what_reading_anew_gives(tmp_path: Path) -> None:
    """After every experiment, and after a kept step was taken back, a reader that stayed sees the same run."""
    path = tmp_path / "ledger.db"
    fill_ledger(path, 30)
    with Ledger.open(path) as ledger:
        run = ledger.runs()[0]
        reader = RunReader(ledger, run.id)

        def agree() -> None:
            stayed, anew = reader.view(at_work=False), view_of(ledger, run, at_work=False)
            for name in ("status", "totals", "standings", "looks", "noise", "claims"):
                assert getattr(stayed, name) == getattr(anew, name), name
            assert [row.id for row in stayed.experiments] == [row.id for row in anew.experiments]

        agree()
        for number in range(31, 36):
            row = ledger.begin_experiment(Experiment(run_id=run.id, number=number, session_id=1))
            agree()
            ledger.add_measurement(MeasurementRow(experiment_id=row.id, value=0.99 - 0.001 * number, seconds=1.0))
            kept = {"outcome": "kept", "kept_commit": f"{number:040x}"} if number % 2 else {"outcome": "reverted"}
            ledger.finish_experiment(row.id, value=0.99 - 0.001 * number, effect=0.001, **kept)
            agree()
        ledger.take_back(row.id, "taken back")
        agree()
        assert reader.view(at_work=False, standings=False).standings == ()
