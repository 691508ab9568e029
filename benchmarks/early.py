"""What early stopping saves and what it costs: `python -m benchmarks.early`.

Runs the loop with the real trainer (preset `cpu`) and without cutting, so that every curve is known to its end. Then
the shipped rule is applied to the recorded curves, candidate by candidate, knowing at each what the loop would have
known: what it would have cut, how much time that had saved, and whether any of it was kept in truth. So both sides have
the same proposals and the same luck, and the ratio does not depend on how busy the machine was. What a replay cannot
show is what a proposer would have thought of instead, had it not seen the values of the cut ones.

Two proposers: the offline search, which turns one knob by one step as a rule, and `bold`, which sets two knobs of the
incumbent anywhere within their bounds.

    python -m benchmarks.early --proposer bold --seconds 8 --experiments 30 --keep DIR   # and leave the run in DIR
    python -m benchmarks.early -w DIR              # replay the latest run of a workspace, measuring nothing
    python -m benchmarks.early -w DIR --schedules  # and let the rule judge trainings with other schedules

The last one measures to their end what is the danger for such a rule: trainings that do their work earlier or later
than the incumbent.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoresearch.adapters.ml_training import create_adapter
from autoresearch.adapters.ml_training.adapter import MlAdapter
from autoresearch.adapters.ml_training.presets import set_constants
from autoresearch.core import (
    CostEstimate,
    Knob,
    Measurement,
    Metric,
    Proposal,
    ProposalRequest,
    RunContext,
    Split,
    Workspace,
    memory,
)
from autoresearch.core.decision.early import CHANCE, EarlyRule
from autoresearch.core.driver import run
from autoresearch.core.ledger import Experiment, Ledger, MeasurementRow
from autoresearch.core.memory import metric_from_json
from autoresearch.core.proposers.knobs import find_knobs, turn_all
from autoresearch.core.store import Store
from autoresearch.core.workspace import Layout
from benchmarks.overhead import Stopwatch

SCHEDULES = (
    {"WARMDOWN": "0.1"},
    {"WARMDOWN": "0.3", "MATRIX_LR": "0.03"},
    {"WARMUP": "0.1"},
    {"WARMUP": "0.4"},
    {"WARMUP": "0.4", "WARMDOWN": "0.2"},
    {"MATRIX_LR": "0.06", "EMBEDDING_LR": "0.4"},
    {"TOTAL_BATCH": "8192"},
)
"""Settings of `train.py` that move the learning to an earlier or a later part of the budget."""


class Bold:
    """Sets two knobs anywhere within their bounds."""

    name = "bold"

    def estimate(self, request: ProposalRequest) -> CostEstimate:
        """Cost nothing."""
        return CostEstimate(0.0, 0, 0.0, "dice")

    def propose(self, request: ProposalRequest) -> Proposal:
        """Throw dice that depend on the number of the experiment and of the attempt alone."""
        dice = random.Random(f"bold {request.number} {len(request.refused)}")
        found = [knob for knob in find_knobs(request.artifact, request.knobs) if not knob.knob.frozen]
        chosen = dice.sample([knob for knob in found if knob.knob.choices or knob.knob.high], 2)
        turns = [(knob, thrown(knob.knob, dice)) for knob in chosen]
        text = " and ".join(f"{knob.name} {new}" for knob, new in turns)
        return Proposal(f"Set {text}", "bold", turn_all(request.artifact, turns))


def thrown(knob: Knob, dice: random.Random) -> str:
    """Return a value of a knob as source text."""
    if knob.choices:
        return dice.choice(knob.choices)
    assert knob.low is not None
    assert knob.high is not None
    low, high = knob.low, knob.high
    if knob.power_of_two:
        # The bounds are those of the largest machine; on a processor the upper ones leave a handful of steps.
        return str(1 << dice.randint(round(math.log2(low)), round(math.log2(min(high, 64 * low)))))
    if knob.log:
        value = math.exp(dice.uniform(math.log(low), math.log(high)))
        return str(round(value)) if low >= 1 else f"{value:.2g}"
    if float(low).is_integer():
        return str(dice.randint(int(low), int(min(high, 4 * low))))
    return f"{dice.uniform(low, high):.2g}"


@dataclass(frozen=True)
class Past:
    """A recorded run. Measurements are by experiment id."""

    experiments: Sequence[Experiment]
    measurements: dict[int, list[MeasurementRow]]
    metric: Metric
    budget_seconds: float | None

    @classmethod
    def read(cls, layout: Layout) -> Past:
        with Ledger.open(layout.ledger) as ledger:
            latest = ledger.latest_run()
            if latest is None:
                raise SystemExit(f"There is no run in {layout.root}.")
            rows = [row for row in ledger.experiments(latest.id) if row.outcome is not None]
            measurements = {row.id: ledger.measurements(row.id) for row in rows}
            return cls(rows, measurements, metric_from_json(latest.metric), latest.budget_seconds)

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
        if found is None or first is None:
            known.append(row)
            continue
        if row.outcome == "kept":
            known.append(row)  # the recorded run stood on it from here on; what is cut else teaches nothing later
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
    print(f"{len(rows)} experiments, {len(kept)} kept; cut where the chance is below {CHANCE:.0%}")
    for number, cut in cuts.items():
        row = next(row for row in rows if row.number == number)
        effect = "" if row.effect is None else f", effect in the end {row.effect:+.4f}"
        print(f"  {number:>3} cut at {cut.share:.0%}, {row.outcome}{effect}: {row.hypothesis[:70]}")
        print(f"      {cut.reason}")
    wrong = [number for number in cuts if number in kept]
    print(f"cut {len(cuts)} of {len(rows)}, of which {len(wrong)} were kept when measured to their end {wrong or ''}")
    before, after = 3600 * len(rows) / seconds, 3600 * len(rows) / (seconds - saved)
    print(f"experiments an hour: {before:.1f} without, {after:.1f} with early stopping, ratio {after / before:.3f}")


def record(layout: Layout, proposer: str, seconds: float, experiments: int) -> None:
    """Run the loop without cutting."""
    run(
        "ml",
        workspace=layout.root,
        proposer=Bold() if proposer == "bold" else proposer,
        experiments=experiments,
        budget_seconds=seconds,
        options={"preset": "cpu", "data": "sample"},
        early_stop=False,
        confirm=False,
        reporter=Stopwatch(),
    )


def print_schedules(past: Past, layout: Layout) -> None:
    """Measure the incumbent with other schedules to their end and print what the rule would have done to them.

    The incumbent itself is measured anew first, as the machine may be busier than it was: that curve is the one beside.
    """
    incumbent = memory.incumbent_of(past.experiments)
    assert incumbent is not None, "a run without a measured baseline has nothing to replay"
    adapter = create_adapter({"preset": "cpu", "data": "sample"})
    source = Store.open(layout.root).read(incumbent.kept_commit or "", adapter.scope.editable).files["train.py"]
    print("schedules: value against the incumbent, widest gap in parts of what the incumbent gained after a third")
    with tempfile.TemporaryDirectory() as folder:
        adapter.prepare(Workspace(Path(folder)))
        fresh = measured(adapter, source, past.budget_seconds, Path(folder) / "incumbent")
        past.measurements[incumbent.id] = [
            MeasurementRow(experiment_id=incumbent.id, value=fresh.value, seed=0, curve=[list(p) for p in fresh.curve])
        ]
        rule = past.rule(past.experiments)
        for number, constants in enumerate(SCHEDULES):
            text = set_constants(source, constants)
            found = measured(adapter, text, past.budget_seconds, Path(folder) / str(number))
            print(f"  {described(rule, found, fresh.value)}  {constants}", flush=True)


def measured(adapter: MlAdapter, source: str, seconds: float | None, root: Path) -> Measurement:
    """Measure a script to its end."""
    (root / "artifact").mkdir(parents=True)
    (root / "scratch").mkdir()
    (root / "artifact" / "train.py").write_text(source, encoding="utf-8")
    context = RunContext(root / "log", root / "scratch", budget_seconds=seconds)
    return adapter.measure(root / "artifact", seed=0, split=Split.SEARCH, run=context)


def described(rule: EarlyRule, run: Measurement, incumbent: float) -> str:
    """Return one line about a training that was measured to its end."""
    ends = range(1, len(run.curve) + 1)
    seen = [found for end in ends if (found := rule.outlook(run.curve[:end], run.seed)) is not None]
    widest = max(seen, key=lambda outlook: outlook.behind)
    lowest = min(outlook.chance for outlook in seen)
    cut = cut_of(rule, run.curve, run.seed)
    fate = "to its end" if cut is None else f"cut at {cut[0]:.0%}"
    gap = f"{widest.behind / widest.gained:5.2f} at {widest.share:.0%}"
    return f"{run.value - incumbent:+.4f}  {gap}, lowest chance {lowest:.1%}, {fate:>10}"


def main() -> None:
    """Record, replay, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proposer", choices=("search", "bold"), default="search")
    parser.add_argument("--seconds", type=float, default=8.0, help="CPU seconds of one training")
    parser.add_argument("--experiments", type=int, default=30)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="record into this folder, which must not exist yet")
    parser.add_argument("-w", "--workspace", type=Path, metavar="DIR", help="replay its latest run")
    parser.add_argument("--schedules", action="store_true", help="judge trainings with other schedules as well")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout((chosen.workspace or chosen.keep or Path(folder) / "workspace").resolve())
        if chosen.workspace is None:
            record(layout, chosen.proposer, chosen.seconds, chosen.experiments)
        past = Past.read(layout)
        print_replay(past)
        if chosen.schedules:
            print_schedules(past, layout)


if __name__ == "__main__":
    main()
