"""Traffic of our own server (`site`) and of sites that ask it (`api`): assignment and events are in our log."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autoresearch.adapters.marketing.assignment import WHOLE, parts
from autoresearch.adapters.marketing.campaign import COPY_NAME, Campaign
from autoresearch.adapters.marketing.counting import Count, EventLog
from autoresearch.adapters.marketing.events import marks
from autoresearch.adapters.marketing.live import CONTROL, TREATMENT, LiveFolder, LiveTest
from autoresearch.adapters.marketing.sources import Seen
from autoresearch.adapters.marketing.surfaces import PAGE
from autoresearch.core import ArmTotals, Artifact, EnvironmentNotReadyError, LiveExperiment
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
        return self.start_together([experiment]).started

    def start_together(self, experiments: Sequence[LiveExperiment]) -> LiveTest:
        """Make a test of several candidates live, all against one control; see `start`.

        A test that is live already stays as it is, whoever of its candidates is named.
        """
        test = self.folder.find(experiments[0].id)
        if test is None:
            self.show_to_everybody(experiments[0].control)
            test = self._test_of(experiments)
        return self.folder.start(test)

    def _test_of(self, experiments: Sequence[LiveExperiment]) -> LiveTest:
        first, alone = experiments[0], len(experiments) == 1
        surfaces = [one.name for one in self.campaign.surfaces]
        name = "+".join([first.id, *(one.id.rpartition("-")[2] for one in experiments[1:])])
        return LiveTest(
            id=name,
            surface=self._surface,
            salt=self._salted(name),
            control=first.control,
            treatments={one.arm: one.treatment for one in experiments},
            split={CONTROL: first.split[CONTROL]} | {one.arm: one.split[TREATMENT] for one in experiments},
            started=self.now(),
            part=parts(surfaces)[first.lane] if surfaces else WHOLE,
            lane=first.lane if surfaces else "",
            experiments={} if alone else {one.arm: one.id for one in experiments},
        )

    def look(self, experiment_id: str) -> Seen:
        """Count what the log holds."""
        return self.seen_at(experiment_id, self.now())

    def seen_at(self, experiment_id: str, now: datetime) -> Seen:
        """Count what the log holds as of a moment: matured units, each once."""
        traffic = self.campaign.traffic
        test = self.folder.find(experiment_id)
        assert test is not None, "a test is looked at after it was started"
        mine = (0, test.arms.index(test.arm_tested_by(experiment_id)))
        counter = self._log.counter(test)
        window = timedelta(days=traffic.maturity_days)

        def of(count: Count) -> tuple[ArmTotals, ...]:
            """Return the control and this experiment's treatment, by the names that the loop has for them."""
            return tuple(replace(count.arms[i], arm=name) for i, name in zip(mine, (CONTROL, TREATMENT), strict=True))

        found = counter.count(self.campaign.goal.event, now=now, window=window, kind=self.campaign.metric.kind)
        # The same matured units as the metric's: a later look then adds whole units, as the harm gate wants it.
        rails = {rail.name: of(counter.count(rail.name, now=now, window=window)) for rail in self.campaign.guardrails}
        over = None
        if now - test.started >= timedelta(weeks=traffic.max_weeks):
            over = f"The {traffic.max_weeks} weeks that a test may take are over."
        exposed = {arm: found.exposed[arm] for arm in test.shown}
        return Seen(of(found), exposed, found.crossed, rails, now, over)

    def wait_seconds(self, experiment_id: str) -> float:
        """An hour."""
        return LOOK_SECONDS

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        """Show the winner to everybody, the permanent holdout excepted."""
        test = self.folder.find(experiment_id)
        if test is None:
            return
        arm = test.arm_tested_by(experiment_id)
        if kept:
            self.folder.finish(test.id, arm, now=self.now())
            self._remember_change()
        else:
            self.folder.take_out(test.id, arm, now=self.now())
        if kept or len(test.shown) <= 2:
            self._log.drop(test)

    def show_to_everybody(self, artifact: Path) -> None:
        """Make a copy the incumbent unless it is; what runs goes on, and the original stays."""
        shown = self.folder.read().surfaces.get(self._surface)
        if shown is not None and shown.incumbent != self.folder.keep_arm(artifact):
            self.show(artifact)

    def show(self, artifact: Path) -> None:
        """Make a copy the incumbent of the surface."""
        self.folder.show(self._surface, artifact)
        self._remember_change()

    def _remember_change(self) -> None:
        """Write down where the log stands now: the holdout is compared with what is shown from here on."""
        write_by_rename(self.folder.path / CHANGED_NAME, json.dumps(marks(self.folder.events)))

    def close(self) -> None:
        """Nothing is held open."""
