"""Logs of finished runs in a ledger: the same file comes out again, and a wrong line lets nothing in."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.core import memory
from autoresearch.core.adapter import Direction, Metric, MetricKind, Outcome
from autoresearch.core.errors import UsageError
from autoresearch.core.formats import as_csv, as_jsonl, as_pi, results_tsv
from autoresearch.core.importing import FORMATS, FinishedRun, read_finished
from autoresearch.core.ledger import IMPORT_ADAPTER, Experiment, Ledger, LiveLook, MeasurementRow, Run, Session
from autoresearch.core.logs import read_log
from autoresearch.core.readmodel import status_of

DATA = Path(__file__).parents[1] / "data"
HEADER = "commit\tval_bpb\tmemory_gb\tstatus\tdescription\n"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
METRIC = Metric("loss", "nats", Direction.MINIMIZE, noise=0.25)
RUN = Run(
    id="r", adapter="command", metric=memory.metric_as_json(METRIC), policy="bayes", proposer="search", state="stopped"
)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    with Ledger.open(tmp_path_factory.mktemp("ledger") / "ledger.db") as opened:
        yield opened


def read(folder: Path, text: str, name: str = "log", **options: Any) -> FinishedRun:
    path = folder / name
    path.write_bytes(text.encode())
    return read_finished(path, now=NOW, **options)


def refused(folder: Path, text: str, **options: Any) -> str:
    with pytest.raises(UsageError) as caught:
        read(folder, text, **options)
    return str(caught.value)


def export(ledger: Ledger, run_id: str, form: str) -> str:
    run, rows, measurements = ledger.run(run_id), ledger.experiments(run_id), ledger.run_measurements(run_id)
    return written(run, rows, measurements, ledger.live_looks_of([row.id for row in rows]), form)


def written(run: Run, rows: list[Experiment], measurements: Any, looks: Any, form: str) -> str:
    if form == "results.tsv":
        return results_tsv(str(run.metric["name"]), rows, measurements)
    if form == "jsonl":
        return as_jsonl(rows, measurements, run, looks)
    return as_pi(run, rows, measurements) if form == "pi" else as_csv(rows, measurements, METRIC)


# ---- Round trips

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
# Zero is left out: where other tools revert it, it means no measurement, and six digits are all that results.tsv has.
VALUES = st.floats(1e-3, 1e9)
EFFECTS = st.none() | st.floats(-1e9, 1e9)
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2029, 1, 1), timezones=st.just(UTC))


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Experiment], dict[int, list[MeasurementRow]]]:
    """Draw the experiments of a run as a ledger would hold them."""
    rows, measurements = [], {}
    for number in range(draw(st.integers(1, 5))):
        outcome = "kept" if number == 0 else draw(st.sampled_from([one.value for one in Outcome]))
        measured = outcome not in ("crashed", "invalid")
        taken = draw(st.lists(VALUES, min_size=1, max_size=3)) if measured else []
        hexadecimal = draw(st.text(string.hexdigits.lower(), min_size=40, max_size=40))
        rows.append(
            Experiment(
                id=number + 11,
                run_id="r",
                session_id=3,
                number=number,
                sequence=number + 50,
                parent_number=None if number == 0 else 0,
                hypothesis=draw(TEXTS),
                category=draw(TEXTS),
                reason=draw(TEXTS),
                outcome=outcome,
                value=math.fsum(taken) / len(taken) if taken else None,
                effect=draw(EFFECTS),
                effect_low=draw(EFFECTS),
                p_better=draw(st.none() | st.floats(0, 1)),
                kept_commit=hexadecimal if outcome == "kept" else None,
                candidate_commit=hexadecimal,
                usd=draw(st.sampled_from([0.0, 0.25])),
                tokens=draw(st.sampled_from([0, 120])),
                details=draw(st.sampled_from([{}, {"idea": {"from": "a book"}}])),
                changes=draw(st.sampled_from([[], [{"knob": "K", "old": "1", "new": "2"}]])),
                started=draw(MOMENTS),
                ended=draw(MOMENTS),
            )
        )
        measurements[number + 11] = [
            MeasurementRow(
                id=index + 7,
                experiment_id=number + 11,
                value=value,
                look=index,
                seed=index,
                secondary={"peak_vram_mb": 512.0, "µs": 0.1},
                curve=[(0.5, value)],
                started=draw(MOMENTS),
            )
            for index, value in enumerate(taken)
        ]
    return rows, measurements


@pytest.mark.parametrize("form", FORMATS)
@given(drawn=runs())
@settings(max_examples=25, deadline=None)
def test_an_imported_export_is_exported_the_same(
    form: str,
    drawn: tuple[list[Experiment], dict[int, list[MeasurementRow]]],
    tmp_path_factory: pytest.TempPathFactory,
    ledger: Ledger,
) -> None:
    """Whatever texts, values and outcomes a run has, export, import and export give the same bytes."""
    rows, measurements = drawn
    first = written(RUN, rows, measurements, {}, form)
    found = read(tmp_path_factory.getbasetemp(), first, form=form, direction=Direction.MINIMIZE)
    found.insert(ledger)
    assert export(ledger, found.run.id, form) == first


def test_a_live_run_is_imported_with_its_looks(tmp_path: Path, ledger: Ledger) -> None:
    """Its baseline has no value, its tests have looks instead of measurements, and the gain is believed as before."""
    metric = Metric("signup", "", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.1)
    run = Run(id="live", adapter="shop", metric=memory.metric_as_json(metric), policy="race", proposer="claude")
    rows = [
        Experiment(id=1, run_id="live", session_id=1, number=0, sequence=1, outcome="kept", hypothesis="As found"),
        Experiment(
            id=2, run_id="live", session_id=1, number=1, sequence=2, parent_number=0, outcome="kept", value=0.06
        ),
    ]
    looks = {
        2: [
            LiveLook(id=arm + 1, experiment_id=2, look=1, arm=name, n=9000.0, total=total, total_sq=total)
            for arm, (name, total) in enumerate((("control", 450.0), ("treatment", 540.0)))
        ]
    }
    text = as_jsonl(rows, {}, run, looks)
    found = read(tmp_path, text)
    assert found.insert(ledger) and export(ledger, found.run.id, "jsonl") == text
    status = status_of(ledger, found.run, at_work=False)
    assert status.kept == 1 and status.believed_gain is not None and status.believed_gain > 0
    for form in ("results.tsv", "pi"):
        again = written(run, rows, {}, looks, form)
        other = read(tmp_path, again, direction=Direction.MAXIMIZE)
        assert other.insert(ledger) and export(ledger, other.run.id, form) == again


def test_the_order_of_ending_is_kept(tmp_path: Path, ledger: Ledger) -> None:
    """Experiments that were in flight together are replayed in the order in which they ended."""
    rows = [
        Experiment(id=number, run_id="r", session_id=1, number=number, sequence=sequence, outcome="kept", value=1.0)
        for number, sequence in ((0, 4), (1, 9), (2, 7))
    ]
    found = read(tmp_path, as_jsonl(rows, {}, RUN))
    found.insert(ledger)
    ended = sorted(ledger.experiments(found.run.id), key=lambda row: row.sequence or 0)
    assert [row.number for row in ended] == [0, 2, 1]


# ---- What is in the ledger then


def test_the_synthetic_log_of_126_rows_has_its_totals(tmp_path: Path) -> None:
    """23 kept with the baseline, 102 reverted, 1 crashed, best 0.969686, and each row knows what it stood on."""
    found = read_finished(DATA / "karpathy_shape_synthetic.tsv")
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        assert found.insert(ledger)
        status = status_of(ledger, found.run, at_work=False)
        rows = ledger.experiments(found.run.id)
    assert (status.experiments, status.kept, status.reverted, status.crashed) == (125, 22, 102, 1)
    assert (status.baseline, status.incumbent, status.state) == (0.9979, 0.969686, "stopped")
    assert status.believed_gain == pytest.approx(0.9979 - 0.969686)
    assert {row.origin for row in rows} == {"import:karpathy_shape_synthetic.tsv"}
    assert [row.value for row in rows if row.outcome == "crashed"] == [None]
    kept = [row.number for row in rows if row.outcome == "kept"]
    assert len(kept) == 23 and [row.parent_number for row in rows if row.outcome == "kept"] == [None, *kept[:-1]]


def test_a_log_is_imported_once(tmp_path: Path, ledger: Ledger) -> None:
    """The same content under another name is the same run; told another way it is another."""
    text = f"{HEADER}once\t1.0\t0\tkeep\tx\n"
    first = read(tmp_path, text)
    assert first.insert(ledger)
    again = read(tmp_path, text, name="copy")
    assert not again.insert(ledger) and again.run.id == first.run.id
    assert len(ledger.experiments(first.run.id)) == 1
    assert read(tmp_path, text, direction=Direction.MAXIMIZE).run.id != first.run.id


def test_an_imported_run_never_stands_in_front_of_a_run_of_ones_own(tmp_path: Path) -> None:
    """Without a name the latest own run is meant; where there is only an imported one, that."""
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        own = ledger.add_run(Run(id="own", adapter="ml"))
        ledger.add_session(Session(run_id="own"))
        found = read(tmp_path, f"{HEADER}a\t1.0\t0\tkeep\tx\n")
        found.insert(ledger)
        assert (ledger.latest_run() or found.run).id == own.id
        imported = ledger.latest_run(IMPORT_ADAPTER)
        assert imported is not None and imported.id == found.run.id
    found = read(tmp_path, f"{HEADER}a\t1.0\t0\tkeep\tx\n")
    with Ledger.open(tmp_path / "other.db") as ledger:
        found.insert(ledger)
        assert (ledger.latest_run() or own).id == found.run.id


def test_pis_log_brings_its_secondary_numbers_and_notes(tmp_path: Path, ledger: Ledger) -> None:
    """Metrics go to the measurement, notes to the details, the time is pi's, and costs are not said to be 0."""
    found = read_finished(DATA / "pi_shape_synthetic.jsonl")
    found.insert(ledger)
    rows = ledger.experiments(found.run.id)
    first = ledger.measurements(rows[0].id)[0]
    assert (first.value, first.secondary) == (476.8, {"compile_ms": 53.0})
    assert rows[0].details["hypothesis"] == "synthetic"
    assert rows[0].ended == datetime.fromtimestamp(1700000180, UTC)
    assert found.run.metric["unit"] == "ms" and "2 runs" in found.notes[0]
    line = json.loads(export(ledger, found.run.id, "jsonl").splitlines()[0])
    assert (line["usd"], line["seconds"], line["started"]) == (None, None, None)
    assert export(ledger, found.run.id, "csv").splitlines()[1].split(",")[13:17] == ["", "", "", ""]


