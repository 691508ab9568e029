"""From output to numbers: one line decides, and everything else is told apart by its own sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.adapters.command.options import Options
from autoresearch.adapters.command.reading import read_numbers
from autoresearch.core import CandidateError, InvalidCandidateError

BASE = {"edit": "a.py", "measure": "run", "metric": "ms", "direction": "minimize"}


def options(**more: str) -> Options:
    return Options.parse({**BASE, **more})


def test_a_metric_line_among_other_output() -> None:
    """The value and every other number are read; lines that only look like it are not."""
    found = read_numbers(
        "warming up\nms=3\n METRIC ms=4\nMETRIC ms=12.5\nMETRIC rss=7e2\nMETRIC word=fast\n", options()
    )
    assert found.value == 12.5
    assert found.others == {"rss": 700.0}


def test_a_progress_bar_is_read_as_the_terminal_leaves_it() -> None:
    """Of a line that was overwritten in place only the last state counts."""
    assert read_numbers("METRIC ms=99\rMETRIC ms=1.5\r\ndone", options()).value == 1.5


@pytest.mark.parametrize(
    ("output", "kind", "sentence"),
    [
        ("nothing\n", CandidateError, "printed no ms: a line METRIC ms=NUMBER was expected"),
        ("METRIC rss=3\n", CandidateError, r"printed no ms: .* It did print rss"),
        ("METRIC ms=1\nMETRIC ms=1\n", InvalidCandidateError, r"printed ms 2 times \(1, 1\)"),
        ("METRIC ms=nan\n", CandidateError, "ms is nan, and a measurement must be finite"),
        ("METRIC ms=-inf\n", CandidateError, "ms is -inf"),
        ("METRIC ms=\n", CandidateError, "printed ms as '', which is no number"),
        ("METRIC ms=fast\n", CandidateError, "printed ms as 'fast', which is no number"),
    ],
)
def test_each_fault_has_its_own_sentence(output: str, kind: type[CandidateError], sentence: str) -> None:
    """None, two, nan, infinity, nothing and a word are six different things."""
    with pytest.raises(CandidateError, match=sentence) as caught:
        read_numbers(output, options())
    assert type(caught.value) is kind


def test_a_guarded_number_must_be_there_once_too() -> None:
    """A guard that cannot be judged would let everything pass."""
    guarded = options(guard="rss<=+5%")
    assert read_numbers("METRIC ms=1\nMETRIC rss=2", guarded).others == {"rss": 2.0}
    with pytest.raises(CandidateError, match="printed no rss"):
        read_numbers("METRIC ms=1", guarded)
    with pytest.raises(InvalidCandidateError, match="printed rss 2 times"):
        read_numbers("METRIC ms=1\nMETRIC rss=2\nMETRIC rss=1", guarded)


def test_another_number_printed_twice_is_left_out() -> None:
    """Which one is meant is unknown, and unknown numbers are absent."""
    assert read_numbers("METRIC ms=1\nMETRIC loss=3\nMETRIC loss=2", options()).others == {}


def test_a_pattern_has_one_group_and_one_match() -> None:
    """Patterns read lines of any shape, also for further numbers, and refuse a second match."""
    chosen = options(pattern=r"^took ([\d.]+) ms", **{"pattern.rss": r"^peak (\d+)"})
    found = read_numbers("took 3.25 ms\npeak 70\n", chosen)
    assert (found.value, found.others) == (3.25, {"rss": 70.0})
    with pytest.raises(InvalidCandidateError, match="printed ms 2 times"):
        read_numbers("took 3 ms\ntook 2 ms\n", chosen)
    with pytest.raises(CandidateError, match=r"a match of the pattern '\^took"):
        read_numbers("METRIC ms=3\n", chosen)


@pytest.mark.parametrize(
    ("output", "value", "others"),
    [
        ('{"results": {"p50": 3.5, "p99": 9, "ok": true, "name": "x"}}', 3.5, {"p99": 9.0}),
        ('{\n "results": {\n  "p50": 3\n }\n}\n', 3.0, {}),
        ('log line\n{broken\n{"results": {"p50": 4}}\nbye\n', 4.0, {}),
    ],
)
def test_json_by_its_keys(output: str, value: float, others: dict[str, float]) -> None:
    """The number at the path counts, in output that is JSON or has one line of it; its neighbours are recorded."""
    found = read_numbers(output, options(json_path="results.p50"))
    assert (found.value, found.others) == (value, others)


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ('{"results": {"p50": 1}}\n{"results": {"p50": 2}}', "printed ms 2 times"),
        ('{"results": 5}', "a JSON object with results.p50"),
        ('{"results": {"p50": "fast"}}', "no number"),
        ('{"results": {"p50": null}}', "no number"),
        ('{"results": {"p50": NaN}}', "must be finite"),
    ],
)
def test_json_that_does_not_say(output: str, sentence: str) -> None:
    """Two objects, no such key, a word, null and NaN each have their sentence."""
    with pytest.raises(CandidateError, match=sentence):
        read_numbers(output, options(json_path="results.p50"))


SUMMARY = """\
step 00953 | loss: 2.9 | 99%
---
val_bpb:          0.997900
training_seconds: 300.1
peak_vram_mb:     45060.2
mfu_percent:      39.80%

val_bpb: 0.1
"""


def test_a_summary_block_ends_with_the_first_other_line() -> None:
    """What is printed after the block, or before it, does not count."""
    found = read_numbers(SUMMARY, options(metric="val_bpb", summary="true"))
    assert found.value == 0.9979
    assert found.others == {"training_seconds": 300.1, "peak_vram_mb": 45060.2, "mfu_percent": 39.8}


def test_two_summary_blocks_are_one_too_many() -> None:
    """A candidate that prints a block of its own before the evaluator's is invalid."""
    with pytest.raises(InvalidCandidateError, match=r"val_bpb 2 times \(0\.5, 0\.997900\)"):
        read_numbers("---\nval_bpb: 0.5\n\n" + SUMMARY, options(metric="val_bpb", summary="true"))


@given(before=st.text(), after=st.text(), value=st.floats(allow_nan=False, allow_infinity=False))
def test_nothing_but_the_metric_line_decides(before: str, after: str, value: float) -> None:
    """Whatever else is printed around it, the value is that of the line."""
    before, after = before.replace("METRIC", ""), after.replace("METRIC", "")
    assert read_numbers(f"{before}\nMETRIC ms={value!r}\n{after}", options()).value == value
