"""What a sandbox level adds to a process: `python -m benchmarks.sandbox [--rounds 40]`.

Starts the same small process at every level that works here, one level after the other in each round, so that whatever
else the machine does meets all of them alike. Prints the median, the quartiles and the least of the wall-clock time,
the median of the differences to `limits` within a round, and the processor time that a level adds, which a busy machine
changes less. Leaves with 1 where a level adds more than 50 ms by that median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from autoresearch.core.executor import Limits, run_process
from autoresearch.core.sandbox import Confinement, Level, gpu_devices, probe

MOST_MS = 50.0


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    levels = [level for level in (Level.LIMITS, Level.LANDLOCK, Level.BUBBLEWRAP) if probe(level).works]
    with tempfile.TemporaryDirectory() as folder:
        for level in levels:
            once(level, Path(folder))  # files come from memory from now on
        taken = [{level: once(level, Path(folder)) for level in levels} for _ in range(rounds)]
    print(f"{'level':<12}{'median':>8}{'quartiles':>18}{'least':>8}{'added':>8}{'processor':>11}   ms, {rounds} rounds")
    worst = 0.0
    for level in levels:
        wall = [row[level][0] for row in taken]
        low, middle, high = statistics.quantiles(wall, n=4)
        added = statistics.median(row[level][0] - row[Level.LIMITS][0] for row in taken)
        cpu = statistics.mean(row[level][1] - row[Level.LIMITS][1] for row in taken)
        worst = max(worst, added)
        spread = f"{low:.1f} to {high:.1f}"
        print(f"{level.value:<12}{middle:>8.1f}{spread:>18}{min(wall):>8.1f}{added:>8.1f}{cpu:>11.1f}")
    return 1 if worst > MOST_MS else 0


def once(level: Level, folder: Path) -> tuple[float, float]:
    """Return the milliseconds of wall-clock and of processor time that one process takes from call to result."""
    argv = [sys.executable, "-I", "-S", "-c", "pass"]
    started, cpu = time.perf_counter(), sum(os.times()[:4])
    run_process(
        argv,
        cwd=folder,
        log=folder / "log",
        limits=Limits(60, disk_mb=100, memory_mb=1000),
        level=level,
        confinement=Confinement((), (folder,), gpu=bool(gpu_devices())),
    )
    return 1000 * (time.perf_counter() - started), 1000 * (sum(os.times()[:4]) - cpu)


if __name__ == "__main__":
    sys.exit(main())
