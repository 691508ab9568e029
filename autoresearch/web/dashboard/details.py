"""One experiment with everything that is known of it, and two of them side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from autoresearch.core.adapter import MetricKind
from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow, ProposalRow
from autoresearch.core.readmodel import RunView
from autoresearch.core.words import clean, duration, effect, money, number, probability
from autoresearch.web.dashboard.pages import points_of
from autoresearch.web.dashboard.watched import tail_of
from autoresearch.web.pictures import curves, effect_bar
from autoresearch.web.report import effect_of, interval_of

MOST_DIFF = 200_000
"""Characters of a diff that a page shows."""

_NINETY = 1.645
"""Quantile of the normal distribution for an interval of 90 %."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table of measurements."""

    look: str
    arm: str
    seed: str
    value: str
    seconds: str
    note: str


@dataclass(frozen=True, slots=True)
class Detail:
    """One experiment, ready to be shown; every text is clean, and none is escaped yet."""

    number: int
    name: str
    hypothesis: str
    category: str
    outcome: str
    reason: str
    value: str
    effect: str
    interval: str
    bar: Markup | None
    facts: tuple[tuple[str, str], ...]
    measurements: tuple[Measured, ...]
    proposals: tuple[tuple[str, str, str, str], ...]
    curve: Markup | None
    diff: str
    cut: str
    log: str
    ends: tuple[float, ...]
    values: tuple[float, ...]
    points: tuple[tuple[float, float], ...]


def detail_of(row: Experiment, view: RunView, ledger: Ledger, log: str) -> Detail:
    """Return an experiment.

    Args:
        row: The experiment.
        view: Its run.
        ledger: Where measurements and proposals stand.
        log: The end of what it printed, where its folder is still there.
    """
    measurements = ledger.measurements(row.id)
    own = [one for one in measurements if one.arm == "treatment" and not one.disturbed]
    shown, interval = effect_of(row.effect, view), interval_of(row, view)
    points = next((points_of(one) for one in own if one.curve), ())
    diff = clean(row.diff, lines=True)
    return Detail(
        number=row.number,
        name="The baseline" if row.number == 0 else f"Experiment {row.number}",
        hypothesis=clean(row.hypothesis),
        category=clean(row.category),
        outcome="baseline" if row.number == 0 else row.outcome or "in progress",
        reason=clean(row.reason),
        value=number(row.value),
        effect=f"{shown} {clean(view.metric.unit)}".rstrip() if view.metric.kind is MetricKind.VALUE else shown,
        interval=interval,
        bar=_bar(row, shown, interval),
        facts=_facts(row),
        measurements=tuple(_measured(one) for one in measurements),
        proposals=_proposals(ledger.proposals(row.run_id, row.number)),
        curve=curves([(f"experiment {row.number}", points)]),
        diff=diff[:MOST_DIFF],
        cut=f"{len(diff) - MOST_DIFF:,} more characters" if len(diff) > MOST_DIFF else "",
        log=log or tail_of(row.log_tail),
        ends=_ends(row),
        values=tuple(one.value for one in own),
        points=points,
    )


def _ends(row: Experiment) -> tuple[float, ...]:
    """Return the effect, and behind it both ends of its interval where it has one; nothing without an effect."""
    if row.effect is None:
        return ()
    if row.effect_low is None or row.effect_high is None:
        return (row.effect,)
    return row.effect, row.effect_low, row.effect_high


def _bar(row: Experiment, shown: str, interval: str) -> Markup | None:
    if row.effect is None:
        return None
    ends = [abs(end) for end in (row.effect, row.effect_low, row.effect_high) if end is not None]
    words = f"effect {shown}{f', interval {interval}' if interval else ''}"
    return effect_bar(row.effect, row.effect_low, row.effect_high, max(ends) or 1.0, words)


def _facts(row: Experiment) -> tuple[tuple[str, str], ...]:
    ended = "" if row.ended is None else f" to {row.ended:%Y-%m-%d %H:%M:%S}"
    e_values = [(name, value) for name, value in (("win", row.e_win), ("lose", row.e_lose)) if value is not None]
    commits = [(name, sha) for name, sha in (("candidate", row.candidate_commit), ("kept", row.kept_commit)) if sha]
    pairs = [
        ("probability of being better", probability(row.p_better) if row.p_better is not None else ""),
        ("e-values", ", ".join(f"{name} {value:.3g}" for name, value in e_values)),
        ("changed", ", ".join(f"{one.get('knob')} {one.get('old')} → {one.get('new')}" for one in row.changes)),
        ("cost", f"{money(row.usd)}, {row.tokens:,} tokens, {duration(row.seconds)}"),
        ("time", f"{row.started:%Y-%m-%d %H:%M:%S}{ended} UTC"),
        ("phases", ", ".join(f"{phase} {duration(float(seconds))}" for phase, seconds in row.timings.items())),
        ("parent", "" if row.parent_number is None else f"experiment {row.parent_number}"),
        ("commits", ", ".join(f"{name} {sha[:10]}" for name, sha in commits)),
        ("proposer", f"{row.proposer}{f', repaired {row.repairs} times' if row.repairs else ''}"),
        ("lane", row.lane),
        ("sandbox", row.sandbox),
        ("evaluator", row.evaluator_fingerprint[:16]),
    ]
    return tuple((name, clean(words)) for name, words in pairs if words)


