"""Live tests: both arms in front of people, looked at until the evidence, a gate or the traffic ends the test."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from autoresearch.core.adapter import (
    ArmTotals,
    GateReport,
    LiveAdapter,
    LiveExperiment,
    Metric,
    OffersDaysLeft,
    OffersGates,
    OffersLanes,
    OffersPace,
    Outcome,
)
from autoresearch.core.decision import Decision, Evidence, Look, PastEvidence, Policy, Verdict
from autoresearch.core.errors import EnvironmentNotReadyError, RunStoppedError
from autoresearch.core.ledger import Experiment, Ledger, LiveLook
from autoresearch.core.memory import Belief

ARMS = ("control", "treatment")

EVEN_SPLIT = {"control": 0.5, "treatment": 0.5}
"""Shares of an experiment's own traffic; equal ones end a test soonest."""

_DEFAULT_WAIT = 60.0
"""Seconds between looks where an adapter does not say."""

_WORTH_SAYING = 120.0
"""Seconds of silence that look like a fault unless they are announced."""


def test_id(experiment: Experiment) -> str:
    """Return the name of a test, unique and the same after a restart."""
    return f"{experiment.run_id}-{experiment.number:04d}"


def begin(adapter: LiveAdapter, experiment: Experiment, control: Path, treatment: Path) -> None:
    """Show both arms; fine when they are shown already."""
    adapter.start(shown(experiment, control, treatment))


def begin_together(adapter: OffersLanes, arms: Sequence[tuple[Experiment, Path]], control: Path) -> None:
    """Show the treatments of one test, each with its folder, beside one control; fine when they are shown already."""
    adapter.start_together([shown(experiment, control, treatment) for experiment, treatment in arms])


def shown(experiment: Experiment, control: Path, treatment: Path) -> LiveExperiment:
    """Return what an adapter is told of an experiment; every arm of its test has the same share of traffic."""
    family = max(experiment.family, 1)
    share = 1.0 / (family + 1)
    return LiveExperiment(
        test_id(experiment),
        control,
        treatment,
        {"control": share, "treatment": share},
        experiment.started,
        experiment.lane,
        "treatment" if family == 1 else f"treatment-{experiment.number}",
    )


def wait_seconds(adapter: LiveAdapter, experiment: Experiment) -> float:
    """Return how long to wait before the next look."""
    return adapter.wait_seconds(test_id(experiment)) if isinstance(adapter, OffersPace) else _DEFAULT_WAIT


def announcement(experiments: Sequence[Experiment], wait: float) -> str | None:
    """Return what the person at the screen should know before a first look; None where it comes soon."""
    if wait < _WORTH_SAYING or not experiments:
        return None
    numbers = [str(row.number) for row in experiments]
    who = f"Experiment {numbers[0]} is" if len(numbers) == 1 else f"Experiments {', '.join(numbers)} are"
    tests = "test" if len(numbers) == 1 else "tests"
    return f"{who} before people; the first look is in {wait / 60:.0f} min. Ctrl-C ends the run and not the {tests}."


def next_look(
    adapter: LiveAdapter,
    ledger: Ledger,
    experiment: Experiment,
    look: int,
    *,
    now: Callable[[], datetime],
    sleep: Callable[[float], bool],
    say: Callable[[str], None],
) -> None:
    """Wait for people, then write down what both arms show; fine when this look is written down already.

    Args:
        adapter: Whose test it is.
        ledger: Where looks are written.
        experiment: The experiment that the test belongs to.
        look: Number of the look, from 0.
        now: The clock.
        sleep: Waits so many seconds; False when a person wants the run to end meanwhile.
        say: Tells the person at the screen that people are awaited, once.

    Raises:
        RunStoppedError: If a person wants the run to end; the test goes on collecting.
        EnvironmentNotReadyError: If the adapter reports arms that were not shown.
    """
    known = ledger.live_looks(experiment.id)
    if any(row.look == look for row in known):
        return
    wait = wait_seconds(adapter, experiment)
    if not known and (said := announcement([experiment], wait)) is not None:
        say(said)
    if not sleep(wait):
        raise RunStoppedError("interrupted while the test goes on; autoresearch run takes it up again")
    take_look(adapter, ledger, experiment, look, now)


