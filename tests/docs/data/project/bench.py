"""Prints the latency of the service in src/ under a load that seed and split draw."""

import argparse
import random

from pool import latency_ms

options = argparse.ArgumentParser()
options.add_argument("--seed", type=int, default=None)
options.add_argument("--data", default="search")
given = options.parse_args()
print(f"METRIC latency_ms={latency_ms(random.Random(f'{given.seed} {given.data}').gauss(0, 1)):.3f}")
print("METRIC memory_mb=64.0")
