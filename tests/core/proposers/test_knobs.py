from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.artifact import Artifact
from autoresearch.core.proposers.knobs import FoundKnob, Knob, category_of, find_knobs, turn, turn_all

SCRIPT = '''\
"""Train. Größe: 3 – naïve 🎈"""
import os

DEPTH = 8  # layers, "DEPTH = 9" in a comment
MATRIX_LR: float = 0.02  # größer?
NAME, COUNT = "a", 2
label = "é"; WEIGHT_DECAY = -0.5  # after a wide character
BETAS = (0.8, 0.95)
TOTAL_BATCH = 2**19
USE_BIAS = False
SEED = 1337
MASK = 0xFF
TWICE = 1
TWICE = 2
for STEP in range(3):
    STEP = 4
TITLE = "no number"
COMPUTED = DEPTH * 64


class Kind(enum.Enum):
    A = 1


@dataclass
class Config:
    """Settings."""

    n_head: int = 4
    rate: float = 3e-4  # ß
    seed: int = 5

    def method(self):
        LOCAL = 3
        return LOCAL
'''


def found(text: str, *declared: Knob) -> dict[str, FoundKnob]:
    return {knob.name: knob for knob in find_knobs(Artifact({"train.py": text}), declared)}


def test_literal_constants_are_found_with_their_values() -> None:
    """Module constants, annotated ones, class defaults, tuple elements and powers are found, and nothing else."""
    assert {name: knob.value for name, knob in found(SCRIPT).items()} == {
        "DEPTH": 8,
        "MATRIX_LR": 0.02,
        "WEIGHT_DECAY": -0.5,
        "BETAS[0]": 0.8,
        "BETAS[1]": 0.95,
        "TOTAL_BATCH": 2**19,
        "USE_BIAS": False,
        "Config.n_head": 4,
        "Config.rate": 3e-4,
    }


def test_place_is_that_of_the_literal_in_bytes() -> None:
    """The bytes at a knob's place are its literal, wide characters before it notwithstanding."""
    raw = SCRIPT.encode()
    for knob in found(SCRIPT).values():
        assert raw[knob.start : knob.end].decode() == knob.source
        assert knob.source.strip() == knob.source != ""


def test_turning_changes_one_literal_and_leaves_comments() -> None:
    """After a turn the text differs in the literal alone."""
    knobs = found(SCRIPT)
    turned = turn(Artifact({"train.py": SCRIPT, "b.txt": "x"}), knobs["WEIGHT_DECAY"], "-0.25")
    assert turned.files["train.py"] == SCRIPT.replace("WEIGHT_DECAY = -0.5", "WEIGHT_DECAY = -0.25")
    assert turned.files["b.txt"] == "x"


def test_several_knobs_of_one_file_turn_at_once() -> None:
    """Edits of different lengths in one file do not move each other."""
    knobs = found(SCRIPT)
    turned = turn_all(
        Artifact({"train.py": SCRIPT}),
        [(knobs["DEPTH"], "100"), (knobs["Config.rate"], "1e-3"), (knobs["BETAS[0]"], "0.75")],
    )
    expected = SCRIPT.replace("DEPTH = 8 ", "DEPTH = 100 ").replace("3e-4", "1e-3").replace("(0.8,", "(0.75,")
    assert turned.files["train.py"] == expected


def test_knob_of_another_artifact_is_refused() -> None:
    """A place that no longer holds the literal is an error, not a wrong edit; so is turning one knob twice."""
    knobs = found(SCRIPT)
    with pytest.raises(ValueError, match="does not hold DEPTH = 8"):
        turn(Artifact({"train.py": "# new first line\n" + SCRIPT}), knobs["DEPTH"], "9")
    with pytest.raises(ValueError, match="turned twice"):
        turn_all(Artifact({"train.py": SCRIPT}), [(knobs["DEPTH"], "10"), (knobs["DEPTH"], "12")])


@pytest.mark.parametrize("text", ["x = (", "A\x00 = 1", "def f(:\n A = 1", "A = '\ud800'", "(" * 5000 + "1"])
def test_text_that_does_not_parse_has_no_knobs(text: str) -> None:
    """A broken file gives no knobs and no trace, and other files still give theirs."""
    artifact = Artifact({"broken.py": text, "good.py": "A = 1\n", "notes.md": "B = 2\n"})
    assert [knob.name for knob in find_knobs(artifact)] == ["A"]


