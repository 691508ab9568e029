"""The gates of tests of several arms, from looks alone."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from autoresearch.adapters.marketing.sources import Seen
from autoresearch.adapters.marketing.watch import invalid
from autoresearch.core import ArmTotals
from autoresearch.core.decision.gates import SPLIT_LEVEL, log_split_e

SPLIT = {"control": 0.25, "treatment-1": 0.25, "treatment-2": 0.25, "treatment-3": 0.25}
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)


def looks(*exposed: dict[str, int], crossed: int = 0) -> list[Seen]:
    """Return looks of an experiment, a day apart."""
    nobody = (ArmTotals("control", 0, 0.0, 0.0), ArmTotals("treatment", 0, 0.0, 0.0))
    return [Seen(nobody, row, crossed, {}, MONDAY + timedelta(days=day)) for day, row in enumerate(exposed)]


def arms(*counts: int, out: tuple[str, ...] = ()) -> dict[str, int]:
    """Return exposed units by arm, without the arms that are out."""
    return {arm: n for arm, n in zip(SPLIT, counts, strict=True) if arm not in out}


def test_an_arm_that_is_out_breaks_no_split() -> None:
    """From then on the others grow and it does not; they are judged in the shares that they have of each other."""
    early, late = arms(500, 500, 500, 500), arms(3000, 500, 3010, 2990, out=("treatment-1",))
    assert invalid(looks(early, late), SPLIT) is None
    assert "The split is broken" in (invalid(looks(early, arms(3000, 500, 3010, 2990)), SPLIT) or "")


def test_what_is_left_is_still_judged() -> None:
    """A bias among the arms that go on is found, in their own shares."""
    late = arms(3000, 500, 3600, 3000, out=("treatment-1",))
    reason = invalid(looks(arms(500, 500, 500, 500), late), SPLIT) or ""
    assert "treatment-2 3600 (37.50%)" in reason and "control 33.33%" in reason


def test_evidence_against_a_split_is_not_forgotten_with_an_arm() -> None:
    """A split that was broken while the arm was shown stays broken when it is out: the evidence is carried along."""
    early = arms(500, 900, 500, 500)
    assert invalid(looks(early), SPLIT) is not None
    assert invalid(looks(early, arms(600, 900, 600, 600, out=("treatment-1",))), SPLIT) is not None


def test_evidence_is_a_product_over_the_periods() -> None:
    """What the periods say multiplies up, whenever looks are taken in between; one arm less each time."""
    first, second = arms(500, 560, 480, 520), arms(900, 560, 800, 860, out=("treatment-1",))
    last = arms(1100, 560, 800, 1200, out=("treatment-1", "treatment-2"))
    third = [1 / 3] * 3

    def log_e(counts: list[int], shares: list[float]) -> float:
        return log_split_e(counts, shares)

    expected = (
        log_e([500, 560, 480, 520], list(SPLIT.values()))
        + (log_e([900, 800, 860], third) - log_e([500, 480, 520], third))
        + (log_e([1100, 1200], [0.5, 0.5]) - log_e([900, 860], [0.5, 0.5]))
    )
    # At the level exactly where the product lies the gate still passes; a little more of the same and it does not.
    for scale in (1, 9):
        rows = [{arm: n * scale for arm, n in row.items()} for row in (first, second, last)]
        broken = invalid(looks(*rows), SPLIT) is not None
        assert broken == (scale == 9)
    assert expected < math.log(SPLIT_LEVEL)
    between = arms(700, 560, 630, 700, out=("treatment-1",))
    assert (invalid(looks(first, between, second, last), SPLIT) is None) == (
        invalid(looks(first, second, last), SPLIT) is None
    )


def test_taking_arms_out_by_their_counts_breaks_no_sound_split() -> None:
    """Even if the arm with most people is always the one that goes, no sound test of 300 is called broken."""
    rng = np.random.default_rng(7)
    for _ in range(300):
        counts, shown = dict.fromkeys(SPLIT, 0), list(SPLIT)
        series = []
        for day in range(6):
            drawn = rng.multinomial(400, list(SPLIT.values()))
            for arm, n in zip(SPLIT, drawn, strict=True):
                counts[arm] += int(n) if arm in shown else 0
            series.append({arm: counts[arm] for arm in shown})
            if day in (1, 3):
                shown.remove(max(shown[1:], key=lambda arm: counts[arm]))
        assert invalid(looks(*series), SPLIT) is None


@pytest.mark.parametrize(("crossed", "says"), [(20, None), (60, "60 of 2000 units saw several arms")])
def test_people_in_several_arms_are_counted_over_all_of_them(crossed: int, says: str | None) -> None:
    """One in a hundred is a lost cookie, however many arms there are."""
    found = invalid(looks(arms(500, 500, 500, 500), crossed=crossed), SPLIT)
    assert found is None if says is None else says in (found or "")
