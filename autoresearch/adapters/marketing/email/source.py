"""Mail as a traffic source: `run` makes the test live, a person sends, and the log is counted as for pages.

Where a list is spent by Test & Roll its test is planned here, held until the planned part has answered, and its choice
written down for `autoresearch marketing send`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.email import list_test
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.recipients import read_recipients
from autoresearch.adapters.marketing.email.send import Mailing
from autoresearch.adapters.marketing.email.settings import SURFACE, EmailSettings
from autoresearch.adapters.marketing.live import CONTROL, TREATMENT
from autoresearch.adapters.marketing.served import ServedSource
from autoresearch.adapters.marketing.sources import Seen
from autoresearch.core import LiveExperiment


class EmailSource(ServedSource):
    """Tests of mails. Nobody is written to by this class.

    Args:
        campaign: The campaign.
        now: The clock.
    """

    def __init__(self, campaign: Campaign, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        super().__init__(campaign, surface=SURFACE, now=now)
        self._settings = EmailSettings.of(campaign)

    def prepare(self) -> None:
        """Read settings and recipients, and make the campaign's own copy the original; needs no server.

        Raises:
            UsageError: If the recipients' file is broken, or campaign.toml makes no sense.
        """
        read_recipients(self._settings.recipients)
        self.show_original()

    def start(self, experiment: LiveExperiment) -> datetime:
        """Make the test live; where it spends a list, plan first how many of it are asked.

        Raises:
            UsageError: If nobody says what rates are like here, or the list is too short.
        """
        if self._settings.test_and_roll and self.folder.find(experiment.id) is None:
            with Journal(self._settings.shared) as journal:
                people = self._mailing(journal).n_for_a_test(experiment.id)
            list_test.write(self.folder, list_test.planned(self.campaign, self._settings.spread, experiment.id, people))
        return super().start(experiment)

    def seen_at(self, experiment_id: str, now: datetime) -> Seen:
        """Count what the log holds as of a moment; over when all who are asked had time to answer."""
        seen = super().seen_at(experiment_id, now)
        spent = list_test.of_test(self.folder, experiment_id)
        if seen.over is not None:
            return seen
        days = self.campaign.traffic.maturity_days
        if self._answered(experiment_id, now):
            who = "The list is" if spent is None else f"The {2 * spent.per_arm:,} of the test are"
            return replace(seen, over=f"{who} used up, and the last recipient has had {days:g} days to answer.")
        return seen if spent is None else replace(seen, hold=f"It waits for {spent.per_arm:,} people in each arm.")

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        """End the test; where it spends a list and had its part of it, write down what goes to the rest."""
        spent = list_test.of_test(self.folder, experiment_id)
        test = self.folder.find(experiment_id)
        open_choice = spent is not None and spent.chosen is None and test is not None and test.ended is None
        # A test that was stopped half-way has chosen nothing, and nobody else is written to for it.
        if spent is not None and open_choice and (kept or self.seen_at(experiment_id, self.now()).over is not None):
            list_test.choose(self.folder, spent, TREATMENT if kept else CONTROL)
        super().finish(experiment_id, kept=kept)

    def used_up(self) -> str | None:
        """Return why no test can begin: a choice waits to be sent, or nobody is left to write to."""
        with Journal(self._settings.shared) as journal:
            mailing = self._mailing(journal)
            spent = list_test.read(self.folder) if self._settings.test_and_roll else None
            ended = None if spent is None or spent.chosen is None else self.folder.find(spent.test)
            rest = 0 if ended is None else mailing.n_open(ended)
            if spent is not None and rest:
                return (
                    f"the {spent.chosen} was chosen by Test & Roll, a bet without an error rate; {rest:,} people wait "
                    "for it: autoresearch marketing send"
                )
            if mailing.n_for_a_test(""):
                return None
        return f"nobody is left to write to in {self._settings.recipients.name}"

    def _answered(self, experiment_id: str, now: datetime) -> bool:
        """Say whether nobody is left to be asked and the last who was has had time to answer."""
        test = self.folder.find(experiment_id)
        assert test is not None, "a test is looked at after it was started"
        counter = self._log.counter(test)
        last = counter.count(self.campaign.goal.event, now=now, window=None).last
        if last is None or now - last < timedelta(days=self.campaign.traffic.maturity_days):
            return False
        with Journal(self._settings.shared) as journal:
            return self._mailing(journal).n_open(test) == 0

    def _mailing(self, journal: Journal) -> Mailing:
        return Mailing(self.campaign, journal, self._settings, now=self.now)
