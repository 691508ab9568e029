"""What `train.py` talks to: data, budget, curve and the end of a training.

    session = harness.open_session()
    for inputs, targets in session.batches(DEVICE_BATCH, CONTEXT):
        ...
        session.report(loss, tokens)
        if session.finished:
            break
    session.finish(model)

The loop starts `train.py` in a process that was told what to do (`train_process.py`). Started by hand inside a
workspace the same script trains with the workspace's settings, then evaluates and prints a summary. The score is never
computed here: evaluation is a process of its own, in code that the loop does not write.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psutil
import torch
from torch import Tensor, nn

from autoresearch.adapters.ml_training.budget import Budget
from autoresearch.adapters.ml_training.task import WEIGHTS, TrainTask
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError

Emit = Callable[[Mapping[str, Any]], None]

SMOOTHING: Final = 0.95
"""Weight of the past in the smoothed loss."""
CURVE_POINTS: Final = 100
"""Points on the curve of a whole training."""
CURVE_SPAN: Final = 0.03
"""Share of the budget over which the points of the curve are smoothed. Counted in steps, a training of few large ones
would lag behind one of many small ones, and their curves could not be compared."""
DIVERGED_NATS: Final = 1.0
"""A smoothed loss so far above the first one, or twice so far above its lowest, has diverged."""
JUDGED_FROM: Final = 0.4
"""Share of the budget after which a training that does not learn is given up; an honest loss has halved by then."""
HOPELESS_SHARE: Final = 0.9
"""Share of the first loss below which a training must be by then, or be heading to by the end of its budget."""
FIRST_STEPS: Final = 3
"""Steps whose mean loss counts as the first loss."""
JUDGED_STEPS: Final = 30
"""Steps before which nothing is judged: the smoothed loss still remembers the first one."""


class Session:
    """One training. Get it from `open_session`.

    Attributes:
        vocab_size: Number of tokens, V.
        device: Where to train.
        seed: Seed of this training; torch is seeded with it already.
    """

    def __init__(
        self, task: TrainTask, emit: Emit, *, when_finished: Callable[[TrainTask], None] | None = None
    ) -> None:
        self.vocab_size = task.vocab_size
        self.device = torch.device(task.device)
        self.seed = task.seed
        self._task = task
        self._emit = emit
        self._when_finished = when_finished
        self._opened = time.perf_counter()
        self._steps = 0
        self._tokens = 0
        self._tokens_before_clock = 0
        self._curve = LossCurve()
        self._clock_wall = self._opened
        self._budget = Budget(task.budget_seconds, clock=task.clock, warmup_steps=task.warmup_steps)
        if self._budget.running:
            self._clock_started()

    @property
    def progress(self) -> float:
        """Share of the budget used, 0 to 1; 0 during the warm-up steps. Costs about a microsecond."""
        return self._budget.progress

    @property
    def finished(self) -> bool:
        """Whether the budget is used up: take no further step, and call `finish`."""
        return self._budget.progress >= 1.0

    def log(self, text: str) -> None:
        """Write one line to the log."""
        print(text, flush=True)

    def batches(self, batch: int, context: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs and next-token targets without end, both (B, T) int64 on the device.

        Args:
            batch: Rows, B.
            context: Tokens per row, T.
        """
        from autoresearch.adapters.ml_training.data import training_batches

        pairs = training_batches(self._task.train_dir, batch=batch, context=context, seed=self.seed)
        if self.device.type == "cuda":
            return _prefetched_to_gpu(pairs, self.device)
        return ((torch.from_numpy(x).to(self.device), torch.from_numpy(y).to(self.device)) for x, y in pairs)

    def report(self, loss: float, tokens: int) -> None:
        """Tell that one optimiser step is done.

        Args:
            loss: Training loss of the step, in nats per token; for the curve and for giving up early, never the score.
            tokens: Tokens that the step trained on.

        Raises:
            CandidateError: If the training diverged or is hopeless. Let it pass: it ends the run.
        """
        self._steps += 1
        self._tokens += tokens
        if self._budget.step_done():
            self._start_clock()
        progress = self._budget.progress
        verdict = self._curve.add(float(loss), progress)
        if verdict is not None:
            raise self._given_up(f"{verdict} (step {self._steps}, after {self._budget.spent:.0f} s).")
        self._show_curve(progress)

    def finish(self, model: nn.Module) -> None:
        """End the training: save the weights of `model` (averaged ones, if you like) and hand over what was counted.

        Raises:
            CandidateError: If the training went on for clearly longer than its budget.
            EnvironmentNotReadyError: If the weights cannot be written.
        """
        self._synchronize()
        spent, wall = self._budget.spent, time.perf_counter() - self._clock_wall
        if self._budget.overrun:
            raise CandidateError(
                f"train.py trained for {spent:.1f} s, and the budget was {self._task.budget_seconds:.1f} s. "
                "Leave the training loop when session.finished is true."
            )
        if self._steps:
            self._show_curve(self._budget.progress)
        _save_weights(model, self._task.output / WEIGHTS)
        self._emit({"kind": "trained", "cpu": time.process_time(), **self._counts(model, spent, wall)})
        if self._when_finished is not None:
            self._when_finished(self._task)

    def _show_curve(self, progress: float) -> None:
        if self._curve.due(progress):
            loss = round(self._curve.recent, 5)
            self._emit({"kind": "progress", "share": round(progress, 4), "loss": loss, "tokens": self._tokens})

    def _counts(self, model: nn.Module, spent: float, wall: float) -> dict[str, float]:
        counts: dict[str, float] = {
            "training_seconds": spent,
            "training_wall_seconds": wall,
            "startup_seconds": self._clock_wall - self._opened,
            "num_steps": self._steps,
            "total_tokens_M": self._tokens / 1e6,
            "tokens_per_second": (self._tokens - self._tokens_before_clock) / max(spent, 1e-9),
            "num_params_M": sum(parameter.numel() for parameter in model.parameters()) / 1e6,
            "peak_memory_mb": _peak_memory_mb(),
        }
        depth = getattr(sys.modules["__main__"], "DEPTH", None)
        if isinstance(depth, int):
            counts["depth"] = depth
        if self.device.type == "cuda":
            counts["peak_vram_mb"] = torch.cuda.max_memory_allocated(self.device) / 2**20
        if math.isfinite(self._curve.smoothed):
            counts["train_loss"] = self._curve.smoothed
        return counts

    def _start_clock(self) -> None:
        # Work of the warm-up steps that the GPU has not done yet must not fall into the measured time.
        self._synchronize()
        self._budget.start()
        self._tokens_before_clock = self._tokens
        self._clock_wall = time.perf_counter()
        self._clock_started()

    def _clock_started(self) -> None:
        self._emit({"kind": "clock_started", "cpu": time.process_time()})

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        elif self.device.type == "mps":
            torch.mps.synchronize()

    def _given_up(self, reason: str) -> CandidateError:
        # Said on the pipe before anything is raised: a candidate that catches the exception changes nothing.
        self._emit({"kind": "given_up", "reason": reason})
        return CandidateError(reason, early=True)


