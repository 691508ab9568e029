"""`test_and_roll`: a list of people that ends is tested on a part of it, and the better-looking arm goes to the rest.

The rule brings the most conversions over the whole list and states no error rate: when nobody is left to ask, waiting
for proof costs more than a wrong choice. It goes by the sign alone, so somebody else must say when the test is over: an
adapter that holds the verdict back (`GateReport.hold`) until the planned part of the list has answered. The size of
that part is `arms.plan_finite_list`.

Source: E. Feit, R. Berman, "Test & Roll: profit-maximizing A/B tests" (2019), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from autoresearch.core.adapter import ArmTotals
from autoresearch.core.decision import Decision, Evidence, Verdict

NAME = "test_and_roll"


class FiniteListPolicy:
    """Keeps the treatment when more of its people converted than of the control's; a tie stays with the control."""

    @property
    def name(self) -> str:
        """`test_and_roll`."""
        return NAME

    @property
    def parameters(self) -> Mapping[str, float]:
        """None: how many people are asked is the list's business."""
        return {}

    @property
    def needs_noise(self) -> bool:
        """No: it goes by the sign."""
        return False

    def decide(self, evidence: Evidence) -> Verdict:
        """Choose by the sign of the last look; `CONTINUE` while an arm has nobody."""
        look = evidence.looks[-1]
        if not (look.control.n and look.treatment.n):
            return Verdict(Decision.CONTINUE, "Nobody has had time to answer in one of the arms.")
        better = evidence.metric.direction.sign * (look.treatment.mean - look.control.mean)
        chosen = "treatment" if better > 0 else "control"
        tie = ", the tie staying with what was there" if better == 0 else ""
        reason = (
            f"The {chosen} is chosen by Test & Roll{tie}: treatment {_words(look.treatment)}, control "
            f"{_words(look.control)}. A bet, without an error rate."
        )
        lift = better / look.control.mean if look.control.mean > 0 else None
        return Verdict(Decision.KEEP if better > 0 else Decision.REVERT, reason, lift)

    def believed_gain(self, evidence: Evidence) -> float:
        """Return the sum of the differences that the kept tests showed, in the metric's unit; luck is in it."""
        kept = [past.look for past in evidence.history if past.kept and past.look.control.n and past.look.treatment.n]
        sign = evidence.metric.direction.sign
        return sign * math.fsum(look.treatment.mean - look.control.mean for look in kept)


def _words(arm: ArmTotals) -> str:
    return f"{arm.total:,g} of {arm.n:,}"
