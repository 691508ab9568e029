"""`train.py` against a plain GPT with AdamW at equal CPU seconds, on the same text, tokenizer, clock and evaluator.

    python -m benchmarks.trainer                                # 20 CPU seconds, 2 seeds
    python -m benchmarks.trainer --seconds 60 --seeds 1
    python -m benchmarks.trainer --tune --seconds 20 --seeds 1  # the plain rows at several learning rates

Every run is one full measurement of the `cpu` preset, one torch thread, as the loop takes it; arms take turns, so that
a slow quarter of an hour on the machine falls on all of them. `train.py` has its default size at 20 seconds, a larger
one at longer budgets (SIZES). The plain GPT (`benchmarks/plain_gpt.py`) comes in the shape of the original's trainer as
it is scaled down (depth 4, width 128, context 256, 2,048 tokens a step), in a smaller one, and in about the shape that
`train.py` has at 20 seconds, each at the best of the learning rates and precisions that `--tune` tries.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from autoresearch.adapters.ml_training import create_adapter
from autoresearch.adapters.ml_training.adapter import MlAdapter
from autoresearch.adapters.ml_training.presets import set_constants
from autoresearch.core import Measurement, RunContext, Split, Workspace

PLAIN = Path(__file__).with_name("plain_gpt.py")
SHAPES = {
    "original's shape": {"DEPTH": "4", "WIDTH": "128", "CONTEXT": "256", "TOTAL_BATCH": "2048"},
    "small": {"DEPTH": "2", "WIDTH": "128", "CONTEXT": "128", "TOTAL_BATCH": "512"},
    "shape of train.py": {"DEPTH": "1", "WIDTH": "64", "HEADS": "1", "CONTEXT": "128", "TOTAL_BATCH": "2048"},
}
RATES = ("0.002", "0.004", "0.008")
CHOSEN = {"original's shape": ("0.004", True), "small": ("0.004", True), "shape of train.py": ("0.008", True)}
"""Shape -> learning rate and whether in bfloat16, the best that was found at 20 seconds (docs/trainer-log.md)."""

SIZES: dict[float, dict[str, str]] = {
    60.0: {"ASPECT": "128"},
    300.0: {"DEPTH": "2", "ASPECT": "128", "WINDOWS": '"SL"'},
}
"""CPU seconds -> settings of `train.py` for so long a budget; the default ones elsewhere."""

QUOTED = {20.0: 1.930, 60.0: 1.761, 300.0: 1.618}
"""CPU seconds -> bits per byte quoted for the original's own trainer, scaled down (two threads, wall-clock)."""


@dataclass(frozen=True)
class Arm:
    name: str
    source: str


@dataclass(frozen=True)
class Row:
    arm: Arm
    runs: tuple[Measurement, ...]

    @property
    def bits(self) -> float:
        return statistics.mean(run.value for run in self.runs)

    @property
    def spread(self) -> str:
        return f"{statistics.stdev(run.value for run in self.runs):.4f}" if len(self.runs) > 1 else "-"

    def mean(self, name: str) -> float:
        return statistics.mean(run.secondary[name] for run in self.runs)


def plain_arm(shape: str, rate: str, bf16: bool) -> Arm:
    constants = {**SHAPES[shape], "LR": rate, "BF16": str(bf16)}
    return Arm(f"plain GPT, {shape}, lr {rate}{', bf16' if bf16 else ''}", set_constants(PLAIN.read_text(), constants))


def compared_arms(adapter: MlAdapter, seconds: float) -> list[Arm]:
    size = SIZES.get(seconds, {})
    name = " ".join(["train.py", *(f"{name}={value}" for name, value in size.items())])
    ours = Arm(name, set_constants(adapter.workspace_files()["train.py"], size))
    return [ours, *(plain_arm(shape, *CHOSEN[shape]) for shape in SHAPES)]


def tuned_arms() -> list[Arm]:
    in_bfloat16 = [plain_arm(shape, rate, True) for shape in SHAPES for rate in RATES]
    return [*in_bfloat16, *(plain_arm(shape, RATES[1], False) for shape in SHAPES)]


def measure(adapter: MlAdapter, arm: Arm, seed: int, seconds: float) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="trainer-") as name:
        artifact, scratch = Path(name) / "artifact", Path(name) / "scratch"
        artifact.mkdir()
        scratch.mkdir()
        (artifact / "train.py").write_text(arm.source, encoding="utf-8")
        run = RunContext(log=Path(name) / "log", scratch=scratch, budget_seconds=seconds)
        return adapter.measure(artifact, seed=seed, split=Split.SEARCH, run=run)


def measure_all(adapter: MlAdapter, arms: list[Arm], seeds: Iterable[int], seconds: float) -> list[Row]:
    runs: dict[str, list[Measurement]] = {arm.name: [] for arm in arms}
    for seed in seeds:
        for arm in arms:
            runs[arm.name].append(measure(adapter, arm, seed, seconds))
            print(f"seed {seed}  {runs[arm.name][-1].value:.4f}  {arm.name}", flush=True)
    return [Row(arm, tuple(runs[arm.name])) for arm in arms]


def table(rows: list[Row], seconds: float) -> str:
    first = rows[0].bits
    lines = [
        f"val_bpb after {seconds:g} CPU seconds on one thread, {len(rows[0].runs)} seed(s); ratio to the first row",
        f"{'arm':<46}{'val_bpb':>9}{'ratio':>8}{'st.dev.':>9}{'tokens/s':>10}{'steps':>7}{'params':>9}",
    ]
    for row in rows:
        rate = row.mean("total_tokens_M") * 1e6 / row.mean("training_seconds")
        lines.append(
            f"{row.arm.name:<46}{row.bits:>9.4f}{row.bits / first:>8.3f}{row.spread:>9}{rate:>10,.0f}"
            f"{row.mean('num_steps'):>7.0f}{row.mean('num_params_M'):>8.2f}M"
        )
    if seconds in QUOTED:
        name = "quoted: original, 2 threads, wall-clock"
        lines.append(f"{name:<46}{QUOTED[seconds]:>9.4f}{QUOTED[seconds] / first:>8.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU seconds of one training")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tune", action="store_true", help="measure the plain GPT at several learning rates instead")
    chosen = parser.parse_args()
    adapter = create_adapter({"preset": "cpu", "data": "sample"})
    with tempfile.TemporaryDirectory(prefix="trainer-") as name:
        adapter.prepare(Workspace(Path(name)))
        arms = tuned_arms() if chosen.tune else compared_arms(adapter, chosen.seconds)
        print(table(measure_all(adapter, arms, range(chosen.seeds), chosen.seconds), chosen.seconds))


if __name__ == "__main__":
    main()
