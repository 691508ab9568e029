"""What the processes of a measurement are told to do, as JSON files; imports neither torch nor numpy."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

WEIGHTS = "weights.safetensors"
"""Name of the file with the trained weights, in the output directory of a training."""

REQUESTS = "requests"
ANSWERS = "answers"
"""Names of the named pipes between an evaluating and a predicting process, in the folder that both know."""
REQUEST_HEADER = "<BII"
"""Layout of what precedes the tokens of a question: its kind, rows B, columns T."""
END, TRAINED, FRESH = range(3)
"""Kinds of questions: no more; what does the trained model say; what does it say before its weights are loaded."""

LONGEST_REASON = 1000
"""Letters that are taken of a reason: a candidate's process may write any, and they reach ledger and proposer."""

ClockKind = Literal["cpu", "wall"]


@dataclass(frozen=True, slots=True)
class TrainTask:
    """One training.

    Attributes:
        train_py: The candidate's script.
        train_dir: Directory with the training documents; the scored texts are not below it.
        output: Directory that the weights are written to.
        vocab_size: Number of tokens, special ones included.
        device: `cpu`, `cuda:0`, `mps`.
        seed: Seeds torch and the order of the documents.
        budget_seconds: Length of the training, in seconds of `clock`.
        clock: `cpu` counts CPU seconds of the process, `wall` seconds on the wall.
        warmup_steps: Optimiser steps before the clock starts (compilation); 0 starts it at once.
        threads: Torch threads.
        confined: Whether a sandbox keeps files and network out of reach.
    """

    train_py: Path
    train_dir: Path
    output: Path
    vocab_size: int
    device: str
    seed: int
    budget_seconds: float
    clock: ClockKind = "cpu"
    warmup_steps: int = 0
    threads: int = 1
    confined: bool = False


@dataclass(frozen=True, slots=True)
class EvaluateTask:
    """One evaluation.

    Attributes:
        train_py: The candidate's script; only its `build_model` and `CONTEXT` are used, and not in this process.
        weights: Trained weights.
        prepared: Directory of the prepared data.
        split: `search` or `holdout`.
        max_bytes: Upper bound of the scored bytes; None scores the whole split.
        device: As in `TrainTask`.
        folder: Empty directory, for what the evaluating and the predicting processes exchange.
        log: File that the predicting processes' output is appended to.
        sandbox: Isolation level of the predicting processes.
        threads: Torch threads.
        batch_tokens: Tokens that are scored at once.
        count_flops: Whether to count the floating-point operations of one token as well.
    """

    train_py: Path
    weights: Path
    prepared: Path
    split: str
    max_bytes: int | None
    device: str
    folder: Path
    log: Path
    sandbox: str = "none"
    threads: int = 1
    batch_tokens: int = 4096
    count_flops: bool = False


@dataclass(frozen=True, slots=True)
class PredictTask:
    """A model that answers questions.

    Attributes:
        train_py: The candidate's script.
        weights: Trained weights.
        vocab_size: Number of tokens, V.
        device: As in `TrainTask`.
        folder: Directory with the named pipes.
        threads: Torch threads.
        count_flops: Whether to count the floating-point operations of one token as well.
        confined: As in `TrainTask`.
    """

    train_py: Path
    weights: Path
    vocab_size: int
    device: str
    folder: Path
    threads: int = 1
    count_flops: bool = False
    confined: bool = False


Task = TypeVar("Task", TrainTask, EvaluateTask, PredictTask)


def write_task(task: TrainTask | EvaluateTask | PredictTask, path: Path) -> None:
    """Write a task as JSON."""
    path.write_text(json.dumps(asdict(task), default=str), encoding="utf-8")


def read_task(kind: type[Task], path: Path) -> Task:
    """Read what `write_task` wrote."""
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for field in fields(kind):
        if field.type == "Path":
            values[field.name] = Path(values[field.name])
    return kind(**values)
