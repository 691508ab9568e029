"""The event log: what people saw and did, appended before the reply that it belongs to is sent.

Every worker appends records of 48 bytes to a segment of its own, so that nobody waits for a lock and no record is torn
by another. `os.write` hands a record to the system before the reply goes out: it outlives the process, killed or not.
To outlive the machine it must be on the disk too, which `Durability` decides.

A record holds no text. Unit, test, goal and message are 64-bit hashes, the unit's under the campaign's salt; a person
is erased by overwriting records in place, which moves nothing that others have read already.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.core import EnvironmentNotReadyError

RECORD = np.dtype(
    [
        ("unit", "<u8"),  # salted hash of who; never 0 except where erased
        ("time", "<i8"),  # microseconds since 1970 in UTC, by the server's clock
        ("value", "<f8"),  # worth of a conversion; 0 where it has none
        ("subject", "<u8"),  # hash of the test (exposures) or of the goal (conversions)
        ("event", "<u8"),  # hash of the sender's message id: a repeated one counts once; 0 where there is none
        ("arm", "u1"),  # position in LiveTest.arms; 0 for conversions
        ("kind", "u1"),
        ("flags", "u1"),
        ("spare", "u1"),
        ("check", "<u4"),  # over all before it
    ]
)
"""One event, 48 bytes, little-endian."""

EXPOSURE, CONVERSION, ERASED = 1, 2, 3
BOT = 1
"""Flag: sent by a robot; recorded so that it can be reported, never counted."""

SEGMENT_BYTES = 256 * 2**20
SUFFIX = ".events"

_RECORD = struct.Struct("<QqdQQBBBBI")
_BITS = struct.Struct("<Q").unpack
_DOUBLE = struct.Struct("<d").pack
_MASK = 2**64 - 1
# Odd, with random upper halves: whatever changes in one field, in any bit, reaches the upper half of the sum.
_WEIGHTS = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0xD6E8FEB86659FD93,
    0xA0761D6478BD642F,
    0xE7037ED1A0B428DB,
    0x8EBC6AF09C88C6E3,
)
_START = 0x6A09E667F3BCC908
"""Not zero, so that a hole of zeros in a file, as a power cut leaves one, is no valid record."""

Records = NDArray[Any]


class Durability(Enum):
    """When a record is on the disk, not just with the system."""

    SECOND = "second"  # within a second, in the background: a power cut may take the last second
    ALWAYS = "always"  # before the reply, one sync for all records that wait: slower


class LogFullError(Exception):
    """The log grew faster, or larger, than allowed: what could not be written must not be counted."""


def key(text: str, salt: str = "") -> int:
    """Return the 64-bit name of a test, goal, unit or message: the start of SHA-256 over salt, NUL, text; never 0."""
    digest = hashlib.sha256(f"{salt}\0{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1


def pack(
    unit: int,
    time_us: int,
    subject: int,
    *,
    kind: int,
    arm: int = 0,
    value: float = 0.0,
    event: int = 0,
    flags: int = 0,
) -> bytes:
    """Return one record's 48 bytes."""
    value = value or 0.0  # minus zero has other bits
    bits = _BITS(_DOUBLE(value))[0] if value else 0
    small = arm | kind << 8 | flags << 16
    a, b, c, d, e, f = _WEIGHTS
    total = unit * a + (time_us & _MASK) * b + bits * c + subject * d + event * e + small * f + _START
    return _RECORD.pack(unit, time_us, value, subject, event, arm, kind, flags, 0, (total & _MASK) >> 32)


