"""Moments that never go back, and the sleep of the machine: what wall clocks get wrong."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

SLEPT_SECONDS = 1.0
"""A machine that was asleep for longer than this disturbed what was being measured."""


def wall() -> datetime:
    """Return what the system's clock says, in UTC."""
    return datetime.now(UTC)


def steady_seconds() -> float:
    """Return seconds from an arbitrary beginning that go on while the machine sleeps and that nobody can set."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)  # there it counts sleep, unlike time.monotonic
    return time.monotonic()


def asleep_seconds() -> float:
    """Return how long the machine has slept since an arbitrary beginning; always 0 where the system does not tell.

    Linux and macOS have a clock that counts sleep and one that does not. On other systems a sleep is not seen.
    """
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC) - time.clock_gettime(time.CLOCK_UPTIME_RAW)
    return 0.0


def slept(before: float, after: float) -> str | None:
    """Return the sentence about a sleep between two readings of `asleep_seconds`; None where there was none."""
    seconds = after - before
    return f"the machine was asleep for {seconds:.0f} s in the middle of it" if seconds > SLEPT_SECONDS else None


class Moments:
    """A clock for time stamps: follows the system's clock forward, and where that is set back, counts on from before.

    Sequence numbers decide what came first, so that nothing hangs on this; but a duration must never be negative, nor a
    listing appear to run backwards.

    Args:
        since: The latest moment that is written down already; this clock begins no earlier.
    """

    def __init__(
        self,
        since: datetime | None = None,
        *,
        wall: Callable[[], datetime] = wall,
        steady: Callable[[], float] = steady_seconds,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._last = wall() if since is None else max(since, wall())
        self._at = steady()

    def now(self) -> datetime:
        """Return the moment, never before an earlier one."""
        at = self._steady()
        self._last = max(self._wall(), self._last + timedelta(seconds=at - self._at))
        self._at = at
        return self._last
