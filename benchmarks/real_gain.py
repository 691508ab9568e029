"""Is the gain real? `python -m benchmarks.real_gain -w WORKSPACE [--seeds 5]`.

Measures the incumbent of a workspace's latest run anew against its baseline, with seeds that no decision ever saw, the
two interleaved, on the split that decisions are made on and on the holdout; prints what the run believed beside it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from pathlib import Path

from autoresearch.core import Adapter, RunContext, Split, Workspace, memory, registry
from autoresearch.core.ledger import Ledger
from autoresearch.core.readmodel import status_of
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout

FRESH_SEED = 10_000
"""Far above the seeds of any run, which count up from a small base."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-w", "--workspace", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    layout = Layout(arguments.workspace.resolve())
    with Ledger.open(layout.ledger) as ledger:
        run = ledger.latest_run()
        if run is None:
            raise SystemExit(f"There is no run in {layout.root}.")
        status = status_of(ledger, run, at_work=False)
        incumbent = memory.incumbent_of(ledger.experiments(run.id))
    adapter, _ = registry.create_adapter(run.adapter, run.options)
    assert isinstance(adapter, Adapter)
    assert incumbent is not None and incumbent.kept_commit is not None, "the baseline was never measured"
    adapter.prepare(Workspace(layout.root, run.options))
    store = Store.open(layout.root)
    commits = {"baseline": run.baseline_commit, "incumbent": incumbent.kept_commit}
    sign = adapter.metric.direction.sign
    print(f"{run.id}: {status.experiments} experiments, {status.kept} kept, believed gain {status.believed_gain:.4f}")
    for split in Split:
        values: dict[str, list[float]] = {name: [] for name in commits}
        for seed in range(FRESH_SEED, FRESH_SEED + arguments.seeds):
            for name, commit in commits.items():
                with tempfile.TemporaryDirectory() as folder:
                    root = Path(folder)
                    store.read(commit, adapter.scope.editable).write(root / "artifact")
                    (root / "scratch").mkdir()
                    context = RunContext(
                        root / "run.log", root / "scratch", budget_seconds=run.budget_seconds, device=run.device
                    )
                    measured = adapter.measure(root / "artifact", seed=seed, split=split, run=context)
                values[name].append(measured.value)
        gains = [sign * (b - a) for a, b in zip(values["baseline"], values["incumbent"], strict=True)]
        error = statistics.stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.nan
        for name, found in values.items():
            each = " ".join(f"{value:.4f}" for value in found)
            print(f"  {split.value:8} {name:10} mean {statistics.mean(found):.4f}   {each}")
        mean = statistics.mean(gains)
        print(f"  {split.value:8} real gain  {mean:.4f} ± {error:.4f} (standard error, {len(gains)} seeds)")


if __name__ == "__main__":
    main()
