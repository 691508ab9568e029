"""The evaluating process: `python -m autoresearch.adapters.ml_training.evaluate_process TASK.json`.

Started after the training process has ended, with the trained weights. The value goes to the runner over the result
pipe as `{"kind": "scored", ...}`; a failure as `invalid`, `crashed` or `not_ready`, with a reason.
"""

from __future__ import annotations

import importlib.util
import secrets
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from autoresearch.adapters.ml_training import harness
from autoresearch.adapters.ml_training.data import PreparedData, ScoredStream, scored_stream
from autoresearch.adapters.ml_training.evaluate import score
from autoresearch.adapters.ml_training.task import EvaluateTask, read_task
from autoresearch.adapters.ml_training.train_process import FAILED, describe
from autoresearch.core import Split, executor
from autoresearch.core.errors import CandidateError, EnvironmentNotReadyError, InvalidCandidateError, UsageError


class LoadedModel:
    """A candidate's model in this very process.

    Args:
        train_py: The candidate's script, imported as a module: its `main` does not run.
        weights: What the training saved.
        vocab_size: Number of tokens, V.
        device: Where to run.

    Raises:
        CandidateError: If the script cannot be imported, or the weights do not fit its model.
    """

    def __init__(self, train_py: Path, weights: Path, *, vocab_size: int, device: str) -> None:
        from safetensors.torch import load_file

        module = import_candidate(train_py)
        self.context = _context_of(module)
        self.device = torch.device(device)
        self.module: nn.Module = module.build_model(vocab_size)
        try:
            self.module.load_state_dict(load_file(weights))
        except RuntimeError as error:
            raise CandidateError(
                "The saved weights do not fit the model that build_model(vocab_size) returns; train that very model "
                f"and hand it to session.finish(). {str(error).splitlines()[-1].strip()}"
            ) from error
        self.module.to(self.device).eval()

    def logits(self, tokens: NDArray[np.int64]) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T)."""
        with torch.no_grad():
            logits: Tensor = self.module(torch.from_numpy(tokens).to(self.device))
        return logits


def import_candidate(train_py: Path) -> ModuleType:
    """Import a candidate's script under a name of its own."""
    spec = importlib.util.spec_from_file_location("candidate", train_py)
    if spec is None or spec.loader is None:
        raise CandidateError(f"{train_py.name} cannot be imported; it must be a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module


def _context_of(module: ModuleType) -> int:
    context = getattr(module, "CONTEXT", None)
    if not isinstance(context, int) or context < 1:
        raise CandidateError(
            f"train.py must say by a constant CONTEXT how many tokens its model takes; found {context!r}."
        )
    return context


def flops_per_token(model: LoadedModel) -> float:
    """Return the floating-point operations that training takes per token: three times those of the forward pass.

    Counted by torch over one window, attention included; causal attention counts in full, as papers do.
    """
    from torch.utils.flop_counter import FlopCounterMode

    window = np.zeros((1, model.context), dtype=np.int64)
    with FlopCounterMode(display=False) as counter:
        model.logits(window)
    return 3.0 * float(counter.get_total_flops()) / model.context


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
    harness.forbid_training()
    model = LoadedModel(task.train_py, task.weights, vocab_size=prepared.vocab_size, device=task.device)
    result = score(
        model,
        stream,
        batch_tokens=task.batch_tokens,
        vocab_size=prepared.vocab_size,
        # Unpredictable, so that no model can be honest at the probed places only.
        seed=secrets.randbits(64),
    )
    flops = {"flops_per_token": flops_per_token(model)} if task.count_flops else {}
    return {**asdict(result), **flops}


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
    task = read_task(EvaluateTask, Path(argv[0]))
    torch.set_num_threads(task.threads)
    torch.manual_seed(0)
    try:
        prepared, stream = load_text(task)
    except (EnvironmentNotReadyError, UsageError) as error:
        return _failed("not_ready", error, str(error))
    # From here on the candidate's code runs, so whatever is raised is its fault.
    sys.path.insert(0, str(task.train_py.parent))
    try:
        executor.send_message({"kind": "scored", **evaluate(task, prepared, stream)})
    except InvalidCandidateError as error:
        return _failed("invalid", error, str(error))
    except CandidateError as error:
        return _failed("crashed", error, str(error))
    except Exception as error:  # noqa: BLE001 - see above
        traceback.print_exc()
        return _failed("crashed", error, f"When evaluated: {describe(error, task.train_py)}")
    return 0


def _failed(kind: str, error: Exception, reason: str) -> int:
    print(error, file=sys.stderr)
    executor.send_message({"kind": kind, "reason": reason})
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
