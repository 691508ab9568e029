"""Runs the training and the evaluating process of one measurement; imports neither torch nor numpy."""

from __future__ import annotations

import math
import shutil
import stat
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import psutil

from autoresearch.adapters.ml_training import devices
from autoresearch.adapters.ml_training.budget import (
    OVERRUN_SECONDS,
    OVERRUN_SHARE,
    WARMUP_CEILING_SECONDS,
    Load,
    LoadJudge,
    LoadSample,
)
from autoresearch.adapters.ml_training.presets import Preset
from autoresearch.adapters.ml_training.task import LONGEST_REASON, WEIGHTS, EvaluateTask, TrainTask, write_task
from autoresearch.core import CandidateError, EnvironmentNotReadyError, RunContext, Split
from autoresearch.core.adapter import never_hopeless
from autoresearch.core.errors import InvalidCandidateError
from autoresearch.core.executor import Finished, Limits, run_process, tail
from autoresearch.core.sandbox import Confinement, Level

if TYPE_CHECKING:
    from autoresearch.adapters.ml_training.data import PreparedData

STARTING_SECONDS: Final = 120.0
"""Allowed for importing torch and loading data from a cold disk."""
BESIDE_TRAINING_SECONDS: Final = 10.0
"""Processor time that a CPU training may use beside its budget; importing torch and saving weights took 3 to 4 s."""
WALL_FACTOR: Final = 10.0
"""Wall-clock ceiling of a CPU budget, as a multiple of it: a training that gets a tenth of a processor still ends."""
EVALUATE_SECONDS: Final = 900.0
"""Ceiling of one evaluation; on a free processor it takes a few seconds."""
MEMORY_SHARE: Final = 0.8
"""Share of the machine's memory that a training on the processor may use."""
DISK_MB: Final = 8192.0
"""What a training may write, in MiB: weights of two billion parameters in float32. Half of the free space, if less."""
ENOUGH_FREE_MB: Final = 256.0
"""Free space below which weights that cannot be written are the disk's fault."""
TRAINING_SHARE: Final = 0.85
"""Share of a measurement that training takes, for the progress bar."""
BUSY: Final = 0.5
"""Share of all processors from which on a run into the wall-clock ceiling is blamed on the other programs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One measurement, settled.

    Attributes:
        preset: What the machine can do.
        device: Where to train and score.
        budget_seconds: Length of the training.
        eval_bytes: Upper bound of the scored bytes; None without.
        prepared: The data.
        seed: Of the training.
        split: Of the evaluation.
    """

    preset: Preset
    device: str
    budget_seconds: float
    eval_bytes: int | None
    prepared: PreparedData
    seed: int
    split: Split


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training process told before it ended.

    Attributes:
        counts: Numbers by name, as they are recorded.
        curve: (share of the budget, training loss in bits per byte of training text).
        load: How the processors were shared while the clock ran.
        cpu_seconds: CPU seconds of the whole process, starting included.
    """

    counts: Mapping[str, float]
    curve: tuple[tuple[float, float], ...]
    load: Load
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Scored:
    """What an evaluating process told.

    Attributes:
        value: Bits per byte.
        counts: Numbers by name, as they are recorded.
        flops_per_token: Operations of one training token; None where not counted.
    """

    value: float
    counts: Mapping[str, float]
    flops_per_token: float | None


def train_task(plan: Plan, train_py: Path, output: Path) -> TrainTask:
    """Return what a training process is told. It names the training directory, and nothing that is scored."""
    return TrainTask(
        train_py=train_py,
        train_dir=plan.prepared.train_dir,
        output=output,
        vocab_size=plan.prepared.vocab_size,
        device=plan.device,
        seed=plan.seed,
        budget_seconds=plan.budget_seconds,
        clock=plan.preset.clock,
        warmup_steps=plan.preset.warmup_steps,
        threads=plan.preset.threads,
    )


def train(plan: Plan, train_py: Path, output: Path, run: RunContext, load_judge: LoadJudge) -> Trained:
    """Train a candidate in a process of its own.

    Args:
        plan: What to measure.
        train_py: The candidate's script.
        output: Directory for the weights, where the candidate's process never could write.
        run: Where to log and report.
        load_judge: Spares a training from being cut that got too little of a processor: it is measured again anyway.

    Raises:
        CandidateError: If the training crashes, diverges, does not keep to its budget, or is cut for being hopeless.
        EnvironmentNotReadyError: If the machine is at fault.
    """
    path = run.scratch / "train.json"
    task = train_task(plan, train_py, _empty_folder(run.scratch / "training"))
    level = Level(run.sandbox)
    write_task(replace(task, confined=level.confines), path)
    confinement = Confinement(
        readable=(train_py, task.train_dir, path), writable=(task.output,), gpu=plan.device.startswith("cuda")
    )
    watch = _TrainingWatch(run.progress, _bits_per_byte_of_nats(plan.prepared), run.hopeless, load_judge.so_far)
    watch.budget_seconds = plan.budget_seconds
    limits = _training_limits(plan, min(DISK_MB, shutil.disk_usage(run.scratch).free / 2**20 / 2))
    finished = _run_module("train_process", path, plan, run, limits, watch.receive, level, confinement)
    if "not_ready" in watch.faults:
        _look_into(str(watch.faults["not_ready"].get("reason"))[:LONGEST_REASON], plan, run)
    _demand_success(finished, run.log, watch, plan)
    _demand_budget(finished, plan)
    _take_weights(task.output / WEIGHTS, output / WEIGHTS)
    return Trained(watch.counts, tuple(watch.curve), watch.load(), finished.cpu_seconds)


def _demand_budget(finished: Finished, plan: Plan) -> None:
    """Refuse a training that worked outside of its clock, before the session or past the end that it reported.

    The clock runs in the candidate's process, which may do with it what it likes; the system's account is out of its
    reach. On a budget of wall-clock seconds, whose warm-up has no bound but a generous one, this cannot be told.

    Raises:
        InvalidCandidateError: If it used more processor time than its budget and a start can take.
    """
    allowed = plan.budget_seconds + max(OVERRUN_SHARE * plan.budget_seconds, OVERRUN_SECONDS) + BESIDE_TRAINING_SECONDS
    if plan.preset.clock == "cpu" and finished.cpu_seconds > allowed:
        raise InvalidCandidateError(
            f"train.py used {finished.cpu_seconds:.1f} s of processor time, and a budget of {plan.budget_seconds:g} s "
            f"leaves {BESIDE_TRAINING_SECONDS:g} s for starting and saving. Train between open_session and finish, in "
            "one process, and build the model in little time."
        )


def _empty_folder(folder: Path) -> Path:
    """Make a folder anew: a measurement that was killed may have left files, which must not be taken for new ones."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _take_weights(written: Path, kept: Path) -> None:
    """Move the weights out of the folder that the candidate wrote; there may lie anything by their name.

    Raises:
        CandidateError: If there is nothing.
        InvalidCandidateError: If it is no plain file of its own: a link would lead us to a file of somebody else.
    """
    try:
        found = written.lstat()
    except FileNotFoundError as error:
        raise CandidateError(
            "train.py reported its end, but the trained weights are gone; leave the output folder alone."
        ) from error
    if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
        raise InvalidCandidateError(
            f"train.py put a link or a device in the place of {WEIGHTS}; the weights must be the file that "
            "session.finish(model) writes."
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    written.replace(kept)


def score(plan: Plan, train_py: Path, output: Path, run: RunContext) -> Scored:
    """Score trained weights in another process.

    Raises:
        InvalidCandidateError: If the model sees the future or keeps state.
        CandidateError: If the model cannot be built or gives no finite value.
        EnvironmentNotReadyError: If the machine is at fault.
    """
    folder = _empty_folder(run.scratch / "evaluate")
    task = EvaluateTask(
        train_py=train_py,
        weights=output / WEIGHTS,
        prepared=plan.prepared.path,
        split=plan.split.value,
        max_bytes=plan.eval_bytes,
        device=plan.device,
        folder=folder,
        log=run.log,
        sandbox=run.sandbox,
        threads=plan.preset.threads,
        batch_tokens=plan.preset.eval_batch_tokens,
        count_flops=_peak_flops(plan.device) is not None,
    )
    path = run.scratch / "evaluate.json"
    write_task(task, path)
    run.progress(TRAINING_SHARE, "evaluating")
    limits = Limits(EVALUATE_SECONDS, memory_mb=_memory_limit_mb(plan))
    # The evaluator is ours and runs no candidate; the processes that it starts for the model are confined.
    finished = _run_module("evaluate_process", path, plan, run, limits, None, Level.LIMITS)
    messages = {str(message.get("kind")): message for message in finished.messages}
    _raise_reported(messages, tail(run.log))
    if finished.stopped is not None or "scored" not in messages:
        raise CandidateError(f"The evaluation of the trained model {finished.ending}.", log_tail=tail(run.log))
    scored = messages["scored"]
    value = float(scored["bits_per_byte"])
    if not math.isfinite(value):
        raise CandidateError(f"val_bpb is {value}, and a measurement must be finite.", log_tail=tail(run.log))
    counts = {"eval_seconds": finished.seconds, "val_bpb_standard_error": float(scored["standard_error"])}
    if scored["fresh_loss"] is not None:
        counts["fresh_loss"] = float(scored["fresh_loss"])
    flops = scored.get("flops_per_token")
    return Scored(value, counts, None if flops is None else float(flops))


def secondary(trained: Trained, scored: Scored, plan: Plan, total_seconds: float) -> dict[str, float]:
    """Return everything that is recorded beside the value; what is not known is left out."""
    numbers = {
        **trained.counts,
        **scored.counts,
        "total_seconds": total_seconds,
        "cpu_seconds": trained.cpu_seconds,
        "own_cpu_share": trained.load.own_share,
        "others_cpu_share": trained.load.others_share,
    }
    peak = _peak_flops(plan.device)
    if peak is not None and scored.flops_per_token is not None and "tokens_per_second" in numbers:
        numbers["mfu_percent"] = 100 * numbers["tokens_per_second"] * scored.flops_per_token / peak
    return numbers


SUMMARY_KEYS: Final = (
    "training_seconds",
    "total_seconds",
    "peak_vram_mb",
    "mfu_percent",
    "total_tokens_M",
    "num_steps",
    "num_params_M",
    "depth",
)
"""Keys of the original's summary block after `val_bpb`, in its order."""


_DIGITS: Final = {"num_steps": ".0f", "depth": ".0f", "total_tokens_M": ".3f", "num_params_M": ".3f"}


def summary_block(value: float, numbers: Mapping[str, float]) -> str:
    """Return the block that the original prints at the end of a training; `n/a` stands for what is not known.

    Example:
        >>> print(summary_block(1.5, {"num_steps": 3, "total_seconds": 2.0}).splitlines()[1])
        val_bpb:          1.500000
    """
    lines = ["---", f"{'val_bpb:':<17} {value:.6f}"]
    for name in SUMMARY_KEYS:
        number = numbers.get(name)
        lines.append(f"{name + ':':<17} {'n/a' if number is None else format(number, _DIGITS.get(name, '.1f'))}")
    return "\n".join(lines)


@dataclass
class _TrainingWatch:
    """Takes the messages of a training process as they come."""

    progress: Callable[[float, str], None]
    bits_per_byte_of_nats: float
    hopeless: Callable[[float, float], str | None] = never_hopeless
    disturbance: Callable[[Load], str | None] = lambda load: None
    budget_seconds: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    faults: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    trained: bool = False
    _before: LoadSample | None = None
    _after: LoadSample | None = None

    def receive(self, message: Mapping[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "clock_started":
            self._before = LoadSample.take(_number(message, "cpu"))
        elif kind == "progress":
            share, bits = _number(message, "share"), _number(message, "loss") * self.bits_per_byte_of_nats
            self.curve.append((share, bits))
            self.progress(TRAINING_SHARE * share, f"training, loss {bits:.3f}")
            self._cut_if_hopeless(share, bits)
        elif kind == "trained":
            self._after = LoadSample.take(_number(message, "cpu"))
            self.counts = {name: _number(message, name) for name in message if name not in ("kind", "cpu")}
            self.trained = True
        else:
            self.faults[str(kind)] = message

    def _cut_if_hopeless(self, share: float, bits: float) -> None:
        """Raise what makes the executor end the training with all its processes."""
        reason = self.hopeless(share, bits)
        if reason is not None and not self._disturbed(share):
            raise CandidateError(reason, early=True)

    def _disturbed(self, share: float) -> bool:
        """Say whether the training got too little of a processor so far, so that its curve is behind for that."""
        if self._before is None:
            return False
        # Right for a budget of processor seconds; the others, on the wall, are never called disturbed.
        own = self._before.own + share * self.budget_seconds
        return self.disturbance(Load.between(self._before, LoadSample.take(own))) is not None

    def load(self) -> Load:
        """How the processors were shared from the start of the clock to the end of the training."""
        if self._before is None or self._after is None:
            raise CandidateError(
                "train.py ended its training without its clock having run; open one session and use it."
            )
        return Load.between(self._before, self._after)

    def others_share_so_far(self, own: float) -> float:
        return 0.0 if self._before is None else Load.between(self._before, LoadSample.take(own)).others_share


def _number(message: Mapping[str, Any], name: str) -> float:
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise CandidateError(f"The training process sent {name} = {value!r} where a number belongs.")
    return float(value)


def _demand_success(finished: Finished, log: Path, watch: _TrainingWatch, plan: Plan) -> None:
    """Raise what went wrong with a training; the machine's faults before the candidate's."""
    _raise_reported(watch.faults, tail(log))
    if watch.trained and finished.returncode == 0:
        return
    if finished.stopped is not None:
        # Only a wall-clock end leaves processor time over: then it matters who had the processor instead. What ended
        # for its memory, its files or its output did so by itself, however busy the machine.
        late = finished.seconds >= _training_limits(plan).wall_seconds
        starved = late and plan.preset.clock == "cpu" and finished.cpu_seconds < plan.budget_seconds
        if starved and watch.others_share_so_far(finished.cpu_seconds) > BUSY:
            raise EnvironmentNotReadyError(
                f"The training got {finished.cpu_seconds:.0f} s of processor time in {finished.seconds:.0f} s, because "
                "other programs kept the processors busy.\nEnd them, or run again when the machine is free."
            )
        raise CandidateError(f"train.py {finished.ending}.", log_tail=tail(log))
    if finished.returncode != 0:
        raise CandidateError(f"train.py {finished.ending}.", log_tail=tail(log))
    raise CandidateError(
        "train.py ended without session.finish(model), so there is no trained model to score.", log_tail=tail(log)
    )


def _look_into(reason: str, plan: Plan, run: RunContext) -> NoReturn:
    """Raise what is to be made of a training process that says the machine is at fault.

    The candidate's code shares that process, and could end every run by saying so; hence it is believed only where
    something is found to be wrong with what the training needs.

    Raises:
        EnvironmentNotReadyError: If device, data or disk are not in order.
        CandidateError: If they are.
    """
    from autoresearch.adapters.ml_training.data.prepared import TrainData

    devices.demand_device(plan.device, plan.preset.name)
    TrainData.load(plan.prepared.train_dir)
    if shutil.disk_usage(run.scratch).free < ENOUGH_FREE_MB * 2**20:
        raise EnvironmentNotReadyError(reason)
    raise CandidateError(
        f"train.py says that the machine is at fault, but device, data and disk are in order. It said: {reason}",
        log_tail=tail(run.log),
    )


def _raise_reported(messages: Mapping[str, Mapping[str, Any]], log_tail: str) -> None:
    """Raise the fault that a process reported before it ended, if it did."""
    if "not_ready" in messages:
        raise EnvironmentNotReadyError(str(messages["not_ready"].get("reason")))
    for kind, error in (("given_up", CandidateError), ("invalid", InvalidCandidateError), ("crashed", CandidateError)):
        if kind in messages:
            reason = str(messages[kind].get("reason"))[:LONGEST_REASON]
            raise error(reason, log_tail=log_tail, early=kind == "given_up")


def _run_module(
    name: str,
    task: Path,
    plan: Plan,
    run: RunContext,
    limits: Limits,
    on_message: Callable[[Mapping[str, Any]], None] | None,
    level: Level,
    confinement: Confinement | None = None,
) -> Finished:
    """Run one of this package's processes, in its writable folder or, as it has none, in an empty one."""
    folder = _empty_folder(run.scratch / "work") if confinement is None else confinement.writable[0]
    threads = str(plan.preset.threads)
    env = {
        # Before torch is imported: a second pool of threads would share the budget and change the sums.
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        # Measuring changes nothing, so no __pycache__ beside the artifact either.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    argv = [sys.executable, "-P", "-m", f"{__package__}.{name}", str(task)]
    return run_process(
        argv,
        cwd=folder,
        log=run.log,
        limits=limits,
        env=env,
        on_message=on_message,
        level=level,
        confinement=confinement,
    )


def _training_limits(plan: Plan, disk_mb: float = DISK_MB) -> Limits:
    if plan.preset.clock == "cpu":
        return Limits(
            STARTING_SECONDS + WALL_FACTOR * plan.budget_seconds,
            # What a training takes beyond its budget: importing torch (3 s) and writing the weights.
            cpu_seconds=STARTING_SECONDS / 2 + 1.5 * plan.budget_seconds,
            memory_mb=_memory_limit_mb(plan),
            disk_mb=disk_mb,
        )
    return Limits(STARTING_SECONDS + WARMUP_CEILING_SECONDS + 1.1 * plan.budget_seconds, disk_mb=disk_mb)


def _memory_limit_mb(plan: Plan) -> int | None:
    """Memory of a process on the processor; with a GPU, drivers map memory that is not theirs to count."""
    return int(MEMORY_SHARE * psutil.virtual_memory().total / 2**20) if plan.device == "cpu" else None


def _bits_per_byte_of_nats(prepared: PreparedData) -> float:
    """Return the factor from nats per token to bits per byte on the training text."""
    train_split = prepared.manifest["splits"]["train"]
    return float(train_split["tokens"]) / float(train_split["bytes"]) / math.log(2)


def _peak_flops(device: str) -> float | None:
    return devices.peak_flops(devices.device_name(device)) if device.startswith("cuda") else None
