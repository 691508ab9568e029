"""How long a report takes and how large it is: `python -m benchmarks.report [--experiments 1000 10000] [--keep DIR]`.

Fills a ledger with made-up experiments (every fortieth idea or so is better, by less and less; hypotheses and diffs as
long as a language model's) and prints, for each number of experiments, the seconds that `autoresearch report` spends
reading, gathering and writing HTML, the processor's seconds of the three together (which a busy machine does not
change), the size of the HTML and of the Markdown, and the most memory the process held.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from sqlmodel import Session as Transaction
from sqlmodel import col, create_engine, select

from autoresearch.core.adapter import Direction, Metric
from autoresearch.core.ledger import (
    Claim,
    Experiment,
    FreshMeasurement,
    Ledger,
    MeasurementRow,
    ProposalRow,
    Run,
    Session,
)
from autoresearch.core.memory import metric_as_json

NOISE = 0.002
BEGAN = datetime(2026, 1, 5, 22, 0, tzinfo=UTC)
METRIC = Metric("val_bpb", "bits per byte", Direction.MINIMIZE, noise=NOISE, min_effect=0.001)
CATEGORIES = ("optimizer", "schedule", "architecture", "initialization", "regularization", "data order", "numerics")
IDEAS = (
    "Raise the matrix learning rate from {a} to {b}, because the loss still falls steeply when the budget ends",
    "Warm the momentum up over the first {a} steps: early gradients point everywhere and should not be remembered",
    "Replace the squared ReLU by a gated unit of {b} channels, which spends the same time on fewer, better features",
    "Scale the residual of layer {a} by {b} at the start, so that the first updates reach the embedding",
    "Halve the batch to {a} tokens: more steps in the same time are worth more than quieter gradients here",
)
DIFF = """--- a/train.py
+++ b/train.py
@@ -{a},7 +{a},9 @@ def build_optimizer(model):
     matrices = [p for p in model.parameters() if p.ndim == 2]
-    return Muon(matrices, lr=0.02, momentum=0.95)
+    # Earlier runs ended while the loss still fell.
+    warmup = min(1.0, step / {a})
+    return Muon(matrices, lr=0.0{b}, momentum=0.85 + 0.1 * warmup)
     embeddings = model.wte.parameters()
