"""How long a training may take, and how undisturbed it was; imports neither torch nor numpy.

On a shared processor wall-clock is the largest source of noise, so the CPU budget counts CPU seconds of the training
process on one torch thread. A GPU is not shared as a rule, and its budget counts seconds on the wall once the warm-up
steps (compilation) are over.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

import psutil

from autoresearch.adapters.ml_training.task import ClockKind

OVERRUN_SHARE: Final = 0.02
"""Share of the budget that a training may run over, for the step in flight when the budget ends."""
OVERRUN_SECONDS: Final = 0.5
"""The same in seconds, for short budgets."""
USUAL_SHARE: Final = 0.6
"""A training that got a smaller part than this of what the last ones got is disturbed."""
WARMUP_CEILING_SECONDS: Final = 600.0
"""The clock starts after so many seconds even if the warm-up steps are not over: warm-up is no free training."""


class Budget:
    """A clock that runs from the end of the warm-up.

    Args:
        seconds: Length of the training.
        clock: `cpu` counts CPU seconds of this process, all threads together; `wall` counts seconds on the wall.
        warmup_steps: Optimiser steps before the clock starts; with 0 it starts at once.
    """

    def __init__(self, seconds: float, *, clock: ClockKind, warmup_steps: int = 0) -> None:
        self.seconds = seconds
        self._now = time.process_time if clock == "cpu" else time.perf_counter
        self._warmup_left = warmup_steps
        self._opened = time.perf_counter()
        self._started: float | None = None
        if warmup_steps == 0:
            self.start()

    @property
    def running(self) -> bool:
        """Whether the clock has started."""
        return self._started is not None

    def start(self) -> None:
        """Start the clock; what was spent before does not count."""
        self._started = self._now()

    def step_done(self) -> bool:
        """Count one optimiser step; True when the warm-up ends with it and the clock should be started."""
        if self.running:
            return False
        self._warmup_left -= 1
        return self._warmup_left <= 0 or time.perf_counter() - self._opened > WARMUP_CEILING_SECONDS

    @property
    def spent(self) -> float:
        """Seconds used so far; 0 during the warm-up."""
        return 0.0 if self._started is None else self._now() - self._started

    @property
    def progress(self) -> float:
        """Share of the budget used, 0 to 1."""
        return min(1.0, self.spent / self.seconds)

    @property
    def overrun(self) -> bool:
        """Whether the training went on for clearly longer than allowed."""
        return self.spent > self.seconds + max(OVERRUN_SHARE * self.seconds, OVERRUN_SECONDS)


@dataclass(frozen=True, slots=True)
class LoadSample:
    """The machine's processors at one moment.

    Attributes:
        wall: Monotonic seconds.
        busy: CPU seconds that all programs together have used since the machine started, stolen ones included.
        own: CPU seconds of the watched process.
    """

    wall: float
    busy: float
    own: float

    @classmethod
    def take(cls, own: float) -> LoadSample:
        """Sample now; `own` are the watched process's CPU seconds."""
        times = psutil.cpu_times()
        # Guest time is contained in user time on Linux; waiting for a disk is idle time.
        names = ("user", "nice", "system", "irq", "softirq", "steal")
        return cls(time.monotonic(), sum(getattr(times, name, 0.0) for name in names), own)


@dataclass(frozen=True, slots=True)
class Load:
    """How the processors were shared between two samples.

    Attributes:
        own_share: CPU seconds of the watched process per second; 1.0 is one processor all the time.
        others_share: Share of all processors that other programs used, 0 to 1.
    """

    own_share: float
    others_share: float

    @classmethod
    def between(cls, before: LoadSample, after: LoadSample) -> Load:
        """Return the load between two samples; the kernel counts in ticks of 10 ms, so leave some time between them."""
        seconds = max(after.wall - before.wall, 1e-9)
        own = after.own - before.own
        others = (after.busy - before.busy - own) / (seconds * (psutil.cpu_count() or 1))
        return cls(own / seconds, min(1.0, max(0.0, others)))


class LoadJudge:
    """Says which trainings should not be judged, because they got less of a processor than the others did.

    With a whole processor or three quarters of it a training makes the same progress within its CPU seconds; with 40 %
    it made 7 % fewer steps in a trial and lost 0.010 bits per byte, three times the spread between seeds, as others ran
    through its caches. What counts is the difference to the trainings it is compared with: on a machine that is
    always busy, all lose alike. Two trainings in a row are called disturbed at most, then this is the usual load.

    Args:
        clock: The budget's clock; on the wall clock of a GPU the processor idles by nature, and nothing is said.
        min_cpu_share: Own CPU seconds per wall second below which a training is always disturbed; 0 accepts all.
    """

    def __init__(self, *, clock: ClockKind, min_cpu_share: float) -> None:
        self._clock = clock
        self._min_cpu_share = min_cpu_share
        self._last: deque[float] = deque(maxlen=3)

    def disturbance(self, load: Load) -> str | None:
        """Return why a training with this load should not be judged, and remember the load; None when all was well."""
        reason = self.so_far(load)
        self._last.append(load.own_share)
        return reason

    def so_far(self, load: Load) -> str | None:
        """Return why a training with this load, were it to end now, should not be judged."""
        usual = statistics.median(self._last) if len(self._last) == 3 else 0.0
        if self._clock != "cpu" or self._min_cpu_share == 0:
            return None
        had = (
            f"The training had a processor for {load.own_share:.0%} of the time "
            f"(other programs used {load.others_share:.0%} of all processors)"
        )
        if load.own_share < self._min_cpu_share:
            return f"{had}, and min_cpu_share is {self._min_cpu_share:.0%}."
        if load.own_share < USUAL_SHARE * usual:
            return f"{had}; the ones before it had one for {usual:.0%}."
        return None
