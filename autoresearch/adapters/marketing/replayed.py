"""Traffic of a past test: its real people decide, day by day, what the visitors of a rehearsal do."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from autoresearch.adapters.marketing.campaign import Campaign, Keys, typed_table
from autoresearch.adapters.marketing.replay import ReplaySource
from autoresearch.adapters.marketing.sources import Seen
from autoresearch.adapters.marketing.wording import Copy
from autoresearch.core import LiveExperiment

KEYS: Keys = {"archive": str, "test": str, "slot": str, "days": int}
"""What `[replay]` of campaign.toml may hold."""

_BEGAN = datetime(2000, 1, 3, tzinfo=UTC)  # a Monday; a rehearsal has no date of its own


class ReplayedSource:
    """Rehearses on one past test of an archive.

    Args:
        campaign: The campaign; `[replay]` names the archive's file, the test and the slot that holds the headline.
        seed: Decides on which day each recorded person came.
    """

    label = "replayed: real people of a past test"

    def __init__(self, campaign: Campaign, *, seed: int = 0) -> None:
        self._campaign, self._seed = campaign, seed
        self._table = typed_table(campaign.path, "replay", campaign.sources.get("replay", {}), KEYS)
        self._replay: ReplaySource | None = None

    @property
    def replay(self) -> ReplaySource:
        """The past test. Raises RuntimeError before `prepare`."""
        if self._replay is None:
            raise RuntimeError("prepare() opens the archive; call it first.")
        return self._replay

    def prepare(self) -> None:
        """Open the archive and choose the test.

        Raises:
            UsageError: If the archive is missing or broken, or has no such test.
        """
        from autoresearch.adapters.marketing.archive import ARCHIVE_NAME, headline_tests, read_archive
        from autoresearch.adapters.marketing.replay import DAYS, choose_test

        folder = self._campaign.folder
        state = folder / ".autoresearch" / "marketing"
        # What `autoresearch marketing import` took is replayed unless a file is named.
        archive = folder / self._table["archive"] if "archive" in self._table else state / ARCHIVE_NAME
        tests = headline_tests(read_archive(archive))
        self._replay = ReplaySource(
            choose_test(tests, self._table.get("test")),
            state,
            self._headline,
            days=self._table.get("days", DAYS),
            seed=self._seed,
        )

    def start(self, experiment: LiveExperiment) -> datetime:
        """Begin the rehearsal of one comparison."""
        self.replay.start(experiment)
        return _BEGAN

    def look(self, experiment_id: str) -> Seen:
        """Let one more day pass."""
        arms = self.replay.observe(experiment_id)
        day = self.replay.day(experiment_id)
        over = "The past test has nothing more to tell." if self.replay.exhausted(experiment_id) else None
        # Its arms were not drawn half and half, so the split says nothing here.
        return Seen(arms, {}, 0, {}, _BEGAN + timedelta(days=day), over)

    def wait_seconds(self, experiment_id: str) -> float:
        """Nothing to wait for."""
        return 0.0

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        """Nobody is being shown anything."""

    def show(self, artifact: Path) -> None:
        """Nobody is being shown anything."""

    def close(self) -> None:
        """Nothing is held open."""

    def _headline(self, artifact: Path) -> str:
        return Copy.load(artifact).slots[self._table.get("slot", "headline")]
