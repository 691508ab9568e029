"""A round trip through cities: `tour.py` prints an order, and what counts is the length of the way."""

import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from autoresearch import core


class TourAdapter:
    metric = core.Metric("tour_length", "km", core.Direction.MINIMIZE)
    scope = core.Scope(editable=("tour.py",))

    def prepare(self, workspace: core.Workspace) -> None: ...

    def measure(self, artifact: Path, *, seed: int, split: core.Split, run: core.RunContext) -> core.Measurement:
        began, rng = time.monotonic(), random.Random(split.value)
        cities = [(rng.uniform(0, 100), rng.uniform(0, 100)) for _ in range(40)]
        call, given, pipe = [sys.executable, "tour.py", str(seed)], json.dumps(cities), subprocess.PIPE
        try:
            with run.log.open("a") as log:  # ten seconds are the candidate's whole budget
                done = subprocess.run(call, cwd=artifact, input=given, stdout=pipe, stderr=log, text=True, timeout=10)
            tour = [cities[i] for i in json.loads(done.stdout)]
        except (subprocess.TimeoutExpired, ValueError, TypeError, IndexError) as error:
            raise core.CandidateError(f"tour.py printed no tour: {error}.") from error
        if sorted(tour) != sorted(cities):
            raise core.CandidateError("tour.py does not visit every city once.")
        length = sum(map(math.dist, tour, tour[1:] + tour[:1]))
        return core.Measurement(length, seed=seed, seconds=time.monotonic() - began)


def create_adapter(options: Mapping[str, str]) -> core.Adapter:
    return TourAdapter()
