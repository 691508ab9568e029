"""When a run has had enough: limits, what was spent, and the sentence that says which limit was reached."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from autoresearch.core.adapter import Metric
from autoresearch.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Limits:
    """What one session may spend; None stands for no limit.

    A session begins with `run` and ends with one of these limits; a session that was killed or interrupted goes on
    with what it had left.

    Attributes:
        experiments: Finished experiments, the baseline not counted.
        hours: Wall-clock hours.
        max_usd: Dollars for proposals.
        max_tokens: Tokens for proposals.
        max_samples: Measurements for measured adapters, exposed units for live ones.
        target: Stop once the incumbent's believed value is this good.
        patience: Stop after this many experiments in a row without a keep.
    """

    experiments: int | None = None
    hours: float | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    max_samples: int | None = None
    target: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            if not math.isfinite(value):
                raise UsageError(f"The limit {field.name} must be a number, not {value}.")
            if value < 0 and field.name != "target":
                raise UsageError(f"The limit {field.name} must be zero or more, not {value}.")

    def as_json(self) -> dict[str, Any]:
        """Return the limits that are set."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Spent:
    """What the session used so far; `since_keep` counts experiments since the last keep."""

    experiments: int = 0
    seconds: float = 0.0
    usd: float = 0.0
    tokens: int = 0
    samples: int = 0
    since_keep: int = 0


def limit_reached(limits: Limits, spent: Spent, metric: Metric, incumbent_value: float | None) -> str | None:
    """Return the sentence that says which limit ends the session, or None while there is budget left."""
    if limits.experiments is not None and spent.experiments >= limits.experiments:
        return f"experiments: {spent.experiments} of {limits.experiments} done"
    if limits.hours is not None and spent.seconds >= limits.hours * 3600:
        return f"hours: {spent.seconds / 3600:.2f} of {limits.hours:g} used"
    if limits.max_usd is not None and spent.usd >= limits.max_usd:
        return f"max_usd: {spent.usd:.2f} of {limits.max_usd:.2f} dollars spent"
    if limits.max_tokens is not None and spent.tokens >= limits.max_tokens:
        return f"max_tokens: {spent.tokens} of {limits.max_tokens} used"
    if limits.max_samples is not None and spent.samples >= limits.max_samples:
        return f"max_samples: {spent.samples} of {limits.max_samples} taken"
    if limits.target is not None and incumbent_value is not None:
        sign = metric.direction.sign
        if sign * incumbent_value >= sign * limits.target:
            return f"target: {metric.name} {incumbent_value:.6g} reached {limits.target:g}"
    if limits.patience is not None and spent.since_keep >= limits.patience:
        return f"patience: {spent.since_keep} experiments in a row without a keep"
    return None
