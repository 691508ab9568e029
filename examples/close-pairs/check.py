"""Compare the grid with looking at every pair, on points where the answers are known; exit code 1 where they differ."""

from __future__ import annotations

import itertools
import math
import random
import sys

from pairs import count_pairs

rng = random.Random(1)
for count, radius in ((0, 0.1), (1, 0.1), (200, 0.02), (200, 0.1), (200, 0.7)):
    points = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(count)]
    expected = sum(math.dist(a, b) <= radius for a, b in itertools.combinations(points, 2))
    found = count_pairs(points, radius)
    if found != expected:
        sys.exit(f"{count} points, radius {radius}: {found} pairs instead of {expected}")
print("the answers are right")
