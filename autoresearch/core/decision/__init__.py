"""From evidence to a verdict: pure functions that read nothing but what they are given.

Evidence is sufficient statistics per arm and look, and nothing else, so that a decision can be repeated years later
from the ledger, and audited by somebody who has only the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable

from autoresearch.core.adapter import ArmTotals, Metric

__all__ = ["Decision", "Evidence", "Look", "Noise", "OffersInterval", "PastEvidence", "Policy", "Verdict"]


class Decision(Enum):
    """What a policy says after a look."""

    KEEP = "keep"
    REVERT = "revert"
    CONTINUE = "continue"  # look again


@dataclass(frozen=True, slots=True)
class Look:
    """Cumulative totals of both arms at one moment at which evidence is judged.

    Attributes:
        control: The incumbent as measured in this experiment; n is 0 where it was not measured again.
        treatment: The candidate.
        cross: Sum of products of paired measurements (same seed); None where nothing is paired.
    """

    control: ArmTotals
    treatment: ArmTotals
    cross: float | None = None


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known of the spread between measurements of one artifact.

    Attributes:
        sd: Standard deviation between two measurements with different seeds, in the unit of the metric.
        dof: Degrees of freedom behind it; what an adapter states counts for a few.
        seed_sd: The part of it that comes with the seed and is the same for every artifact, as a standard deviation:
            measurements with the same seed differ by `paired_sd` only. 0 where no such part shows.
    """

    sd: float
    dof: float
    seed_sd: float = 0.0

    @property
    def paired_sd(self) -> float:
        """Standard deviation of one measurement around its artifact and its seed."""
        return math.sqrt(max(self.sd**2 - self.seed_sd**2, 0.0))


@dataclass(frozen=True, slots=True)
class PastEvidence:
    """An earlier experiment of the same run, as later decisions see it.

    Attributes:
        look: Its last look. For the baseline only `treatment` has measurements.
        kept: Whether its candidate became the incumbent. The first entry of a history is the baseline, kept.
        block: The stretch of measuring that it belongs to, see `Evidence.block`.
        earlier: Its looks before the last one, in order: which run had which seed is told by what each look added. May
            be left out.
        reach: Share of all people who see the candidate once it is kept; below 1 where it was tested in a place of its
            own.
    """

    look: Look
    kept: bool
    block: int = 0
    earlier: tuple[Look, ...] = ()
    reach: float = 1.0

    @property
    def all_looks(self) -> tuple[Look, ...]:
        """Its looks in order, the last one at the end."""
        return (*self.earlier, self.look)


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a policy may know.

    Attributes:
        metric: Direction, kind and smallest effect of interest.
        looks: The looks of this experiment so far, in order; at least one.
        noise: Spread between measurements of one artifact; None where it is unknown.
        history: Earlier experiments of the run, oldest first, the baseline at the head.
        block: Which unbroken stretch of measuring this experiment belongs to. A new session begins a new one: the
            machine may have changed in between.
        family: How many treatments were begun together against this one control, those given up included. A policy with
            error rates shares them among so many.
    """

    metric: Metric
    looks: tuple[Look, ...]
    noise: Noise | None = None
    history: tuple[PastEvidence, ...] = ()
    block: int = 0
    family: int = 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the evidence says; effects are in the metric's unit and positive where the candidate is better.

    Attributes:
        decision: Keep, revert or continue.
        reason: One sentence for the ledger.
        effect: Expected improvement of the candidate over the incumbent.
        interval: Interval of 90 % for that improvement, of a race from its bound at alpha to its bound at beta; None
            where the policy gives none.
        p_better: Probability that the improvement is above zero; None where the policy gives none.
        e_win: e-value against "not better"; None outside races.
        e_lose: e-value against "better by at least min_effect"; None outside races.
        inconclusive: True with `REVERT` when the reason is lack of evidence.
        measure: With `CONTINUE`: the arms that the next look measures once each, in this order; `control` is the
            incumbent, measured again beside the candidate.
    """

    decision: Decision
    reason: str
    effect: float | None = None
    interval: tuple[float, float] | None = None
    p_better: float | None = None
    e_win: float | None = None
    e_lose: float | None = None
    inconclusive: bool = False
    measure: tuple[str, ...] = ("treatment",)


@runtime_checkable
class Policy(Protocol):
    """A rule that turns evidence into a verdict."""

    @property
    def name(self) -> str:
        """As given to `--policy`."""
        ...

    @property
    def parameters(self) -> Mapping[str, float]:
        """Everything that changes a verdict; frozen into the ledger when a run starts."""
        ...

    @property
    def needs_noise(self) -> bool:
        """Whether it cannot judge before something was measured twice."""
        ...

    def decide(self, evidence: Evidence) -> Verdict:
        """Keep, revert, or look again; deterministic, reads nothing but the evidence."""
        ...

    def believed_gain(self, evidence: Evidence) -> float:
        """Return the gain of the incumbent over the baseline that this policy believes in; positive is better.

        In the metric's unit. Only `metric`, `noise` and `history` of the evidence are read.
        """
        ...


@runtime_checkable
class OffersInterval(Protocol):
    """A policy that can say how sure it is of the gain that it believes in."""

    def believed_interval(self, evidence: Evidence) -> tuple[float, float] | None:
        """Return the interval of 90 % around `believed_gain`, low end first; None where the evidence gives none."""
        ...