def take_look(
    adapter: LiveAdapter, ledger: Ledger, experiment: Experiment, look: int, now: Callable[[], datetime]
) -> None:
    """Write down what both arms show now; fine when this look is written down already.

    Raises:
        EnvironmentNotReadyError: If the adapter reports arms that were not shown.
    """
    known = ledger.live_looks(experiment.id)
    if any(row.look == look for row in known):
        return
    totals = {arm.arm: arm for arm in adapter.observe(test_id(experiment))}
    if set(totals) != set(ARMS):
        raise EnvironmentNotReadyError(
            f"The test {test_id(experiment)} has the arms {', '.join(ARMS)}, and the adapter reports "
            f"{', '.join(sorted(totals)) or 'none'}.\nThe adapter must report both, with 0 units where nobody came."
        )
    before = looks_of(known)
    if before:
        totals = {arm.arm: _never_less(totals[arm.arm], arm) for arm in (before[-1].control, before[-1].treatment)}
    at = now()
    ledger.add_live_look(
        [
            LiveLook(
                experiment_id=experiment.id,
                look=look,
                arm=arm,
                n=totals[arm].n,
                total=totals[arm].total,
                total_sq=totals[arm].total_sq,
                at=at,
            )
            for arm in ARMS
        ]
    )


def _never_less(now: ArmTotals, before: ArmTotals) -> ArmTotals:
    """Return totals that do not fall.

    They would where a person was forgotten since the last look. What was counted stays in the sums, which name nobody.
    """
    return ArmTotals(now.arm, max(now.n, before.n), max(now.total, before.total), max(now.total_sq, before.total_sq))


def looks_of(rows: Sequence[LiveLook]) -> tuple[Look, ...]:
    """Return the looks of one test, cumulative, in order."""
    by_look: dict[int, dict[str, ArmTotals]] = {}
    for row in rows:
        by_look.setdefault(row.look, {})[row.arm] = ArmTotals(row.arm, int(row.n), row.total, row.total_sq)
    return tuple(Look(arms["control"], arms["treatment"]) for _, arms in sorted(by_look.items()))


def judge(
    adapter: LiveAdapter, policy: Policy, experiment: Experiment, looks: Sequence[Look]
) -> tuple[Verdict, Outcome]:
    """Let the gates speak, then the policy; return the verdict and what the experiment ends as if it ends.

    Gates cannot be argued with: a broken split makes the test invalid and a harm ends it, whatever the lift. A verdict
    that must wait for its week is asked for again at the next look; the line that was crossed stays crossed, because
    the policy judges by the first look that crossed one.
    """
    evidence = evidence_of(adapter.metric, experiment, looks)
    verdict = policy.decide(evidence)
    report = GateReport()
    if isinstance(adapter, OffersGates):
        report = adapter.gates(test_id(experiment), _crossed(policy, evidence, verdict))
    if report.note is not None:
        verdict = replace(verdict, reason=f"{verdict.reason} {report.note}")
    if report.invalid is not None:
        return _replaced(verdict, Decision.REVERT, report.invalid), Outcome.INVALID
    if report.harm is not None:
        return _replaced(verdict, Decision.REVERT, f"harm: {report.harm}"), Outcome.REVERTED
    over = adapter.ending(test_id(experiment)) if isinstance(adapter, OffersPace) else None
    if report.hold is not None and over is None:
        return _replaced(verdict, Decision.CONTINUE, f"{verdict.reason} {report.hold}"), Outcome.INCONCLUSIVE
    if verdict.decision is Decision.CONTINUE and over is not None:
        return _replaced(verdict, Decision.REVERT, f"{over} {verdict.reason}"), Outcome.INCONCLUSIVE
    if verdict.decision is Decision.KEEP:
        return verdict, Outcome.KEPT
    return verdict, Outcome.INCONCLUSIVE if verdict.inconclusive else Outcome.REVERTED


