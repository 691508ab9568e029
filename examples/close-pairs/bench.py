"""Time the function on points drawn with a seed: the fastest of three calls, in milliseconds of processor time."""

from __future__ import annotations

import random
import sys
import time

from pairs import count_pairs

rng = random.Random(int(sys.argv[1]))
points = [(rng.random(), rng.random()) for _ in range(1500)]


def milliseconds() -> float:
    """Return the processor time of one call."""
    began = time.process_time()
    count_pairs(points, 0.02)
    return 1000 * (time.process_time() - began)


print(f"METRIC cpu_ms={min(milliseconds() for _ in range(3)):.3f}")