def checks(records: Records) -> NDArray[np.uint64]:
    """Return the check that belongs to each record, shape (n,); `pack` for many at once."""
    words = np.ascontiguousarray(records).view("<u8").reshape(-1, RECORD.itemsize // 8)
    total = words[:, 0] * np.uint64(_WEIGHTS[0])
    for column in range(1, 5):
        total += words[:, column] * np.uint64(_WEIGHTS[column])
    small = words[:, 5] & np.uint64(0xFFFFFFFF)
    small *= np.uint64(_WEIGHTS[5])
    total += small
    total += np.uint64(_START)
    total >>= np.uint64(32)
    return total


def sound(records: Records) -> NDArray[np.bool_]:
    """Say for each record whether its check holds; shape (n,)."""
    held: NDArray[np.bool_] = checks(records) == records["check"]
    return held


class EventWriter:
    """Appends records to a segment of its own. One per worker; not for use by several threads at once.

    Args:
        folder: The log.
        max_per_second: Records a second that are accepted in the long run; a minute's worth may come at once.
        max_bytes: Size of the whole log at which nothing more is accepted.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_per_second: float = 20_000.0,
        max_bytes: int = 50 * 10**9,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder = folder
        self.written = 0
        self._rate = max_per_second
        self._max_bytes = max_bytes
        self._clock = clock
        self._tokens = max_per_second * 60.0
        self._filled = clock()
        self._others = size(folder)
        self._fd = -1
        self._bytes = 0
        self._fd_lock = threading.Lock()
        self._open()

    def write(self, records: bytes) -> None:
        """Append one or more packed records with one system call; when this returns they outlive the process.

        Raises:
            LogFullError: If the log may not grow that fast or that large; nothing was written.
            EnvironmentNotReadyError: If the disk took less than all of it; what it took is no valid record, or whole.
        """
        n = len(records) // RECORD.itemsize
        self._spend(n, len(records))
        if self._fd < 0 or self._bytes >= SEGMENT_BYTES:
            self._reopen()
        try:
            done = os.write(self._fd, records)
        except OSError as error:
            raise _not_written(self.folder, error.strerror or str(error)) from error
        self._bytes += done
        if done != len(records):
            # Whatever came after half a record would be out of step, so the next one begins a new segment.
            self.close()
            raise _not_written(self.folder, "it is full")
        self.written += n

    def sync(self) -> None:
        """Return when everything written so far is on the disk; may be called by another thread."""
        with self._fd_lock:
            if self._fd >= 0:
                os.fdatasync(self._fd)

    def close(self) -> None:
        """Bring the segment to the disk and close it."""
        with self._fd_lock:
            if self._fd >= 0:
                descriptor, self._fd = self._fd, -1
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _spend(self, n: int, n_bytes: int) -> None:
        now = self._clock()
        self._tokens = min(self._rate * 60.0, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < n:
            # What is refused costs nothing, so that service comes back as soon as the flood ends.
            raise LogFullError(f"More than {self._rate:.0f} events a second for over a minute.")
        if self._others + self._bytes + n_bytes > self._max_bytes:
            raise LogFullError(f"The event log has reached its limit of {self._max_bytes / 1e9:.1f} GB.")
        self._tokens -= n

    def _open(self) -> None:
        name = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
        try:
            self._fd = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            folder = os.open(self.folder, os.O_RDONLY)
            try:
                os.fsync(folder)  # or the segment's name could be lost with the power, and its records with it
            finally:
                os.close(folder)
        except OSError as error:
            raise _not_written(self.folder, error.strerror or str(error)) from error
        self._bytes = 0

    def _reopen(self) -> None:
        try:
            self.close()
        except OSError as error:
            raise _not_written(self.folder, error.strerror or str(error)) from error
        self._others = size(self.folder)
        self._open()


def _not_written(folder: Path, why: str) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"The event log in {folder} cannot be written: {why}.\n"
        "Visitors see the control and are not counted until it can. Free some space or make the folder writable."
    )


def segments(folder: Path) -> list[Path]:
    """Return the log's segments, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def size(folder: Path) -> int:
    """Return the bytes of all segments."""
    return sum(path.stat().st_size for path in segments(folder))


def marks(folder: Path) -> dict[str, int]:
    """Return the whole records of every segment in bytes: what is written later lies behind these marks."""
    return {path.name: path.stat().st_size // RECORD.itemsize * RECORD.itemsize for path in segments(folder)}


def read(folder: Path, begun: Mapping[str, int], *, chunk: int = 1 << 19) -> Iterator[tuple[str, int, Records]]:
    """Yield what lies behind the marks as (segment, its new mark, records), at most `chunk` records at a time.

    A record that is not whole yet is left for the next call. The records are as they lie there: see `sound`.
    """
    for path in segments(folder):
        mark = begun.get(path.name, 0)
        whole = path.stat().st_size // RECORD.itemsize * RECORD.itemsize
        while mark < whole:
            n = min(chunk, (whole - mark) // RECORD.itemsize)
            records = np.fromfile(path, RECORD, n, offset=mark)
            mark += n * RECORD.itemsize
            yield path.name, mark, records


def forgotten(folder: Path) -> frozenset[int]:
    """Return the keys of the units that asked to be forgotten: their salted hashes, and nothing else of them."""
    try:
        lines = (folder / "forgotten").read_text(encoding="ascii").split()
    except FileNotFoundError:
        return frozenset()
    return frozenset(int(line, 16) for line in lines)


def forget(folder: Path, units: Collection[int]) -> int:
    """Forget units for good and return how many records that took; the order makes a kill in between harmless.

    A tombstone, the salted hash alone, comes first: servers stop counting the unit and readers drop it. Then its
    records are erased.
    """
    with (folder / "forgotten").open("a", encoding="ascii") as file:
        file.write("".join(f"{unit:016x}\n" for unit in sorted(units)))
        file.flush()
        os.fsync(file.fileno())
    return erase(folder, units)


def erase(folder: Path, units: Collection[int]) -> int:
    """Overwrite each record of the units where it lies, on the disk too, and return how many there were.

    Segments that are being written are no exception: writers append, and neither offsets nor other records change, so
    that nothing that writes or reads the log is disturbed.
    """
    wanted = np.array(sorted(units), np.uint64)
    blank = pack(0, 0, 0, kind=ERASED)
    erased = 0
    for path in segments(folder):
        with path.open("r+b", buffering=0) as file:
            for position in _positions(path, wanted):
                os.pwrite(file.fileno(), blank, position)
                erased += 1
            os.fsync(file.fileno())
    return erased


def _positions(path: Path, units: NDArray[np.uint64]) -> Iterator[int]:
    """Yield the offset of each record of the units in a segment."""
    mark = 0
    while len(records := np.fromfile(path, RECORD, 1 << 19, offset=mark)):
        for index in np.flatnonzero(np.isin(records["unit"], units)):
            yield mark + int(index) * RECORD.itemsize
        mark += len(records) * RECORD.itemsize