def evidence_of(metric: Metric, experiment: Experiment, looks: Sequence[Look]) -> Evidence:
    """Return all that a policy may know of a live test."""
    return Evidence(metric, tuple(looks), family=max(experiment.family, 1))


def _crossed(policy: Policy, evidence: Evidence, verdict: Verdict) -> Look | None:
    """Return the look at which a line was crossed; a line once crossed stays crossed, so halving finds it."""
    return None if verdict.decision is Decision.CONTINUE else evidence.looks[deciding_look(policy, evidence)]


def deciding_look(policy: Policy, evidence: Evidence) -> int:
    """Return the index of the look that effect and e-values are of: the first that crossed a line, else the last."""
    looks = evidence.looks

    def is_over(index: int) -> bool:
        return policy.decide(replace(evidence, looks=looks[: index + 1])).decision is not Decision.CONTINUE

    return min(bisect_left(range(len(looks)), True, key=is_over), len(looks) - 1)


def _replaced(verdict: Verdict, decision: Decision, reason: str) -> Verdict:
    return Verdict(decision, reason, verdict.effect, verdict.interval, verdict.p_better, verdict.e_win, verdict.e_lose)


def progress(adapter: LiveAdapter, experiment: Experiment, reason: str) -> tuple[float, str]:
    """Return (share, words) of a test that goes on: how much of its time is gone, as far as the adapter knows."""
    left = adapter.days_left(test_id(experiment)) if isinstance(adapter, OffersDaysLeft) else None
    if left is None:
        return 0.0, reason
    return 0.0, f"{left:.0f} days left at most; {reason}" if left >= 1.5 else f"ends within a day or two; {reason}"


def finish(adapter: LiveAdapter, experiment: Experiment, outcome: Outcome) -> None:
    """End the test; with a keep the treatment is what everybody sees from now on."""
    adapter.finish(test_id(experiment), outcome)


def value_of(looks: Sequence[Look]) -> float | None:
    """Return the treatment's mean at the last look; None where nobody saw it."""
    return looks[-1].treatment.mean if looks and looks[-1].treatment.n else None


def baseline_of(experiments: Sequence[Experiment], looks: Mapping[int, Sequence[Look]]) -> float | None:
    """Return the mean of the artifact as found: of its units in every test in which it was the control."""
    shown = [looks[row.id][-1].control for row in experiments if row.parent_number == 0 and looks.get(row.id)]
    units = sum(arm.n for arm in shown)
    return sum(arm.total for arm in shown) / units if units else None


def past_evidence(experiments: Sequence[Experiment], looks: Mapping[int, Sequence[Look]]) -> tuple[PastEvidence, ...]:
    """Return what later decisions may know of earlier tests."""
    judged = {Outcome.KEPT.value, Outcome.REVERTED.value, Outcome.INCONCLUSIVE.value}
    return tuple(
        PastEvidence(looks[row.id][-1], kept=row.outcome == Outcome.KEPT.value, reach=row.reach)
        for row in experiments
        if row.outcome in judged and looks.get(row.id)
    )


def belief(
    policy: Policy | None, metric: Metric, experiments: Sequence[Experiment], looks: Mapping[int, Sequence[Look]]
) -> Belief:
    """Return what the policy believes of the incumbent, from the whole history of the run; no gain without a policy."""
    start = baseline_of(experiments, looks)
    if policy is None or start is None:
        return Belief(start, None, None)
    gain = policy.believed_gain(Evidence(metric, (), None, past_evidence(experiments, looks)))
    return Belief(start, start + metric.direction.sign * gain, gain)
