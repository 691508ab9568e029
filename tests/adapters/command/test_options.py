"""Options as text: what is missing, unknown or senseless is said before anything is started."""

from __future__ import annotations

import pytest

from autoresearch.adapters.command import create_adapter
from autoresearch.adapters.command.options import Options, parse_guard
from autoresearch.core import Direction, Guard, Split, UsageError
from tests.adapters.command.conftest import OPTIONS


def test_what_is_given_is_what_is_meant() -> None:
    """Lists are separated by commas, and numbers are numbers."""
    options = Options.parse(
        OPTIONS | {"edit": "./a.py, src/**/*.py", "repeat": "3", "timeout": "1.5", "unit": "ms", "noise": "0.2"}
    )
    assert options.edit == ("a.py", "src/**/*.py")
    assert (options.repeat, options.timeout_seconds) == (3, 1.5)
    assert (options.metric.unit, options.metric.noise, options.metric.direction) == ("ms", 0.2, Direction.MINIMIZE)


def test_auto_is_one_run_and_the_noise_is_estimated() -> None:
    """What repeats a measurement by default is the policy, where it is not sure."""
    options = Options.parse(OPTIONS | {"repeat": "auto"})
    assert options.repeat == 1 and options.metric.noise is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "which files may change: --edit .*; what measures them.*; the name of the number.*--minimize or"),
        (OPTIONS | {"measure": " "}, "has to know what measures them"),
        (OPTIONS | {"speed": "1"}, "no option 'speed'; known are edit, measure"),
        (OPTIONS | {"direction": "up"}, "direction must be minimize or maximize"),
        (OPTIONS | {"metric": "a b"}, "one word"),
        (OPTIONS | {"repeat": "0"}, "repeat must be auto or"),
        (OPTIONS | {"timeout": "-1"}, "timeout must be a positive number"),
        (OPTIONS | {"noise": "nan"}, "noise must be a positive number"),
        (OPTIONS | {"min_effect": "-1"}, "min_effect must be zero or more"),
        (OPTIONS | {"edit": "../a.py"}, "relative to its folder"),
        (OPTIONS | {"edit": "/a.py"}, "relative to its folder"),
        (OPTIONS | {"summary": "yes"}, "summary must be true or false"),
        (OPTIONS | {"pattern": "x"}, "has 0 groups"),
        (OPTIONS | {"pattern": "("}, "no regular expression"),
        (OPTIONS | {"pattern.rss": "(x)"}, "none of loss"),
        (OPTIONS | {"json_path": "a..b"}, "keys joined by dots"),
        (OPTIONS | {"json_path": "a", "summary": "true"}, "one way only"),
        (OPTIONS | {"guard": "rss<5%"}, "'rss<5%' is no guard"),
        (OPTIONS | {"guard": "rss<=5%"}, "is no guard"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, str], sentence: str) -> None:
    """Each with its own sentence."""
    with pytest.raises(UsageError, match=sentence):
        Options.parse(options)


@pytest.mark.parametrize(
    ("text", "guard"),
    [
        ("rss<=+5%", Guard("rss", True, 0.05, "relative")),
        ("accuracy >= -0.01", Guard("accuracy", False, -0.01, "difference")),
        ("size_kb<=512", Guard("size_kb", True, 512.0, "absolute")),
        ("accuracy>=-1 %", Guard("accuracy", False, -0.01, "relative")),
    ],
)
def test_guards_are_read(text: str, guard: Guard) -> None:
    """A sign counts from the baseline, a per cent sign makes it a share."""
    assert parse_guard(text) == guard


def test_only_a_command_that_is_told_the_split_has_a_holdout() -> None:
    """Without {split} there is no data that keep decisions never saw."""
    assert create_adapter(OPTIONS).splits == {Split.SEARCH}
    assert create_adapter(OPTIONS | {"measure": "bench --data {split}"}).splits == set(Split)
