from __future__ import annotations

import ast
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from autoresearch.core.artifact import Artifact
from autoresearch.core.proposers.knobs import FoundKnob, Knob, find_knobs
from autoresearch.core.proposers.ladders import Ladder, ladder_of


def found(source: str, name: str = "VALUE", **kinds: object) -> FoundKnob:
    knob = Knob(name, "a.py", **kinds)  # type: ignore[arg-type]
    return find_knobs(Artifact({"a.py": f"{name} = {source}\n"}), [knob])[0]


def ladder(source: str, name: str = "VALUE", **kinds: object) -> Ladder:
    return ladder_of(found(source, name, **kinds))


@pytest.mark.parametrize(
    ("source", "name", "kinds", "rungs"),
    [
        ("0.02", "LR", {"low": 0.01, "high": 0.05}, ("0.01", "0.014", "0.02", "0.028", "0.04")),
        ("3e-4", "LR", {"low": 2e-4, "high": 5e-4}, ("2.1e-4", "3e-4", "4.2e-4")),
        ("64", "BATCH", {"low": 16, "high": 200}, ("16", "32", "64", "128")),
        ("2**19", "TOTAL_BATCH", {"low": 2**18, "high": 2**20}, ("2**18", "2**19", "2**20")),
        ("1_024", "BATCH", {"low": 512, "high": 2048}, ("512", "1_024", "2_048")),
        ("8", "DEPTH", {"low": 5, "high": 12}, ("6", "8", "11")),
        ("3", "DEPTH", {}, ("1", "2", "3", "4", "5", "6", "7", "8")),
        ("768", "N_EMBD", {"low": 300, "high": 1600}, ("384", "512", "768", "1152", "1536")),
        ("0.95", "MOMENTUM", {"low": 0.9, "high": 0.98}, ("0.9", "0.929", "0.95", "0.965", "0.975")),
        ("0.6", "WARMDOWN", {"low": 0.3}, ("0.4", "0.6", "0.8", "1.0")),
        ("5", "STEPS", {"log": False, "low": 3, "high": 7}, ("3", "4", "5", "6", "7")),
        ("0", "EXTRA", {}, ("0", "1", "2", "4", "8")),
        ("0.0", "DROPOUT", {"high": 0.2}, ("0.0", "0.01", "0.03", "0.1")),
        ("-2", "SHIFT", {"low": -3, "high": 0}, ("-3", "-2", "-1", "0")),
        ("-0.5", "SHIFT", {"low": -1, "high": -0.3}, ("-1.0", "-0.71", "-0.5", "-0.35")),
        ("True", "FLAG", {}, ("False", "True")),
        ('"L"', "WINDOWS", {"choices": ('"L"', '"SL"')}, ('"L"', '"SL"')),
        ('"X"', "WINDOWS", {"choices": ('"L"', '"SL"')}, ('"X"', '"L"', '"SL"')),
        ("0.9", "BETA", {"choices": ("0.99", "0.8")}, ("0.8", "0.9", "0.99")),
        ("48", "CONTEXT", {"power_of_two": False, "low": 30, "high": 70}, ("32", "48", "64")),
    ],
)
def test_rungs(source: str, name: str, kinds: dict[str, object], rungs: tuple[str, ...]) -> None:
    """A ladder goes in steps that suit the kind of number, inside the declared range, in the manner of the text."""
    assert ladder(source, name, **kinds).sources == rungs


@given(st.one_of(st.integers(-(10**6), 10**6), st.floats(-1e12, 1e12, allow_subnormal=False)), st.booleans())
def test_every_ladder_keeps_its_kind(value: float, is_share: bool) -> None:
    """Whatever the value, its own text is a rung, rungs ascend, ints stay ints, and positive ints stay at least 1."""
    assume(value == 0 or abs(value) > 1e-200)
    steps = ladder_of(found(repr(value), "DROPOUT" if is_share else "VALUE"))
    values = [ast.literal_eval(source) for source in steps.sources]
    assert repr(value) in steps.sources
    assert values == sorted(set(values))
    assert all(type(rung) is type(value) and math.isfinite(rung) for rung in values)
    assert len(values) >= 2
    if value > 0:
        assert all(rung >= (1 if isinstance(value, int) else 0) for rung in values)


@given(st.integers(2, 40))
def test_powers_of_two_stay_powers_of_two(exponent: int) -> None:
    """An int that is a power of two has rungs that are."""
    for source in ladder(str(2**exponent)).sources:
        assert int(source).bit_count() == 1


@given(st.floats(0.001, 1000), st.floats(0.001, 1000), st.floats(0.001, 1000))
def test_range_is_respected(low: float, value: float, high: float) -> None:
    """No rung but the baseline's own lies outside the declared range."""
    assume(low < high)
    for source in ladder(repr(value), low=low, high=high).sources:
        assert source == repr(value) or low <= float(source) <= high


def test_position_finds_rungs_by_value_and_places_others_between() -> None:
    """A text stands on its rung however it is written, half-way between rungs, or nowhere."""
    steps = ladder("2**10", "BATCH", low=512, high=2048)
    assert [steps.position(text) for text in ("512", "1024", "2**11", "600", "9999", "x")] == [0, 1, 2, 0.5, 2.5, None]
    assert ladder("True").position("None") is None
