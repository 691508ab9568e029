"""The evaluating process: `python -m autoresearch.adapters.ml_training.evaluate_process TASK.json`.

Started after the training process has ended, with the trained weights. Labels, byte counts and the value live here, and
no line of a candidate runs here: its model answers from processes of its own (`predict_process.py`), which this one
starts. The value goes to the runner over the result pipe as `{"kind": "scored", ...}`; a failure as `invalid`,
`crashed` or `not_ready`, with a reason.
"""

from __future__ import annotations

import ctypes
import secrets
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from autoresearch.adapters.ml_training.data import PreparedData, ScoredStream, scored_stream
from autoresearch.adapters.ml_training.data.tokenizer import Tokenizer
from autoresearch.adapters.ml_training.evaluate import lowest_possible, score
from autoresearch.adapters.ml_training.remote import remote_model
from autoresearch.adapters.ml_training.task import EvaluateTask, PredictTask, read_task
from autoresearch.core import Split, executor
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, InvalidCandidateError, UsageError
from autoresearch.core.executor import Limits
from autoresearch.core.sandbox import Level

FAILED: Final = 1
PREDICT_SECONDS: Final = 870.0
"""Ceiling of a predicting process; half a minute below that of the whole evaluation, so that the reason is told."""

PREDICT_DISK_MB: Final = 1024.0
"""What a predicting process may write, for the caches of compilers."""


def cut(stream: ScoredStream, max_bytes: int | None) -> ScoredStream:
    """Return the beginning of a stream with at most `max_bytes` bytes, and at least one token to score.

    Cut between tokens, not documents: with books as documents not even one might fit.
    """
    if max_bytes is None or stream.total_bytes <= max_bytes:
        return stream
    ends = np.cumsum(stream.token_bytes)
    count = max(2, int(np.searchsorted(ends, max_bytes, side="right")))
    return ScoredStream(stream.tokens[:count], stream.token_bytes[:count], int(ends[count - 1]))


def evaluate(task: EvaluateTask, prepared: PreparedData, stream: ScoredStream) -> dict[str, Any]:
    """Score the trained model on `stream`; return the numbers for the runner."""

    def predict(name: str, *, count_flops: bool = False) -> PredictTask:
        folder = task.folder / name
        return PredictTask(
            task.train_py, task.weights, prepared.vocab_size, task.device, folder, task.threads, count_flops
        )

    start = partial(
        remote_model, limits=Limits(PREDICT_SECONDS, disk_mb=PREDICT_DISK_MB), log=task.log, level=Level(task.sandbox)
    )
    with start(predict("scored", count_flops=task.count_flops)) as scored, start(predict("witness")) as witness:
        floor = lowest_possible(text_of(stream, prepared))  # while the two import torch
        result = score(
            scored,
            witness,
            stream,
            batch_tokens=task.batch_tokens,
            vocab_size=prepared.vocab_size,
            # Unpredictable, so that no model can be honest at the probed places only.
            seed=secrets.randbits(64),
            floor=floor,
        )
        return {**asdict(result), "flops_per_token": scored.flops_per_token}


def text_of(stream: ScoredStream, prepared: PreparedData) -> bytes:
    """Return the text that the tokens of a stream stand for."""
    pieces = Tokenizer.load(prepared.path / "tokenizer.json").tokens
    return b"".join(pieces[token] for token in stream.tokens.tolist() if token < len(pieces))


def load_text(task: EvaluateTask) -> tuple[PreparedData, ScoredStream]:
    """Return the prepared data and the text to score.

    Raises:
        EnvironmentNotReadyError: If it is missing, damaged or empty.
    """
    prepared = PreparedData.load(task.prepared)
    stream = cut(scored_stream(prepared, Split(task.split)), task.max_bytes)
    if stream.total_bytes == 0:
        raise EnvironmentNotReadyError(
            f"The {task.split} split has no text, so there is nothing to measure bits per byte on.\n"
            "Give more text: the splits are made by document, and each needs a few documents."
        )
    return prepared, stream


def main(argv: list[str]) -> int:
    """Evaluate what the task file `argv[0]` names; return the exit status."""
    executor.die_with_parent()
    _close_memory_to_others()
    task = read_task(EvaluateTask, Path(argv[0]))
    try:
        prepared, stream = load_text(task)
        executor.send_message({"kind": "scored", **evaluate(task, prepared, stream)})
    except (EnvironmentNotReadyError, UsageError) as error:
        return _failed("not_ready", error)
    except InvalidCandidateError as error:
        return _failed("invalid", error)
    except CandidateError as error:
        return _failed("crashed", error)
    return 0


def _close_memory_to_others() -> None:
    """On Linux, let no other process of the same user look into this one, which holds what the candidate must not know.

    A sandbox forbids that as well; this holds without one, unless the user is root.
    """
    set_dumpable = 4  # PR_SET_DUMPABLE in linux/prctl.h
    if sys.platform.startswith("linux") and ctypes.CDLL(None, use_errno=True).prctl(set_dumpable, 0, 0, 0, 0) != 0:
        raise EnvironmentNotReadyError(
            "This system does not let a process close its memory to others (prctl failed).\n"
            "Run outside the restriction, or in a container that allows it."
        )


def _failed(kind: str, error: Exception) -> int:
    print(error, file=sys.stderr)
    executor.send_message({"kind": kind, "reason": str(error)})
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
