"""Past tests as visitors."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.adapters.marketing.archive import ArchiveArm, ArchiveTest
from autoresearch.adapters.marketing.replay import ReplaySource, choose_test, dealt
from autoresearch.core import ArmTotals, CandidateError, LiveExperiment, Outcome, UsageError

PAST = ArchiveTest(
    "t1", 201303, (ArchiveArm("One", "", 3003, 40), ArchiveArm("Two", "", 2998, 61), ArchiveArm("Three", "", 3000, 0))
)


def headline_of(folder: Path) -> str:
    return (folder / "headline").read_text()


def experiment(tmp_path: Path, name: str, control: str, treatment: str) -> LiveExperiment:
    folders = []
    for arm, text in (("control", control), ("treatment", treatment)):
        folder = tmp_path / name / arm
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "headline").write_text(text)
        folders.append(folder)
    split = {"control": 0.5, "treatment": 0.5}
    return LiveExperiment(name, folders[0], folders[1], split, datetime(2026, 3, 1, tzinfo=UTC))


def source(tmp_path: Path, **options: int) -> ReplaySource:
    return ReplaySource(PAST, tmp_path / "state", headline_of, **options)


@given(n=st.integers(0, 10**6), share=st.floats(0, 1), days=st.integers(1, 60), seed=st.integers(0, 99))
def test_dealing_loses_nobody(n: int, share: float, days: int, seed: int) -> None:
    """Days sum to the test, no day has more clicks than impressions, and days are alike in size."""
    shown, clicks = dealt(n, int(n * share), days, np.random.default_rng(seed))
    assert shown.sum() == n
    assert clicks.sum() == int(n * share)
    assert (clicks <= shown).all()
    assert shown.max() - shown.min() <= 1


def test_a_replay_ends_with_the_recorded_totals(tmp_path: Path) -> None:
    """Day by day the totals grow, and on the last one they are exactly the archive's."""
    replay, live = source(tmp_path, days=7), experiment(tmp_path, "r/1", "One", "Two")
    replay.start(live)
    seen = [replay.observe("r/1") for _ in range(7)]
    assert seen[-1] == (ArmTotals("control", 3003, 40, 40), ArmTotals("treatment", 2998, 61, 61))
    assert all(later[0].n > earlier[0].n and later[1].total >= earlier[1].total for earlier, later in pairwise(seen))
    assert seen[0] == replay.totals("r/1", 1)
    assert replay.exhausted("r/1")
    assert replay.day("r/1") == 7
    assert replay.observe("r/1") == seen[-1]


def test_a_replay_outlives_its_process(tmp_path: Path) -> None:
    """Another process goes on with the next day; starting again changes nothing."""
    live = experiment(tmp_path, "r/1", "One", "Two")
    first = source(tmp_path)
    first.start(live)
    first.observe("r/1")
    second = source(tmp_path)
    second.start(live)
    assert second.observe("r/1") == first.totals("r/1", 2)
    second.finish("r/1", Outcome.KEPT)
    assert not second.exhausted("r/1")


def test_experiments_and_seeds_deal_anew(tmp_path: Path) -> None:
    """The same pair in another experiment, or with another seed, comes in another order."""
    for name in ("r/1", "r/2"):
        source(tmp_path).start(experiment(tmp_path, name, "One", "Two"))
    days = [tuple(source(tmp_path).totals(name, day)[1].total for day in range(1, 14)) for name in ("r/1", "r/2")]
    other = tuple(source(tmp_path, seed=1).totals("r/1", day)[1].total for day in range(1, 14))
    assert len({*days, other}) == 3


def test_what_nobody_saw_cannot_be_judged(tmp_path: Path) -> None:
    """A new headline is the candidate's fault, and the message lists those that can be judged."""
    with pytest.raises(CandidateError, match=r"Nobody ever saw the headline 'New'.*'One'; 'Two'; 'Three'"):
        source(tmp_path).start(experiment(tmp_path, "r/1", "One", "New"))


def test_looking_before_starting_is_refused(tmp_path: Path) -> None:
    """There is nothing to see of an experiment that was never started."""
    with pytest.raises(UsageError, match="was never started"):
        source(tmp_path).observe("r/1")


def test_a_damaged_state_is_said_to_be(tmp_path: Path) -> None:
    """Half a state file is not taken for an empty one."""
    replay = source(tmp_path)
    replay.start(experiment(tmp_path, "r/1", "One", "Two"))
    (tmp_path / "state" / "replay.json").write_text('{"r/1": ')
    with pytest.raises(UsageError, match="is damaged"):
        replay.observe("r/1")


def test_a_test_of_one_headline_is_no_test(tmp_path: Path) -> None:
    """Two arms with one text have nothing to compare."""
    with pytest.raises(UsageError, match="fewer than two headlines"):
        ReplaySource(ArchiveTest("t", 201303, PAST.arms[:1]), tmp_path, headline_of)
    with pytest.raises(ValueError, match="one day at least"):
        ReplaySource(PAST, tmp_path, headline_of, days=0)


def test_the_largest_test_is_chosen_unless_one_is_named() -> None:
    """Without a name the test with most people and headlines is replayed."""
    small = ArchiveTest("t0", 201303, (ArchiveArm("a", "", 10, 1), ArchiveArm("b", "", 10, 1)))
    assert choose_test([small, PAST]) is PAST
    assert choose_test([small, PAST], "t0") is small
    with pytest.raises(UsageError, match="no test 't7'"):
        choose_test([small, PAST], "t7")
    with pytest.raises(UsageError, match="no test None"):
        choose_test([])
