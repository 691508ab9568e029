"""`python train.py` inside a workspace: the same training and evaluation as the loop's, and a summary at the end."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from autoresearch.adapters.ml_training.adapter import MlAdapter, Options
from autoresearch.adapters.ml_training.budget import Load, LoadSample
from autoresearch.adapters.ml_training.runner import (
    Plan,
    Trained,
    score,
    secondary,
    summary_block,
    train_task,
)
from autoresearch.adapters.ml_training.task import TrainTask
from autoresearch.core import AutoresearchError, RunContext, Split, UsageError, Workspace
from autoresearch.core.executor import tail
from autoresearch.core.workspace import Layout, read_settings


@dataclass
class HandRun:
    """One training that a person started by hand.

    Attributes:
        plan: What is measured.
        train_py: The script.
        run: Folder for weights, tasks and log.
        counts: What the training told.
    """

    plan: Plan
    train_py: Path
    run: RunContext
    began: float = field(default_factory=time.monotonic)
    counts: dict[str, float] = field(default_factory=dict)
    before: LoadSample | None = None
    after: LoadSample | None = None

    @classmethod
    def open(cls, train_py: Path) -> HandRun:
        """Settle a training with the settings of the workspace that the script lies in.

        Raises:
            UsageError: If it lies in none, or in one of another adapter.
            EnvironmentNotReadyError: If the device or the text is missing.
        """
        layout = Layout(train_py.parent)
        settings = read_settings(layout)
        if settings.adapter not in (None, "ml"):
            raise UsageError(
                f"{layout.config} belongs to the adapter {settings.adapter!r}; train.py needs a workspace of ml.\n"
                "Make one: autoresearch init --adapter ml DIR"
            )
        adapter = MlAdapter(Options.parse(settings.options))
        adapter.prepare(Workspace(layout.root, settings.options, progress=show_preparation))
        scratch = Path(tempfile.mkdtemp(prefix="autoresearch-"))
        # At the end of the process, for a training may end in many ways; what stays behind costs space only.
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        run = RunContext(
            log=scratch / "log", scratch=scratch, budget_seconds=settings.budget_seconds, device=settings.device
        )
        return cls(adapter.plan(settings.seed or 0, Split.SEARCH, run), train_py, run)

    def task(self) -> TrainTask:
        """Return what this process trains."""
        return train_task(self.plan, self.train_py, self.run.scratch / "output")

    def show(self, message: Mapping[str, Any]) -> None:
        """Take a message of the training as the runner would; print the curve."""
        kind = message["kind"]
        if kind == "clock_started":
            self.before = LoadSample.take(message["cpu"])
        elif kind == "progress":
            print(f"{message['share']:6.1%}  loss {message['loss']:.4f}", flush=True)
        elif kind == "trained":
            self.after = LoadSample.take(message["cpu"])
            self.counts = {name: value for name, value in message.items() if name not in ("kind", "cpu")}

    def evaluate_and_print(self, task: TrainTask) -> None:
        """Score the weights in a process of its own and print the summary block."""
        assert self.before is not None and self.after is not None, "a training that ended has had a clock"
        trained = Trained(self.counts, (), Load.between(self.before, self.after), self.after.own)
        try:
            scored = score(self.plan, self.train_py, task.output, self.run)
        finally:
            sys.stderr.write(tail(self.run.log))
        numbers = secondary(trained, scored, self.plan, time.monotonic() - self.began)
        print(summary_block(scored.value, numbers), flush=True)


def show_errors_as_sentences() -> None:
    """Let errors that are meant for a person end this process without a trace; others keep theirs."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, AutoresearchError):
            print(error, file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, trace)

    sys.excepthook = hook


def show_preparation(share: float, text: str) -> None:
    """Print one line about the preparation of the data."""
    print(f"{share:6.1%}  {text}", file=sys.stderr, flush=True)