def test_costs_are_summed_as_they_were(tmp_path: Path, ledger: Ledger) -> None:
    """Dollars, tokens and seconds of our own formats are those of the run they came from."""
    rows = [
        Experiment(id=1, run_id="r", session_id=1, number=0, outcome="kept", value=1.0, seconds=2.0),
        Experiment(id=2, run_id="r", session_id=1, number=1, outcome="crashed", usd=0.5, tokens=70, seconds=3.0),
    ]
    for form in ("jsonl", "csv"):
        found = read(tmp_path, written(RUN, rows, {}, {}, form))
        found.insert(ledger)
        totals = ledger.totals(found.run.id)
        assert (totals.usd, totals.tokens, totals.seconds) == (0.5, 70, 5.0)


def test_another_tools_columns_are_named_when_left_out(tmp_path: Path) -> None:
    """The iterations table has columns that no run of ours has."""
    found = read_finished(DATA / "uditgoenka_shape_synthetic.tsv")
    assert "Left out: the columns delta, guard." in found.notes
    assert found.run.metric["direction"] == "maximize"


def test_what_a_log_does_not_say_is_asked_for(tmp_path: Path) -> None:
    """Neither the name of a metric nor its direction is guessed."""
    older = "number,outcome,value\n0,kept,1.0\n"
    assert "--metric NAME" in refused(tmp_path, older)
    assert "--direction lower" in refused(tmp_path, older, metric="tokens_per_second")
    found = read(tmp_path, older, metric="tokens_per_second", direction=Direction.MAXIMIZE)
    assert found.run.metric["name"] == "tokens_per_second" and len(found.experiments[0].measurements) == 1