def test_invalid_escape_in_a_candidate_is_no_warning_of_ours() -> None:
    """A text that Python would warn about is read in silence."""
    assert list(found('PATTERN = "\\d"\nA = 1\n')) == ["A"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_and_byte_order_mark_are_counted_right(newline: str) -> None:
    """Any line end, a form feed, a line separator inside a string and a byte order mark keep the place right."""
    text = newline.join(["\ufeffA = 1", 'T = "\u2028 \x0b"', "\x0cB = 2.5", "C = 3", ""])
    raw = text.encode()
    knobs = found(text)
    assert {name: raw[knob.start : knob.end] for name, knob in knobs.items()} == {"A": b"1", "B": b"2.5", "C": b"3"}


def test_declared_knob_replaces_the_guess() -> None:
    """What an adapter declares counts: category, choices for any literal, and frozen constants stay away."""
    text = 'WINDOWS = "SSSL"\nDEPTH = 8\nSEED = 3\nWIDTH = 4\n'
    knobs = found(
        text,
        Knob("WINDOWS", "train.py", "attention", choices=('"L"', '"SSSL"')),
        Knob("DEPTH", "train.py", "size", low=1, high=12),
        Knob("SEED", "train.py", "luck"),
        Knob("WIDTH", "train.py", frozen=True),
        Knob("DEPTH", "other.py", "elsewhere"),
        Knob("MISSING", "train.py"),
    )
    assert {name: knob.knob.category for name, knob in knobs.items()} == {
        "WINDOWS": "attention",
        "DEPTH": "size",
        "SEED": "luck",
    }
    assert (knobs["WINDOWS"].value, knobs["WINDOWS"].source) == (None, '"SSSL"')


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("MATRIX_LR", "optimizer"),
        ("ADAM_BETAS[1]", "optimizer"),
        ("WEIGHT_DECAY", "optimizer"),
        ("Config.momentum", "optimizer"),
        ("WARMDOWN_RATIO", "schedule"),
        ("warmup_steps", "schedule"),
        ("DEPTH", "architecture"),
        ("HEAD_DIM", "architecture"),
        ("Config.numLayers", "architecture"),
        ("DEVICE_BATCH_SIZE", "batch"),
        ("CONTEXT", "batch"),
        ("INIT_SCALE", "init"),
        ("DROPOUT", "regularization"),
        ("COLORS", "constants"),
    ],
)
def test_category_follows_from_the_words_of_a_name(name: str, category: str) -> None:
    """A name's words tell the kind of idea."""
    assert category_of(name) == category


WORDS = st.text(st.characters(exclude_characters='"\\\n\r', exclude_categories=["Cs", "Cc"]), max_size=12)
NUMBERS = st.one_of(
    st.integers(-(10**6), 10**6).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.booleans().map(str),
)


@st.composite
def scripts(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Return a script of constants with strange text around them, and the literals in order."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    lines, literals = [], []
    for index in range(draw(st.integers(1, 6))):
        literal = draw(NUMBERS)
        before = f'text{index} = "{draw(WORDS)}"; ' if draw(st.booleans()) else ""
        lines.append(f"{before}K{index}{draw(st.sampled_from([' = ', '=', ': int =  ']))}{literal}  # {draw(WORDS)}")
        literals.append(literal)
    return newline.join([f'"""{draw(WORDS)} """', *lines, ""]), literals


@given(scripts(), st.data())
def test_turning_and_turning_back_restores_every_byte(script: tuple[str, list[str]], data: st.DataObject) -> None:
    """Any literal can be replaced by any other and back, whatever stands around it, and nothing else moves."""
    text, literals = script
    artifact = Artifact({"train.py": text})
    knobs = find_knobs(artifact)
    assert [knob.source for knob in knobs] == literals
    chosen = data.draw(st.lists(st.sampled_from(knobs), unique=True, min_size=1))
    new = [data.draw(NUMBERS) for _ in chosen]
    turned = turn_all(artifact, list(zip(chosen, new, strict=True)))

    after = {knob.name: knob for knob in find_knobs(turned)}
    for knob, source in zip(chosen, new, strict=True):
        assert after[knob.name].source == source
        assert after[knob.name].value == ast.literal_eval(source)
    untouched = [knob for knob in knobs if knob not in chosen]
    assert all(after[knob.name].source == knob.source for knob in untouched)
    assert turn_all(turned, [(after[knob.name], knob.source) for knob in chosen]) == artifact
