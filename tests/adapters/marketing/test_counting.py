from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.counting import (
    Count,
    Counter,
    EventLog,
    counter_of,
    guardrails,
    holdout_counter,
    holdout_key,
    totals,
)
from autoresearch.core import MetricKind
from tests.adapters.marketing.filling import DAY, START, by_arm, conversion, exposure, micros, started, write

ARMS = ("control", "treatment")
HOUR = timedelta(hours=1)


def counted(folder: Path, *, now: timedelta = 10 * DAY, window: timedelta | None = DAY, **more: MetricKind) -> Count:
    counter = Counter(folder, events.key("t"), ARMS, ["signup"])
    counter.update()
    return counter.count("signup", now=START + now, window=window, **more)


def test_a_unit_counts_once(tmp_path: Path) -> None:
    """However often it looks and converts, from whichever worker."""
    write(tmp_path, exposure("t", 1, START, 1), exposure("t", 1, START + HOUR, 1))
    write(tmp_path, exposure("t", 1, START, 1), *(conversion("signup", 1, START + HOUR) for _ in range(3)))
    assert by_arm(counted(tmp_path).arms) == {"control": (0, 0.0), "treatment": (1, 1.0)}


def test_conversions_count_within_the_window_after_the_first_exposure(tmp_path: Path) -> None:
    """Not before the exposure, not after the window; a later exposure does not begin a new window."""
    write(
        tmp_path,
        *(exposure("t", unit, START, 0) for unit in (1, 2, 3, 4)),
        exposure("t", 3, START + 2 * DAY, 0),
        conversion("signup", 1, START - HOUR),
        conversion("signup", 2, START + DAY),
        conversion("signup", 3, START + 2 * DAY + HOUR),
        conversion("signup", 4, START + DAY + timedelta(microseconds=1)),
        conversion("signup", 5, START + HOUR),
    )
    assert by_arm(counted(tmp_path).arms)["control"] == (4, 1.0)


def test_units_wait_until_their_window_has_passed(tmp_path: Path) -> None:
    """An unripe unit counts neither as converted nor as not; the split gate sees it already."""
    write(
        tmp_path,
        exposure("t", 1, START, 0),
        exposure("t", 2, START + HOUR, 1),
        conversion("signup", 2, START + 2 * HOUR),
    )
    early = counted(tmp_path, now=DAY)
    assert by_arm(early.arms) == {"control": (1, 0.0), "treatment": (0, 0.0)}
    assert early.exposed == {"control": 1, "treatment": 1}
    assert by_arm(counted(tmp_path, now=DAY + HOUR).arms)["treatment"] == (1, 1.0)


def test_an_alarm_does_not_wait(tmp_path: Path) -> None:
    """Without a window units count at once, and events whenever they come."""
    write(tmp_path, exposure("t", 1, START, 1), conversion("signup", 1, START + 5 * DAY))
    assert by_arm(counted(tmp_path, now=timedelta(0), window=None).arms)["treatment"] == (1, 1.0)


def test_units_seen_in_both_arms_are_reported_and_in_neither(tmp_path: Path) -> None:
    """A crossed unit cannot say which arm moved it."""
    write(
        tmp_path,
        exposure("t", 1, START, 0),
        exposure("t", 1, START, 1),
        exposure("t", 2, START, 1),
        conversion("signup", 1, START + HOUR),
    )
    count = counted(tmp_path)
    assert count.crossed == 1
    assert by_arm(count.arms) == {"control": (0, 0.0), "treatment": (1, 0.0)}


def test_robots_are_flagged_and_never_counted(tmp_path: Path) -> None:
    """A record with the flag is reported, whatever else it says."""
    write(tmp_path, exposure("t", 1, START, 0, flags=events.BOT), exposure("t", 2, START, 0))
    count = counted(tmp_path)
    assert (count.robots, by_arm(count.arms)["control"]) == (1, (1, 0.0))


def test_the_forgotten_drop_out_of_what_was_read_already(tmp_path: Path) -> None:
    """A counter that has read a person lets go at the next count."""
    write(tmp_path, exposure("t", 1, START, 0), exposure("t", 2, START, 0), conversion("signup", 1, START))
    counter = Counter(tmp_path, events.key("t"), ARMS, ["signup"])
    counter.update()
    events.forget(tmp_path, [1])
    write(tmp_path, exposure("t", 1, START, 0))  # by a server that had not heard of it yet
    counter.update()
    count = counter.count("signup", now=START + 2 * DAY, window=DAY)
    assert (count.forgotten, by_arm(count.arms)["control"]) == (1, (1, 0.0))


def test_damaged_records_are_reported_and_skipped(tmp_path: Path) -> None:
    """A hole that a power cut left does not stop the counting of what follows."""
    write(tmp_path, exposure("t", 1, START, 0), bytes(48), exposure("t", 2, START, 0))
    count = counted(tmp_path)
    assert (count.damaged, by_arm(count.arms)["control"][0]) == (1, 2)