def _measured(row: MeasurementRow) -> Measured:
    notes = [f"repair {row.repair}"] if row.repair else []
    notes += [f"disturbed: {row.disturbed}"] if row.disturbed else []
    arm = "candidate" if row.arm == "treatment" else "incumbent"
    return Measured(
        str(row.look + 1), arm, str(row.seed), number(row.value), f"{row.seconds:.1f}", clean("; ".join(notes))
    )


def _proposals(rows: Sequence[ProposalRow]) -> tuple[tuple[str, str, str, str], ...]:
    """Return the calls of the proposer where there was more than the one that was taken."""
    if len(rows) < 2:
        return ()
    return tuple(
        (str(row.attempt + 1), row.status, money(row.usd), clean(row.reason or row.hypothesis)) for row in rows
    )


# ---- Two side by side


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two experiments and what lies between them.

    Attributes:
        first: One.
        second: The other.
        rows: (what, of the first, of the second).
        bars: Both effects with their intervals, on one scale; None where one has no effect.
        said: How the second differs from the first, in a sentence; empty where that cannot be said.
        noise: What the noise alone makes of such a difference, in another; empty where it is unknown.
        curve: Both curves; None without any.
    """

    first: Detail
    second: Detail
    rows: tuple[tuple[str, str, str], ...]
    bars: tuple[Markup, Markup] | None
    said: str
    noise: str
    curve: Markup | None


_COMPARED = ("probability of being better", "e-values", "changed", "cost", "parent", "proposer", "lane")


def comparison_of(first: Detail, second: Detail, view: RunView) -> Comparison:
    """Return two experiments side by side."""
    named = (
        ("outcome", "outcome"),
        ("value", "value"),
        ("effect", "effect"),
        ("interval of the effect", "interval"),
        ("category", "category"),
        ("reason", "reason"),
    )
    rows = [(name, getattr(first, field) or "-", getattr(second, field) or "-") for name, field in named]
    rows.insert(2, ("measurements", str(len(first.values)), str(len(second.values))))
    known = dict(second.facts)
    rows += [(name, words, known[name]) for name, words in first.facts if name in _COMPARED and name in known]
    drawn = curves([(f"experiment {one.number}", one.points) for one in (first, second) if one.points])
    said, noise = _difference(first, second, view)
    return Comparison(first, second, tuple(rows), _bars(first, second), said, noise, drawn)


def _bars(first: Detail, second: Detail) -> tuple[Markup, Markup] | None:
    """Return both effects drawn on one scale, for only then can they be compared by eye."""
    reach = max((abs(end) for one in (first, second) for end in one.ends), default=0.0) or 1.0
    if not first.ends or not second.ends:
        return None
    one, two = (_drawn(detail, reach) for detail in (first, second))
    return one, two


def _drawn(detail: Detail, reach: float) -> Markup:
    middle, *interval = detail.ends
    low, high = interval or (None, None)
    words = f"effect {detail.effect}{f', interval {detail.interval}' if detail.interval else ''}"
    return effect_bar(middle, low, high, reach, words)


def _difference(first: Detail, second: Detail, view: RunView) -> tuple[str, str]:
    """Return how much better the second is, and what the noise alone makes of such a difference."""
    if not first.values or not second.values:
        return "", ""
    means = [sum(one.values) / len(one.values) for one in (first, second)]
    better = view.metric.direction.sign * (means[1] - means[0])
    size = f"{effect(better)} {clean(view.metric.unit)}".rstrip()
    said = f"Experiment {second.number} measured {size} against experiment {first.number}, positive where better."
    if view.noise is None or not view.noise.sd:
        return said, ""
    half = _NINETY * view.noise.sd * math.sqrt(1 / len(first.values) + 1 / len(second.values))
    verdict = "may be noise" if abs(better) <= half else "is more than noise"
    return said, (
        f"This difference {verdict}: measured as often, two equal artifacts differ by up to {effect(half).lstrip('+')} "
        "nine times out of ten."
    )
