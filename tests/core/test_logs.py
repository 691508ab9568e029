"""Reading what keep-or-revert loops wrote, ours and other tools'."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from autoresearch.core.adapter import Direction, Outcome
from autoresearch.core.errors import UsageError
from autoresearch.core.formats import as_csv, as_jsonl, results_tsv
from autoresearch.core.ledger import Experiment, MeasurementRow
from autoresearch.core.logs import KNOWN_SHAPES, ExperimentLog, direction_of, read_log

DATA = Path(__file__).parents[1] / "data"
HEADER = "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
ITERATIONS = "iteration\tcommit\tmetric\tdelta\tguard\tstatus\tdescription\n"


def read(tmp_path: Path, text: str, **options: str) -> ExperimentLog:
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    return read_log(path, **options)


def refused(tmp_path: Path, text: str, **options: str) -> str:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text, **options)
    return str(caught.value)


def test_karpathys_table_has_the_published_totals() -> None:
    """126 rows: 23 kept, 102 reverted, 1 crashed whose 0.000000 is no value; from 0.997900 to 0.969686."""
    log = read_log(DATA / "karpathy_shape_synthetic.tsv")
    assert Counter(row.outcome for row in log.rows) == {
        Outcome.KEPT: 23,
        Outcome.REVERTED: 102,
        Outcome.CRASHED: 1,
    }
    values = [row.value for row in log.rows if row.value is not None]
    assert (values[0], min(values), len(values)) == (0.9979, 0.969686, 125)
    assert [row.value for row in log.rows if row.outcome is Outcome.CRASHED] == [None]
    assert (log.metric, log.direction, log.notes) == ("val_bpb", None, ())


def test_pis_log_is_read_from_its_last_configuration() -> None:
    """A config line begins a new run; failed checks and crashes have no value; hooks are no experiments."""
    log = read_log(DATA / "pi_shape_synthetic.jsonl")
    assert (log.metric, log.direction, len(log.rows)) == ("total_ms", Direction.MINIMIZE, 30)
    by_outcome = {row.outcome: row.value for row in log.rows}
    assert by_outcome[Outcome.CRASHED] is None and by_outcome[Outcome.INVALID] is None
    assert log.rows[0].description == "baseline" and log.rows[0].line == 4 + 1
    assert "2 runs" in log.notes[0]
    first = read_log(DATA / "pi_shape_synthetic.jsonl", run="1")
    assert [row.value for row in first.rows] == [900.0, 905.0] and first.notes == ()


def test_the_iterations_table_says_its_direction() -> None:
    """The comment gives the direction, the baseline is kept, rows without a candidate are counted as left out."""
    log = read_log(DATA / "uditgoenka_shape_synthetic.tsv")
    assert (log.metric, log.direction) == ("metric", Direction.MAXIMIZE)
    assert (log.rows[0].label, log.rows[0].outcome, log.rows[0].value) == ("0", Outcome.KEPT, 72.3)
    assert [row.outcome for row in log.rows if "guard" in row.description] == [Outcome.INVALID]
    assert log.notes == ("Left out: 2 rows without a candidate (no-op, blocked and the like).",)


OURS = [
    Experiment(id=1, run_id="r", number=0, session_id=1, outcome="kept", hypothesis="As found.", value=1.5),
    Experiment(id=2, run_id="r", number=1, session_id=1, outcome="crashed", hypothesis="Halve it"),
    Experiment(id=3, run_id="r", number=2, session_id=1, outcome="inconclusive", hypothesis="=1+1", value=1.25),
    Experiment(id=4, run_id="r", number=3, session_id=1, outcome="kept", hypothesis="Double it", value=1.0),
]
MEASURED = {
    1: [MeasurementRow(experiment_id=1, value=value, look=look) for look, value in enumerate((1.4, 1.6))],
    4: [
        MeasurementRow(experiment_id=4, value=9.0, disturbed="busy"),
        MeasurementRow(experiment_id=4, value=1.0, attempt=1),
        MeasurementRow(experiment_id=4, value=7.0, split="holdout"),
    ],
}


def test_our_own_exports_are_read_back(tmp_path: Path) -> None:
    """The three formats of `export` give the same values and outcomes; results.tsv knows only discard."""
    tables = {
        "tsv": results_tsv("val_bpb", OURS, MEASURED),
        "csv": as_csv(OURS),
        "jsonl": as_jsonl(OURS, MEASURED),
    }
    for name, text in tables.items():
        log = read(tmp_path, text)
        assert [row.value for row in log.rows] == [1.5, None, 1.25, 1.0], name
        undecided = Outcome.REVERTED if name == "tsv" else Outcome.INCONCLUSIVE
        assert [row.outcome for row in log.rows] == [Outcome.KEPT, Outcome.CRASHED, undecided, Outcome.KEPT], name


def test_our_json_lines_bring_their_replicates(tmp_path: Path) -> None:
    """Repeated measurements count; a disturbed one and one of the holdout do not."""
    log = read(tmp_path, as_jsonl(OURS, MEASURED))
    assert log.replicates == ((1.4, 1.6),)
    assert [row.runs for row in log.rows] == [2, 1, 1, 1]


def test_another_run_of_our_json_lines(tmp_path: Path) -> None:
    """The last run of a file is read unless another is named; an unknown one is answered with those there are."""
    text = as_jsonl(OURS, {}) + json.dumps({"run_id": "s", "number": 0, "outcome": "kept", "value": 3.0}) + "\n"
    assert [row.value for row in read(tmp_path, text).rows] == [3.0]
    assert len(read(tmp_path, text, run="r").rows) == 4
    assert "it has r, s" in refused(tmp_path, text, run="t")


def test_words_are_read_in_any_case_and_without_their_brackets(tmp_path: Path) -> None:
    """`KEEP` and `keep (reworked)` are kept, `discard (axis regression)` is reverted."""
    rows = "a\t1.0\t0\tKEEP\tx\nb\t0.9\t0\tkeep (reworked)\ty\nc\t1.1\t0\tdiscard (axis regression)\tz\n"
    outcomes = [row.outcome for row in read(tmp_path, HEADER + rows).rows]
    assert outcomes == [Outcome.KEPT, Outcome.KEPT, Outcome.REVERTED]


def test_a_reverted_zero_is_missing_where_values_are_positive(tmp_path: Path) -> None:
    """It would be the best of all where lower is better; where a zero was kept, zeros are values."""
    log = read(tmp_path, HEADER + "a\t1.0\t0\tkeep\tx\nb\t0.000000\t0\tdiscard\ty\n")
    assert log.rows[1].value is None and "1 row reverted with the value 0" in log.notes[0]
    log = read(tmp_path, HEADER + "a\t3\t0\tkeep\tx\nb\t0\t0\tdiscard\ty\nc\t0\t0\tkeep\tz\n")
    assert [row.value for row in log.rows] == [3.0, 0.0, 0.0] and log.notes == ()


def test_a_reverted_row_without_a_finite_value_is_left_out(tmp_path: Path) -> None:
    """nan, inf, a dash and an empty cell mean the same there, and are counted."""
    rows = "".join(f"b\t{cell}\t0\tdiscard\ty\n" for cell in ("nan", "inf", "-", ""))
    log = read(tmp_path, f"{HEADER}a\t1.0\t0\tkeep\tx\n{rows}")
    assert [row.value for row in log.rows] == [1.0, None, None, None, None]
    assert log.notes == ("Left out: 4 rows reverted without a finite value (empty, nan or inf).",)


def test_workers_of_a_parallel_batch_count_once(tmp_path: Path) -> None:
    """The winner's own row is repeated by the main row; the losers were measured as well."""
    winner = "b\t7\t-2\tpass\tkeep\ty\n"
    rows = f"0\ta\t9\t0\t-\tbaseline\tx\n1a\t{winner}1b\t-\t8\t-1\t-\tdiscard\tz\n1\t{winner}"
    log = read(tmp_path, ITERATIONS + rows)
    assert [(row.label, row.value) for row in log.rows] == [("0", 9.0), ("1b", 8.0), ("1", 7.0)]