class LossCurve:
    """The smoothed training loss, and whether it is worth going on.

    The rules compare a loss with earlier losses of the same training only, so that a candidate with another loss
    function (auxiliary terms, label smoothing) is not given up for its scale.
    """

    def __init__(self) -> None:
        self.smoothed = math.nan
        self.recent = math.nan
        self._recent_at = -1.0
        self._steps = 0
        self._first: list[float] = []
        self._lowest = math.inf
        self._last_point = -1.0
        self._trend: list[tuple[float, float]] = []

    @property
    def first(self) -> float:
        """Mean loss of the first steps."""
        return sum(self._first) / len(self._first)

    def add(self, loss: float, progress: float) -> str | None:
        """Add one step's loss; return why the training should end, or None to go on."""
        if not math.isfinite(loss):
            return f"The training loss is {loss}: the training diverged"
        self._steps += 1
        if len(self._first) < FIRST_STEPS:
            self._first.append(loss)
        self.smoothed = loss if math.isnan(self.smoothed) else SMOOTHING * self.smoothed + (1 - SMOOTHING) * loss
        self._follow(loss, progress)
        self._lowest = min(self._lowest, self.smoothed)
        if self.smoothed > self.first + DIVERGED_NATS or self.smoothed > self._lowest + 2 * DIVERGED_NATS:
            return f"The training loss rose from {self._lowest:.2f} to {self.smoothed:.2f}: the training diverged"
        return self._hopeless(progress)

    def due(self, progress: float) -> bool:
        """Whether a new point of the curve is due; remembers that it was asked for."""
        last = progress >= 1.0 > self._last_point
        if progress < self._last_point + 1 / CURVE_POINTS and not last:
            return False
        self._last_point = progress
        self._trend.append((progress, self.smoothed))
        return True

    def _follow(self, loss: float, progress: float) -> None:
        """Update the recent loss, the one of the curve; the budget stands still during the warm-up steps."""
        used = progress - self._recent_at
        keep = math.exp(-used / CURVE_SPAN) if used > 0 and not math.isnan(self.recent) else 0.0
        self.recent = keep * self.recent + (1 - keep) * loss if keep else loss
        self._recent_at = progress

    def _hopeless(self, progress: float) -> str | None:
        bar = HOPELESS_SHARE * self.first
        if progress < JUDGED_FROM or self._steps < JUDGED_STEPS or self.first <= 0 or self.smoothed < bar:
            return None
        expected = self._expected_at_end(progress)
        if expected < bar:
            return None
        return (
            f"After {progress:.0%} of the budget the training loss is {self.smoothed:.2f} and heads for "
            f"{expected:.2f}, having begun at {self.first:.2f}: it does not learn"
        )

    def _expected_at_end(self, progress: float) -> float:
        """Prolong the line from the middle of the training so far to now; the curve flattens, so this is generous."""
        earlier = [point for point in self._trend if point[0] <= progress / 2]
        if not earlier:
            return self.smoothed
        then, loss = earlier[-1]
        return self.smoothed + (self.smoothed - loss) / (progress - then) * (1.0 - progress)


