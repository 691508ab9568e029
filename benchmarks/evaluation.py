"""What it costs to score a model in processes apart: beside the same score with the model in the evaluating process.

    python -m benchmarks.evaluation                       # 5 s of training, then 3 evaluations of each kind, in turn
    python -m benchmarks.evaluation --repeats 5 --sandbox limits
    python -m benchmarks.evaluation --border              # what a gigabyte of logits costs, with a GPU's vocabulary

Processor seconds count every process of an evaluation, its start included; a measurement's whole cost is what it takes
beside a training of the preset's 20 s. The kind without a border is what the adapter did before it had one: one
process that imports the candidate, asks it about every window, about one batch twice more, and computes the losses.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.ml_training import create_adapter, runner
from autoresearch.adapters.ml_training.adapter import MlAdapter
from autoresearch.adapters.ml_training.budget import LoadJudge
from autoresearch.adapters.ml_training.evaluate import negative_log_likelihood
from autoresearch.adapters.ml_training.remote import remote_model
from autoresearch.adapters.ml_training.task import WEIGHTS, PredictTask
from autoresearch.core import RunContext, Split, Workspace
from autoresearch.core.executor import Limits
from autoresearch.core.sandbox import Level, resolve


class InThisProcess:
    """A `Predictor` without a border."""

    def __init__(self, train_py: Path, weights: Path, vocab_size: int) -> None:
        from autoresearch.adapters.ml_training.predict_process import CandidateModel

        self._model = CandidateModel(train_py, vocab_size=vocab_size, device="cpu")
        self._model.load(weights)
        self.context = self._model.context

    def logits(self, tokens: NDArray[np.int64], *, fresh: bool = False) -> Iterator[NDArray[np.float32]]:
        """Answer with the trained weights."""
        logits = self._model.logits(tokens).float().numpy()
        yield logits.reshape(-1, logits.shape[-1])


def score_here(train_py: Path, weights: Path, prepared: Path) -> None:
    """Score in this process, as one child of the benchmark does."""
    import torch

    from autoresearch.adapters.ml_training import evaluate, harness
    from autoresearch.adapters.ml_training.data import PreparedData, scored_stream
    from autoresearch.adapters.ml_training.evaluate_process import cut
    from autoresearch.adapters.ml_training.presets import PRESETS

    harness.forbid_training()
    torch.set_num_threads(1)
    data = PreparedData.load(prepared)
    stream = cut(scored_stream(data, Split.SEARCH), PRESETS["cpu"].eval_bytes)
    model = InThisProcess(train_py, weights, data.vocab_size)
    windows = evaluate.Windows.cut(stream, model.context)
    batch = PRESETS["cpu"].eval_batch_tokens // model.context
    nats = []
    for start in (0, 0, 0, *range(0, len(windows.inputs), batch)):
        rows = slice(start, start + batch)
        (logits,) = model.logits(windows.inputs[rows])
        targets = torch.from_numpy(windows.targets[rows].ravel())
        losses = torch.nn.functional.cross_entropy(torch.from_numpy(logits), targets, reduction="none")
        nats.append(np.where(windows.counted[rows].ravel(), losses.numpy(), 0.0))
    print(f"{evaluate.bits_per_byte(np.concatenate(nats[3:]), windows.target_bytes):.6f}")


def timed(call: Callable[[], str]) -> tuple[float, float, str]:
    """Return wall-clock and processor seconds of a call's child processes, and what it returns."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    value = call()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used, value


GIVEN_LOGITS = """
import torch
from torch import nn
CONTEXT = 1024
class Given(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.logits = nn.Parameter(torch.zeros(1)), torch.randn(32, CONTEXT, 8192)
    def forward(self, tokens):
        return self.logits
def build_model(vocab_size):
    return Given()
"""


def measure_border(root: Path, repeats: int, sandbox: str) -> None:
    """Print what 1.07 GB of logits cost the evaluator: received alone, and with their losses."""
    import torch
    from safetensors.torch import save_file

    (root / "train.py").write_text(GIVEN_LOGITS, encoding="utf-8")
    save_file({"weight": torch.zeros(1)}, root / WEIGHTS)
    task = PredictTask(root / "train.py", root / WEIGHTS, 8192, "cpu", root / "pipes")
    tokens = np.zeros((32, 1024), dtype=np.int64)
    gigabytes = tokens.size * 8192 * 4 / 1e9
    with remote_model(task, limits=Limits(600), log=root / "log", level=Level(sandbox)) as model:
        for _ in range(repeats + 1):  # the first time, memory is mapped
            used = []
            for losses in (False, True):
                began = time.process_time()
                for block in model.logits(tokens):
                    if losses:
                        negative_log_likelihood(block, tokens.ravel()[: len(block)])
                used.append((time.process_time() - began) / gigabytes)
            print(f"evaluator: {used[0]:.2f} s of processor per GB received, {used[1]:.2f} s with losses", flush=True)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--border", action="store_true")
    parser.add_argument("--here", nargs=3, type=Path, help=argparse.SUPPRESS)
    choices = parser.parse_args(argv)
    if choices.here:
        score_here(*choices.here)
        return
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="evaluation-") as name:
        work = measure_border if choices.border else compare
        work(Path(name), choices.repeats, resolve(choices.sandbox).value)


def compare(root: Path, repeats: int, sandbox: str) -> None:
    adapter = create_adapter({"preset": "cpu"})
    assert isinstance(adapter, MlAdapter)
    adapter.prepare(Workspace(root))
    train_py, output = root / "train.py", root / "output"
    train_py.write_text(adapter.workspace_files()["train.py"], encoding="utf-8")
    run = RunContext(log=root / "log", scratch=root, sandbox=sandbox)
    plan = adapter.plan(0, Split.SEARCH, run)
    runner.train(replace(plan, budget_seconds=5.0), train_py, output, run, LoadJudge(clock="cpu", min_cpu_share=0.0))

    def apart() -> str:
        return f"{runner.score(plan, train_py, output, run).value:.6f}"

    def here() -> str:
        where = [str(train_py), str(output / WEIGHTS), str(plan.prepared.path)]
        command = [sys.executable, "-m", "benchmarks.evaluation", "--here", *where]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    seconds: dict[str, list[tuple[float, float]]] = {"apart": [], "here": []}
    for _ in range(repeats):
        for kind, call in (("apart", apart), ("here", here)):
            wall, used, value = timed(call)
            seconds[kind].append((wall, used))
            print(f"{kind:6} {wall:6.2f} s on the wall  {used:6.2f} s of processor  val_bpb {value}", flush=True)
    medians = {
        kind: [statistics.median(column) for column in zip(*rows, strict=True)] for kind, rows in seconds.items()
    }
    more = [apart - here for apart, here in zip(medians["apart"], medians["here"], strict=True)]
    budget = plan.preset.budget_seconds
    print(
        f"sandbox {sandbox}: {more[0]:+.1f} s on the wall and {more[1]:+.1f} s of processor, "
        f"{more[1] / (budget + medians['here'][1]):+.0%} of a measurement of {budget:g} s of training"
    )


if __name__ == "__main__":
    main()
