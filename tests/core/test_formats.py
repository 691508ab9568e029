"""Tables for other tools."""

from __future__ import annotations

import csv
import io
import json

from autoresearch.core.formats import as_csv, as_jsonl, log_rows, results_tsv
from autoresearch.core.ledger import Experiment, MeasurementRow

ROWS = [
    Experiment(id=1, run_id="r", number=0, session_id=1, outcome="kept", hypothesis="As found.", value=1.5,
               kept_commit="a" * 40),
    Experiment(id=2, run_id="r", number=1, session_id=1, outcome="crashed", hypothesis="Two\nlines\tand a tab",
               candidate_commit="b" * 40),
    Experiment(id=3, run_id="r", number=2, session_id=1, outcome="inconclusive", hypothesis="=1+1", value=1.25,
               candidate_commit="c" * 40),
    Experiment(id=4, run_id="r", number=3, session_id=1, hypothesis="in flight"),
]  # fmt: skip
MEASURED = {1: [MeasurementRow(experiment_id=1, value=1.5, secondary={"peak_vram_mb": 2048.0})]}


def test_results_have_the_originals_columns() -> None:
    """keep, crash with zeros, discard for the rest; one line an experiment whatever the hypothesis holds."""
    assert results_tsv("val_bpb", ROWS, MEASURED).splitlines() == [
        "commit\tval_bpb\tmemory_gb\tstatus\tdescription",
        "aaaaaaa\t1.500000\t2.0\tkeep\tAs found.",
        "bbbbbbb\t0.000000\t0.0\tcrash\tTwo lines and a tab",
        "ccccccc\t1.250000\t0.0\tdiscard\t=1+1",
    ]


def test_what_was_not_measured_has_no_value_in_the_results() -> None:
    """An invalid candidate and the baseline of a live run have none; a 0 there would be the best value of all."""
    rows = [
        Experiment(id=1, run_id="r", number=0, session_id=1, outcome="kept", hypothesis="As found."),
        Experiment(id=2, run_id="r", number=1, session_id=1, outcome="invalid", hypothesis="Peeks."),
    ]
    assert [line.split("\t")[1] for line in results_tsv("val_bpb", rows, {}).splitlines()[1:]] == ["", ""]


def test_log_rows_have_the_documented_keys() -> None:
    """A crash has no value; experiments in flight are not listed."""
    rows = log_rows(ROWS)
    assert list(rows[0]) == ["number", "outcome", "category", "hypothesis", "value", "commit", "seconds"]
    assert [row["value"] for row in rows] == [1.5, None, 1.25]


def test_csv_cells_are_no_formulas() -> None:
    """A spreadsheet must not compute what a model wrote."""
    rows = list(csv.DictReader(io.StringIO(as_csv(ROWS))))
    assert rows[2]["hypothesis"] == "'=1+1" and rows[1]["value"] == ""


def test_jsonl_holds_every_measurement() -> None:
    """Each line is one experiment with its measurements."""
    lines = [json.loads(line) for line in as_jsonl(ROWS, MEASURED).splitlines()]
    assert len(lines) == 3 and lines[0]["measurements"][0]["secondary"] == {"peak_vram_mb": 2048.0}