def test_lines_of_windows_a_mark_and_a_second_header(tmp_path: Path) -> None:
    """A byte-order mark, CRLF, blank lines and a header written again by a restart are no rows."""
    text = f"\ufeff{HEADER}a\t1.0\t0\tkeep\tx\n\n{HEADER}b\t0.9\t0\tkeep\ty\n".replace("\n", "\r\n")
    assert [row.value for row in read(tmp_path, text).rows] == [1.0, 0.9]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no line"),
        ("\n\n", "holds no line"),
        (HEADER, "only a header"),
        ("commit\tval_bpb\tdescription\na\t1\tx\n", "no column status"),
        ("commit\tstatus\tdescription\na\tkeep\tx\n", "no column with the metric"),
        (f"{HEADER}a\tfast\t0\tkeep\tx\n", "line 2: the value 'fast' is no number"),
        (f"{HEADER}a\t1.0\t0\tkeep\tx\nb\tnan\t0\tkeep\ty\n", "line 3: a kept row needs a finite value and has 'nan'"),
        (f"{HEADER}a\t1.0\t0\tkept?\tx\n", "line 2: the status 'kept?' is unknown"),
        (f"{HEADER}a\t1.0\n", "line 2: the row ends before the column status"),
        ('{"type":"config"}\n', "only its configuration"),
        ('{"type":"config"}\n{"status":"keep"\n', "line 2: this is no JSON"),
        ('{"status":"keep","metric":[1]}\n', "line 1: the value '[1]' is no number"),
        ('{"status":"keep","metric":true}\n', "line 1: the value 'True' is no number"),
        ('{"type":"config"}\n{"status":"keep","run":1}\n', "line 2: the key metric is missing"),
        ('{"type":"config"}\n[1]\n', "line 2: an object was expected"),
        (f'{{"type":"config"}}\n{{"status":"keep","metric":{"9" * 5000}}}\n', "line 2: this is no JSON"),
        (f"{HEADER}a\t1e300\t0\tkeep\tx\n", "line 2: the value '1e300' is larger than any measurement"),
        ("commit\tval_bpb\tval_bpb\tstatus\na\t1\t2\tkeep\n", "has the column val_bpb twice"),
        ('{"number":0,"outcome":"kept","value":1.0,"measurements":5}\n', "line 1: the measurements are not as"),
        ('{"number":0,"outcome":"kept","value":1.0,"measurements":[5]}\n', "line 1: the measurements are not as"),
        ("number,outcome,value\n0,kept\n", "line 2: a kept row needs a finite value and has none"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    """Each fault is a sentence that says what and where."""
    assert said in refused(tmp_path, text)


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n", "hello\n", "x\ty\n1\t2\n", '{"a": 1}\n', '{"level":"info","msg":"started"}\n']
)
def test_an_unknown_shape_is_answered_with_the_known_ones(tmp_path: Path, text: str) -> None:
    """Every shape that is read is listed."""
    said = refused(tmp_path, text)
    assert all(shape in said for shape in KNOWN_SHAPES)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    """A missing file, a folder without a ledger and bytes that are no text are sentences too."""
    with pytest.raises(UsageError, match="cannot be read"):
        read_log(tmp_path / "nowhere.tsv")
    with pytest.raises(UsageError, match="folder without a ledger"):
        read_log(tmp_path)
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(UsageError, match="no UTF-8 text"):
        read_log(tmp_path / "noise")


