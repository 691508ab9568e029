"""How much val_bpb moves when nothing changes: the same seed again, other seeds, busy neighbours.

    python -m benchmarks.spread                         # 5 seeds, and the first one 3 times
    python -m benchmarks.spread --neighbours 2          # the same beside two programs that keep a processor busy each
    python -m benchmarks.spread --seconds 5 --seeds 3 --repeats 2

Every run is one full measurement of the template `train.py` with the `cpu` preset, as the loop takes it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoresearch.adapters.ml_training import create_adapter
from autoresearch.adapters.ml_training.adapter import MlAdapter
from autoresearch.core import Measurement, RunContext, Split, Workspace


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Keep `count` processors busy with programs that have nothing to do with the measurement."""
    spin = "x = list(range(1 << 18))\nwhile True:\n    x.sort(key=lambda v: (v * 7919) & 0x3ffff)"
    programs = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def measure_once(adapter: MlAdapter, artifact: Path, seed: int, seconds: float | None) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="spread-") as name:
        run = RunContext(log=Path(name) / "log", scratch=Path(name), budget_seconds=seconds)
        return adapter.measure(artifact, seed=seed, split=Split.SEARCH, run=run)


def show(measurement: Measurement) -> None:
    numbers = measurement.secondary
    print(
        f"seed {measurement.seed:<3} val_bpb {measurement.value:.4f}  steps {numbers['num_steps']:.0f}  "
        f"tokens/s {numbers['tokens_per_second']:,.0f}  own {numbers['own_cpu_share']:.0%}  "
        f"others {numbers['others_cpu_share']:.0%}  evaluation {numbers['eval_seconds']:.1f} s  "
        f"whole {measurement.seconds:.1f} s{'  DISTURBED' if measurement.disturbed else ''}",
        flush=True,
    )


def spread(values: list[float]) -> str:
    if len(values) < 2:
        return "one value only"
    return f"mean {statistics.mean(values):.4f}, standard deviation {statistics.stdev(values):.4f} of {len(values)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=None, help="budget; default: the preset's")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3, help="measurements with the first seed")
    parser.add_argument("--neighbours", type=int, default=0, help="busy programs beside the measurement")
    parser.add_argument("--data", default="sample")
    chosen = parser.parse_args()
    adapter = create_adapter({"preset": "cpu", "data": chosen.data})
    with tempfile.TemporaryDirectory(prefix="spread-") as name, busy_neighbours(chosen.neighbours):
        artifact = Path(name)
        (artifact / "train.py").write_text(adapter.workspace_files()["train.py"], encoding="utf-8")
        adapter.prepare(Workspace(artifact))
        runs = []
        for seed in [*range(chosen.seeds), *[0] * (chosen.repeats - 1)]:
            runs.append(measure_once(adapter, artifact, seed, chosen.seconds))
            show(runs[-1])
    print(f"across seeds: {spread([run.value for run in runs[: chosen.seeds]])}")
    print(f"same seed:    {spread([run.value for run in runs if run.seed == 0])}")


if __name__ == "__main__":
    main()
