"""The predicting process: `python -m autoresearch.adapters.ml_training.predict_process TASK.json`.

The only place besides training where a candidate's code runs. It builds the model, answers the evaluator's questions
(tokens in, logits out) and is told neither what was right nor how long the tokens are. The sandbox around it has the
script and the weights, and nothing that is scored.

Questions come over the named pipe `requests` as a header (kind, B, T) and B * T int32 tokens; answers go over `answers`
as B * T * V float32. Over the result pipe go `{"kind": "built", ...}` and, if it ends badly, `crashed` or
`invalid` with a reason.
"""

from __future__ import annotations

import importlib.util
import os
import struct
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from autoresearch.adapters.ml_training import harness
from autoresearch.adapters.ml_training.task import ANSWERS, END, FRESH, REQUEST_HEADER, REQUESTS, PredictTask, read_task
from autoresearch.adapters.ml_training.train_process import FAILED, verdict_on
from autoresearch.core import executor
from autoresearch.core.errors import CandidateError


class CandidateModel:
    """A candidate's model in this very process.

    Args:
        train_py: The candidate's script, imported as a module: its `main` does not run.
        vocab_size: Number of tokens, V.
        device: Where to run.

    Raises:
        CandidateError: If the script cannot be imported, or says no context.
    """

    def __init__(self, train_py: Path, *, vocab_size: int, device: str) -> None:
        module = import_candidate(train_py)
        self.context = _context_of(module)
        self.device = torch.device(device)
        self.module: nn.Module = module.build_model(vocab_size)
        self.module.to(self.device).eval()

    def load(self, weights: Path) -> None:
        """Put trained weights in the place of fresh ones.

        Raises:
            CandidateError: If they do not fit the model.
        """
        from safetensors.torch import load_file

        try:
            self.module.load_state_dict(load_file(weights))
        except RuntimeError as error:
            raise CandidateError(
                "The saved weights do not fit the model that build_model(vocab_size) returns; train that very model "
                f"and hand it to session.finish(). {str(error).splitlines()[-1].strip()}"
            ) from error

    def logits(self, tokens: NDArray[np.int64]) -> Tensor:
        """Return logits (B, T, V) for tokens (B, T)."""
        with torch.no_grad():
            logits: Tensor = self.module(torch.from_numpy(tokens).to(self.device))
        return logits

    def flops_per_token(self) -> float:
        """Return the floating-point operations that training takes per token: three times those of the forward pass.

        Counted by torch over one window, attention included; causal attention counts in full, as papers do.
        """
        from torch.utils.flop_counter import FlopCounterMode

        window = np.zeros((1, self.context), dtype=np.int64)
        with FlopCounterMode(display=False) as counter:
            self.logits(window)
        return 3.0 * float(counter.get_total_flops()) / self.context


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


def serve(task: PredictTask) -> None:
    """Build the model and answer until the evaluator has no more questions."""
    answers = os.open(task.folder / ANSWERS, os.O_WRONLY)
    with (task.folder / REQUESTS).open("rb") as requests:
        model = CandidateModel(task.train_py, vocab_size=task.vocab_size, device=task.device)
        about: dict[str, Any] = {"context": model.context}
        if task.count_flops:
            about["flops_per_token"] = model.flops_per_token()
        executor.send_message({"kind": "built", **about})
        fresh = True
        while (question := _next_question(requests.read)) is not None:
            asks_fresh, tokens = question
            if fresh and not asks_fresh:
                model.load(task.weights)
                fresh = False
            for row in _checked(model.logits(tokens), tokens, task.vocab_size):
                # Row by row: a batch of logits has gigabytes on a large GPU.
                _write(answers, row.detach().float().cpu().contiguous())


def _next_question(read: Any) -> tuple[bool, NDArray[np.int64]] | None:
    header = read(struct.calcsize(REQUEST_HEADER))
    if not header:
        return None
    kind, rows, columns = struct.unpack(REQUEST_HEADER, header)
    if kind == END:
        return None
    tokens = np.frombuffer(read(4 * rows * columns), dtype=np.int32).reshape(rows, columns)
    return kind == FRESH, tokens.astype(np.int64)


def _checked(logits: Tensor, tokens: NDArray[np.int64], vocab_size: int) -> Tensor:
    expected = (*tokens.shape, vocab_size)
    if tuple(logits.shape) != expected:
        raise CandidateError(
            f"The model returns logits of shape {tuple(logits.shape)} for tokens of shape {tokens.shape}, and "
            f"{expected} is needed: one score for each of the {vocab_size} tokens at each position."
        )
    return logits


def _write(descriptor: int, block: Tensor) -> None:
    data = block.numpy().data.cast("B")
    while data:
        data = data[os.write(descriptor, data) :]


def main(argv: list[str]) -> int:
    """Answer for the model that the task file `argv[0]` names; return the exit status."""
    executor.die_with_parent()
    task = read_task(PredictTask, Path(argv[0]))
    harness.forbid_training()
    torch.set_num_threads(task.threads)
    torch.manual_seed(0)
    sys.path.insert(0, str(task.train_py.parent))
    try:
        serve(task)
    except CandidateError as error:
        return _failed({"kind": "crashed", "reason": str(error)})
    except Exception as error:  # noqa: BLE001 - the candidate's code runs here, so whatever it raises is its fault
        traceback.print_exc()
        verdict = verdict_on(error, task.train_py, confined=task.confined)
        return _failed({**verdict, "reason": f"When evaluated: {verdict['reason']}"})
    return 0


def _failed(message: dict[str, str]) -> int:
    print(message["reason"], file=sys.stderr)
    executor.send_message(message)
    return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
