from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autoresearch.adapters.ml_training.adapter import MlAdapter
from autoresearch.adapters.ml_training.budget import Load, LoadJudge, LoadSample
from autoresearch.adapters.ml_training.presets import PRESETS
from autoresearch.adapters.ml_training.runner import (
    Plan,
    Scored,
    Trained,
    _demand_budget,
    _demand_success,
    _look_into,
    _training_limits,
    _TrainingWatch,
    secondary,
    train,
)
from autoresearch.core import CandidateError, EnvironmentNotReadyError, InvalidCandidateError, RunContext, Split
from autoresearch.core.executor import Finished


@pytest.fixture
def plan(adapter: MlAdapter) -> Plan:
    return adapter.plan(0, Split.SEARCH, None)


def watch_of(*messages: dict[str, Any]) -> _TrainingWatch:
    watch = _TrainingWatch(lambda share, text: None, 1.0)
    for message in messages:
        watch.receive(message)
    return watch


def ended(
    returncode: int = 0, stopped: str | None = None, cpu_seconds: float = 1.0, seconds: float = 130.0
) -> Finished:
    return Finished(returncode, seconds, cpu_seconds, (), stopped)


STARTED = {"kind": "clock_started", "cpu": 1.0}
TRAINED = {"kind": "trained", "cpu": 2.0, "num_steps": 7}


def test_a_training_that_reported_its_end_is_a_success(plan: Plan, tmp_path: Path) -> None:
    """Its counts are numbers by name; what belongs to the protocol stays out."""
    watch = watch_of(STARTED, {"kind": "progress", "share": 0.5, "loss": 2.0}, TRAINED)
    _demand_success(ended(), tmp_path / "log", watch, plan)
    assert watch.counts == {"num_steps": 7.0}
    assert watch.curve == [(0.5, 2.0)]


def test_a_training_that_the_loop_finds_hopeless_is_cut_at_once() -> None:
    """The loop is asked in bits per byte, point by point, and its sentence ends the training as `early`."""
    asked: list[tuple[float, float]] = []

    def hopeless(share: float, value: float) -> str | None:
        asked.append((share, value))
        return "far behind" if share > 0.5 else None

    watch = _TrainingWatch(lambda share, text: None, 0.5, hopeless)
    watch.receive(STARTED)
    watch.receive({"kind": "progress", "share": 0.4, "loss": 3.0})
    with pytest.raises(CandidateError, match="far behind") as caught:
        watch.receive({"kind": "progress", "share": 0.6, "loss": 2.0})
    assert caught.value.early
    assert asked == [(0.4, 1.5), (0.6, 1.0)]


def test_a_training_without_a_processor_is_not_cut() -> None:
    """Its curve is behind because others kept the processor; it goes on to its end and is then measured again."""
    watch = _TrainingWatch(lambda share, text: None, 1.0, lambda share, value: "far behind")
    judge = LoadJudge(clock="cpu", min_cpu_share=0.25)
    watch.disturbance, watch.budget_seconds = judge.so_far, 10.0
    watch.receive(STARTED)
    assert watch._before is not None
    watch._before = replace(watch._before, wall=watch._before.wall - 100.0)
    watch.receive({"kind": "progress", "share": 0.6, "loss": 2.0})  # 6 processor seconds in 100
    watch._before = replace(watch._before, wall=watch._before.wall + 90.0)
    with pytest.raises(CandidateError, match="far behind"):
        watch.receive({"kind": "progress", "share": 0.7, "loss": 2.0})


def test_a_cut_ends_the_training_process_before_its_budget(plan: Plan, artifact: Path, run: RunContext) -> None:
    """The process is gone when the error arrives: nothing of a cut training goes on using the processor."""
    free = LoadJudge(clock="cpu", min_cpu_share=0.0)
    cut = replace(run, hopeless=lambda share, value: f"hopeless at {share}")
    before = set(psutil.Process().children(recursive=True))
    with pytest.raises(CandidateError, match="hopeless at") as caught:
        train(replace(plan, budget_seconds=60.0), artifact / "train.py", run.scratch / "output", cut, free)
    assert caught.value.early
    assert set(psutil.Process().children(recursive=True)) <= before


def test_the_machines_fault_comes_before_the_candidates(plan: Plan, tmp_path: Path) -> None:
    """A lost device often makes the candidate crash as well; the run must stop for it."""
    watch = watch_of({"kind": "crashed", "reason": "boom"}, {"kind": "not_ready", "reason": "the device is gone"})
    with pytest.raises(EnvironmentNotReadyError, match="device is gone"):
        _demand_success(ended(1), tmp_path / "log", watch, plan)


