from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from autoresearch.adapters.marketing import events
from autoresearch.core import EnvironmentNotReadyError
from tests.adapters.marketing.filling import START, conversion, exposure, write


def everything(folder: Path) -> events.Records:
    return np.concatenate([np.empty(0, events.RECORD), *(records for _, _, records in events.read(folder, {}))])


def test_a_record_reads_back_as_it_was_packed(tmp_path: Path) -> None:
    """Every field survives, at the edges of its range too."""
    write(tmp_path, events.pack(2**64 - 1, -1, 2**64 - 2, kind=2, arm=255, value=-1.5, event=2**64 - 3, flags=1))
    (record,) = everything(tmp_path)
    assert record["unit"] == 2**64 - 1
    assert record["time"] == -1
    assert record["subject"] == 2**64 - 2
    assert (record["event"], record["value"]) == (2**64 - 3, -1.5)
    assert (record["arm"], record["kind"], record["flags"]) == (255, 2, 1)
    assert events.sound(everything(tmp_path)).all()


def test_every_flipped_byte_is_noticed() -> None:
    """A record with one changed byte, or all zeros, is not sound."""
    good = exposure("t", 7, START, 1)
    for place in range(len(good)):
        bad = bytearray(good)
        bad[place] ^= 0x40
        assert not events.sound(np.frombuffer(bytes(bad), events.RECORD)).any()
    assert not events.sound(np.zeros(1, events.RECORD)).any()


def test_writers_have_segments_of_their_own(tmp_path: Path) -> None:
    """Two workers never write to one file."""
    write(tmp_path, exposure("t", 1, START, 0))
    write(tmp_path, exposure("t", 2, START, 0))
    assert len(events.segments(tmp_path)) == 2
    assert sorted(everything(tmp_path)["unit"]) == [1, 2]


def test_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What was read is not read again, and half a record is left for later."""
    writer = events.EventWriter(tmp_path)
    writer.write(exposure("t", 1, START, 0))
    seen: dict[str, int] = {segment: mark for segment, mark, _ in events.read(tmp_path, {})}
    late = exposure("t", 2, START, 0)
    path = events.segments(tmp_path)[0]
    with path.open("ab") as file:
        file.write(late[:20])
    assert list(events.read(tmp_path, seen)) == []
    with path.open("ab") as file:
        file.write(late[20:])
    ((_, mark, records),) = events.read(tmp_path, seen)
    assert (mark, list(records["unit"])) == (96, [2])


def test_large_logs_are_read_in_pieces(tmp_path: Path) -> None:
    """Memory is bounded by the piece, not by the log."""
    write(tmp_path, b"".join(exposure("t", unit, START, 0) for unit in range(1, 11)))
    assert [len(records) for _, _, records in events.read(tmp_path, {}, chunk=4)] == [4, 4, 2]


def test_segments_rotate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that is large enough is closed and the next one begun."""
    monkeypatch.setattr(events, "SEGMENT_BYTES", 96)
    write(tmp_path, *(exposure("t", unit, START, 0) for unit in range(1, 6)))
    assert [path.stat().st_size for path in events.segments(tmp_path)] == [96, 96, 48]


def test_the_rate_is_bounded(tmp_path: Path) -> None:
    """After a minute's worth at once, no more than the stated number a second is taken."""
    now = 0.0
    writer = events.EventWriter(tmp_path, max_per_second=1, clock=lambda: now)
    record = exposure("t", 1, START, 0)
    writer.write(record * 60)
    with pytest.raises(events.LogFullError, match="1 events a second"):
        writer.write(record)
    now = 2.0
    writer.write(record * 2)
    with pytest.raises(events.LogFullError):
        writer.write(record)
    assert len(everything(tmp_path)) == 62


def test_the_size_is_bounded(tmp_path: Path) -> None:
    """The whole log counts, segments of other workers too."""
    write(tmp_path, exposure("t", 1, START, 0))
    writer = events.EventWriter(tmp_path, max_bytes=100)
    writer.write(exposure("t", 2, START, 0))
    with pytest.raises(events.LogFullError, match="limit"):
        writer.write(exposure("t", 3, START, 0))


@pytest.mark.parametrize("taken", [20, 48, 60])
def test_a_full_disk_is_an_error_and_tears_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int) -> None:
    """When the disk takes only a part, the caller hears of it and the next record begins a new segment."""
    writer = events.EventWriter(tmp_path)
    pair = exposure("t", 1, START, 0) + exposure("t", 2, START, 0)
    whole: Callable[[int, bytes], int] = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: whole(fd, data[:taken]))
        with pytest.raises(EnvironmentNotReadyError, match="it is full"):
            writer.write(pair)
    writer.write(exposure("t", 3, START, 0))
    assert sorted(everything(tmp_path)["unit"]) == ([3] if taken < 48 else [1, 3])


def test_forgetting_erases_in_place(tmp_path: Path) -> None:
    """Nothing of the unit is left in the log but a tombstone; all others stay where they are, in open segments too."""
    writer = events.EventWriter(tmp_path)
    for unit in (1, 2, 1, 3):
        writer.write(exposure("t", unit, START, 0))
    writer.write(conversion("signup", 2, START + timedelta(hours=1), 9.5, event=77))
    assert events.forget(tmp_path, [2]) == 2
    writer.write(exposure("t", 4, START, 0))
    records = everything(tmp_path)
    assert list(records["unit"]) == [1, 0, 1, 3, 0, 4]
    assert events.sound(records).all()
    assert not records["event"].any() and not records["value"].any()
    assert events.forgotten(tmp_path) == {2}


def test_keys_depend_on_salt_and_text() -> None:
    """The same person has another key under another salt, and no key is 0."""
    assert len({events.key("ann"), events.key("ann", "s"), events.key("ann", "t"), events.key("bob", "s")}) == 4