def test_values_are_summed_per_unit_and_messages_count_once(tmp_path: Path) -> None:
    """Revenue of 3 and 4 by one unit is one value of 7; a message sent twice is one message."""
    write(
        tmp_path,
        exposure("t", 1, START, 1),
        conversion("signup", 1, START + HOUR, 3.0, event=9),
        conversion("signup", 1, START + HOUR, 4.0),
    )
    write(tmp_path, conversion("signup", 1, START + 2 * HOUR, 3.0, event=9))
    arm = counted(tmp_path, kind=MetricKind.MEAN).arms[1]
    assert (arm.n, arm.total, arm.total_sq) == (1, 7.0, 49.0)


def test_other_tests_and_goals_do_not_count(tmp_path: Path) -> None:
    """Only the test asked for, and only the goal."""
    write(tmp_path, exposure("u", 1, START, 0), exposure("t", 2, START, 0), conversion("visit", 2, START))
    assert by_arm(counted(tmp_path).arms)["control"] == (1, 0.0)


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    """Cumulative totals cost what was appended, not what the log holds."""
    write(tmp_path, *(exposure("t", unit, START, unit % 2) for unit in range(1, 101)))
    counter = Counter(tmp_path, events.key("t"), ARMS, ["signup"])
    assert counter.update() == 100
    write(tmp_path, conversion("signup", 7, START + HOUR))
    assert counter.update() == 1
    assert by_arm(counter.count("signup", now=START + 2 * DAY, window=DAY).arms)["treatment"] == (50, 1.0)


def test_a_test_begins_at_its_marks(tmp_path: Path) -> None:
    """What was logged before a test began is not even read."""
    live, test = started(tmp_path)
    write(live.events, exposure(test.id, 1, START, 0))
    marked = counter_of(live.events, test, ["signup"])
    assert marked.update() == 1


def test_totals_and_guardrails_of_a_live_test(tmp_path: Path) -> None:
    """The loop gets the primary goal's totals and each guardrail's by name."""
    live, test = started(tmp_path)
    log = EventLog(live.events, ["signup", "unsubscribe"])
    write(
        live.events,
        exposure(test.id, 1, START, 0),
        exposure(test.id, 2, START, 1),
        conversion("signup", 2, START + HOUR),
        conversion("unsubscribe", 1, START + HOUR),
    )
    assert by_arm(totals(log, test, START + 2 * DAY, DAY)) == {"control": (1, 0.0), "treatment": (1, 1.0)}
    assert by_arm(guardrails(log, test, START + HOUR)["unsubscribe"]) == {"control": (1, 1.0), "treatment": (1, 0.0)}


def test_the_holdout_is_counted_against_the_rest(tmp_path: Path) -> None:
    """Original against whatever everybody else saw, over all tests."""
    for unit, arm in ((1, 0), (2, 1), (3, 1)):
        write(tmp_path, events.pack(unit, micros(START), holdout_key("page"), kind=events.EXPOSURE, arm=arm))
    counter = holdout_counter(tmp_path, "page", ["signup"])
    counter.update()
    assert counter.count("signup", now=START + 2 * DAY, window=DAY).exposed == {"holdout": 1, "rest": 2}


EVENTS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 60), st.sampled_from(["control", "treatment", "signup"])), max_size=40
)


def naive(rows: Sequence[tuple[int, int, str]], now: int, window: int) -> dict[str, tuple[int, float]]:
    """Count by the definition, one unit at a time."""
    result = {arm: [0, 0.0] for arm in ARMS}
    for unit in {row[0] for row in rows}:
        seen = [(hour, what) for who, hour, what in rows if who == unit]
        arms = {what for _, what in seen if what in ARMS}
        if len(arms) != 1:
            continue
        first = min(hour for hour, what in seen if what in ARMS)
        if first + window > now:
            continue
        (arm,) = arms
        result[arm][0] += 1
        result[arm][1] += any(what == "signup" and first <= hour <= first + window for hour, what in seen)
    return {arm: (int(n), float(total)) for arm, (n, total) in result.items()}


@given(rows=EVENTS, pieces=st.integers(1, 5), now=st.integers(0, 80), window=st.integers(0, 30))
def test_counting_equals_the_definition(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[int, int, str]],
    pieces: int,
    now: int,
    window: int,
) -> None:
    """Over any events, in any order, read in any number of pieces."""
    folder = tmp_path_factory.mktemp("log")
    counter = Counter(folder, events.key("t"), ARMS, ["signup"])
    for piece in range(pieces):
        records = [
            exposure("t", unit, START + hour * HOUR, ARMS.index(what))
            if what in ARMS
            else conversion(what, unit, START + hour * HOUR)
            for unit, hour, what in rows[piece::pieces]
        ]
        (folder / f"{piece}.events").write_bytes(b"".join(records))
        counter.update()
    count = counter.count("signup", now=START + now * HOUR, window=window * HOUR)
    assert by_arm(count.arms) == naive(rows, now, window)
