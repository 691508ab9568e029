"""Stand-ins that behave: an adapter whose metric is the square of a number, and a proposer that reads from a script."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autoresearch.core import (
    Artifact,
    CandidateError,
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
from autoresearch.core.decision import Decision, Evidence, Verdict
from autoresearch.core.decision.greedy import GreedyPolicy
from autoresearch.core.ledger import Experiment


@dataclass
class SquareAdapter:
    """The artifact is a number in `number.txt`; the metric is its square plus seeded noise; lower is better."""

    noise: float | None = 0.01
    fault: Callable[[str], None] | None = None
    disturbed: Callable[[int], str | None] = field(default=lambda seed: None)
    measured: list[tuple[str, int]] = field(default_factory=list)
    fingerprint: str = "square-1"

    @property
    def metric(self) -> Metric:
        return Metric("square", "", Direction.MINIMIZE, noise=self.noise)

    @property
    def scope(self) -> Scope:
        return Scope(("number.txt",), ("rules.md",))

    def prepare(self, workspace: Workspace) -> None:
        """Nothing to prepare."""

    def evaluator_fingerprint(self) -> str:
        return self.fingerprint

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        text = (artifact / "number.txt").read_text(encoding="utf-8").strip()
        self.measured.append((text, seed))
        if self.fault is not None:
            self.fault(text)
        try:
            number = float(text)
        except ValueError as error:
            raise CandidateError(f"{text!r} is no number.", log_tail=f"Traceback: {text}") from error
        (run.scratch / "weights.bin").write_text(text, encoding="utf-8")
        noise = (self.noise or 0.0) * random.Random(f"{text}{seed}").gauss(0, 1) * 0.1
        return Measurement(number * number + noise, seed, 0.0, disturbed=self.disturbed(len(self.measured)))

    def keep_outputs(self, scratch: Path, destination: Path) -> None:
        destination.mkdir(parents=True, exist_ok=True)
        (destination / "weights.bin").write_text((scratch / "weights.bin").read_text(), encoding="utf-8")


@dataclass
class FakeProposer:
    """Proposes the texts of a script in order; an exception in the script is raised; records what it was asked."""

    script: Sequence[str | Exception]
    requests: list[ProposalRequest] = field(default_factory=list)
    name: str = "fake"
    asked: int = 0

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        return CostEstimate(0.0, 0, 0.0, "a script")

    def propose(self, request: ProposalRequest) -> Proposal:
        self.requests.append(request)
        if self.asked >= len(self.script):
            raise NothingLeftToProposeError("the script has ended")
        step = self.script[self.asked]
        self.asked += 1
        if isinstance(step, Exception):
            raise step
        return proposal(request.artifact, step)


@dataclass
class HalvingProposer:
    """Needs no memory of its own: proposes from the history alone, so it works across restarts."""

    name: str = "halving"
    texts: Mapping[int, str] = field(default_factory=dict)

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        return CostEstimate(0.0, 0, 0.0, "arithmetic")

    def propose(self, request: ProposalRequest) -> Proposal:
        if request.failed is not None:
            return proposal(request.artifact, request.failed.proposal.artifact.files["number.txt"] + "x")
        special = self.texts.get(request.number)
        if special is not None:
            return proposal(request.artifact, special)
        value = float(request.artifact.files["number.txt"])
        step = 0.5 if request.number % 2 else 1.5
        return proposal(request.artifact, f"{value * step + request.number * 1e-6:.8f}")


def proposal(parent: Artifact, text: str, category: str = "numbers") -> Proposal:
    """Return the proposal that writes `text` into the artifact."""
    return Proposal(f"Try {text}", category, parent.replace({"number.txt": text}))


def failing(count: int) -> list[Exception]:
    """Return as many failed proposals."""
    return [ProposalError(f"failure {index}") for index in range(count)]


@dataclass
class ControlPolicy(GreedyPolicy):
    """Greedy, but looks at the arms of a script first."""

    arms: tuple[tuple[str, ...], ...]

    def decide(self, evidence: Evidence) -> Verdict:
        done = len(evidence.looks) - 1
        if done < len(self.arms):
            return Verdict(Decision.CONTINUE, "look again", measure=self.arms[done])
        return super().decide(evidence)


@dataclass
class Listening:
    """A reporter that remembers."""

    said: list[str] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)
    ended: list[Experiment] = field(default_factory=list)
    on_phase: Callable[[int, str], None] | None = None

    def say(self, text: str) -> None:
        self.said.append(text)

    def phase(self, number: int, name: str) -> None:
        self.phases.append((number, name))
        if self.on_phase is not None:
            self.on_phase(number, name)

    def progress(self, share: float, text: str) -> None:
        """Progress is for eyes."""

    def experiment_ended(self, experiment: Experiment) -> None:
        self.ended.append(experiment)


def make_workspace(root: Path, number: str = "3") -> Path:
    """Write a workspace for `SquareAdapter` and return its folder."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "number.txt").write_text(number, encoding="utf-8")
    (root / "rules.md").write_text("Smaller is better.", encoding="utf-8")
    (root / "program.md").write_text("Find a small number.", encoding="utf-8")
    return root
