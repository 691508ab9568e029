"""Finished tests of texts, whoever ran them: what the map of what resonates is made of.

A campaign writes its own down, one line of JSON each (`remember`, `recall`); an imported archive brings many more
(`from_archive`). `Pairs` says how much of the differences between arms is real, before any tags.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.marketing.archive import ArchiveTest
from autoresearch.core import UsageError

Vector = NDArray[np.float64]

TESTED_NAME = "tested.jsonl"
"""A campaign's own finished tests, in the folder of its state."""


@dataclass(frozen=True, slots=True)
class PastArm:
    """One arm of a finished test.

    Attributes:
        slots: Text by slot.
        n: Units.
        conversions: Those that converted.
    """

    slots: Mapping[str, str]
    n: int
    conversions: float


@dataclass(frozen=True, slots=True)
class PastTest:
    """A finished, randomised test of texts.

    Attributes:
        id: Its name; a test counts once.
        when: Sorts tests by time (an ISO date, a week).
        arms: Its arms, two or more.
    """

    id: str
    when: str
    arms: tuple[PastArm, ...]


def log_rate(arm: PastArm) -> float:
    """Return the log of an arm's rate, half a conversion more: arms without any have one too."""
    return math.log((arm.conversions + 0.5) / (arm.n + 1.0))


def log_rate_variance(arm: PastArm) -> float:
    """Return the variance of `log_rate` by counting."""
    return 1.0 / (arm.conversions + 0.5) - 1.0 / (arm.n + 1.0)


def from_archive(tests: Iterable[ArchiveTest]) -> tuple[PastTest, ...]:
    """Return tests of an archive with their headlines as texts, by week."""
    return tuple(
        PastTest(
            test.id, str(test.week), tuple(PastArm({"headline": arm.headline}, arm.n, arm.clicks) for arm in test.arms)
        )
        for test in tests
    )


@dataclass(frozen=True, slots=True)
class Pairs:
    """Log rate ratios of pairs of arms.

    Attributes:
        log_ratio: Shape (pairs,).
        variance: By counting.
    """

    log_ratio: Vector
    variance: Vector

    @classmethod
    def all_of(cls, tests: Iterable[PastTest]) -> Pairs:
        """Return every pair of arms of every test, the later over the earlier."""
        return cls._of(
            (test.arms[j], test.arms[i])
            for test in tests
            for i in range(len(test.arms))
            for j in range(i + 1, len(test.arms))
        )

    @classmethod
    def best_two(cls, tests: Iterable[PastTest]) -> Pairs:
        """Return the best arm of each test over the second best, by the rates that were seen."""
        ranked = (sorted(test.arms, key=lambda arm: (arm.conversions + 0.5) / (arm.n + 1.0)) for test in tests)
        return cls._of((arms[-1], arms[-2]) for arms in ranked)

    @classmethod
    def _of(cls, pairs: Iterable[tuple[PastArm, PastArm]]) -> Pairs:
        rows = [
            (log_rate(one) - log_rate(other), log_rate_variance(one) + log_rate_variance(other)) for one, other in pairs
        ]
        columns = np.array(rows, dtype=np.float64).reshape(-1, 2).T
        return cls(columns[0], columns[1])

    @property
    def spread(self) -> float:
        """Standard deviation of the true log ratios: sqrt((mean z² - 1) x median variance); 0 where z² says noise."""
        z2 = float((self.log_ratio**2 / self.variance).mean())
        return math.sqrt(max(z2 - 1.0, 0.0) * float(np.median(self.variance)))

    @property
    def overstatement(self) -> float:
        """How many times pairs with |z| > 1.96 overstate their effect, given the spread: mean size over shrunk size."""
        picked = np.abs(self.log_ratio) > 1.96 * np.sqrt(self.variance)
        sizes = np.abs(self.log_ratio[picked])
        shrunk = sizes * self.spread**2 / (self.spread**2 + self.variance[picked])
        return float(sizes.sum() / shrunk.sum())


def remember(state: Path, test: PastTest) -> None:
    """Write a finished, randomised test down for the map; the same test again changes nothing.

    Args:
        state: Folder of the campaign's state.
        test: The test with its final totals.
    """
    if test.id in {known.id for known in recall(state)}:
        return
    record = {
        "id": test.id,
        "when": test.when,
        "arms": [{"slots": dict(arm.slots), "n": arm.n, "conversions": arm.conversions} for arm in test.arms],
    }
    state.mkdir(parents=True, exist_ok=True)
    line = json.dumps(record, ensure_ascii=False, sort_keys=True) + "\n"
    # One write of a whole line: a kill leaves the line or nothing.
    handle = os.open(state / TESTED_NAME, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def recall(state: Path) -> tuple[PastTest, ...]:
    """Return the tests written down by `remember`.

    Raises:
        UsageError: If the file is damaged; names the line.
    """
    path = state / TESTED_NAME
    if not path.exists():
        return ()
    tests = []
    # Not splitlines: texts may hold line separators of Unicode, which JSON leaves as they are.
    for number, line in enumerate(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"), 1):
        try:
            record = json.loads(line)
            arms = tuple(PastArm(arm["slots"], arm["n"], arm["conversions"]) for arm in record["arms"])
            tests.append(PastTest(record["id"], record["when"], arms))
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{path}, line {number}, is damaged: {error}.\nTake the line out; the map then leaves that test out."
            ) from error
    return tuple(tests)
