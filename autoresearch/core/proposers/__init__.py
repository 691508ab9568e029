"""The contract of a proposer: from what is known to one hypothesis and one changed artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from autoresearch.core.adapter import Direction, Metric, Outcome, Scope
from autoresearch.core.artifact import Artifact
from autoresearch.core.proposers.knobs import Knob

__all__ = [
    "AwaitsAnswers",
    "Change",
    "Cost",
    "CostEstimate",
    "FailedCandidate",
    "OpenExperiment",
    "PastExperiment",
    "Proposal",
    "ProposalRequest",
    "Proposer",
]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call cost.

    Attributes:
        usd: Dollars.
        tokens_in: Prompt tokens that were not read from a cache.
        tokens_cached: Prompt tokens read from a cache.
        tokens_out: Answer tokens.
        seconds: Wall-clock seconds.
        model: Name of the model; empty offline.
    """

    usd: float = 0.0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    model: str = ""

    @property
    def tokens(self) -> int:
        """All tokens, cached ones included."""
        return self.tokens_in + self.tokens_cached + self.tokens_out


@dataclass(frozen=True, slots=True)
class Change:
    """One turned knob; `old` and `new` are source text (`0.02`, `True`)."""

    knob: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """One hypothesis and the artifact it leads to.

    Attributes:
        hypothesis: One sentence: what will change, and why the metric should move.
        category: Kind of idea (`optimizer`, `architecture`, ...); plateaus switch categories.
        artifact: The whole candidate.
        changes: The turned knobs, where the proposer works with knobs.
        cost: What forming it cost.
        details: Anything the proposer wants back later with the history; JSON.
    """

    hypothesis: str
    category: str
    artifact: Artifact
    changes: tuple[Change, ...] = ()
    cost: Cost = field(default_factory=Cost)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastExperiment:
    """A finished experiment of this run, as a proposer sees it; `effect` is positive where the candidate was better."""

    number: int
    hypothesis: str
    category: str
    outcome: Outcome
    reason: str
    value: float | None
    effect: float | None
    interval: tuple[float, float] | None
    diff: str
    fingerprint: str
    changes: tuple[Change, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpenExperiment:
    """An experiment that is before people while another is proposed; what becomes of it is not known yet."""

    number: int
    hypothesis: str
    diff: str
    fingerprint: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedCandidate:
    """A candidate of the experiment in progress that crashed and is to be repaired."""

    proposal: Proposal
    message: str
    log_tail: str


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """What a proposer works from; it must not touch files.

    Attributes:
        number: Number of the experiment.
        artifact: The incumbent.
        baseline: The artifact as found when the run began.
        readonly: Path -> text of the files that are shown and never change.
        scope: Which files may change.
        metric: What is measured.
        incumbent_value: Best estimate of the incumbent's value; None before the baseline is measured.
        program: The human's word (`program.md`); empty where there is none.
        brief: The adapter's explanation; empty where there is none.
        notes: Notes that people sent while the run goes on, oldest first.
        history: Finished experiments, oldest first, without the baseline.
        refused: Why earlier proposals for this same experiment were refused or failed, oldest first.
        failed: The candidate to repair; None for a fresh proposal.
        avoid_categories: Categories on a plateau; propose from another.
        knobs: Knobs that the adapter declares.
        usd_left: Dollars that may still be spent; None without a cap. Check before the call.
        tokens_left: Tokens that may still be spent; None without a cap.
        seed: Seed of this run, for offline proposers.
        id: Names this call: the same again after a kill, another one for every further attempt.
        lane: What may change in this experiment where an adapter runs several tests at once; empty: all that the scope
            allows.
        beside: Experiments that go on at this moment; propose something else.
    """

    number: int
    artifact: Artifact
    baseline: Artifact
    scope: Scope
    metric: Metric
    readonly: Mapping[str, str] = field(default_factory=dict)
    incumbent_value: float | None = None
    program: str = ""
    brief: str = ""
    notes: tuple[str, ...] = ()
    history: Sequence[PastExperiment] = ()
    refused: tuple[str, ...] = ()
    failed: FailedCandidate | None = None
    avoid_categories: frozenset[str] = frozenset()
    knobs: Sequence[Knob] = ()
    usd_left: float | None = None
    tokens_left: int | None = None
    seed: int = 0
    id: str = ""
    lane: str = ""
    beside: Sequence[OpenExperiment] = ()

    @property
    def direction(self) -> Direction:
        """Which way is better."""
        return self.metric.direction


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What one proposal is expected to cost; `basis` says in a few words where the figures come from."""

    usd: float
    tokens: int
    seconds: float
    basis: str


@runtime_checkable
class Proposer(Protocol):
    """Forms hypotheses. The loop decides; a proposer never sees the evaluator."""

    @property
    def name(self) -> str:
        """As given to `--proposer`."""
        ...

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        """Say what one proposal costs, without spending anything."""
        ...

    def propose(self, request: ProposalRequest) -> Proposal:
        """Form one proposal.

        Raises:
            ProposalError: If the attempt failed; carries its cost. Asked again later.
            NothingLeftToProposeError: If there is no further idea; ends the run.
            EnvironmentNotReadyError: If no later call can work either (key refused).
        """
        ...


@runtime_checkable
class AwaitsAnswers(Protocol):
    """A proposer whose answers come from outside the process, sooner or later; a run tells it where and how to wait."""

    def attend(self, folder: Path, wait: Callable[[float], None], say: Callable[[str], None]) -> None:
        """Begin a session of a run.

        Args:
            folder: Where questions and answers may lie; they outlive the process.
            wait: Waits so many seconds, longer while the run is paused; raises what ends the run where it is to end.
            say: One sentence to the person at the screen.
        """
        ...
