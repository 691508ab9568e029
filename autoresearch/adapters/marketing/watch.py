"""The gates of a live test, from its looks: split, people in several arms, guardrails, calendar."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from autoresearch.adapters.marketing.campaign import Guardrail
from autoresearch.adapters.marketing.sources import Seen
from autoresearch.core import ArmTotals, Look
from autoresearch.core.decision.gates import ceiling_gate, end_of_week, harm_gate, log_split_e, split_gate
from autoresearch.core.decision.race_bernoulli import Counts

CROSSED_SHARE = 0.01
"""Share of units in several arms above which a test is invalid: few people have two devices, a lost cookie has many."""


def invalid(looks: Sequence[Seen], split: Mapping[str, float]) -> str | None:
    """Return why nothing of a test can be believed; None where all is well.

    The split is judged over the arms that are shown. While an arm is among them its units count; once it is taken out
    the evidence so far stays as it is, and what comes later is judged among the others, in the shares that they have of
    each other. That is one product of likelihood ratios, unit by unit, so it may be looked at any time.

    Args:
        looks: All looks so far, one at least; the arms of each are those that were shown.
        split: Intended share by arm.
    """
    last = looks[-1]
    units = sum(last.exposed.values())
    if not units:
        return None
    before = math.fsum(
        _log_split_e(one.exposed, split) - _log_split_e({arm: one.exposed[arm] for arm in other.exposed}, split)
        for one, other in pairwise(looks)
        if one.exposed.keys() > other.exposed.keys()
    )
    totals = [ArmTotals(arm, n, 0.0, 0.0) for arm, n in last.exposed.items()]
    gate = split_gate(totals, _shares(last.exposed, split), earlier=before)
    if not gate.passed:
        return gate.reason
    if last.crossed > max(10, CROSSED_SHARE * units):
        several = "both" if len(split) == 2 else "several"
        return (
            f"{last.crossed} of {units} units saw {several} arms, so nobody knows what moved them. Look for a cache, "
            "or a cookie that is lost between visits."
        )
    return None


def _shares(exposed: Mapping[str, int], split: Mapping[str, float]) -> dict[str, float]:
    """Return the shares that the arms which are shown have of each other."""
    total = math.fsum(split[arm] for arm in exposed)
    return {arm: split[arm] / total for arm in exposed}


def _log_split_e(exposed: Mapping[str, int], split: Mapping[str, float]) -> float:
    return log_split_e(list(exposed.values()), list(_shares(exposed, split).values()))


def harm(looks: Sequence[Seen], guardrails: Sequence[Guardrail]) -> str | None:
    """Return which guardrail the treatment is shown to harm; None where none is."""
    for rail in guardrails:
        series = [seen.guardrails[rail.name] for seen in looks if rail.name in seen.guardrails]
        if not series or not series[-1][1].n:
            continue
        gate = harm_gate(_increments(series), effect=rail.harm, name=rail.name)
        if gate.passed and rail.ceiling is not None:
            gate = ceiling_gate(series[-1][1].n, series[-1][1].total, rail.ceiling, name=rail.name)
        if not gate.passed:
            return gate.reason
    return None


def hold(looks: Sequence[Seen], began: datetime, crossed: Look | None, *, whole_weeks: bool) -> str | None:
    """Return why a verdict must wait: for the source, or for the week in which a line was crossed to end."""
    if looks[-1].hold is not None or crossed is None or not whole_weeks:
        return looks[-1].hold
    ends = end_of_week(began, _moment_of(looks, crossed))
    if looks[-1].at >= ends:
        return None
    return f"A line is crossed; the test ends with its week, on {ends:%Y-%m-%d}."


def _increments(series: Sequence[Sequence[ArmTotals]]) -> Counts:
    """Return what each look added to the cumulative totals of (control, treatment); a person forgotten adds nothing."""
    rows = [(0.0, 0.0, 0.0, 0.0), *((a.n, a.total, b.n, b.total) for a, b in series)]
    steps = [[max(0.0, after - before) for before, after in zip(*pair, strict=True)] for pair in pairwise(rows)]
    return Counts.of(*map(list, zip(*steps, strict=True)))


def _moment_of(looks: Sequence[Seen], crossed: Look) -> datetime:
    """Return when a look was taken; the loop knows it by its totals, which do not fall where a person was forgotten."""
    wanted = crossed.control.n + crossed.treatment.n
    return next((seen.at for seen in looks if seen.arms[0].n + seen.arms[1].n >= wanted), looks[-1].at)