_assigned: tuple[TrainTask, Emit] | None = None
_forbidden = False


def assign(task: TrainTask, emit: Emit) -> None:
    """Say what the next `open_session` in this process is for; the training process calls it before the candidate."""
    global _assigned
    _assigned = (task, emit)


def forbid_training() -> None:
    """Refuse every `open_session` in this process: here the candidate is imported for its model alone."""
    global _forbidden
    _forbidden = True


def open_session() -> Session:
    """Open this process's training: seed torch, set its threads, start the clock (on a GPU after the warm-up steps).

    Raises:
        EnvironmentNotReadyError: If the device or the data is missing.
        UsageError: If `train.py` was started by hand outside of a workspace.
        CandidateError: If `train.py` trains when it is imported.
    """
    if _forbidden:
        raise CandidateError(
            "train.py begins to train when it is imported; the evaluator imports it for build_model. "
            'Call main() under: if __name__ == "__main__"'
        )
    if _assigned is not None:
        task, emit = _assigned
        _set_up_torch(task)
        return Session(task, emit)
    from autoresearch.adapters.ml_training.by_hand import HandRun, show_errors_as_sentences

    show_errors_as_sentences()
    by_hand = HandRun.open(Path(sys.argv[0]).resolve())
    task = by_hand.task()
    _set_up_torch(task)
    return Session(task, by_hand.show, when_finished=by_hand.evaluate_and_print)


def _set_up_torch(task: TrainTask) -> None:
    # The first optimiser imports torch's compiler, 0.95 s of processor time: starting, not training.
    import torch._dynamo

    torch.set_num_threads(task.threads)
    if task.device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise EnvironmentNotReadyError(
                f"No CUDA device is visible, and the training was to run on {task.device}.\n"
                "Set CUDA_VISIBLE_DEVICES, or train on the processor: autoresearch run --adapter ml --preset cpu"
            )
        torch.cuda.reset_peak_memory_stats(torch.device(task.device))
    torch.manual_seed(task.seed)


def _prefetched_to_gpu(pairs: Iterator[tuple[Any, Any]], device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Copy batches to the GPU one ahead, from pinned memory and in a thread, so that the GPU never waits for them."""
    ready: queue.Queue[tuple[Tensor, Tensor] | BaseException] = queue.Queue(maxsize=4)

    def fill() -> None:
        try:
            for x, y in pairs:
                ready.put((torch.from_numpy(x).pin_memory(), torch.from_numpy(y).pin_memory()))
        except BaseException as error:  # noqa: BLE001 - handed to the consumer below, which raises it
            ready.put(error)

    threading.Thread(target=fill, name="batches", daemon=True).start()
    while True:
        item = ready.get()
        if isinstance(item, BaseException):
            raise item
        yield item[0].to(device, non_blocking=True), item[1].to(device, non_blocking=True)


def _save_weights(model: nn.Module, path: Path) -> None:
    """Write a model's state dict; wrappers of torch.compile are unwrapped, tied weights are written once per name."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(_unshared_state(model), partial)
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        raise EnvironmentNotReadyError(
            f"The trained weights could not be written to {path.parent}: {error}.\n"
            "Check that the folder is writable and the disk has room, then run again."
        ) from error


def _unshared_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict on the processor, each tensor with memory of its own, as safetensors demands."""
    state: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in model.state_dict().items():
        plain = tensor.detach().cpu().contiguous()
        if plain.untyped_storage().data_ptr() in taken:
            plain = plain.clone()
        taken.add(plain.untyped_storage().data_ptr())
        state[name.replace("_orig_mod.", "")] = plain
    return state


def _peak_memory_mb() -> float:
    """Return the largest resident size of this process so far, in MiB; where unknown, the present one."""
    if sys.platform == "win32":
        return float(psutil.Process().memory_info().rss) / 2**20
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
