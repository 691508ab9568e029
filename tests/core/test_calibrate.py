"""Calibrating: the incumbent against itself, the noise that every decision then knows, the policy tried on it."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

import pytest

from autoresearch.core import CandidateError, Direction, EnvironmentNotReadyError, Metric, Noise, UsageError
from autoresearch.core import memory as remembered
from autoresearch.core.calibrate import Calibration, calibrate
from autoresearch.core.decision.policies import create_policy
from autoresearch.core.decision.power import Setting, keep_rate, smallest_seen
from autoresearch.core.fresh import bench_at
from autoresearch.core.history import History
from autoresearch.core.ledger import Ledger, Run
from autoresearch.core.workspace import Layout
from tests.core.fakes import Listening, SquareAdapter, make_workspace
from tests.core.test_confirm import go


def calibrated(root: Path, adapter: SquareAdapter, runs: int = 4) -> tuple[Calibration, Run]:
    layout = Layout(root)
    with Ledger.open(layout.ledger) as ledger:
        row = ledger.latest_run()
        assert row is not None
        with bench_at(layout, ledger, row, Listening(), adapter) as bench:
            found = calibrate(bench, runs=runs)
        return found, ledger.run(row.id)


@pytest.fixture
def adapter() -> SquareAdapter:
    return SquareAdapter()


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from 3 that kept 2; to be copied."""
    folder = make_workspace(tmp_path_factory.mktemp("done") / "w")
    go(folder, ["2"], SquareAdapter(), experiments=1)
    return folder


@pytest.fixture
def root(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "w")


def test_the_incumbent_is_measured_with_fresh_seeds(root: Path, adapter: SquareAdapter) -> None:
    """Seeds from 20,000 up, and the noise of these and all other replicates is stored with the run."""
    found, row = calibrated(root, adapter)
    assert adapter.measured == [("2", seed) for seed in range(20_000, 20_004)]
    assert found.number == 1 and len(found.values) == 4
    assert found.assessment is not None
    noise = found.assessment.noise
    assert (row.noise_sd, row.noise_dof) == (noise.sd, noise.dof)
    assert noise.dof == 8 + 1 + 3, "what the adapter states, two baseline runs, four calibration runs"


def test_decisions_know_the_calibration(root: Path, adapter: SquareAdapter) -> None:
    """The replicates are one more group behind the noise of `evidence`."""
    before = evidence_noise(root, adapter)
    found, _ = calibrated(root, adapter)
    after = evidence_noise(root, adapter)
    assert found.assessment is not None
    assert after == found.assessment.noise and after.dof == before.dof + 3
    squares = statistics.variance(found.values) * 3
    assert after.sd**2 * after.dof == pytest.approx(before.sd**2 * before.dof + squares)


def evidence_noise(root: Path, adapter: SquareAdapter) -> Noise:
    with Ledger.open(Layout(root).ledger) as ledger:
        known = History(ledger, ledger.runs()[-1].id).refresh()
        noise = remembered.evidence(
            adapter.metric, known.experiments, known.measurements, calibration=known.calibration
        ).noise
    assert noise is not None
    return noise


def test_more_runs_add_to_what_is_there(root: Path, adapter: SquareAdapter) -> None:
    """Earlier measurements are read back."""
    first, _ = calibrated(root, adapter)
    more, _ = calibrated(root, adapter, runs=6)
    assert (first.measured, more.measured) == (4, 2)
    assert more.values[:4] == first.values


def test_what_the_policy_does_here_is_told(root: Path, adapter: SquareAdapter) -> None:
    """A no-op is kept rarely, and the smallest effect seen is a few times the noise."""
    found, _ = calibrated(root, adapter)
    known = found.assessment
    assert known is not None and known.false_keeps is not None and known.smallest_effect is not None
    assert 0.02 < known.false_keeps < 0.3
    assert 1.0 < known.smallest_effect / known.noise.sd < 4.0


def test_a_run_says_at_its_beginning_what_it_can_see(tmp_path: Path, adapter: SquareAdapter) -> None:
    """After the baseline the noise is stored and told, with the rate of false keeps; once a run."""
    root, reporter = make_workspace(tmp_path / "w"), Listening()
    go(root, ["2"], adapter, experiments=1, reporter=reporter)
    said = [text for text in reporter.said if text.startswith("Noise of one measurement: 0.00")]
    assert len(said) == 1 and "bayes keeps" in said[0] and "80 % power" in said[0]
    with Ledger.open(Layout(root).ledger) as ledger:
        assert ledger.runs()[-1].noise_sd == pytest.approx(0.0095, abs=1e-3)
    again = Listening()
    go(root, ["1"], adapter, experiments=1, reporter=again)
    assert not any(text.startswith("Noise") for text in again.said)


def test_a_metric_without_noise_is_said_to_repeat(tmp_path: Path) -> None:
    """Where replicates agree exactly nothing is simulated."""
    root, reporter = make_workspace(tmp_path / "w"), Listening()
    go(root, ["2"], SquareAdapter(noise=None), experiments=1, reporter=reporter)
    assert "square repeats exactly here: every difference on this data is real." in reporter.said


def test_one_run_shows_no_spread(root: Path, adapter: SquareAdapter) -> None:
    """A calibration needs two measurements."""
    with pytest.raises(UsageError, match="2 measurements or more, not 1"):
        calibrated(root, adapter, runs=1)


def test_an_incumbent_that_crashes_is_named(root: Path, adapter: SquareAdapter) -> None:
    """A crash with a fresh seed stops the calibration with the seed and the candidate's sentence."""

    def stumble(text: str) -> None:
        raise CandidateError("It stumbles.")

    adapter.fault = stumble
    with pytest.raises(EnvironmentNotReadyError, match=r"fresh seed 20000: It stumbles\."):
        calibrated(root, adapter)


def setting(policy: str, sd: float = 1.0, dof: float = 10.0, direction: Direction = Direction.MAXIMIZE) -> Setting:
    return Setting(create_policy(policy), Metric("x", "", direction), Noise(sd, dof), 100.0, 3, repetitions=400)


def test_greedy_keeps_every_other_change_of_nothing() -> None:
    """Strict improvement is a coin when nothing changed."""
    assert keep_rate(setting("greedy"), 0.0) == pytest.approx(0.5, abs=0.08)


def test_rates_know_the_direction() -> None:
    """An improvement is kept and its opposite is not, whichever way the metric points."""
    for direction in Direction:
        assert keep_rate(setting("bayes", direction=direction), 10.0) > 0.95
        assert keep_rate(setting("bayes", direction=direction), -10.0) < 0.05


def test_rates_scale_with_the_noise() -> None:
    """In units of the noise nothing changes."""
    small, large = smallest_seen(setting("bayes")), smallest_seen(setting("bayes", sd=10.0))
    assert small is not None and large == pytest.approx(10.0 * small)


def test_an_unsure_noise_hides_more() -> None:
    """With the spread hardly known, the smallest effect that is seen is larger."""
    sure, unsure = smallest_seen(setting("bayes", dof=1000.0)), smallest_seen(setting("bayes", dof=2.0))
    assert sure is not None and (unsure is None or unsure > 1.2 * sure)
