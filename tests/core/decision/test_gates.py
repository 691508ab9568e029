"""The gates: split, harm, whole weeks."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.core.adapter import ArmTotals, Direction
from autoresearch.core.decision.gates import (
    WEEK,
    ceiling_gate,
    end_of_week,
    harm_gate,
    log_split_e,
    split_gate,
)
from autoresearch.core.decision.race_bernoulli import Counts

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
DAY = timedelta(days=1)


def arms(control: int, treatment: int) -> list[ArmTotals]:
    return [ArmTotals("control", control, 0.0, 0.0), ArmTotals("treatment", treatment, 0.0, 0.0)]


HALVES = {"control": 0.5, "treatment": 0.5}


def test_split_e_value_is_the_ratio_of_marginal_likelihoods() -> None:
    """Two units in two arms, by hand: both in one arm is worth (50*51)/(100*101) over a quarter."""
    assert math.exp(log_split_e([2, 0], [0.5, 0.5])) == pytest.approx(50 * 51 / (100 * 101) * 4)
    assert log_split_e([0, 0], [0.5, 0.5]) == pytest.approx(0.0)


@given(st.floats(0.02, 0.98), st.integers(1, 30))
def test_split_e_value_has_expectation_one_where_the_split_is_sound(share: float, n: int) -> None:
    """Exactly, by enumeration."""
    expected = sum(
        math.comb(n, k) * share**k * (1 - share) ** (n - k) * math.exp(log_split_e([k, n - k], [share, 1 - share]))
        for k in range(n + 1)
    )
    assert expected == pytest.approx(1.0, rel=1e-9)


def test_a_sound_split_passes_and_a_broken_one_says_what_was_found() -> None:
    """51 % of 100,000 is broken where halves were meant; 50.2 % is not."""
    assert split_gate(arms(50_200, 49_800), HALVES).passed
    broken = split_gate(arms(51_000, 49_000), HALVES)
    assert not broken.passed and broken.e is not None and broken.e > 1000
    assert "51.00%" in broken.reason and "50.00% was meant" in broken.reason


def test_a_split_is_broken_above_a_thousand() -> None:
    """The gate turns where the e-value passes 1000, and not before."""
    first_broken = next(n for n in range(50_000, 51_000) if log_split_e([n, 100_000 - n], [0.5, 0.5]) > math.log(1000))
    assert not split_gate(arms(first_broken, 100_000 - first_broken), HALVES).passed
    assert split_gate(arms(first_broken - 1, 100_001 - first_broken), HALVES).passed


def test_an_unequal_split_is_tested_against_its_own_shares() -> None:
    """Nine to one passes where nine to one was meant, and three arms are as good as two."""
    assert split_gate(arms(9_000, 1_000), {"control": 0.9, "treatment": 0.1}).passed
    assert not split_gate(arms(9_000, 1_000), HALVES).passed
    three = [*arms(1000, 1010), ArmTotals("other", 990, 0.0, 0.0)]
    assert split_gate(three, {"control": 0.34, "treatment": 0.33, "other": 0.33}).passed


def test_split_is_watched_at_any_time() -> None:
    """Of 2,000 sound splits looked at after each of 40 days, hardly any ever passes 1000."""
    rng = np.random.default_rng(1)
    counts = rng.binomial(500, 0.5, (2000, 40)).cumsum(axis=1)
    ever = sum(
        any(log_split_e([int(k), 500 * (day + 1) - int(k)], [0.5, 0.5]) > math.log(20) for day, k in enumerate(row))
        for row in counts[:300]
    )
    assert ever / 300 <= 0.05


@pytest.mark.parametrize(
    ("counts", "split"), [([1], [1.0]), ([1, -1], [0.5, 0.5]), ([1, 1], [0.5, 0.6]), ([1, 1], [1.0, 0.0])]
)
def test_impossible_splits_are_refused(counts: list[int], split: list[float]) -> None:
    """One arm, negative counts, shares that do not sum to one or are zero."""
    with pytest.raises(ValueError, match=r"split test|must not be negative"):
        log_split_e(counts, split)


def test_arms_must_be_the_same() -> None:
    """An arm without a share is an error that names both lists."""
    with pytest.raises(ValueError, match="control"):
        split_gate(arms(1, 1), {"control": 0.5, "b": 0.5})


def complaints(per_look_a: int, per_look_b: int, looks: int = 10) -> Counts:
    ones = np.ones(looks)
    return Counts.of(1000 * ones, per_look_a * ones, 1000 * ones, per_look_b * ones)


def test_harm_is_seen_and_named() -> None:
    """Twice the complaints stop a test; equal ones and fewer do not."""
    harmed = harm_gate(complaints(10, 20), effect=0.5, name="complaints")
    assert not harmed.passed and "harms complaints" in harmed.reason
    assert harm_gate(complaints(10, 10), effect=0.5).passed
    assert harm_gate(complaints(10, 4), effect=0.5).passed


def test_harm_where_fewer_is_worse() -> None:
    """A guardrail of purchases is harmed by fewer of them."""
    assert not harm_gate(complaints(100, 60), effect=0.2, worse=Direction.MINIMIZE).passed
    assert harm_gate(complaints(60, 100), effect=0.2, worse=Direction.MINIMIZE).passed


def test_tolerated_harm_is_tolerated() -> None:
    """With 150 % more tolerated, twice as many complaints pass."""
    assert harm_gate(complaints(10, 20), effect=0.5, tolerated=1.5).passed


def test_harm_once_shown_stays_shown() -> None:
    """Better figures later do not take it back."""
    bad = complaints(10, 30)
    good = complaints(60, 10)
    both = Counts.of(*(np.append(getattr(bad, k), getattr(good, k)) for k in ("n_a", "x_a", "n_b", "x_b")))
    assert not harm_gate(both, effect=0.5).passed


def test_false_alarms_of_harm_are_rare() -> None:
    """Of 1,000 harmless treatments watched for 20 looks at most 1 % are stopped, give or take luck."""
    rng = np.random.default_rng(2)
    x = rng.binomial(500, 0.02, (2, 1000, 20))
    n = np.full(20, 500)
    stopped = sum(not harm_gate(Counts.of(n, a, n, b), effect=0.3).passed for a, b in zip(*x, strict=True))
    assert stopped / 1000 <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 1000)


def test_harm_needs_sensible_numbers() -> None:
    """Rates and effects out of range get a sentence."""
    with pytest.raises(ValueError, match="0 < alpha < 1"):
        harm_gate(complaints(1, 1), effect=0.0)


@given(st.floats(-5, 100))
def test_tests_end_after_whole_weeks_at_least_one(days: float) -> None:
    """The end is a whole number of weeks after the start, never before the moment, never a week too late."""
    moment = START + timedelta(days=days)
    end = end_of_week(START, moment)
    assert (end - START) % WEEK == timedelta(0) and end - START >= WEEK
    assert end >= moment
    assert end == START + WEEK or end - moment < WEEK


def test_a_ceiling_is_passed_only_on_evidence() -> None:
    """3 complaints of 600 say nothing against 0.3 %; 30 of 3,000 do, with the rate in the reason."""
    assert ceiling_gate(600, 3, 0.003).passed
    broken = ceiling_gate(3000, 30, 0.003, name="complaint")
    assert not broken.passed and broken.reason.startswith("complaint of the treatment is 1.00%, above the ceiling")


def test_a_rate_at_the_ceiling_is_rarely_called_too_high() -> None:
    """Looked at after every hundred of 5,000 units, at most one test in a hundred is stopped."""
    random = np.random.default_rng(5)
    stopped = 0
    for events in np.cumsum(random.binomial(100, 0.01, (2000, 50)), axis=1):
        stopped += any(not ceiling_gate(100 * (i + 1), int(x), 0.01).passed for i, x in enumerate(events))
    assert stopped / 2000 <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 2000)


@pytest.mark.parametrize(("n", "events", "ceiling"), [(10, 11, 0.1), (10, -1, 0.1), (10, 1, 0.0), (10, 1, 1.0)])
def test_a_ceiling_refuses_impossible_numbers(n: float, events: float, ceiling: float) -> None:
    """More events than units, or a ceiling that is no rate."""
    with pytest.raises(ValueError, match="A ceiling needs"):
        ceiling_gate(n, events, ceiling)
