"""Mail as a traffic source: `run` makes the test live, a person sends, and the log is counted as for pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.recipients import read_recipients
from autoresearch.adapters.marketing.email.send import Mailing
from autoresearch.adapters.marketing.email.settings import SURFACE, EmailSettings
from autoresearch.adapters.marketing.served import ServedSource
from autoresearch.adapters.marketing.sources import Seen


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

    def seen_at(self, experiment_id: str, now: datetime) -> Seen:
        """Count what the log holds as of a moment; over when the list is used up and the last had time to answer."""
        seen = super().seen_at(experiment_id, now)
        if seen.over is not None or not self._used_up(experiment_id, now):
            return seen
        days = self.campaign.traffic.maturity_days
        return replace(seen, over=f"The list is used up, and the last recipient has had {days:g} days to answer.")

    def _used_up(self, experiment_id: str, now: datetime) -> bool:
        test = self.folder.find(experiment_id)
        assert test is not None, "a test is looked at after it was started"
        counter = self._log.counter(test)
        last = counter.count(self.campaign.goal.event, now=now, window=None).last
        if last is None or now - last < timedelta(days=self.campaign.traffic.maturity_days):
            return False
        with Journal(self._settings.shared) as journal:
            return Mailing(self.campaign, journal, self._settings, now=self.now).n_open(test) == 0
