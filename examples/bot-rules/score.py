"""Score the rules on labelled user agents: how many bits of surprise a label is, and how many are taken wrongly.

Keeps are decided on all of one half of the list. Claims are judged on samples of the other half, drawn with a seed and
with replacement, so that they differ as two lists of that length would.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from pathlib import Path

from rules import points

parser = argparse.ArgumentParser()
parser.add_argument("--split", choices=("search", "holdout"), required=True)
parser.add_argument("--seed", type=int, required=True)
given = parser.parse_args()

lines = (Path(__file__).parent / "agents.tsv").read_text(encoding="utf-8").splitlines()
half = lines[0::2]
if given.split == "holdout":
    half = random.Random(given.seed).choices(lines[1::2], k=len(lines) // 2)
surprises: list[float] = []
wrong = {"program": 0, "person": 0}
for line in half:
    label, agent = line.split("\t")
    right = points(agent) if label == "program" else -points(agent)
    surprises.append(math.log2(1.0 + 2.0 ** min(-right, 1000.0)))
    wrong[label] += right <= 0
print(f"METRIC surprise={statistics.fmean(surprises):.5f}")
print(f"METRIC programs_missed={wrong['program']}")
print(f"METRIC people_refused={wrong['person']}")
