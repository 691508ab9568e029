"""What early stopping saves and what it costs: `python -m benchmarks.early [--seconds 8] [--experiments 40]`.

Runs the loop with the real trainer (preset `cpu`, offline search) and without cutting, so that every curve is known to
its end. Then the shipped rule is applied to the recorded curves, candidate by candidate, knowing at each what the loop
would have known: what it would have cut, how much time that had saved, and whether any of it was kept in truth. So both
sides have the same proposals and the same luck, and the ratio does not depend on how busy the machine was. What the
replay cannot show is what the search would have proposed instead, had it not seen the values of the cut ones.

Then the same for trainings whose schedule differs from the incumbent's, the danger for such a rule: they are measured
to their end against the baseline, and judged by the rule with everything that the run has taught.

    python -m benchmarks.early -w WORKSPACE    # replay the latest run of a workspace, measuring nothing
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoresearch.adapters.ml_training import create_adapter
from autoresearch.adapters.ml_training.presets import set_constants
from autoresearch.core import Measurement, Metric, RunContext, Split, Workspace, memory
from autoresearch.core.decision.early import CATCH_UP, CHANCE, EarlyRule, Outlook
from autoresearch.core.driver import run
from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow
from autoresearch.core.memory import metric_from_json
from autoresearch.core.workspace import Layout
from benchmarks.overhead import Stopwatch

SCHEDULES = (
    {"WARMDOWN": "0.1"},
    {"WARMDOWN": "0.2"},
    {"WARMDOWN": "0.3", "MATRIX_LR": "0.03"},
    {"WARMDOWN": "1.0"},
    {"WARMUP": "0.1"},
    {"WARMUP": "0.4"},
    {"WARMUP": "0.4", "WARMDOWN": "0.2"},
    {"MATRIX_LR": "0.06", "EMBEDDING_LR": "0.4"},
    {"TOTAL_BATCH": "8192"},
    {"TOTAL_BATCH": "2048"},
)
"""Settings of `train.py` that move the learning to an earlier or a later part of the budget."""


@dataclass(frozen=True)
class Past:
    """A recorded run. Measurements are by experiment id."""

    experiments: Sequence[Experiment]
    measurements: dict[int, list[MeasurementRow]]
    metric: Metric

    @classmethod
    def read(cls, layout: Layout) -> Past:
        with Ledger.open(layout.ledger) as ledger:
            latest = ledger.latest_run()
            if latest is None:
                raise SystemExit(f"There is no run in {layout.root}.")
            rows = [row for row in ledger.experiments(latest.id) if row.outcome is not None]
            return cls(rows, {row.id: ledger.measurements(row.id) for row in rows}, metric_from_json(latest.metric))

    def rule(self, known: Sequence[Experiment]) -> EarlyRule:
        return memory.early_rule(self.metric, known, {row.id: self.measurements[row.id] for row in known})

    def first(self, row: Experiment) -> MeasurementRow | None:
        runs = [run for run in memory.undisturbed(self.measurements[row.id]) if run.arm == "treatment"]
        return runs[0] if runs and runs[0].curve else None


@dataclass(frozen=True)
class Cut:
    """A measurement that the rule would have ended."""

    share: float
    reason: str
    saved_seconds: float


def cut_of(rule: EarlyRule, curve: Sequence[tuple[float, float]], seed: int) -> tuple[float, str] | None:
    """Return at which share of the budget the rule would have ended a training, and why; None if it would not."""
    for end in range(1, len(curve) + 1):
        reason = rule.judge(curve[:end], seed)
        if reason is not None:
            return curve[end - 1][0], reason
    return None


def replay(past: Past) -> dict[int, Cut]:
    """Return the experiments that the rule would have cut, by number."""
    known: list[Experiment] = []
    cuts: dict[int, Cut] = {}
    for row in past.experiments:
        first = past.first(row)
        found = None if first is None or row.number == 0 else cut_of(past.rule(known), points(first), first.seed)
        if found is None:
            known.append(row)  # what is cut teaches nothing later
            continue
        assert first is not None
        saved = (1 - found[0]) * first.secondary["training_wall_seconds"] + first.secondary["eval_seconds"]
        cuts[row.number] = Cut(*found, saved)
    return cuts


def points(row: MeasurementRow) -> list[tuple[float, float]]:
    return [(share, value) for share, value in row.curve]


def print_replay(past: Past) -> None:
    """Print what was cut, what it saved and what it cost."""
    cuts = replay(past)
    rows = [row for row in past.experiments if row.number > 0]
    seconds = sum(row.seconds for row in rows)
    saved = sum(cut.saved_seconds for cut in cuts.values())
    kept = [row.number for row in rows if row.outcome == "kept"]
    print(f"{len(rows)} experiments, {len(kept)} kept; cut when the chance is below {CHANCE:.0%}")
    for number, cut in cuts.items():
        row = next(row for row in rows if row.number == number)
        effect = "" if row.effect is None else f", in the end {row.effect:+.4f}"
        print(f"  {number:>3} cut at {cut.share:.0%}, {row.outcome}{effect}: {row.hypothesis[:70]}")
        print(f"      {cut.reason}")
    wrong = [number for number in cuts if number in kept]
    print(f"cut {len(cuts)} of {len(rows)}, of which {len(wrong)} were kept when measured to their end {wrong or ''}")
    without, with_it = 3600 * len(rows) / seconds, 3600 * len(rows) / (seconds - saved)
    print(
        f"experiments an hour: {without:.1f} without, {with_it:.1f} with early stopping, ratio {with_it / without:.3f}"
    )


def record(layout: Layout, seconds: float, experiments: int) -> None:
    """Run the loop without cutting."""
    run(
        "ml",
        workspace=layout.root,
        proposer="search",
        experiments=experiments,
        budget_seconds=seconds,
        options={"preset": "cpu", "data": "sample"},
        early_stop=False,
        confirm=False,
        reporter=Stopwatch(),
    )


def print_schedules(past: Past, seconds: float) -> None:
    """Measure trainings with other schedules to their end and print what the rule would have done to them."""
    baseline = [row for row in past.experiments if row.number == 0]
    lessons = [row for row in past.experiments if row.outcome != "kept" or row.number == 0]
    rule = past.rule(lessons)  # without later keeps the incumbent is the baseline
    adapter = create_adapter({"preset": "cpu", "data": "sample"})
    source = adapter.workspace_files()["train.py"]
    start = [run.value for run in memory.undisturbed(past.measurements[baseline[0].id])]
    print(
        f"schedules: gap to the baseline in the end, widest gap in parts of what it still gained (cut above {CATCH_UP})"
    )
    with tempfile.TemporaryDirectory() as folder:
        adapter.prepare(Workspace(Path(folder)))
        for number, constants in enumerate(SCHEDULES):
            root = Path(folder) / str(number)
            (root / "artifact").mkdir(parents=True)
            (root / "scratch").mkdir()
            (root / "artifact" / "train.py").write_text(set_constants(source, constants), encoding="utf-8")
            context = RunContext(root / "log", root / "scratch", budget_seconds=seconds)
            measured = adapter.measure(root / "artifact", seed=0, split=Split.SEARCH, run=context)
            print(f"  {described(rule, measured, sum(start) / len(start))}  {constants}", flush=True)


def described(rule: EarlyRule, measured: Measurement, baseline: float) -> str:
    """Return one line about a training that was measured to its end."""
    ends = range(1, len(measured.curve) + 1)
    seen = [found for end in ends if (found := rule.outlook(measured.curve[:end], measured.seed)) is not None]
    widest = max(seen, key=relative_gap)
    cut = cut_of(rule, measured.curve, measured.seed)
    fate = "to its end" if cut is None else f"cut at {cut[0]:.0%}"
    return f"{measured.value - baseline:+.4f}  {relative_gap(widest):5.2f} at {widest.share:.0%}  {fate:>10}"


def relative_gap(outlook: Outlook) -> float:
    return outlook.behind / outlook.remaining


def main() -> None:
    """Record, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="CPU seconds of one training")
    parser.add_argument("--experiments", type=int, default=40)
    parser.add_argument("-w", "--workspace", type=Path, help="replay its latest run and measure nothing")
    chosen = parser.parse_args()
    if chosen.workspace is not None:
        print_replay(Past.read(Layout(chosen.workspace.resolve())))
        return
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder) / "workspace")
        record(layout, chosen.seconds, chosen.experiments)
        past = Past.read(layout)
        print_replay(past)
        print_schedules(past, chosen.seconds)


if __name__ == "__main__":
    main()
