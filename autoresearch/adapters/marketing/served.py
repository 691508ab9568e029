"""Traffic of our own server (`site`) and of sites that ask it (`api`): assignment and events are in our log."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autoresearch.adapters.marketing.campaign import COPY_NAME, Campaign
from autoresearch.adapters.marketing.counting import EventLog
from autoresearch.adapters.marketing.events import marks
from autoresearch.adapters.marketing.live import TREATMENT, LiveFolder, LiveTest
from autoresearch.adapters.marketing.site.pages import PAGE
from autoresearch.adapters.marketing.sources import Seen
from autoresearch.core import Artifact, EnvironmentNotReadyError, LiveExperiment
from autoresearch.core.formats import write_by_rename

CHANGED_NAME = "changed.json"

LOOK_SECONDS = 3600.0
"""Between two looks. Looking oftener settles nothing sooner than people arrive."""


def last_change(folder: LiveFolder) -> dict[str, int]:
    """Return where the log stood when what everybody sees last changed; nothing before the first change."""
    try:
        found: dict[str, int] = json.loads((folder.path / CHANGED_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


class ServedSource:
    """Tests on a surface that the campaign's server shows or decides.

    Args:
        campaign: The campaign.
        surface: Name of the surface.
        now: The clock.
        salted: Turns a test's id into the salt of its assignment.
    """

    label = ""

    def __init__(
        self,
        campaign: Campaign,
        *,
        surface: str = PAGE,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        salted: Callable[[str], str] = str,
    ) -> None:
        self.campaign = campaign
        self.folder = LiveFolder.of(campaign.folder)
        self.now = now
        self._surface = surface
        self._salted = salted
        self._log = EventLog(self.folder.events, [campaign.goal.event, *(rail.name for rail in campaign.guardrails)])

    def prepare(self) -> None:
        """Show the campaign's own copy where nothing is shown yet, and see that a server is up.

        Raises:
            EnvironmentNotReadyError: If no server runs for this campaign, or its kill switch is on.
        """
        self.show_original()
        if self.folder.killed:
            raise EnvironmentNotReadyError(
                f"The kill switch of {self.campaign.folder} is on: everybody sees the control, and nobody is counted.\n"
                f"Turn it off, then run again: autoresearch marketing kill --off -w {self.campaign.folder}"
            )
        from autoresearch.adapters.marketing.site.server import is_serving

        if not is_serving(self.campaign.folder):
            raise EnvironmentNotReadyError(
                f"No server shows the campaign in {self.campaign.folder}, so nobody can be counted.\n"
                f"Start it in another terminal: autoresearch marketing serve -w {self.campaign.folder}. It may run for "
                "months; run stops and resumes beside it."
            )

    def show_original(self) -> None:
        """Make the campaign's own copy the original for ever, where nothing is shown yet."""
        with tempfile.TemporaryDirectory(prefix="autoresearch-") as name:
            Artifact.read(self.campaign.folder, (COPY_NAME,)).write(Path(name))
            self.folder.publish(self._surface, Path(name))

    def start(self, experiment: LiveExperiment) -> datetime:
        """Make the test live; servers follow within a second.

        Control is the incumbent: where something else is shown, as after a new run from another copy, that ends here.
        """
        if self.folder.find(experiment.id) is None:
            shown = self.folder.read().surfaces.get(self._surface)
            if shown is not None and shown.incumbent != self.folder.keep_arm(experiment.control):
                self.show(experiment.control)
        stored = self.folder.start(
            LiveTest(
                id=experiment.id,
                surface=self._surface,
                salt=self._salted(experiment.id),
                control=experiment.control,
                treatments={TREATMENT: experiment.treatment},
                split=dict(experiment.split),
                started=self.now(),
            )
        )
        return stored.started

    def look(self, experiment_id: str) -> Seen:
        """Count what the log holds."""
        return self.seen_at(experiment_id, self.now())

    def seen_at(self, experiment_id: str, now: datetime) -> Seen:
        """Count what the log holds as of a moment: matured units, each once."""
        traffic = self.campaign.traffic
        test = self.folder.find(experiment_id)
        assert test is not None, "a test is looked at after it was started"
        counter = self._log.counter(test)
        window = timedelta(days=traffic.maturity_days)
        found = counter.count(self.campaign.goal.event, now=now, window=window, kind=self.campaign.metric.kind)
        # The same matured units as the metric's: a later look then adds whole units, as the harm gate wants it.
        rails = {rail.name: counter.count(rail.name, now=now, window=window).arms for rail in self.campaign.guardrails}
        over = None
        if now - test.started >= timedelta(weeks=traffic.max_weeks):
            over = f"The {traffic.max_weeks} weeks that a test may take are over."
        return Seen(found.arms, found.exposed, found.crossed, rails, now, over)

    def wait_seconds(self, experiment_id: str) -> float:
        """An hour."""
        return LOOK_SECONDS

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        """Show the winner to everybody, the permanent holdout excepted."""
        test = self.folder.find(experiment_id)
        if test is None:
            return
        self.folder.finish(experiment_id, TREATMENT if kept else None, now=self.now())
        if kept:
            self._remember_change()
        self._log.drop(test)

    def show(self, artifact: Path) -> None:
        """Make a copy the incumbent of the surface."""
        self.folder.show(self._surface, artifact)
        self._remember_change()

    def _remember_change(self) -> None:
        """Write down where the log stands now: the holdout is compared with what is shown from here on."""
        write_by_rename(self.folder.path / CHANGED_NAME, json.dumps(marks(self.folder.events)))

    def close(self) -> None:
        """Nothing is held open."""