def test_a_run_into_the_ceiling_on_a_busy_machine_is_not_booked_on_the_candidate(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without processor time no candidate can train; with its time used up it was the candidate's own doing."""
    watch = watch_of(STARTED)
    stopped = "It ran longer than its limit of 5 s of wall-clock time."
    monkeypatch.setattr(LoadSample, "take", classmethod(lambda cls, own: LoadSample(1e9, 1e12, own)))
    with pytest.raises(EnvironmentNotReadyError, match="kept the processors busy"):
        _demand_success(ended(-9, stopped, cpu_seconds=0.1), tmp_path / "log", watch, plan)
    with pytest.raises(CandidateError, match="wall-clock"):
        _demand_success(ended(-9, stopped, cpu_seconds=40.0), tmp_path / "log", watch, plan)
    with pytest.raises(CandidateError, match="memory"):
        stopped = "It used 9000 MiB of memory; its limit is 800 MiB."
        _demand_success(ended(-9, stopped, cpu_seconds=0.1, seconds=9.0), tmp_path / "log", watch, plan)


def test_a_training_outside_of_its_clock_is_invalid(plan: Plan) -> None:
    """The clock is in the candidate's process, but the system counts as well; a GPU's processor tells nothing."""
    twenty = replace(plan, budget_seconds=20.0)
    _demand_budget(ended(cpu_seconds=26.0), twenty)
    with pytest.raises(InvalidCandidateError, match=r"used 45\.0 s of processor time, and a budget of 20 s"):
        _demand_budget(ended(cpu_seconds=45.0), twenty)
    _demand_budget(ended(cpu_seconds=45.0), replace(twenty, preset=PRESETS["h100"]))


def test_a_reason_is_cut_to_a_bearable_length(plan: Plan, tmp_path: Path) -> None:
    """The candidate's process writes it, and the ledger and the proposer get it."""
    with pytest.raises(CandidateError) as caught:
        _demand_success(ended(1), tmp_path / "log", watch_of({"kind": "crashed", "reason": "x" * 99_999}), plan)
    assert len(str(caught.value)) == 1000


def test_a_fault_of_the_machine_is_believed_only_where_one_is_found(
    plan: Plan, run: RunContext, tmp_path: Path
) -> None:
    """Or else any candidate could end a run by claiming one."""
    with pytest.raises(CandidateError, match="are in order"):
        _look_into("no GPU", plan, run)
    gone = replace(plan, prepared=replace(plan.prepared, path=tmp_path / "gone"))
    with pytest.raises(EnvironmentNotReadyError, match="damaged or not complete"):
        _look_into("no data", gone, run)


def test_a_run_into_the_ceiling_on_a_free_machine_is_the_candidates_fault(plan: Plan, tmp_path: Path) -> None:
    """A script that sleeps uses no processor, and nobody else did."""
    watch = watch_of({"kind": "clock_started", "cpu": 0.0})
    watch._before = LoadSample(0.0, LoadSample.take(0.0).busy, 0.0)
    with pytest.raises(CandidateError, match="wall-clock"):
        _demand_success(ended(-9, "It ran longer than its limit of wall-clock time."), tmp_path / "log", watch, plan)


@pytest.mark.parametrize("value", [float("nan"), True, "7", None])
def test_what_is_no_number_is_not_recorded(value: object) -> None:
    """A candidate can write into its own pipe; it cannot put anything but numbers into the ledger."""
    with pytest.raises(CandidateError, match="where a number belongs"):
        watch_of(STARTED, {"kind": "trained", "cpu": 2.0, "num_steps": value})


def test_a_training_whose_clock_never_ran_has_no_load() -> None:
    """A message of success without a session is no training."""
    with pytest.raises(CandidateError, match="clock"):
        watch_of(TRAINED).load()


def test_utilisation_is_work_done_over_the_devices_peak(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million tokens a second at 98.9 million operations each is a tenth of 989 teraflops."""
    monkeypatch.setattr("autoresearch.adapters.ml_training.devices.device_name", lambda device: "NVIDIA H100 80GB HBM3")
    trained = Trained({"tokens_per_second": 1e6}, (), Load(0.5, 0.1), 12.0)
    scored = Scored(1.0, {"eval_seconds": 3.0}, 98.9e6)
    numbers = secondary(trained, scored, replace(plan, device="cuda:0"), 320.0)
    assert numbers["mfu_percent"] == pytest.approx(10.0)
    assert numbers["total_seconds"] == 320.0
    unknown = secondary(trained, replace(scored, flops_per_token=None), replace(plan, device="cuda:0"), 320.0)
    assert "mfu_percent" not in unknown


def test_a_cpu_training_is_bound_in_processor_time_and_a_gpu_training_on_the_wall(plan: Plan) -> None:
    """The ceilings leave room for starting and warming up, not for a second budget."""
    cpu = _training_limits(replace(plan, budget_seconds=20.0))
    assert cpu.cpu_seconds is not None
    assert 20.0 < cpu.cpu_seconds < 100.0
    assert cpu.wall_seconds > 200.0
    gpu = _training_limits(replace(plan, preset=PRESETS["h100"], device="cuda", budget_seconds=300.0))
    assert gpu.cpu_seconds is None
    assert 300.0 + 600.0 < gpu.wall_seconds < 1200.0
