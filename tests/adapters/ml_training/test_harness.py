from __future__ import annotations

import math
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from autoresearch.adapters.ml_training.adapter import MlAdapter
from autoresearch.adapters.ml_training.harness import CURVE_SPAN, LossCurve, Session
from autoresearch.adapters.ml_training.task import (
    WEIGHTS,
    EvaluateTask,
    PredictTask,
    TrainTask,
    read_task,
    write_task,
)
from autoresearch.core import CandidateError, EnvironmentNotReadyError, Split


class Pipe(list[Mapping[str, Any]]):
    """Takes the messages that a runner would get."""

    def kinds(self) -> list[str]:
        return [message["kind"] for message in self]


def session_of(adapter: MlAdapter, tmp_path: Path, **changes: Any) -> tuple[Session, Pipe]:
    prepared = adapter.plan(0, Split.SEARCH, None).prepared
    pipe = Pipe()
    fields: dict[str, Any] = {
        "train_py": tmp_path / "train.py",
        "train_dir": prepared.train_dir,
        "output": tmp_path / "out",
        "vocab_size": prepared.vocab_size,
        "device": "cpu",
        "seed": 3,
        "budget_seconds": 60.0,
    }
    return Session(TrainTask(**(fields | changes)), pipe.append), pipe


def test_batches_are_inputs_and_the_tokens_after_them(adapter: MlAdapter, tmp_path: Path) -> None:
    """Targets are the inputs moved by one, int64, in the shape asked for, and the seed decides the order."""
    session, _ = session_of(adapter, tmp_path)
    inputs, targets = next(session.batches(4, 10))
    assert inputs.shape == targets.shape == (4, 10)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    again, _ = next(session_of(adapter, tmp_path)[0].batches(4, 10))
    other, _ = next(session_of(adapter, tmp_path, seed=4)[0].batches(4, 10))
    assert torch.equal(inputs, again)
    assert not torch.equal(inputs, other)


def test_tied_and_compiled_weights_fit_the_plain_model_again(adapter: MlAdapter, tmp_path: Path) -> None:
    """What is saved loads strictly into the model as build_model returns it."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(8, 4)
            self.head = nn.Linear(4, 8, bias=False)
            self.head.weight = self.embedding.weight

    class Compiled(nn.Module):
        """Names its parameters as the wrapper of torch.compile does, without its six seconds of importing."""

        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self._orig_mod = model

    session, _ = session_of(adapter, tmp_path)
    model = Tied()
    session.finish(Compiled(model))
    plain = Tied()
    plain.load_state_dict(load_file(tmp_path / "out" / WEIGHTS))
    assert torch.equal(plain.head.weight, model.embedding.weight)


def test_finish_hands_over_what_was_counted(adapter: MlAdapter, tmp_path: Path) -> None:
    """Steps, tokens and parameters arrive as one message; what a processor has not (video memory) is left out."""
    session, pipe = session_of(adapter, tmp_path)
    for _ in range(5):
        session.report(2.0, 100)
    session.finish(nn.Linear(3, 2))
    assert pipe.kinds() == ["clock_started", "progress", "trained"]
    trained = pipe[-1]
    assert (trained["num_steps"], trained["total_tokens_M"], trained["num_params_M"]) == (5, 500 / 1e6, 8 / 1e6)
    assert "peak_vram_mb" not in trained
    assert trained["peak_memory_mb"] > 50


def test_a_training_that_overran_its_budget_saves_nothing(adapter: MlAdapter, tmp_path: Path) -> None:
    """More time than the others had is the candidate's fault."""
    session, _ = session_of(adapter, tmp_path, budget_seconds=0.5, clock="wall")
    session._budget._started -= 2.0  # type: ignore[operator]
    assert session.finished
    with pytest.raises(CandidateError, match=r"session\.finished"):
        session.finish(nn.Linear(2, 2))
    assert not (tmp_path / "out").exists()


def test_weights_that_cannot_be_written_are_the_machines_fault(adapter: MlAdapter, tmp_path: Path) -> None:
    """A file where the folder should be, for one."""
    (tmp_path / "out").write_text("in the way")
    session, _ = session_of(adapter, tmp_path)
    with pytest.raises(EnvironmentNotReadyError, match="could not be written"):
        session.finish(nn.Linear(2, 2))


