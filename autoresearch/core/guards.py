"""Guards: what a candidate must not make worse, however good it is; compared with the baseline's numbers.

With the baseline's and not the incumbent's: five per cent at every keep would add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from autoresearch.core.adapter import Guard
from autoresearch.core.decision import Decision, Verdict


def held(
    verdict: Verdict,
    guards: Sequence[Guard],
    baseline: Sequence[Mapping[str, float]],
    candidate: Sequence[Mapping[str, float]],
) -> Verdict:
    """Return the verdict, or a refusal where it would keep what breaks a guard.

    Args:
        verdict: What the policy says.
        guards: What is guarded.
        baseline: Secondary numbers of every measurement of the baseline.
        candidate: Likewise of the candidate.

    Raises:
        KeyError: If a measurement lacks a guarded number; the adapter promised it.
    """
    if verdict.decision is not Decision.KEEP:
        return verdict
    broken = [breach(guard, _mean(guard, baseline), _mean(guard, candidate)) for guard in guards]
    reasons = "; ".join(reason for reason in broken if reason is not None)
    return replace(verdict, decision=Decision.REVERT, reason=f"guard: {reasons}") if reasons else verdict


def breach(guard: Guard, baseline: float, value: float) -> str | None:
    """Return how a value breaks a guard, as `memory_mb +9 % (at most +5 %)`; None where it holds it."""
    limit = {
        "absolute": guard.limit,
        "difference": baseline + guard.limit,
        "relative": baseline + abs(baseline) * guard.limit,
    }[guard.kind]
    # What is exactly at the limit must not fail for the last digit of a sum.
    slack = 1e-9 * max(abs(limit), abs(value))
    if (value <= limit + slack) if guard.at_most else (value >= limit - slack):
        return None
    bound = "at most" if guard.at_most else "at least"
    if guard.kind == "relative" and baseline != 0:
        change = 100 * (value - baseline) / abs(baseline)
        return f"{guard.name} {change:+.3g} % ({bound} {100 * guard.limit:+.3g} %)"
    if guard.kind == "difference":
        return f"{guard.name} {value - baseline:+.4g} ({bound} {guard.limit:+.4g})"
    return f"{guard.name} {value:.6g} ({bound} {limit:.6g})"


def _mean(guard: Guard, measurements: Iterable[Mapping[str, float]]) -> float:
    values = [numbers[guard.name] for numbers in measurements]
    return sum(values) / len(values)
