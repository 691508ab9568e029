"""What people and other programs see of a run; every listing speaks through this one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autoresearch.core import memory
from autoresearch.core.adapter import Split
from autoresearch.core.decision import Policy
from autoresearch.core.decision.policies import create_policy, policy_names
from autoresearch.core.history import History
from autoresearch.core.ledger import Claim, Experiment, Ledger, Run

INCUMBENT = "incumbent"
"""Subject of the claim about the incumbent; the others are about the experiment whose number they bear."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A run in figures, with the keys of `status --json`.

    Attributes:
        run: Id of the run.
        adapter: Name of the adapter.
        state: `running`, `paused`, `stopped`, or `killed` where a run ended without a word.
        stop_reason: Why it stopped; None while it runs.
        experiments: Finished experiments, the baseline not counted.
        kept: Of these, the kept ones; likewise the other outcomes.
        reverted: Measured, not better.
        inconclusive: Reverted for lack of evidence.
        crashed: Could not be measured.
        invalid: A gate failed.
        baseline: Mean value of the baseline; None before it is measured.
        incumbent: What the policy believes the incumbent's value to be.
        believed_gain: What the policy believes was gained, in the metric's unit, positive where better.
        confirmed_gain: What fresh measurements confirmed of the incumbent's gain; None where it is not confirmed.
        confirmed_on: Where they were taken: `holdout`, or `search` where the adapter has no holdout; None without any.
        usd: Dollars for proposals.
        seconds: Wall-clock seconds of all experiments.
    """

    run: str
    adapter: str
    state: str
    stop_reason: str | None
    experiments: int
    kept: int
    reverted: int
    inconclusive: int
    crashed: int
    invalid: int
    baseline: float | None
    incumbent: float | None
    believed_gain: float | None
    confirmed_gain: float | None
    confirmed_on: str | None
    usd: float
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the figures by key."""
        return asdict(self)


def confirmed_gain(claims: Sequence[Claim], incumbent: Experiment | None) -> float | None:
    """Return the shrunk gain of the incumbent over the baseline where its claim is confirmed, else None."""
    for claim in claims:
        if claim.subject == INCUMBENT and incumbent is not None and claim.commit == incumbent.kept_commit:
            return claim.shrunk if claim.outcome == "confirmed" else None
    return None


def share_confirmed(believed: float | None, confirmed: float | None) -> float | None:
    """Return confirmed over believed gain; None where either is missing or nothing is believed to be gained."""
    return confirmed / believed if believed and believed > 0 and confirmed is not None else None


def _claimed_on(ledger: Ledger, run_id: str, claims: Sequence[Claim]) -> str | None:
    """Return the split on which a run's claims were measured; an adapter with a holdout uses no other."""
    if ledger.fresh(run_id, Split.HOLDOUT.value):
        return "holdout"
    return "search" if any(claim.outcome != "open" for claim in claims) else None


def status_of(ledger: Ledger, run: Run, *, at_work: bool, policy: Policy | None = None) -> RunStatus:
    """Return a run in figures.

    Args:
        ledger: Where the run is written down.
        run: The run.
        at_work: Whether a process holds the workspace right now.
        policy: The run's policy; by default the one of the name that the ledger holds. What a policy that only the
            Python API was given believes can be told by that API alone.
    """
    experiments = ledger.experiments(run.id)
    totals = ledger.totals(run.id)
    metric = memory.metric_from_json(run.metric)
    if policy is None and run.policy in policy_names():
        policy = create_policy(run.policy, run.policy_parameters)
    claims = ledger.claims(run.id)
    believed = History(ledger, run.id).refresh().belief(policy, metric)
    return RunStatus(
        run=run.id,
        adapter=run.adapter,
        state="killed" if run.state != "stopped" and not at_work else run.state,
        stop_reason=run.stop_reason,
        experiments=totals.experiments,
        kept=totals.kept,
        reverted=totals.reverted,
        inconclusive=totals.inconclusive,
        crashed=totals.crashed,
        invalid=totals.invalid,
        baseline=believed.baseline,
        incumbent=believed.value,
        believed_gain=believed.gain,
        confirmed_gain=confirmed_gain(claims, memory.incumbent_of(experiments)),
        confirmed_on=_claimed_on(ledger, run.id, claims),
        usd=totals.usd,
        seconds=totals.seconds,
    )
