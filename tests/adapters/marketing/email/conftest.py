from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("aiosmtpd", reason="the extra `dev` is not installed")
pytest.importorskip("css_inline", reason="the extra `marketing` is not installed")

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.counting import Count, counter_of
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.send import Mailing
from autoresearch.adapters.marketing.email.settings import SURFACE, EmailSettings
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest
from tests.adapters.marketing.campaigns import edit, write_campaign
from tests.adapters.marketing.email.post_office import DOVECOT, Dovecot, Taker, dovecot, smtp_server


class Office:
    """A campaign that mails, a live test in it, and the server that takes its mails."""

    def __init__(self, folder: Path, port: int, taker: Taker) -> None:
        self.folder = folder
        self.taker = taker
        write_campaign(folder, "email")
        edit(folder, "campaign.toml", 'source = "simulated"', 'source = "email"')
        with (folder / "campaign.toml").open("a") as file:
            file.write(f"""
[site]
base_url = "https://list.example.com"
suppression = "../suppression"

[email]
host = "127.0.0.1"
port = {port}
tls = "none"
per_day = 1000
per_mailbox = 1000
""")
        self.write_recipients([f"person{i}@company{i}.example" for i in range(12)])

    def set(self, **keys: object) -> None:
        """Add keys to the table [email], which is the last."""
        with (self.folder / "campaign.toml").open("a") as file:
            for key, value in keys.items():
                file.write(f"{key} = {str(value) if not isinstance(value, str) else repr(value)}\n")

    def write_recipients(self, addresses: Sequence[str], names: bool = False) -> None:
        rows = [f"{address},{'Kim' if names else ''}" for address in addresses]
        (self.folder / "recipients.csv").write_text("\n".join(["email,first_name", *rows]) + "\n")

    @property
    def campaign(self) -> Campaign:
        return Campaign.load(self.folder)

    @property
    def settings(self) -> EmailSettings:
        return EmailSettings.of(self.campaign)

    @property
    def live(self) -> LiveFolder:
        return LiveFolder.of(self.folder)

    def start(self, test_id: str = "run/0001") -> LiveTest:
        """Make a test of another subject line live."""
        self.write_arms()
        return self.live.start(
            LiveTest(
                test_id, SURFACE, test_id, self.folder / "a", {"treatment": self.folder / "b"},
                {"control": 0.5, "treatment": 0.5}, datetime.now(UTC),
            )
        )  # fmt: skip

    def write_arms(self) -> None:
        """Write the folders of two arms, `a` and `b`."""
        for arm, subject in (("a", "Your rota in 25 minutes a week"), ("b", "Who plans your Saturdays?")):
            (self.folder / arm).mkdir(exist_ok=True)
            text = (self.folder / "copy.toml").read_text()
            text = text.replace('subject = "Your rota in 25 minutes a week"', f'subject = "{subject}"', 1)
            (self.folder / arm / "copy.toml").write_text(text)

    def mailing(self, journal: Journal, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> Mailing:
        return Mailing(self.campaign, journal, now=now)

    def send(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> object:
        """Plan and send."""
        with Journal(self.settings.shared) as journal:
            mailing = self.mailing(journal, now)
            return mailing.send(mailing.plan())

    def recipients(self) -> list[str]:
        """Return to whom mails were taken, in order."""
        return [recipient for recipient, _ in self.taker.mails]

    def count(self, goal: str = "positive_reply") -> Count:
        test = self.live.find("run/0001")
        assert test is not None
        counter = counter_of(self.live.events, test, [goal])
        counter.update()
        return counter.count(goal, now=datetime.now(UTC) + timedelta(days=30), window=timedelta(days=30))

    def exposed(self) -> int:
        return sum(self.count().exposed.values())

    def converted(self, goal: str = "positive_reply") -> float:
        return sum(arm.total for arm in self.count(goal).arms)


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def office(tmp_path: Path, taker: Taker) -> Iterator[Office]:
    with smtp_server(taker) as port:
        yield Office(tmp_path / "campaign", port, taker)


@pytest.fixture(scope="session")
def post_box() -> Iterator[Dovecot]:
    """A running Dovecot."""
    if DOVECOT is None:
        pytest.skip("Dovecot is not installed (Debian package dovecot-imapd)")
    with tempfile.TemporaryDirectory(prefix="dovecot-") as home, dovecot(Path(home)) as running:
        yield running
