"""Past tests with real people decide what visitors do: a dress rehearsal of the loop on outcomes that happened.

A campaign replays one past test. Its headlines are the only ones that can be judged, for only they were ever shown;
everything else a visitor does not see. An experiment shows the incumbent's headline and a candidate's, each to as
many people a day as the past test gave it, and they click as they did: the recorded impressions and clicks are dealt
out over the days by lot, without putting any back, so that on the last day the totals are exactly those of the archive.

The same people answer for a headline in every experiment of a run. Experiments that share an arm therefore share its
luck, as they do not with fresh visitors.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoresearch.adapters.marketing.archive import ArchiveArm, ArchiveTest
from autoresearch.core import ArmTotals, CandidateError, LiveExperiment, Outcome, UsageError

Whole = NDArray[np.int64]

DAYS = 14
"""Days over which a past test is dealt out."""
STATE_NAME = "replay.json"


def dealt(n: int, clicks: int, days: int, rng: np.random.Generator) -> tuple[Whole, Whole]:
    """Deal out impressions and clicks over days, by lot and without replacement.

    Args:
        n: Impressions of the whole test.
        clicks: Clicks among them.
        days: Number of days.
        rng: Decides which impressions fall on which day.

    Returns:
        Impressions and clicks of each day, both of shape (days,), which sum to `n` and `clicks`. Days differ by one
        impression at most.
    """
    edges = np.arange(days + 1, dtype=np.int64) * n // days
    shown = np.diff(edges)
    return shown, rng.multivariate_hypergeometric(shown, clicks, method="marginals")


@dataclass(frozen=True, slots=True)
class _Progress:
    """Where one experiment stands: its headlines, and how many days were looked at."""

    control: str
    treatment: str
    day: int = 0


class ReplaySource:
    """Answers for visitors from one past test.

    Args:
        test: The past test; arms that differ in their headline only, see `ArchiveTest.headline_arms`.
        state: Folder of the campaign's state; what was started is written there and outlives the process.
        headline_of: Returns the headline of an arm's folder.
        days: Days of each experiment; each `observe` is one.
        seed: Decides on which day each recorded person came.
    """

    def __init__(
        self,
        test: ArchiveTest,
        state: Path,
        headline_of: Callable[[Path], str],
        *,
        days: int = DAYS,
        seed: int = 0,
    ) -> None:
        if days < 1:
            raise ValueError(f"A replay takes one day at least, not {days}.")
        self._arms = {arm.headline: arm for arm in test.arms}
        if len(self._arms) < 2:
            raise UsageError(
                f"The past test {test.id} has fewer than two headlines to compare.\nReplay another one of the archive."
            )
        self._test, self._path, self._headline_of = test, state / STATE_NAME, headline_of
        self._days, self._seed = days, seed

    @property
    def headlines(self) -> tuple[str, ...]:
        """What can be judged, in the order of the archive."""
        return tuple(self._arms)

    def check(self, headline: str) -> None:
        """Raise `CandidateError` for a headline that was never shown to anybody."""
        if headline not in self._arms:
            raise CandidateError(
                f"Nobody ever saw the headline {headline!r}, and a replay knows only what people did. Choose one of: "
                + "; ".join(map(repr, self._arms))
            )

    def start(self, experiment: LiveExperiment) -> None:
        """Begin an experiment; once more, with the same arms, changes nothing.

        Raises:
            CandidateError: If an arm's headline was never shown.
        """
        control, treatment = self._headline_of(experiment.control), self._headline_of(experiment.treatment)
        for headline in (control, treatment):
            self.check(headline)
        known = self._load()
        known.setdefault(experiment.id, _Progress(control, treatment))
        self._save(known)

    def observe(self, experiment_id: str) -> tuple[ArmTotals, ArmTotals]:
        """Let one more day pass and return the totals so far; after the last day they stay as they are.

        Raises:
            UsageError: If it was never started.
        """
        known = self._load()
        progress = self._started(known, experiment_id)
        day = min(progress.day + 1, self._days)
        known[experiment_id] = _Progress(progress.control, progress.treatment, day)
        self._save(known)
        return self.totals(experiment_id, day)

    def totals(self, experiment_id: str, day: int) -> tuple[ArmTotals, ArmTotals]:
        """Return the totals of control and treatment after a number of days; the same whenever it is asked.

        Raises:
            UsageError: If the experiment was never started.
        """
        progress = self._started(self._load(), experiment_id)
        arms = (("control", progress.control), ("treatment", progress.treatment))
        control, treatment = (self._upto(experiment_id, name, self._arms[text], day) for name, text in arms)
        return control, treatment

    def day(self, experiment_id: str) -> int:
        """Return how many days of an experiment were looked at."""
        return self._started(self._load(), experiment_id).day

    def exhausted(self, experiment_id: str) -> bool:
        """Say whether the past test has nothing more to tell of this experiment."""
        return self.day(experiment_id) >= self._days

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        """Nothing has to be taken down: nobody is being shown anything."""

    def _upto(self, experiment_id: str, name: str, arm: ArchiveArm, day: int) -> ArmTotals:
        # A seed for each arm of each experiment: which arm is asked first must not matter.
        key = json.dumps([self._seed, self._test.id, experiment_id, name, arm.headline]).encode()
        rng = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()))
        shown, clicks = dealt(arm.n, arm.clicks, self._days, rng)
        total = float(clicks[:day].sum())
        return ArmTotals(name, int(shown[:day].sum()), total, total)

    def _started(self, known: dict[str, _Progress], experiment_id: str) -> _Progress:
        if experiment_id not in known:
            raise UsageError(
                f"The replay of {experiment_id} was never started here.\nStart the experiment before looking at it."
            )
        return known[experiment_id]

    def _load(self) -> dict[str, _Progress]:
        try:
            stored: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise UsageError(
                f"{self._path} is damaged: {error}.\nDelete it; the experiment in flight then begins anew."
            ) from error
        return {name: _Progress(**fields) for name, fields in stored.items()}

    def _save(self, known: dict[str, _Progress]) -> None:
        stored = {
            name: {"control": one.control, "treatment": one.treatment, "day": one.day} for name, one in known.items()
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(f".{STATE_NAME}.{os.getpid()}.partial")
        partial.write_text(json.dumps(stored, ensure_ascii=False), encoding="utf-8")
        partial.replace(self._path)


def choose_test(tests: Sequence[ArchiveTest], name: str | None = None) -> ArchiveTest:
    """Return the past test with that name or, without one, that with most impressions times headlines.

    Args:
        tests: Tests of headlines, see `archive.headline_tests`.
        name: As in the archive.

    Raises:
        UsageError: If there is no such test.
    """
    if name is None and tests:
        return max(tests, key=lambda test: (sum(arm.n for arm in test.arms) * len(test.arms), test.id))
    for test in tests:
        if test.id == name:
            return test
    raise UsageError(
        f"The imported archive has no test {name!r} that varies headlines and has a sound split.\n"
        "Leave [replay] test out to take the largest, or import an archive: autoresearch marketing import FILE"
    )
