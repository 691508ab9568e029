from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from autoresearch.adapters.marketing.assignment import (
    HOLDOUT_SHARE,
    Part,
    bucket,
    check_split,
    held_out,
    layer_position,
    parts,
    pick,
)

UNITS = [f"unit-{i}" for i in range(20_000)]
LEVEL = 1e-3  # each test below rejects a sound hash with this chance; seeds are fixed, so it passes or fails for ever


def fnv1a(text: str) -> int:
    """FNV-1a, 32 bits: the hash of GrowthBook's SDKs, here as a reference to measure ours against."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def growthbook(version: int, seed: str, unit: str) -> float:
    if version == 1:
        return fnv1a(unit + seed) % 1000 / 1000
    return fnv1a(str(fnv1a(seed + unit))) % 10000 / 10000


def uniform_p(position: Callable[[str], float], cells: int = 100) -> float:
    counts = np.bincount([int(position(unit) * cells) for unit in UNITS], minlength=cells)
    return float(stats.chisquare(counts).pvalue)


def test_published_hash_vectors() -> None:
    """The reference hash gives the four values that GrowthBook publishes for its SDKs."""
    assert growthbook(1, "", "a") == 0.22
    assert growthbook(1, "b", "a") == 0.946
    assert growthbook(2, "seed", "a") == 0.0505
    assert growthbook(2, "foo", "def") == 0.2019


def test_bucket_is_the_head_of_sha256() -> None:
    """A position can be recomputed from the salt and the unit by anybody with SHA-256."""
    digest = hashlib.sha256(b"salt\0unit").digest()
    assert bucket("salt", "unit") == (int.from_bytes(digest[:8], "big") >> 11) / 2**53


@pytest.mark.parametrize("salt", ["a", "b", "test/0001", "test/0002", "é"])
def test_positions_are_uniform(salt: str) -> None:
    """Consecutive ids fall evenly over a hundred cells."""
    assert uniform_p(lambda unit: bucket(salt, unit)) > LEVEL


def test_the_uniformity_test_sees_a_bad_hash() -> None:
    """A hash that leans fails the test that ours passes."""
    assert uniform_p(lambda unit: bucket("a", unit) ** 1.2) < LEVEL


@pytest.mark.parametrize("other", ["test/0002", "test/0001 ", "Test/0001", "test/00011"])
def test_experiments_are_independent(other: str) -> None:
    """Arms under two salts, however alike the salts are, form a table without association."""
    table = np.zeros((2, 2))
    for unit in UNITS:
        table[int(bucket("test/0001", unit) * 2), int(bucket(other, unit) * 2)] += 1
    assert stats.chi2_contingency(table, correction=False).pvalue > LEVEL


def test_first_version_of_another_hash_is_dependent() -> None:
    """The independence test can fail: under FNV-1a mod 1000 two similar salts are associated."""
    table = np.zeros((10, 10))
    for unit in UNITS:
        table[int(growthbook(1, "test-1", unit) * 10), int(growthbook(1, "test-2", unit) * 10)] += 1
    assert stats.chi2_contingency(table).pvalue < 1e-12


def test_holdout_has_its_share_and_is_independent_of_tests() -> None:
    """The permanent holdout is 5 % of all units and of each arm."""
    held = np.array([held_out("campaign", unit) for unit in UNITS])
    arm = np.array([bucket("test", unit) < 0.5 for unit in UNITS])
    assert stats.binomtest(int(held.sum()), len(UNITS), HOLDOUT_SHARE).pvalue > LEVEL
    table = [[(held & arm).sum(), (held & ~arm).sum()], [(~held & arm).sum(), (~held & ~arm).sum()]]
    assert stats.chi2_contingency(table, correction=False).pvalue > LEVEL


def test_surfaces_exclude_each_other() -> None:
    """Every unit is in the part of exactly one surface, and the parts are equally large."""
    layer = parts(["page", "mail", "ad"])
    counts = dict.fromkeys(layer, 0)
    for unit in UNITS:
        inside = [name for name, part in layer.items() if layer_position("campaign", unit) in part]
        assert len(inside) == 1
        counts[inside[0]] += 1
    assert stats.chisquare(list(counts.values())).pvalue > LEVEL


def test_a_part_keeps_the_split() -> None:
    """Within one surface's part of the layer the arms keep their shares: layer and test have different salts."""
    part = parts(["page", "mail"])["mail"]
    inside = [unit for unit in UNITS if layer_position("campaign", unit) in part]
    treated = sum(pick(bucket("test", unit), {"control": 0.8, "treatment": 0.2}) == "treatment" for unit in inside)
    assert stats.binomtest(treated, len(inside), 0.2).pvalue > LEVEL


def test_pick_cuts_at_cumulative_shares() -> None:
    """Arms lie side by side; an edge belongs to the arm above it."""
    split = {"control": 0.5, "a": 0.25, "b": 0.25}
    found = [pick(position, split) for position in (0.0, 0.4999, 0.5, 0.7499, 0.75, math.nextafter(1.0, 0.0))]
    assert found == ["control", "control", "a", "a", "b", "b"]


@pytest.mark.parametrize("split", [{"control": 1.0}, {"control": 0.5, "a": 0.4}, {"control": 1.0, "a": 0.0}])
def test_impossible_splits_are_refused(split: dict[str, float]) -> None:
    """One arm, a sum that is not 1 and an arm without units are no split."""
    with pytest.raises(ValueError, match="two or more arms"):
        check_split(split)


@pytest.mark.parametrize(("start", "end"), [(0.5, 0.5), (-0.1, 1.0), (0.0, 1.1)])
def test_impossible_parts_are_refused(start: float, end: float) -> None:
    """A part of a layer is not empty and lies within it."""
    with pytest.raises(ValueError, match="part of a layer"):
        Part(start, end)