"""


def fill(ledger: Path, experiments: int, *, seed: int = 1, run_id: str = "made-up") -> None:
    """Write a stopped run of made-up experiments into a new ledger, with claims about its kept steps."""
    with Ledger.open(ledger):
        pass
    engine = create_engine(f"sqlite:///{ledger}")
    with Transaction(engine) as transaction:
        transaction.add(_run(run_id, experiments))
        transaction.flush()
        session = Session(run_id=run_id, started=BEGAN, ended=BEGAN + timedelta(hours=9), reason="experiments")
        transaction.add(session)
        transaction.flush()
        transaction.add_all(_experiments(run_id, session.id, experiments, random.Random(seed)))
        transaction.flush()
        rows = list(transaction.exec(select(Experiment).order_by(col(Experiment.number))))
        transaction.add_all(_measurements(rows))
        transaction.add(FreshMeasurement(run_id=run_id, split="holdout", commit="0" * 40, seed=10_000, value=1.0))
        transaction.add_all(_claims(run_id, [row for row in rows if row.outcome == "kept" and row.number > 0]))
        transaction.commit()
    engine.dispose()


def _run(run_id: str, experiments: int) -> Run:
    return Run(
        id=run_id,
        adapter="made-up",
        metric=metric_as_json(METRIC),
        policy="bayes",
        proposer="claude",
        model="made-up-model",
        state="stopped",
        stop_reason=f"the limit of {experiments} experiments is reached",
        evaluator_fingerprint="0123456789abcdef0123",
        device="cpu",
        created=BEGAN,
        ended=BEGAN + timedelta(hours=9),
    )


def _experiments(run_id: str, session_id: int, count: int, dice: random.Random) -> list[Experiment]:
    """Return the baseline and `count` experiments; what is better is kept, with the luck of its measurement."""
    level = 1.0
    found = "The artifact as found"
    rows = [Experiment(run_id=run_id, session_id=session_id, number=0, hypothesis=found, outcome="kept", value=level)]
    rows[0].sequence = 1
    parent = 0
    for number in range(1, count + 1):
        row = Experiment(run_id=run_id, session_id=session_id, number=number, parent_number=parent)
        row.sequence, row.proposer, row.usd, row.tokens = number + 1, "claude", 0.012, 9_400
        _idea(row, dice)
        gain = dice.expovariate(1 / 0.006) / (1 + number / 150) if dice.random() < 0.06 else -dice.expovariate(1 / 0.02)
        _ended(row, gain, level, dice)
        if row.outcome == "kept":
            parent, level = number, level - gain
        row.started = BEGAN + timedelta(seconds=30 * number)
        row.ended = row.started + timedelta(seconds=28)
        rows.append(row)
    return rows


def _idea(row: Experiment, dice: random.Random) -> None:
    a, b = dice.randrange(10, 400), dice.randrange(10, 99)
    row.hypothesis = dice.choice(IDEAS).format(a=a, b=b) + "."
    row.category = dice.choice(CATEGORIES)
    row.diff = DIFF.format(a=a, b=b) * dice.choice((1, 1, 2, 4))
    row.seconds = dice.uniform(20.0, 30.0)
    row.fingerprint = f"{row.number:016x}"


def _ended(row: Experiment, gain: float, level: float, dice: random.Random) -> None:
    """Give an experiment its outcome: measured with noise, now and then crashed, invalid or undecided."""
    chance = dice.random()
    if chance < 0.05:
        row.outcome, row.reason = "crashed", "The candidate ended with exit code 1: CUDA out of memory."
    elif chance < 0.06:
        row.outcome, row.reason = "invalid", "The value 0.02 is impossible: the mask lets the model see its target."
    else:
        effect = gain + dice.gauss(0.0, NOISE)
        row.value, row.effect = level - effect, 0.8 * effect
        row.effect_low, row.effect_high = row.effect - 1.6 * NOISE, row.effect + 1.6 * NOISE
        row.p_better = min(max(0.5 + effect / (4 * NOISE), 0.002), 0.998)
        undecided = 0.5 <= row.p_better < 0.8
        row.outcome = "kept" if row.p_better >= 0.8 else "inconclusive" if undecided else "reverted"
        row.reason = f"Better with probability {row.p_better:.2f}; expected gain {row.effect:+.4f} bits per byte."
    row.candidate_commit = f"{row.number:040x}"
    row.kept_commit = row.candidate_commit if row.outcome == "kept" else None


def _measurements(rows: list[Experiment]) -> list[MeasurementRow]:
    found = [
        MeasurementRow(experiment_id=row.id, value=row.value, seed=0, seconds=row.seconds, secondary={"peak_mb": 900.0})
        for row in rows
        if row.value is not None
    ]
    return [*found, MeasurementRow(experiment_id=rows[0].id, look=1, seed=1, value=1.001, seconds=25.0)]


def _claims(run_id: str, kept: list[Experiment]) -> list[Claim]:
    """Return the claim about the incumbent and those about its largest steps, every second one confirmed."""
    steps = sorted(kept, key=lambda row: -(row.effect or 0.0))[:9]
    subjects = [("incumbent", kept[-1]), *((str(row.number), row) for row in steps)] if kept else []
    return [
        Claim(
            run_id=run_id, subject=subject, number=row.number, commit=row.kept_commit or "", against="0" * 40,
            share=0.05, alternative=1.0, e_value=200.0 if index % 2 == 0 else 3.0, level=0.01, seeds=5,
            raw=row.effect, shrunk=0.8 * (row.effect or 0.0), low=0.0004, high=0.03,
            outcome="confirmed" if index % 2 == 0 else "unconfirmed",
        )
        for index, (subject, row) in enumerate(subjects)
    ]  # fmt: skip


def spend_proposals(ledger: Path, run_id: str, rows: int) -> None:
    """Book the calls of the proposer, so that the cost of the run is not nothing."""
    engine = create_engine(f"sqlite:///{ledger}")
    with Transaction(engine) as transaction:
        transaction.add_all(
            ProposalRow(run_id=run_id, number=number, attempt=0, status="accepted", usd=0.012, tokens_in=9_000)
            for number in range(1, rows + 1)
        )
        transaction.commit()
    engine.dispose()


def main() -> None:
    """Print the table, and leave the reports where `--keep` says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--keep", type=Path, help="Folder for the reports.")
    arguments = parser.parse_args()
    print("experiments   read s   gather s   write s   processor s   HTML KB   Markdown KB   peak MB")
    for count in arguments.experiments:
        with tempfile.TemporaryDirectory() as folder:
            _measure(Path(folder) / "ledger.db", count, arguments.keep)


def _measure(path: Path, count: int, keep: Path | None) -> None:
    from autoresearch.core.readmodel import live_points, view_of
    from autoresearch.web.report import as_html, as_markdown, page_of

    fill(path, count)
    spend_proposals(path, "made-up", count)
    with Ledger.open(path) as ledger:
        began, times = time.process_time(), [time.perf_counter()]
        view = view_of(ledger, ledger.run("made-up"), at_work=False)
        times.append(time.perf_counter())
        page = page_of(view, now=BEGAN + timedelta(hours=10), points=lambda row: live_points(ledger, view, row))
        times.append(time.perf_counter())
        html = as_html(page)
        times.append(time.perf_counter())
        processor = time.process_time() - began
    markdown = as_markdown(page)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"report-{count}.html").write_text(html, encoding="utf-8")
        (keep / f"report-{count}.md").write_text(markdown, encoding="utf-8")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    read, gather, write = (later - earlier for earlier, later in pairwise(times))
    sizes = [len(text.encode()) / 1000 for text in (html, markdown)]
    seconds = f"{read:8.2f} {gather:10.2f} {write:9.2f} {processor:13.2f}"
    print(f"{count:11,} {seconds} {sizes[0]:9.0f} {sizes[1]:13.0f} {peak:9.0f}")


if __name__ == "__main__":
    main()
