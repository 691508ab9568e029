"""The total of all kept changes, told three ways: as the tests showed it, shrunk, and by the permanent holdout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.core import ArmTotals, Direction, Look, MetricKind, Outcome, UsageError

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.audience import Audience
    from autoresearch.core.ledger import Ledger, Run

_JUDGED = (Outcome.KEPT.value, Outcome.REVERTED.value, Outcome.INCONCLUSIVE.value)

_LABELS = {"simulated": "simulated", "replay": "replayed"}

_NO_HOLDOUT = ("counts", "replay")


@dataclass(frozen=True, slots=True)
class Totals:
    """Lifts over the original; positive is better.

    Attributes:
        run: Id of the run.
        kept: Number of kept changes.
        believed: Product of the kept tests' lifts as measured; optimistic, since winners are lucky ones. A change that
            a part of the people meets counts for that part, by the `reach` of its surface.
        shrunk: The same with the luck taken off each test by empirical Bayes over all tests of the run.
        holdout: Lift of everybody else over the permanent holdout since the last change; None where nobody converted.
        low: Lower end of the holdout's interval of 95 %; None where unbounded.
        high: Upper end.
        held_out: People in the holdout who are counted.
        truth: True lift of what is shown now, where the audience is made up; None among real people.
        label: What must be said of these numbers (`simulated`, `replayed`); empty where nothing.
        held_back: Whether the traffic source keeps a holdout at all: another tool and past people do not.
        others: Changes kept by other runs of the campaign: holdout and truth are over the original, and so over these.
    """

    run: str
    kept: int
    believed: float
    shrunk: float
    holdout: float | None
    low: float | None
    high: float | None
    held_out: int
    truth: float | None
    label: str
    held_back: bool = True
    others: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def totals_of(folder: Path, ledger: Ledger, run_id: str | None = None) -> Totals:
    """Return what the kept changes of a run are worth together.

    Args:
        folder: The campaign folder.
        ledger: Its ledger.
        run_id: Which run; None: the latest.

    Raises:
        UsageError: If there is no run.
    """
    from autoresearch.adapters.marketing.simulated import audience_of
    from autoresearch.core.history import History

    run = ledger.run(run_id) if run_id is not None else ledger.latest_run()
    if run is None:
        raise UsageError(f"No run has begun in {folder}.\nBegin one: autoresearch run -w {folder}")
    campaign = Campaign.load(folder)
    history = History(ledger, run.id).refresh()
    judged = [row for row in history.experiments if row.outcome in _JUDGED and history.looks.get(row.id)]
    logs = [log_lift(history.looks[row.id][-1], campaign.metric.direction) for row in judged]
    shrunk = shrunk_logs(logs)
    reach = {one.name: one.reach for one in campaign.surfaces}
    kept = [(index, reach.get(row.lane, 1.0)) for index, row in enumerate(judged) if row.outcome == Outcome.KEPT.value]
    simulated = audience_of(campaign)
    rest, held = _holdout(campaign, datetime.now(UTC) if simulated is None else simulated[1])
    lift, low, high = _interval(held, rest, campaign)
    return Totals(
        run=run.id,
        kept=len(kept),
        believed=math.prod(1.0 + share * math.expm1(logs[index][0]) for index, share in kept) - 1.0,
        shrunk=math.prod(1.0 + share * math.expm1(shrunk[index]) for index, share in kept) - 1.0,
        holdout=lift,
        low=low,
        high=high,
        held_out=int(held.n),
        truth=None if simulated is None else _truth(campaign, simulated[0]),
        label=_LABELS.get(campaign.traffic.source, ""),
        held_back=campaign.traffic.source not in _NO_HOLDOUT and campaign.traffic.holdout > 0.0,
        others=sum(_kept_in(ledger, other) for other in ledger.runs() if other.id != run.id),
    )


def _kept_in(ledger: Ledger, run: Run) -> int:
    """Return how many changes a run kept; what it began with is none."""
    return sum(row.outcome == Outcome.KEPT.value for row in ledger.experiments(run.id) if row.number > 0)


def _truth(campaign: Campaign, audience: Audience) -> float:
    """Return the true lift of what everybody is shown now, by the taste of the made-up audience."""
    from autoresearch.adapters.marketing.live import LiveFolder
    from autoresearch.adapters.marketing.simulated import true_rate
    from autoresearch.adapters.marketing.surfaces import PAGE

    shown = LiveFolder.of(campaign.folder).read().surfaces[PAGE]
    return true_rate(campaign, audience, shown.incumbent) / true_rate(campaign, audience, shown.original) - 1.0


def log_lift(look: Look, direction: Direction) -> tuple[float, float]:
    """Return the logarithm of treatment over control, positive where better, and its variance by the delta method.

    Half a conversion is added to each arm, so that an arm without any has a finite logarithm; where the metric is a
    mean, half of the arm's typical value, since a sum of money has no "one". A sum below nothing (refunds) counts as
    nothing.
    """
    arms = (look.control, look.treatment)
    typical = [arm.total_sq / arm.total if arm.total > 0.0 else 1.0 for arm in arms]
    totals = [max(arm.total, 0.0) + 0.5 * value for arm, value in zip(arms, typical, strict=True)]
    logs = [math.log(total / (arm.n + 1.0)) for arm, total in zip(arms, totals, strict=True)]
    variance = sum(value / total - 1.0 / (arm.n + 1.0) for arm, value, total in zip(arms, typical, totals, strict=True))
    return direction.sign * (logs[1] - logs[0]), max(variance, 1e-12)


def shrunk_logs(logs: Sequence[tuple[float, float]], iterations: int = 100) -> list[float]:
    """Return log lifts shrunk towards their common mean, all tests of a run together.

    True lifts are taken as normal, with mean and spread estimated by EM from every test, the reverted ones included:
    leaving those out would be the very selection that makes winners look too good.

    Args:
        logs: (log lift, its variance) of every test.
        iterations: EM steps.
    """
    if not logs:
        return []
    mean, spread = 0.0, max(math.fsum(log**2 for log, _ in logs) / len(logs), 1e-6)
    for _ in range(iterations):
        gains = [spread / (spread + variance) for _, variance in logs]
        posterior = [mean + gain * (log - mean) for gain, (log, _) in zip(gains, logs, strict=True)]
        left = [gain * variance for gain, (_, variance) in zip(gains, logs, strict=True)]
        mean = math.fsum(posterior) / len(logs)
        deviations = math.fsum((each - mean) ** 2 for each in posterior)
        spread = max((deviations + math.fsum(left)) / len(logs), 1e-9)
    return posterior


def _holdout(campaign: Campaign, now: datetime) -> tuple[ArmTotals, ArmTotals]:
    """Return the totals of everybody else and of the permanent holdout, since the last change of what is shown."""
    from autoresearch.adapters.marketing.counting import holdout_counter
    from autoresearch.adapters.marketing.email.settings import SURFACE
    from autoresearch.adapters.marketing.live import LiveFolder
    from autoresearch.adapters.marketing.served import last_change
    from autoresearch.adapters.marketing.surfaces import PAGE

    surface = SURFACE if campaign.traffic.source == "email" else PAGE
    folder = LiveFolder.of(campaign.folder)
    counter = holdout_counter(folder.events, surface, [campaign.goal.event], last_change(folder))
    counter.update()
    window = timedelta(days=campaign.traffic.maturity_days)
    count = counter.count(campaign.goal.event, now=now, window=window, kind=campaign.metric.kind)
    held, rest = count.arms
    return rest, held


def _interval(held: ArmTotals, rest: ArmTotals, campaign: Campaign) -> tuple[float | None, float | None, float | None]:
    """Return the lift of everybody else over the holdout and its interval, by the sequential race.

    The race's intervals may be looked at any time, as people will.
    """
    from autoresearch.core.decision import race_means
    from autoresearch.core.decision.race import MeanRace, ProportionRace, judge
    from autoresearch.core.decision.race_policy import counts_of

    if not held.total or not rest.total:
        return None, None, None
    control, treatment = (held, rest) if campaign.metric.direction is Direction.MAXIMIZE else (rest, held)
    look = Look(ArmTotals("control", *_sums(control)), ArmTotals("treatment", *_sums(treatment)))
    if campaign.metric.kind is MetricKind.PROPORTION:
        found = judge(ProportionRace(counts_of([look]), campaign.metric.min_effect), 0.025, 0.025)
    else:
        race = MeanRace([race_means.means_of(look.control, look.treatment)], campaign.metric.min_effect)
        found = judge(race, 0.025, 0.025)
    bounds = [bound if math.isfinite(bound) else None for bound in (found.low, found.high)]
    return treatment.mean / control.mean - 1.0, bounds[0], bounds[1]


def _sums(totals: ArmTotals) -> tuple[int, float, float]:
    return totals.n, totals.total, totals.total_sq


def others_in_words(others: int) -> str:
    """Return what must be said of holdout and truth where other runs of the campaign kept changes too."""
    kept = "change that another run kept counts" if others == 1 else f"{others} changes that other runs kept count"
    return f"Holdout and truth are over the first original: the {kept} there, and not in the two lines above them."


def _bound(bound: float | None) -> str:
    """Return a bound as people read it: beyond tenfold it says only that little is known."""
    if bound is None:
        return "?"
    return "more than tenfold" if bound > 9.0 else f"{bound:+.1%}"


def in_words(found: Totals) -> str:
    """Return the totals as a small table with its reading."""
    mark = f" ({found.label})" if found.label else ""
    changes = "change" if found.kept == 1 else "changes"
    lines = [f"{found.kept} kept {changes} of run {found.run}{mark}, together over the original:", ""]
    lines.append(f"  as tested   {found.believed:+.1%}   optimistic: winners are lucky ones")
    lines.append(f"  shrunk      {found.shrunk:+.1%}   the luck taken off, by all tests of the run")
    if not found.held_back:
        lines.append("  holdout     none: nobody is held back from this traffic")
    elif found.holdout is None:
        people = (
            f"of {found.held_out:,} people in it too few have converted" if found.held_out else "nobody was counted yet"
        )
        lines.append(f"  holdout     not known yet: since the last change {people}")
    else:
        low, high = (_bound(bound) for bound in (found.low, found.high))
        lines.append(
            f"  holdout     {found.holdout:+.1%}   95 % from {low} to {high}; the original was seen by "
            f"{found.held_out:,} people since the last change"
        )
    if found.truth is not None:
        lines.append(f"  truth       {found.truth:+.1%}   known, because these people are made up")
    if found.others and (found.held_back or found.truth is not None):
        lines += ["", others_in_words(found.others)]
    return "\n".join(lines) + "\n"
