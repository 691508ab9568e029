"""From the event log to totals per arm: each unit once, matured units only, and what must not be counted set aside.

Counting is incremental: a counter keeps what it has read (one row per exposed unit, one per conversion) and reads what
was appended since. A unit's first exposure is its beginning: a conversion counts when it comes within the window after
it, and a unit counts once its window has passed. Units seen in two arms are in neither and are reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.live import LiveTest
from autoresearch.core import ArmTotals, MetricKind

HOLDOUT_ARMS = ("holdout", "rest")
"""The two arms that the permanent holdout is counted with."""

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


@dataclass(frozen=True, slots=True)
class Count:
    """What the log says about one test and one goal at one moment.

    Attributes:
        arms: Totals of matured units, in the order of the arms.
        exposed: Units per arm so far, matured or not: what the split gate judges.
        crossed: Units seen in more than one arm; they are in neither.
        robots: Records flagged as sent by robots.
        forgotten: Exposed units that were erased since they were read.
        damaged: Records whose check did not hold, as a power cut leaves them.
        last: The latest exposure; None before the first.
    """

    arms: tuple[ArmTotals, ...]
    exposed: Mapping[str, int]
    crossed: int
    robots: int
    forgotten: int
    damaged: int
    last: datetime | None


@dataclass(slots=True)
class _Units:
    """Exposed units, sorted by key: first exposure, lowest and highest arm that met them. Grows by merging."""

    unit: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))
    first: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    low: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    high: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    waiting: list[tuple[NDArray[Any], ...]] = field(default_factory=list)
    n_waiting: int = 0

    def add(self, records: events.Records) -> None:
        """Take in exposures; merging waits until it pays, so that each row is merged a logarithmic number of times."""
        self.waiting.append((records["unit"].copy(), records["time"].copy(), records["arm"].copy()))
        self.n_waiting += len(records)
        if self.n_waiting > max(1 << 20, len(self.unit)):
            self.merge()

    def merge(self) -> None:
        """Bring everything that waits into the sorted arrays."""
        if not self.n_waiting:
            return
        unit = np.concatenate([self.unit, *(row[0] for row in self.waiting)])
        first = np.concatenate([self.first, *(row[1] for row in self.waiting)])
        low = np.concatenate([self.low, *(row[2] for row in self.waiting)])
        high = np.concatenate([self.high, *(row[2] for row in self.waiting)])
        self.waiting, self.n_waiting = [], 0
        order = np.argsort(unit)
        unit = unit[order]
        starts = np.flatnonzero(np.concatenate([[True], unit[1:] != unit[:-1]]))
        self.unit = unit[starts]
        self.first = np.minimum.reduceat(first[order], starts)
        self.low = np.minimum.reduceat(low[order], starts)
        self.high = np.maximum.reduceat(high[order], starts)


@dataclass(slots=True)
class _Conversions:
    """Conversions of one goal; those that carry a message id are kept once."""

    rows: tuple[NDArray[Any], ...] = field(
        default_factory=lambda: (np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.uint64))
    )
    waiting: list[tuple[NDArray[Any], ...]] = field(default_factory=list)

    def add(self, records: events.Records) -> None:
        """Take in conversions."""
        self.waiting.append(tuple(records[name].copy() for name in ("unit", "time", "value", "event")))

    def merged(self) -> tuple[NDArray[Any], ...]:
        """Return units, times, values and message ids, each message once: its earliest record."""
        if self.waiting:
            rows = [np.concatenate(column) for column in zip(self.rows, *self.waiting, strict=True)]
            self.waiting = []
            order = np.lexsort((rows[1], rows[3]))
            event = rows[3][order]
            fresh = np.concatenate([[True], event[1:] != event[:-1]]) | (event == 0)
            rows = [column[order][fresh] for column in rows]
            # By unit, so that looking them up among the units walks through memory instead of jumping about.
            by_unit = np.argsort(rows[0])
            self.rows = tuple(column[by_unit] for column in rows)
        return self.rows


class Counter:
    """Counts one subject (a test, or a surface's holdout) and remembers what it has read.

    Args:
        folder: The event log.
        subject: Key of the exposures, see `events.key`.
        arms: Names by the number in the log.
        goals: Names of the goals that are counted.
        marks: Where reading begins, by segment; see `LiveTest.marks`.
    """

    def __init__(
        self,
        folder: Path,
        subject: int,
        arms: Sequence[str],
        goals: Sequence[str],
        marks: Mapping[str, int] | None = None,
    ) -> None:
        self.folder = folder
        self.arms = tuple(arms)
        self.goals = tuple(goals)
        self.n_read = 0
        self._subject = subject
        self._marks = dict(marks or {})
        self._units = _Units()
        self._conversions = {events.key(goal): _Conversions() for goal in goals}
        self._robots = 0
        self._damaged = 0

    def update(self) -> int:
        """Read what was appended since the last call and return how many records that were."""
        before = self.n_read
        for segment, mark, records in events.read(self.folder, self._marks):
            self._take(records)
            self._marks[segment] = mark
            self.n_read += len(records)
        return self.n_read - before

    def count(
        self, goal: str, *, now: datetime, window: timedelta | None, kind: MetricKind = MetricKind.PROPORTION
    ) -> Count:
        """Return the totals of one goal as they stand at `now`; call `update` before.

        Args:
            goal: One of `goals`.
            now: Units count whose window has passed by now.
            window: Time after the first exposure in which a conversion counts. None: units count at once and
                conversions whenever they come, which suits alarms and no decision on a lift.
            kind: PROPORTION counts a unit once however often it converts; MEAN and VALUE add its values up.
        """
        units = self._units
        units.merge()
        gone = np.array(sorted(events.forgotten(self.folder)), np.uint64)
        lost = np.isin(units.unit, gone) if len(gone) else np.zeros(len(units.unit), np.bool_)
        crossed = (units.low != units.high) & ~lost
        clean = ~crossed & ~lost
        matured = clean & (units.first <= _microseconds(now - (window or timedelta(0))))
        value = self._values(goal, _length(window), kind)
        width = len(self.arms)
        arm = units.low[matured]
        n = np.bincount(arm, minlength=width)
        total = np.bincount(arm, value[matured], width)
        total_sq = np.bincount(arm, value[matured] ** 2, width)
        exposed = np.bincount(units.low[clean], minlength=width)
        return Count(
            tuple(ArmTotals(a, int(n[i]), float(total[i]), float(total_sq[i])) for i, a in enumerate(self.arms)),
            {a: int(exposed[i]) for i, a in enumerate(self.arms)},
            int(crossed.sum()),
            self._robots,
            int(lost.sum()),
            self._damaged,
            _EPOCH + timedelta(microseconds=int(units.first.max())) if len(units.first) else None,
        )

    def _values(self, goal: str, window: int, kind: MetricKind) -> NDArray[np.float64]:
        """Return each unit's value, in the order of the units; 0 for those that did not convert in time."""
        units = self._units
        unit, time, value, _ = self._conversions[events.key(goal)].merged()
        if not len(units.unit):
            return np.empty(0)
        row = np.minimum(np.searchsorted(units.unit, unit), len(units.unit) - 1)
        delay = time - units.first[row]
        # Of an exposed unit and in time: all other conversions belong to nobody here.
        counts = (units.unit[row] == unit) & (delay >= 0) & (delay <= window)
        if kind is MetricKind.PROPORTION:
            result = np.zeros(len(units.unit))
            result[row[counts]] = 1.0
        else:
            result = np.bincount(row[counts], value[counts], len(units.unit)).astype(np.float64)
        return result

    def _take(self, records: events.Records) -> None:
        good = events.sound(records)
        self._damaged += len(records) - int(np.count_nonzero(good))
        kind, flags = records["kind"], records["flags"]
        robots = good & (flags & events.BOT != 0)
        self._robots += int(np.count_nonzero(robots))
        good &= ~robots
        # Few records are conversions of a goal, so their subject is looked at among the conversions only.
        exposed = np.flatnonzero(good & (kind == events.EXPOSURE))
        exposed = exposed[(records["subject"][exposed] == self._subject) & (records["arm"][exposed] < len(self.arms))]
        if len(exposed):
            self._units.add(records[exposed])
        converted = np.flatnonzero(good & (kind == events.CONVERSION))
        subject = records["subject"][converted]
        for goal, rows in self._conversions.items():
            mine = converted[subject == goal]
            if len(mine):
                rows.add(records[mine])


def counter_of(folder: Path, test: LiveTest, goals: Sequence[str]) -> Counter:
    """Return a counter of a live test; keep it, for it reads the log once."""
    return Counter(folder, events.key(test.id), test.arms, goals, test.marks)


def holdout_counter(
    folder: Path, surface: str, goals: Sequence[str], marks: Mapping[str, int] | None = None
) -> Counter:
    """Return a counter that compares the permanent holdout, which sees the original, with everybody else.

    Args:
        folder: The event log.
        surface: Name of the surface.
        goals: Names of the goals that are counted.
        marks: Where reading begins: when what everybody sees last changed, so that the comparison is with the present.
    """
    return Counter(folder, holdout_key(surface), HOLDOUT_ARMS, goals, marks)


def holdout_key(surface: str) -> int:
    """Return the subject of a surface's holdout exposures; no test id begins like it."""
    return events.key(f"\0surface/{surface}")


class EventLog:
    """The log as the loop reads it: totals and guardrails of tests, counters kept between calls.

    Args:
        folder: The event log.
        goals: Primary goal first, then the guardrails.
    """

    def __init__(self, folder: Path, goals: Sequence[str]) -> None:
        self.folder = folder
        self.goals = tuple(goals)
        self._counters: dict[str, Counter] = {}

    def counter(self, test: LiveTest) -> Counter:
        """Return the test's counter, up to date."""
        if test.id not in self._counters:
            self._counters[test.id] = counter_of(self.folder, test, self.goals)
        self._counters[test.id].update()
        return self._counters[test.id]

    def drop(self, test: LiveTest) -> None:
        """Let go of what was read for a test that has ended."""
        self._counters.pop(test.id, None)


def totals(
    log: EventLog, test: LiveTest, now: datetime, window: timedelta, kind: MetricKind = MetricKind.PROPORTION
) -> Sequence[ArmTotals]:
    """Return the cumulative totals of a test's primary goal: matured units, each once."""
    return log.counter(test).count(log.goals[0], now=now, window=window, kind=kind).arms


def guardrails(
    log: EventLog, test: LiveTest, now: datetime, window: timedelta | None = None
) -> Mapping[str, Sequence[ArmTotals]]:
    """Return the totals of every guardrail by name, as proportions of exposed units."""
    counter = log.counter(test)
    return {goal: counter.count(goal, now=now, window=window).arms for goal in log.goals[1:]}


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _length(window: timedelta | None) -> int:
    return np.iinfo(np.int64).max if window is None else window // _MICROSECOND
