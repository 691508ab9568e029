"""`greedy`: keep any strict improvement, as the original loop does; for comparison.

Its gain is no measure of what is real: the incumbent's value is the lucky draw that won, and of several equal
candidates the luckiest is kept.
"""

from __future__ import annotations

from collections.abc import Mapping

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Decision, Evidence, Verdict


class GreedyPolicy:
    """Keeps a candidate whose mean is better than the mean of everything measured of the incumbent; a tie reverts."""

    @property
    def name(self) -> str:
        """`greedy`."""
        return "greedy"

    @property
    def parameters(self) -> Mapping[str, float]:
        """None: the rule has nothing to set."""
        return {}

    @property
    def needs_noise(self) -> bool:
        """No: it takes every value at its word."""
        return False

    def decide(self, evidence: Evidence) -> Verdict:
        """Keep or revert on the last look; `CONTINUE` only while the candidate has no measurement.

        Raises:
            ValueError: If the history does not begin with a measured baseline.
        """
        look = evidence.looks[-1]
        if look.treatment.n == 0:
            return Verdict(Decision.CONTINUE, "The candidate has not been measured yet.")
        incumbent = _add(incumbent_totals(evidence), look.control)
        effect = evidence.metric.direction.sign * (look.treatment.mean - incumbent.mean)
        size = f"{abs(effect):.3g} {evidence.metric.unit}".rstrip()
        if effect > 0:
            return Verdict(Decision.KEEP, f"Better than the incumbent by {size}.", effect=effect)
        if effect == 0:
            return Verdict(Decision.REVERT, "Equal to the incumbent; a tie reverts.", effect=effect)
        return Verdict(Decision.REVERT, f"Worse than the incumbent by {size}.", effect=effect)

    def believed_gain(self, evidence: Evidence) -> float:
        """Return the incumbent's mean against the baseline's, luck included."""
        baseline = evidence.history[0].look.treatment if evidence.history else None
        if baseline is None:
            return 0.0
        incumbent, first = _incumbent_and_baseline(evidence)
        return evidence.metric.direction.sign * (incumbent.mean - first.mean)


def incumbent_totals(evidence: Evidence) -> ArmTotals:
    """Return everything measured of the incumbent in earlier experiments.

    Raises:
        ValueError: If the history does not begin with a measured baseline.
    """
    return _incumbent_and_baseline(evidence)[0]


def _incumbent_and_baseline(evidence: Evidence) -> tuple[ArmTotals, ArmTotals]:
    """Return the totals of the incumbent and of the baseline, measurements as a control included."""
    check_history(evidence)
    incumbent = evidence.history[0].look.treatment
    baseline = incumbent
    baseline_stands = True
    for past in evidence.history[1:]:
        incumbent = _add(incumbent, past.look.control)
        if baseline_stands:
            baseline = incumbent
        if past.kept:
            incumbent, baseline_stands = past.look.treatment, False
    return incumbent, baseline


def check_history(evidence: Evidence) -> None:
    """Raise ValueError unless the history begins with a measured baseline."""
    if not evidence.history or evidence.history[0].look.treatment.n == 0:
        raise ValueError("There is no baseline to compare with; measure it before the first candidate is judged.")


def _add(first: ArmTotals, second: ArmTotals) -> ArmTotals:
    return ArmTotals(first.arm, first.n + second.n, first.total + second.total, first.total_sq + second.total_sq)