def test_the_metric_column_can_be_named(tmp_path: Path) -> None:
    """The column behind the commit is the metric unless another is named; without either the person is asked."""
    text = "commit\tval_bpb\tval_loss\tstatus\na\t1.0\t3.0\tkeep\n"
    assert [read(tmp_path, text).metric, read(tmp_path, text, metric="val_loss").rows[0].value] == ["val_bpb", 3.0]
    assert "Name one of them with --metric" in refused(tmp_path, text, metric="val_acc")
    assert "Name it with --metric" in refused(
        tmp_path, "speed\theat\tstatus\n1\t2\tkeep\n".replace("status", "status\tcommit")
    )


def test_a_table_has_no_runs_to_choose_from(tmp_path: Path) -> None:
    """A run that is asked for and cannot be chosen is refused, not ignored."""
    assert "Leave --run out" in refused(tmp_path, f"{HEADER}a\t1.0\t0\tkeep\tx\n", run="2")


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("val_bpb", Direction.MINIMIZE),
        ("valLoss", Direction.MINIMIZE),
        ("total_µs", Direction.MINIMIZE),
        ("test_accuracy", Direction.MAXIMIZE),
        ("tokens_per_second", None),
        ("loss_score", None),
        ("metric", None),
        ("", None),
    ],
)
def test_a_direction_is_never_guessed(name: str, direction: Direction | None) -> None:
    """A name that says nothing, both, or a ratio has no direction."""
    assert direction_of(name) is direction