def test_a_disk_without_room_for_the_weights_is_the_machines_fault(adapter: MlAdapter, tmp_path: Path) -> None:
    """A limit on file sizes stands for the full disk; half a file never takes the name of a whole one."""
    session, _ = session_of(adapter, tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(EnvironmentNotReadyError, match="the disk has room"):
            session.finish(nn.Linear(100, 100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "out" / WEIGHTS).exists()


def test_a_loss_of_nan_ends_the_training_and_is_said_before_it_is_raised(adapter: MlAdapter, tmp_path: Path) -> None:
    """A candidate that catches the exception cannot hide it."""
    session, pipe = session_of(adapter, tmp_path)
    session.report(5.0, 10)
    with pytest.raises(CandidateError, match="diverged") as caught:
        session.report(math.nan, 10)
    assert caught.value.early
    assert pipe.kinds()[-1] == "given_up"
    assert "step 2" in pipe[-1]["reason"]


def test_the_clock_of_a_gpu_run_starts_after_the_warm_up(adapter: MlAdapter, tmp_path: Path) -> None:
    """Tokens of the warm-up do not count for the speed."""
    session, pipe = session_of(adapter, tmp_path, clock="wall", warmup_steps=2)
    assert pipe.kinds() == []
    session.report(3.0, 10)
    assert session.progress == 0.0
    session.report(3.0, 10)
    assert "clock_started" in pipe.kinds()
    assert session._tokens_before_clock == 20


def feed(losses: list[float]) -> str | None:
    """Feed a curve with losses spread over a whole budget; return the first verdict."""
    curve = LossCurve()
    for step, loss in enumerate(losses):
        progress = step / len(losses)
        verdict = curve.add(loss, progress)
        if verdict is not None:
            return verdict
        curve.due(progress)
    return None


def test_an_honest_curve_is_never_given_up() -> None:
    """Fast, slow at first, or noisy: what learns may go on."""
    steps = [step / 300 for step in range(300)]
    assert feed([3.0 + 4.0 * math.exp(-10 * share) for share in steps]) is None
    assert feed([7.0 - 4.0 * max(0.0, share - 0.25) for share in steps]) is None
    assert feed([5.0 - 2 * share + (0.8 if step % 2 else -0.8) for step, share in enumerate(steps)]) is None


def test_a_flat_curve_is_given_up_before_half_of_the_budget() -> None:
    """A model that learns nothing would cost a whole budget for a value that nobody needs."""
    verdict = feed([6.93] * 1000)
    assert verdict is not None
    assert "does not learn" in verdict
    assert "40%" in verdict


def test_curves_of_few_and_of_many_steps_can_be_compared() -> None:
    """The points of a curve lag by a share of the budget, the same for every size of step."""
    ends = []
    for steps in (50, 500):
        curve = LossCurve()
        for step in range(1, steps + 1):
            curve.add(4.0 - 2.0 * step / steps, step / steps)
        ends.append(curve.recent)
    assert ends[0] == pytest.approx(ends[1], abs=0.03)
    assert ends[0] == pytest.approx(2.0 + 2.0 * CURVE_SPAN, abs=0.03)


def test_a_curve_starts_anew_with_every_warm_up_step() -> None:
    """The budget stands still while a GPU compiles: what those steps lost is no part of the curve."""
    curve = LossCurve()
    for loss in (9.0, 8.0, 7.0):
        curve.add(loss, 0.0)
    assert curve.recent == 7.0


def test_a_rising_curve_has_diverged() -> None:
    """One step may jump; the smoothed loss must not rise by a nat over the first."""
    assert feed([6.9] * 20 + [12.0] + [6.0] * 100) is None
    verdict = feed([6.9] * 20 + [9.0] * 400)
    assert verdict is not None
    assert "diverged" in verdict


def test_a_loss_on_another_scale_is_judged_by_its_own_beginning() -> None:
    """Auxiliary terms that multiply the loss by ten do not end a training that learns."""
    assert feed([70.0 - 40.0 * step / 300 for step in range(300)]) is None


@pytest.mark.parametrize(
    "task",
    [
        TrainTask(Path("/a b/train.py"), Path("/t"), Path("/o"), 300, "cpu", 1, 2.5, "wall", 3, 4),
        EvaluateTask(
            Path("/ä/train.py"), Path("/w"), Path("/p"), "holdout", None, "cuda:1", Path("/f"), Path("/l"), "none", 2
        ),
        PredictTask(Path("/ä/train.py"), Path("/w"), 300, "cpu", Path("/f"), count_flops=True),
    ],
)
def test_a_task_survives_its_file(task: TrainTask | EvaluateTask | PredictTask, tmp_path: Path) -> None:
    """What a process reads is what the runner wrote."""
    write_task(task, tmp_path / "task.json")
    assert read_task(type(task), tmp_path / "task.json") == task
