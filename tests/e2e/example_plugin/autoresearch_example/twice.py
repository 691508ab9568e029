"""A policy that keeps what was better by `margin` in two measurements."""

from collections.abc import Mapping

from autoresearch import core


class TwicePolicy:
    name = "twice"
    needs_noise = False

    def __init__(self, margin: float) -> None:
        self.parameters = {"margin": margin}

    def decide(self, evidence: core.Evidence) -> core.Verdict:
        look = evidence.looks[-1].treatment
        gain = evidence.metric.direction.sign * (look.mean - _incumbent(evidence).mean)
        if gain <= self.parameters["margin"]:
            return core.Verdict(core.Decision.REVERT, "Not better by the margin.", effect=gain)
        if look.n < 2:
            return core.Verdict(core.Decision.CONTINUE, "Better once; look again.", effect=gain)
        return core.Verdict(core.Decision.KEEP, "Better twice.", effect=gain)

    def believed_gain(self, evidence: core.Evidence) -> float:
        first = evidence.history[0].look.treatment
        return evidence.metric.direction.sign * (_incumbent(evidence).mean - first.mean)


def _incumbent(evidence: core.Evidence) -> core.ArmTotals:
    return [past.look.treatment for past in evidence.history if past.kept][-1]


def create_policy(parameters: Mapping[str, float]) -> core.Policy:
    unknown = set(parameters) - {"margin"}
    if unknown:
        raise ValueError(f"it has no parameter {min(unknown)!r}; it has margin.")
    return TwicePolicy(parameters.get("margin", 0.0))