def test_the_format_can_be_demanded(tmp_path: Path) -> None:
    """A file of another shape is refused by name."""
    assert "is not that of --format pi" in refused(tmp_path, f"{HEADER}a\t1.0\t0\tkeep\tx\n", form="pi")


# ---- What is refused

LINE = as_jsonl(
    [Experiment(id=1, run_id="r", session_id=1, number=0, outcome="kept", value=1.0, usd=0.25)],
    {1: [MeasurementRow(id=1, experiment_id=1, value=1.0)]},
    RUN,
)
PI = '{"type":"config","metricName":"ms","bestDirection":"lower"}\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADER}a\t1.0\tbig\tkeep\tx\n", "line 2: memory_gb is 'big'"),
        (f"{HEADER}a\t1.0\t-5\tkeep\tx\n", "line 2: memory_gb is '-5'"),
        (f"{HEADER}a\tnan\t0\tkeep\tx\n", "line 2: a kept row needs a finite value"),
        (f"{HEADER}a\t1.0\t0\tkeep\tx\nb\t0.9", "line 3: the row ends before the column status"),
        (LINE + LINE, "line 2: experiment 0 stands in line 1 already"),
        (LINE[:300], "line 1: this is no JSON"),
        (LINE.replace('"usd": 0.25', '"usd": "x"'), "line 1: usd is 'x'"),
        (LINE.replace('"usd": 0.25', '"usd": NaN'), "line 1: a number is nan or infinite"),
        (LINE.replace('"tokens": 0', f'"tokens": {10**30}'), "line 1: tokens is"),
        (LINE.replace('"number": 0', '"number": -1'), "line 1: experiments are numbered from 0"),
        (LINE.replace('"number": 0', '"number": null'), "line 1: number is None"),
        (LINE.replace('"hypothesis": ""', '"hypothesis": "\\ud800"'), "line 1: a text of it holds half a character"),
        (LINE.replace('"kind": "value"', '"kind": "vibes"'), "line 1: the metric of the run is not as"),
        (LINE.replace('"policy_parameters": {}', '"policy_parameters": {"keep": 7}'), "line 1: the policy of the run"),
        (LINE.replace('"changes": []', '"changes": [{"knob": "K"}]'), "line 1: changes.0.old is"),
        (LINE.replace('"looks": []', '"looks": 5'), "line 1: looks is no list"),
        (LINE.replace('"looks": []', '"looks": [{"look": 1}]'), "line 1: arm is missing"),
        (LINE.replace('"started": "20', '"started": "00'), "line 1: the time 00"),
        (LINE.replace('"started": "20', '"started": "29'), "line 1: the time 29"),
        (f'{PI}{{"status":"keep","metric":1,"metrics":{{"a":"b"}}}}\n', "line 2: metrics.a is 'b'"),
        (f'{PI}{{"status":"keep","metric":1,"asi":5}}\n', "line 2: asi is 5"),
        (f'{PI}{{"status":"keep","metric":1,"description":"\\ud800"}}\n', "line 2: a text of it holds half"),
        (f'{PI}{{"status":"keep","metric":1,"timestamp":"now"}}\n', "line 2: the timestamp now is no time"),
        (f'{PI}{{"status":"keep","metric":1,"timestamp":1e300}}\n', "line 2: the timestamp 1e+300 is no time"),
        ('number,outcome,value,metric\n0,kept,1.0,ms\n1,kept,"0.9,ms\n', "line 3: this is no CSV"),
        ("number,outcome,value,metric\n0,kept,1.0,ms,5\n", "line 2: the row has more cells than the header"),
        ("number,outcome,value,metric\n,kept,1.0,ms\n", "line 2: number is missing"),
        ("number,outcome,value,metric\nzero,kept,1.0,ms\n", "line 2: number is 'zero'"),
        ("number,outcome,value,metric,values\n0,kept,1.0,ms,1.0 one\n", "line 2: values has 'one'"),
        ("number,outcome,value,metric,ended\n0,kept,1.0,ms,yesterday\n", "line 2: ended is 'yesterday'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, text: str, said: str) -> None:
    """Each fault is a sentence with the line and the cell."""
    assert said in refused(tmp_path, text)


def test_a_measurement_stands_there_once(tmp_path: Path) -> None:
    """The ledger holds one measurement a place, and so must a line."""
    record = json.loads(LINE)
    record["measurements"] *= 2
    assert "a measurement of experiment 0 stands there twice" in refused(tmp_path, json.dumps(record) + "\n")


def test_a_ledger_needs_no_import(tmp_path: Path) -> None:
    """A workspace's ledger is looked at where it lies."""
    with Ledger.open(tmp_path / "ledger.db"):
        pass
    with pytest.raises(UsageError, match="needs no import"):
        read_finished(tmp_path / "ledger.db")


def test_marks_that_unicode_calls_line_ends_end_no_line(tmp_path: Path) -> None:
    """A description may hold them; only LF and CRLF end a line."""
    text = as_jsonl([Experiment(id=1, run_id="r", session_id=1, number=0, outcome="kept", value=1.0,
                                hypothesis="a\u2028b\x85c")], {}, RUN)  # fmt: skip
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    assert [row.description for row in read_log(path).rows] == ["a\u2028b\x85c"]


def test_a_moment_of_today_is_not_the_future(tmp_path: Path) -> None:
    """Clocks differ by hours between machines; a day is borne."""
    stamp = int((NOW + timedelta(hours=5)).timestamp() * 1000)
    found = read(tmp_path, f'{PI}{{"status":"keep","metric":1,"timestamp":{stamp}}}\n')
    assert found.run.ended == NOW + timedelta(hours=5)
