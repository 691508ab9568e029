"""What the loop costs beside proposing and measuring: `python -m benchmarks.overhead [--experiments 300]`.

Runs experiments whose proposal and measurement take no time and prints the milliseconds that an experiment costs, early
and late in the run, and how large the files become.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from autoresearch.core import (
    CostEstimate,
    Direction,
    Measurement,
    Metric,
    Proposal,
    ProposalRequest,
    RunContext,
    Scope,
    Split,
    Workspace,
)
from autoresearch.core.driver import Silent, run
from autoresearch.core.ledger import Experiment


class Number:
    """The artifact is a number, the metric the number."""

    metric = Metric("number", "", Direction.MINIMIZE, noise=0.5)
    scope = Scope(("number.txt",))

    def prepare(self, workspace: Workspace) -> None:
        """Nothing to prepare."""

    def measure(self, artifact: Path, *, seed: int, split: Split, run: RunContext) -> Measurement:
        """Read the number."""
        return Measurement(float((artifact / "number.txt").read_text()), seed, 0.0)


class Counting:
    """Proposes another number each time; every fifth is an improvement."""

    name = "counting"

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        """Cost nothing."""
        return CostEstimate(0.0, 0, 0.0, "counting")

    def propose(self, request: ProposalRequest) -> Proposal:
        """Propose the next number."""
        number = request.number
        value = 1000 - number if number % 5 == 0 else 2000 + number
        category = f"category {number % 7}"
        return Proposal(f"Try {value}", category, request.artifact.replace({"number.txt": str(value)}))


class Stopwatch(Silent):
    """Notes when each experiment ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[float, float]] = []
        self.note()

    def experiment_ended(self, experiment: Experiment) -> None:
        """Note the time."""
        self.note()

    def note(self) -> None:
        """Note wall-clock and processor seconds, those of git's processes included."""
        self.ended.append((time.perf_counter(), sum(os.times()[:4])))


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=300)
    parser.add_argument("--policy", default="bayes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "number.txt").write_text("1000")
        watch = Stopwatch()
        run(
            Number(),
            workspace=root,
            proposer=Counting(),
            policy=arguments.policy,
            experiments=arguments.experiments,
            reporter=watch,
        )
        costs = [
            (1000 * (after[0] - before[0]), 1000 * (after[1] - before[1]))
            for before, after in zip(watch.ended[1:], watch.ended[2:], strict=False)
        ]
        fifth = max(1, len(costs) // 5)
        print(f"{len(costs)} experiments, policy {arguments.policy}; milliseconds an experiment")
        for name, part in (("first fifth", costs[:fifth]), ("last fifth", costs[-fifth:]), ("all", costs)):
            wall, cpu = zip(*part, strict=True)
            print(
                f"  {name:12} wall-clock median {statistics.median(wall):6.1f}, max {max(wall):6.1f};"
                f"   processor mean {statistics.mean(cpu):6.1f}"
            )
        for file in ("ledger.db", "checkpoints.db"):
            print(f"  {file:15} {(root / '.autoresearch' / file).stat().st_size / 1e6:7.2f} MB")


if __name__ == "__main__":
    main()
