"""The event log as Parquet, for other tools and for logs that have outgrown memory: DuckDB counts them from the disk.

    unit    INTEGER   number of the visitor in this file; the salted hash stays in the log
    time    BIGINT    microseconds since 1970 in UTC
    kind    TINYINT   1 exposure, 2 conversion
    arm     TINYINT   position of the arm; 0 for conversions
    value   DOUBLE    worth of a conversion

Rows are sorted by visitor and time.

Its totals follow from the same definition as `counting`, written a second time in another language: a test holds the
two against each other.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autoresearch.adapters.marketing import events
from autoresearch.core import ArmTotals, EnvironmentNotReadyError, MetricKind

if TYPE_CHECKING:
    import duckdb

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_LONGEST_US = 2**62
_SLICE = 1_000_000
"""Visitors that are counted at a time."""


def write_parquet(folder: Path, subject: int, goal: str, path: Path, *, marks: Mapping[str, int] | None = None) -> int:
    """Write the events of one test and one goal, without robots and forgotten persons; return how many there are.

    Args:
        folder: The event log.
        subject: Key of the test's exposures, see `events.key`.
        goal: Name of the conversion.
        path: The file to write.
        marks: Where reading begins, see `LiveTest.marks`.
    """
    goal_key = events.key(goal)
    gone = np.array(sorted(events.forgotten(folder)), np.uint64)
    kept = [np.empty(0, events.RECORD)]
    for _, _, records in events.read(folder, marks or {}):
        exposed = (records["kind"] == events.EXPOSURE) & (records["subject"] == subject)
        converted = (records["kind"] == events.CONVERSION) & (records["subject"] == goal_key)
        good = events.sound(records) & (records["flags"] & events.BOT == 0) & ~np.isin(records["unit"], gone)
        kept.append(records[good & (exposed | converted)])
    rows = _once(np.concatenate(kept))
    # Conversions of people who never saw the test are nobody's business here.
    seen = np.unique(rows["unit"][rows["kind"] == events.EXPOSURE])
    rows = rows[np.isin(rows["unit"], seen)]
    # One visitor's events lie together: grouping by visitor then takes half the time, and stays near the memory.
    rows = rows[np.lexsort((rows["time"], rows["unit"]))]
    columns = {
        "unit": np.searchsorted(seen, rows["unit"]).astype(np.int32),
        "time": rows["time"].astype(np.int64),
        "kind": rows["kind"].astype(np.int8),
        "arm": rows["arm"].astype(np.int8),
        "value": rows["value"].astype(np.float64),
    }
    with connect() as connection:
        connection.register("columns", columns)
        connection.execute(f"COPY (SELECT * FROM columns) TO '{_quoted(path)}' (FORMAT parquet, COMPRESSION zstd)")
    return len(rows)


def arm_totals(
    path: Path,
    arms: Sequence[str],
    *,
    now: datetime,
    window: timedelta | None,
    kind: MetricKind = MetricKind.PROPORTION,
    threads: int = 2,
    memory_mb: int = 1000,
) -> tuple[ArmTotals, ...]:
    """Return the totals per arm of matured units, each once, as `counting.Counter.count` does.

    Args:
        path: A file, or a glob of files whose unit numbers agree.
        arms: Names by number.
        now: Units count whose window has passed by now.
        window: Time after the first exposure in which a conversion counts; None: units count at once, for ever.
        kind: PROPORTION counts a unit once however often it converts; otherwise its values are added up.
        threads: Processor threads that DuckDB may use.
        memory_mb: Memory that DuckDB may use before it goes to the disk.
    """
    length = _LONGEST_US if window is None else window // timedelta(microseconds=1)
    latest = (now - _EPOCH) // timedelta(microseconds=1) - (0 if window is None else length)
    worth = "1.0" if kind is MetricKind.PROPORTION else "sum(value)"
    n, total, total_sq = ([0.0] * len(arms) for _ in range(3))
    with connect(threads, memory_mb) as connection:
        source = f"read_parquet('{_quoted(path)}')"
        highest = connection.execute(f"SELECT max(unit) FROM {source}").fetchall()[0][0]
        # A slice of visitors at a time: a file that is sorted by visitor is read once all the same, since its parts
        # say which visitors they hold, and the table of visitors stays small enough for the processor's caches.
        for start in range(0, 0 if highest is None else highest + 1, _SLICE):
            rows = connection.execute(f"""
                WITH event AS (SELECT * FROM {source} WHERE unit BETWEEN {start} AND {start + _SLICE - 1}),
                visitor AS MATERIALIZED (
                    SELECT unit, min(time) AS first, min(arm) AS arm, max(arm) AS other
                    FROM event WHERE kind = {events.EXPOSURE} GROUP BY unit
                ),
                gained AS (
                    SELECT unit, {worth} AS value
                    FROM event JOIN visitor USING (unit)
                    WHERE kind = {events.CONVERSION} AND time - first BETWEEN 0 AND {length}
                    GROUP BY unit
                )
                SELECT visitor.arm, count(*), coalesce(sum(value), 0), coalesce(sum(value * value), 0)
                FROM visitor LEFT JOIN gained USING (unit)
                WHERE visitor.arm = other AND first <= {latest}
                GROUP BY visitor.arm
            """).fetchall()
            for arm, *sums in rows:
                for target, value in zip((n, total, total_sq), sums, strict=True):
                    target[arm] += float(value)
    return tuple(ArmTotals(arm, int(n[i]), total[i], total_sq[i]) for i, arm in enumerate(arms))


def connect(threads: int = 2, memory_mb: int = 1000) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection in memory that keeps to a limit. Raises EnvironmentNotReadyError without DuckDB."""
    try:
        import duckdb
    except ImportError as error:
        raise EnvironmentNotReadyError(
            "Parquet needs the package duckdb, which is not installed.\n"
            "Install it: pip install 'autoresearch[marketing]'"
        ) from error
    # Rows need no order here, and keeping one costs memory.
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "memory_limit": f"{memory_mb}MB",
        "preserve_insertion_order": False,
        # What does not fit into memory goes there, and not into a folder `.tmp` wherever the command was given.
        "temp_directory": tempfile.gettempdir(),
    }
    connection = duckdb.connect(config=settings)
    connection.execute("SET enable_progress_bar = false")
    return connection


def _once(records: events.Records) -> events.Records:
    """Return the records with the earliest one of every message that came more than once."""
    ordered: events.Records = records[np.lexsort((records["time"], records["event"]))]
    event = ordered["event"]
    fresh = np.ones(len(event), np.bool_)
    fresh[1:] = (event[1:] != event[:-1]) | (event[1:] == 0)
    kept: events.Records = ordered[fresh]
    return kept


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
