"""Gates: what must hold before any policy is asked, and cannot be argued with.

A broken split, a guardrail that is harmed, half a week: each makes a good-looking lift mean something else. The
functions here say so from numbers and times alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from autoresearch.core.adapter import ArmTotals, Direction
from autoresearch.core.decision import race_bernoulli

SPLIT_LEVEL = 1000.0
"""A split is broken when its e-value passes this: at most one sound test in a thousand is ever called so."""

HARM_ALPHA = 0.01
"""Chance of stopping for a harm that is none."""

WEEK = timedelta(days=7)

_CONCENTRATION = 100.0


@dataclass(frozen=True, slots=True)
class Gate:
    """What a gate says.

    Attributes:
        passed: Whether the test may go on and be judged.
        e: e-value against all being well; None for gates that need no statistics.
        reason: One sentence: what was found and what to do; empty where it passed.
    """

    passed: bool
    e: float | None = None
    reason: str = ""


def log_split_e(counts: Sequence[int], split: Sequence[float]) -> float:
    """Return the log e-value against "units were assigned to the arms with the shares `split`".

    The likelihood of the cumulative counts under shares drawn from a Dirichlet distribution around `split`, over that
    under `split`. Unit by unit it is a martingale where the split is sound, so it may be looked at any time.

    Args:
        counts: Units per arm so far.
        split: Intended shares, positive, summing to 1.

    Raises:
        ValueError: If counts are negative, or shares are not positive or do not sum to 1.

    Source: M. Lindon, A. Malek, "Anytime-valid inference for multinomial count data" (2022).
    """
    if len(counts) != len(split) or len(counts) < 2:
        raise ValueError(f"A split test needs one count and one share per arm, not {len(counts)} and {len(split)}.")
    if min(counts) < 0 or min(split) <= 0 or abs(math.fsum(split) - 1.0) > 1e-9:
        raise ValueError(f"Counts must not be negative and shares must be positive and sum to 1: {counts}, {split}.")
    total = sum(counts)
    log_e = math.lgamma(_CONCENTRATION) - math.lgamma(_CONCENTRATION + total)
    for count, share in zip(counts, split, strict=True):
        prior = _CONCENTRATION * share
        log_e += math.lgamma(prior + count) - math.lgamma(prior) - count * math.log(share)
    return log_e


def split_gate(
    totals: Sequence[ArmTotals], split: Mapping[str, float], level: float = SPLIT_LEVEL, *, earlier: float = 0.0
) -> Gate:
    """Say whether the arms have the shares of units that were intended; a broken split makes a test invalid.

    Args:
        totals: Cumulative units per arm.
        split: Intended share by arm.
        level: e-value at which the split counts as broken.
        earlier: Logarithm of the e-value that the test brings along from when more arms were shown.

    Raises:
        ValueError: If an arm is in one and not in the other.
    """
    counts = {arm.arm: arm.n for arm in totals}
    if counts.keys() != split.keys():
        raise ValueError(f"The split names the arms {sorted(split)}, and the totals {sorted(counts)}.")
    log_e = earlier + log_split_e(list(counts.values()), [split[arm] for arm in counts])
    e = math.exp(min(log_e, 690.0))
    if e <= level:
        return Gate(True, e)
    found = ", ".join(f"{arm} {n} ({n / max(sum(counts.values()), 1):.2%})" for arm, n in counts.items())
    meant = ", ".join(f"{arm} {split[arm]:.2%}" for arm in counts)
    return Gate(
        False,
        e,
        f"The split is broken: {found}, where {meant} was meant (e-value {e:.3g}). Units are lost or counted twice in "
        "one arm; mend the assignment or the counting and begin a new test, for no lift of this one can be believed.",
    )


def harm_gate(
    looks: race_bernoulli.Counts,
    *,
    effect: float,
    tolerated: float = 0.0,
    worse: Direction = Direction.MAXIMIZE,
    alpha: float = HARM_ALPHA,
    name: str = "the guardrail",
    prior: tuple[float, float] = race_bernoulli.PRIOR,
) -> Gate:
    """Say whether a guardrail proportion is shown to be harmed by the treatment.

    The e-process of the race with the harmful direction as the one to prove: null is "the harmful rate of the
    treatment is at most (1 + tolerated) times that of the control". A line once crossed stays crossed.

    Args:
        looks: Units and events of the guardrail per look, increments, shape (T,).
        effect: Relative harm, beyond the tolerated one, that must not be missed.
        tolerated: Relative harm that is accepted.
        worse: MAXIMIZE where more events are the harm (complaints), MINIMIZE where fewer are (purchases).
        alpha: Chance of calling harm where there is none, at most.
        name: Of the guardrail, for the reason.
        prior: Successes and failures that the pooled rate begins with.

    Raises:
        ValueError: If a number is out of its range.
    """
    if not (0.0 < alpha < 1.0 and effect > 0.0 and tolerated >= 0.0):
        raise ValueError(
            f"A harm gate needs 0 < alpha < 1, effect > 0 and tolerated >= 0, not {alpha}, {effect} and {tolerated}."
        )
    counts = looks if worse is Direction.MAXIMIZE else looks.exchanged()
    logs = race_bernoulli.log_win(counts, effect, prior, 1.0 + tolerated)
    highest = float(logs.max(initial=0.0))
    e = math.exp(min(highest, 690.0))
    if highest < -math.log(alpha):
        return Gate(True, e)
    limit = f" by more than the tolerated {tolerated:.3g}" if tolerated else ""
    return Gate(False, e, f"The treatment harms {name}{limit} (e-value {e:.3g}); the test ends without a keep.")


def ceiling_gate(
    n: float, events: float, ceiling: float, *, alpha: float = HARM_ALPHA, name: str = "the guardrail"
) -> Gate:
    """Say whether the treatment's rate of a guardrail is shown to lie above an absolute ceiling.

    The likelihood ratio of a mixture of rates above the ceiling against the ceiling itself. Under a lower rate it only
    shrinks, so it is an e-process for "at most the ceiling" and may be looked at any time.

    Args:
        n: Units of the treatment so far.
        events: Those of them with the event.
        ceiling: Rate that must not be passed, in (0, 1).
        alpha: Chance of calling a rate at the ceiling too high, at most.
        name: Of the guardrail, for the reason.

    Raises:
        ValueError: If a number is out of its range.
    """
    if not (0.0 < ceiling < 1.0 and 0.0 < alpha < 1.0 and 0.0 <= events <= n):
        raise ValueError(f"A ceiling needs 0 <= events <= n and rates within (0, 1), not {events} of {n}, {ceiling}.")
    logs = [
        events * math.log(rate / ceiling) + (n - events) * math.log((1.0 - rate) / (1.0 - ceiling))
        for rate in (ceiling + (1.0 - ceiling) * share for share in _ceiling_shares(ceiling))
    ]
    highest = max(logs)
    log_e = highest + math.log(math.fsum(math.exp(each - highest) for each in logs) / len(logs))
    e = math.exp(min(log_e, 690.0))
    if log_e < -math.log(alpha):
        return Gate(True, e)
    rate = events / n
    return Gate(
        False, e, f"{name} of the treatment is {rate:.2%}, above the ceiling of {ceiling:.2%} (e-value {e:.3g})."
    )


def _ceiling_shares(ceiling: float) -> tuple[float, ...]:
    """Return how far above the ceiling the mixture looks: half as much again, twice and four times, as shares of 1."""
    return tuple(min(times * ceiling, (1.0 - ceiling) / 2.0) / (1.0 - ceiling) for times in (0.5, 1.0, 3.0))


def end_of_week(started: datetime, moment: datetime) -> datetime:
    """Return when the week of a test ends that `moment` lies in; weekdays differ, so tests end with whole weeks.

    A moment at the very end of a week belongs to that week. At the start and before it, the first week is meant.

    Args:
        started: First exposure.
        moment: Any moment, in the same zone.
    """
    return started + max(1, math.ceil((moment - started) / WEEK)) * WEEK
