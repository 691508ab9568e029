"""A small corpus, prepared once, and a trainer small enough for tests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from autoresearch.adapters.ml_training.adapter import MlAdapter, Options
from autoresearch.core import RunContext, Workspace

WORDS = ("the", "a", "cat", "dog", "sees", "runs", "over", "under", "house", "tree", "and", "then", "it", "was", "old")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A JSONL file of 400 short documents of nonsense with some structure."""
    randomness = random.Random(7)
    path = tmp_path_factory.mktemp("corpus") / "text.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(400):
            words = [randomness.choice(WORDS) for _ in range(60)]
            file.write(f'{{"text": "{number} {" ".join(words)} café."}}\n')
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def tiny_adapter(corpus: Path, cache: Path, workspace: Path) -> MlAdapter:
    """Return the adapter on the small corpus, prepared, with a budget of half a second."""
    options = {"preset": "cpu", "data": str(corpus), "cache": str(cache), "budget_seconds": "0.5", "min_cpu_share": "0"}
    adapter = MlAdapter(Options.parse(options))
    adapter.prepare(Workspace(workspace))
    return adapter


@pytest.fixture
def adapter(corpus: Path, cache: Path, tmp_path: Path) -> MlAdapter:
    return tiny_adapter(corpus, cache, tmp_path)


@pytest.fixture
def run(tmp_path: Path) -> RunContext:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return RunContext(log=tmp_path / "run.log", scratch=scratch)


TINY = """
import torch
from torch import nn
from autoresearch.adapters.ml_training import harness

CONTEXT = 16
DEPTH = 1


class Bigram(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens):
        return {forward}


def build_model(vocab_size):
    return Bigram(vocab_size)


def main():
    session = harness.open_session()
    model = build_model(session.vocab_size)
    optimizer = torch.optim.SGD(model.parameters(), lr={lr})
    for inputs, targets in session.batches(8, CONTEXT):
        loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {after_step}
        session.report(loss.item(), targets.numel())
        if {finished}:
            break
    {end}


if __name__ == "__main__":
    main()
"""


def tiny_trainer(
    *,
    forward: str = "self.table(tokens)",
    lr: str = "50.0",
    after_step: str = "pass",
    finished: str = "session.finished",
    end: str = "session.finish(model)",
) -> str:
    """Return a train.py of a bigram model with one of its parts replaced."""
    return TINY.format(forward=forward, lr=lr, after_step=after_step, finished=finished, end=end)


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """A folder with the honest tiny trainer."""
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "train.py").write_text(tiny_trainer(), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def training_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluating in this process forbids training in it, which is meant for a process of one evaluation."""
    monkeypatch.setattr("autoresearch.adapters.ml_training.harness._forbidden", False)
