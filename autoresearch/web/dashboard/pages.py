"""From a run to the pieces of its page: what is said of it now, and the parts that the report has, too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow, Session, Totals
from autoresearch.core.progress import Progress
from autoresearch.core.readmodel import RunView
from autoresearch.core.words import clean, duration, money
from autoresearch.web.pictures import curves
from autoresearch.web.report import environment
from autoresearch.web.svg import crop

PHASES = {
    "prepare": "preparing",
    "propose": "waiting for a proposal",
    "check": "checking the proposal",
    "approve": "waiting for your approval",
    "observe": "measuring",
    "decide": "deciding",
    "keep": "writing it down",
    "revert": "writing it down",
    "record": "writing it down",
}
"""Node of the graph -> what a person reads."""

SLOW = ("progress", "kept", "tests", "added", "claims", "failed", "cost")
"""Fragments that take long at ten thousand experiments, in the order of the page."""

FAST = ("head", "steer", "now", "left", "table")
"""Fragments that are there at once."""


@dataclass(frozen=True, slots=True)
class Left:
    """What of one limit of the session is used.

    Attributes:
        name: Of what.
        words: How much is used and how much there is.
        share: Used over allowed, 0 to 1.
    """

    name: str
    words: str
    share: float


@dataclass(frozen=True, slots=True)
class Now:
    """The experiment in progress.

    Attributes:
        number: Its number; None while the session prepares.
        hypothesis: What it tries; empty before it is proposed.
        category: As proposed.
        doing: The phase in words, and what is being done in it.
        percent: How far the phase is; None where nobody says.
        began: When it began, in seconds since 1970.
        waits: Whether it waits for a person.
        diff: What it changes, where it waits.
        others: What goes on beside it, in other lanes or arms, each in a line.
        curve: The curve of the measurement beside the incumbent's; None without one.
        log: The end of what the candidate printed.
    """

    number: int | None
    hypothesis: str
    category: str
    doing: str
    percent: int | None
    began: float
    waits: bool
    diff: str
    others: tuple[str, ...]
    curve: Markup | None
    log: str


def rendered(template: str, **values: Any) -> Markup:
    """Return a template of the dashboard, filled; what it was filled with is escaped."""
    return Markup(environment().get_template(f"dashboard/{template}.html.j2").render(**values))


def now_of(view: RunView, progress: Progress | None, ledger: Ledger, log: str) -> Now | None:
    """Return what is in progress; None where no process is at work."""
    if view.status.state not in ("running", "paused"):
        return None
    row = view.in_flight
    known = progress or Progress(phase="observe", number=None if row is None else row.number, began=_since(row))
    # The row is in flight from its check on; between two experiments the note speaks of one that has ended.
    mine = row if row is not None and known.number in (None, row.number) else None
    waits = known.phase == "approve" and mine is not None and bool(mine.diff)
    doing = "paused" if view.status.state == "paused" else PHASES.get(known.phase, clean(known.phase))
    words = clean(known.words)
    return Now(
        number=known.number,
        hypothesis="" if mine is None else clean(mine.hypothesis),
        category="" if mine is None else clean(mine.category),
        doing=f"{doing}: {words}" if words and known.phase in ("prepare", "observe") else doing,
        percent=None if known.share is None else round(100 * min(max(known.share, 0.0), 1.0)),
        began=known.began,
        waits=waits,
        diff=clean(mine.diff, lines=True) if waits and mine is not None else "",
        others=tuple(_in_a_line(one) for one in view.going_on if one is not row),
        curve=_curve(view, known, ledger),
        log=log,
    )


def _in_a_line(row: Experiment) -> str:
    lane = f" ({clean(row.lane)})" if row.lane else ""
    return f"#{row.number}{lane} {crop(row.hypothesis, 110)}"


def _since(row: Experiment | None) -> float:
    return time.time() if row is None else row.started.timestamp()


def _curve(view: RunView, progress: Progress, ledger: Ledger) -> Markup | None:
    if len(progress.curve) < 2:
        return None
    return curves([("this candidate", progress.curve), ("the incumbent", _incumbent_curve(view, ledger))])


def _incumbent_curve(view: RunView, ledger: Ledger) -> tuple[tuple[float, float], ...]:
    """Return the curve of the first measurement of the experiment that the run stands on."""
    standing = next((row for row in reversed(view.experiments) if row.outcome == "kept"), None)
    rows: Sequence[MeasurementRow] = () if standing is None else ledger.measurements(standing.id)
    return next((points_of(row) for row in rows if row.curve and row.arm == "treatment"), ())


def points_of(row: MeasurementRow) -> tuple[tuple[float, float], ...]:
    """Return the curve of a measurement as (share of the budget, value)."""
    return tuple((float(share), float(value)) for share, value in row.curve)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a session has spent: the part of `left_of` that takes long, read once for each change of the ledger."""

    sessions: tuple[Session, ...]
    totals: Totals | None


def spent_of(view: RunView, ledger: Ledger) -> Spent:
    """Return the sessions that share the limits of the last one, and what they spent."""
    sessions = ledger.sessions(view.run.id)
    if not sessions or view.status.state not in ("running", "paused"):
        return Spent((), None)
    first = sessions[-1].first_number
    # The share of a first session is all there is; that of a later one must be counted.
    totals = view.totals if first <= 1 else ledger.totals(view.run.id, since_number=first)
    return Spent(tuple(one for one in sessions if one.first_number == first), totals)


def left_of(spent: Spent, now: datetime | None = None) -> tuple[Left, ...]:
    """Return what of each limit of the session is used, and what the rest will take at the pace so far."""
    if spent.totals is None:
        return ()
    session, totals, now = spent.sessions[-1], spent.totals, now or datetime.now(UTC)
    ended = (one for one in spent.sessions if one.ended is not None or one is session)
    seconds = sum(_seconds(one, now) for one in ended)
    found = []
    limits = session.limits
    if (most := limits.get("experiments")) is not None:
        rest = most - totals.experiments
        pace = totals.seconds / totals.experiments if totals.experiments else None
        words = f"{totals.experiments:,} of {most:,}"
        words += f", about {duration(pace * rest)} to go" if pace and rest > 0 else ""
        found.append(Left("experiments", words, _share(totals.experiments, most)))
    if (hours := limits.get("hours")) is not None:
        rest_seconds = max(0.0, hours * 3600 - seconds)
        found.append(Left("time", f"{duration(rest_seconds)} left of {hours:g} h", _share(seconds, hours * 3600)))
    if (usd := limits.get("max_usd")) is not None:
        words = f"{money(max(0.0, usd - totals.usd))} left of {money(usd)}"
        found.append(Left("money", words, _share(totals.usd, usd)))
    if (tokens := limits.get("max_tokens")) is not None:
        found.append(Left("tokens", f"{totals.tokens:,} of {tokens:,}", _share(totals.tokens, tokens)))
    if (samples := limits.get("max_samples")) is not None:
        found.append(Left("samples", f"{totals.measurements:,} of {samples:,}", _share(totals.measurements, samples)))
    return tuple(found)


def _seconds(session: Session, now: datetime) -> float:
    return max(0.0, ((session.ended or now) - session.started).total_seconds())


def _share(used: float, most: float) -> float:
    return min(1.0, used / most) if most > 0 else 1.0
