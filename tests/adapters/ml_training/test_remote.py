"""The evaluator's side of a predicting process, with real processes behind it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from autoresearch.adapters.ml_training.predict_process import CandidateModel
from autoresearch.adapters.ml_training.remote import RemoteModel, remote_model
from autoresearch.adapters.ml_training.task import WEIGHTS, PredictTask
from autoresearch.core import CandidateError
from autoresearch.core.executor import Limits
from autoresearch.core.sandbox import best_level

from .conftest import tiny_trainer

V = 300
TOKENS = np.random.default_rng(0).integers(0, V, size=(3, 16))


@pytest.fixture
def task(tmp_path: Path) -> PredictTask:
    """A bigram model of 300 tokens with trained weights that are its fresh ones doubled."""
    (tmp_path / "train.py").write_text(tiny_trainer(), encoding="utf-8")
    torch.manual_seed(0)
    model = CandidateModel(tmp_path / "train.py", vocab_size=V, device="cpu")
    save_file({name: 2 * value for name, value in model.module.state_dict().items()}, tmp_path / WEIGHTS)
    return PredictTask(tmp_path / "train.py", tmp_path / WEIGHTS, V, "cpu", tmp_path / "pipes", count_flops=True)


def asked(model: RemoteModel, *, fresh: bool = False) -> NDArray[np.float32]:
    return np.concatenate([block.copy() for block in model.logits(TOKENS, fresh=fresh)]).reshape(3, 16, V)


def test_answers_are_those_of_the_model_fresh_and_trained(task: PredictTask, tmp_path: Path) -> None:
    """To the last bit, and any number of times; the untrained model only before the first other question."""
    torch.manual_seed(0)
    here = CandidateModel(task.train_py, vocab_size=V, device="cpu")
    expected = here.logits(TOKENS).numpy()
    with remote_model(task, limits=Limits(60), log=tmp_path / "log", level=best_level()) as model:
        assert model.context == 16
        assert model.flops_per_token == 0.0
        assert np.array_equal(asked(model, fresh=True), expected)
        for _ in range(2):
            assert np.array_equal(asked(model), 2 * expected)


@pytest.mark.parametrize(
    ("forward", "sentence"),
    [
        ("__import__('os')._exit(3)", "ended with exit code 3"),
        (
            "__import__('os').closerange(3, 64) or self.table(tokens)",
            "ended with exit code 1",
        ),
        ("self.table(tokens)[:, :-1]", r"logits of shape \(3, 15, 300\) for tokens of shape \(3, 16\)"),
    ],
)
def test_a_process_that_does_not_answer_is_the_candidates_fault(
    task: PredictTask, tmp_path: Path, forward: str, sentence: str
) -> None:
    """It exits, closes its pipes, or answers too little: the evaluator waits for nothing that does not come."""
    task.train_py.write_text(tiny_trainer(forward=forward), encoding="utf-8")
    with (
        remote_model(
            PredictTask(task.train_py, task.weights, V, "cpu", task.folder),
            limits=Limits(60),
            log=tmp_path / "log",
            level=best_level(),
        ) as model,
        pytest.raises(CandidateError, match=sentence),
    ):
        asked(model)
