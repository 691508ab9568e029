from __future__ import annotations

import pytest

from autoresearch.core.adapter import ArmTotals, Direction, Metric
from autoresearch.core.decision import Decision, Evidence, Look, PastEvidence
from autoresearch.core.decision.greedy import GreedyPolicy, incumbent_totals

LOSS = Metric("loss", "nats", Direction.MINIMIZE)


def look(*candidate: float, control: tuple[float, ...] = ()) -> Look:
    return Look(ArmTotals.of("control", control), ArmTotals.of("treatment", candidate))


def evidence(*history: PastEvidence, now: Look, metric: Metric = LOSS) -> Evidence:
    return Evidence(metric, (now,), history=history)


BASELINE = PastEvidence(look(1.0), True)


@pytest.mark.parametrize(
    ("value", "decision"), [(0.99, Decision.KEEP), (1.0, Decision.REVERT), (1.01, Decision.REVERT)]
)
def test_strict_improvement_is_kept_and_a_tie_reverted(value: float, decision: Decision) -> None:
    """Where lower is better, lower is kept; a tie with the incumbent is reverted."""
    assert GreedyPolicy().decide(evidence(BASELINE, now=look(value))).decision is decision


def test_higher_is_kept_where_higher_is_better() -> None:
    """The direction of the metric decides what an improvement is."""
    metric = Metric("score", "points", Direction.MAXIMIZE)
    verdict = GreedyPolicy().decide(evidence(BASELINE, now=look(1.5), metric=metric))
    assert (verdict.decision, verdict.effect) == (Decision.KEEP, 0.5)


def test_last_kept_candidate_is_the_bar() -> None:
    """A candidate better than the baseline but not than the incumbent is reverted."""
    history = (BASELINE, PastEvidence(look(0.5), True), PastEvidence(look(0.9), False))
    assert GreedyPolicy().decide(evidence(*history, now=look(0.7))).decision is Decision.REVERT


def test_incumbent_is_the_mean_of_all_its_measurements() -> None:
    """Control measurements of later experiments and of this one count for the incumbent."""
    history = (BASELINE, PastEvidence(look(0.5), True), PastEvidence(look(0.9, control=(0.7,)), False))
    assert incumbent_totals(evidence(*history, now=look(0.6))).mean == pytest.approx(0.6)
    verdict = GreedyPolicy().decide(evidence(*history, now=look(0.65, control=(0.9,))))
    assert verdict.decision is Decision.KEEP
    assert verdict.effect == pytest.approx(0.05)


def test_control_of_a_kept_experiment_belongs_to_the_old_incumbent() -> None:
    """What was measured beside a candidate that won says nothing about the winner."""
    history = (BASELINE, PastEvidence(look(0.5, control=(3.0,)), True))
    assert incumbent_totals(evidence(*history, now=look(0.6))).mean == 0.5
    assert GreedyPolicy().believed_gain(evidence(*history, now=look(0.6))) == pytest.approx(1.5)


def test_gain_is_the_incumbents_mean_against_the_baselines() -> None:
    """Greedy believes the difference of the raw means."""
    history = (BASELINE, PastEvidence(look(0.5), True))
    assert GreedyPolicy().believed_gain(evidence(*history, now=look(0.6))) == pytest.approx(0.5)


def test_unmeasured_candidate_continues_and_missing_baseline_is_refused() -> None:
    """Nothing measured asks for a measurement; no baseline is a sentence."""
    assert GreedyPolicy().decide(evidence(BASELINE, now=look())).decision is Decision.CONTINUE
    with pytest.raises(ValueError, match="no baseline"):
        GreedyPolicy().decide(evidence(now=look(1.0)))
