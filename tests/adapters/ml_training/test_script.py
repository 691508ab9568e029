from __future__ import annotations

import pytest

from autoresearch.adapters.ml_training.script import check_script
from autoresearch.core import CandidateError

from .conftest import tiny_trainer

GOOD = tiny_trainer()


def test_a_good_script_passes() -> None:
    """The tiny trainer has all that is needed."""
    check_script(GOOD)


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (None, "no train.py"),
        ("x = (1,\n", r"train\.py, line 1: .*does not parse"),
        ("def f():\n    x = = 2\n", r"line 2"),
        ("a\0b", "does not parse"),
        (GOOD.replace("def build_model", "def make_model"), "no function build_model"),
        (GOOD.replace("def build_model(vocab_size)", "def build_model(vocab_size, depth)"), "callable as"),
        (GOOD.replace("def build_model(vocab_size)", "def build_model()"), "callable as"),
        (GOOD.replace("CONTEXT = 16", "LENGTH = 16"), "no constant CONTEXT"),
        (GOOD.replace("CONTEXT = 16", "CONTEXT = 0"), "positive whole number"),
        (GOOD.replace("CONTEXT = 16", "CONTEXT = 16.0"), "positive whole number"),
        (GOOD.replace("session.finish(model)", "pass"), "never calls session.finish"),
        (GOOD.replace("harness.open_session()", "None"), "never calls harness.open_session"),
    ],
)
def test_a_script_that_cannot_be_measured_is_refused_with_the_reason(script: str | None, sentence: str) -> None:
    """Nothing is spent on it."""
    with pytest.raises(CandidateError, match=sentence):
        check_script(script)


def test_a_context_that_is_computed_is_left_to_the_evaluator() -> None:
    """The text alone does not show its value."""
    check_script(GOOD.replace("CONTEXT = 16", "CONTEXT = 2 * 8"))
