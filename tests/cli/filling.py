"""A run on numbers, whose proposer follows a script of hypotheses and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.core import (
    CandidateError,
    Change,
    Cost,
    CostEstimate,
    Direction,
    Measurement,
    Metric,
    NothingLeftToProposeError,
    Proposal,
    ProposalError,
    ProposalRequest,
    RunContext,
    Scope,
    Split,
    Workspace,
)
from autoresearch.core.driver import RunResult, run

HOSTILE = "\x1b]0;owned\x07\x1b[2J[bold red]Halve\u202e it[/bold red]\x9b31m"
"""A hypothesis that sets a window's title, wipes the screen, turns the writing direction and looks like markup."""


class Numbers:
    """The artifact is a number in `number.txt`; the metric is the number; lower is better."""

    metric = Metric("size", "units", Direction.MINIMIZE, noise=0.1)
    scope = Scope(("number.txt",))

    def prepare(self, workspace: Workspace) -> None:
        workspace.progress(1.0, "ready")

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        text = (artifact / "number.txt").read_text(encoding="utf-8").strip()
        with run.log.open("a", encoding="utf-8") as log:
            log.write(f"read {text} with seed {seed}\n\x1b[31mred\x1b[0m\n")
        try:
            return Measurement(float(text), seed, 0.5, {"digits": float(len(text)), "peak_vram_mb": 512.0})
        except ValueError as error:
            raise CandidateError(f"{text!r} is no number.", log_tail="Traceback: no number") from error


@dataclass
class Script:
    """Proposes (hypothesis, text) pairs in order; raises the exceptions among them."""

    steps: Sequence[tuple[str, str] | Exception]
    name: str = "script"
    asked: int = field(default=0)

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        return CostEstimate(0.0, 0, 0.0, "a script")

    def propose(self, request: ProposalRequest) -> Proposal:
        if self.asked >= len(self.steps):
            raise NothingLeftToProposeError("the script has ended")
        step = self.steps[self.asked]
        self.asked += 1
        if isinstance(step, Exception):
            raise step
        hypothesis, text = step
        old = request.artifact.files["number.txt"].strip()
        return Proposal(
            hypothesis,
            "numbers",
            request.artifact.replace({"number.txt": f"{text}\n"}),
            changes=(Change("NUMBER", old, text),),
            cost=Cost(usd=0.25, tokens_in=100, tokens_out=20, model="pen"),
        )


STEPS: Sequence[tuple[str, str] | Exception] = (
    ("Halve it.", "4"),
    ProposalError("The answer was cut off.", cost=Cost(usd=0.125)),
    ("Go back.", "8"),
    (HOSTILE, "a"),
    ("Repair it.", "b"),
    ("Repair it again.", "c"),
    (HOSTILE, "5"),
)
"""Experiment 1 is kept; 2 has a failed and a refused proposal before it crashes; 3 is reverted."""


def make_workspace(root: Path, number: str = "8") -> Path:
    """Write a folder with an artifact for `Numbers` and return it."""
    root.mkdir(parents=True)
    (root / "number.txt").write_text(f"{number}\n", encoding="utf-8")
    return root


def fill(root: Path) -> Path:
    """Run `STEPS` in a new workspace and return its folder."""
    # Whether a run confirms by itself depends on how long it took.
    work(make_workspace(root), STEPS, experiments=3, confirm=False)
    return root


def work(root: Path, steps: Sequence[tuple[str, str] | Exception], **choices: object) -> RunResult:
    """Run `steps` in a workspace."""
    choices = {"baseline_runs": 2, "policy": "bayes", **choices}
    return run(Numbers(), workspace=root, proposer=Script(steps), **choices)  # type: ignore[arg-type]
