"""Opens are recorded where somebody wants that, and never decide."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from autoresearch.adapters.marketing.email.classify import Rules
from autoresearch.adapters.marketing.email.clicks import PICTURE
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.replies import Replies, Tally
from autoresearch.adapters.marketing.site.app import Site
from autoresearch.adapters.marketing.site.server import campaign_settings
from tests.adapters.marketing.campaigns import edit
from tests.adapters.marketing.email.conftest import Office
from tests.adapters.marketing.site.browser import Browser

AN_HOUR = 3_600.0


class Clock:
    """Seconds since 1970, as the site and `replies` see them."""

    now = 0.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watched(office: Office, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Browser]]:
    """Mails with a picture are out since an hour; gives browsers on the site that shows it."""
    with (office.folder / "campaign.toml").open("a") as file:
        file.write("opens = true\n")
    edit(office.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    office.start()
    office.send()
    pages, settings = campaign_settings(office.folder)
    site = Site(office.live, pages, settings)
    monkeypatch.setattr(site.views, "now_us", lambda visitor: round(clock.now * 1e6))
    with Journal(office.settings.shared) as journal:
        first = journal.first_mail(office.mailing(journal).id)
    assert first is not None
    clock.now = first + AN_HOUR
    yield lambda **more: Browser(site, **more)
    site.writer.close()


def picture_of(office: Office, number: int) -> str:
    """Return the address of a mail's picture, as a path."""
    part = office.taker.mails[number][1].get_body(("html",))
    assert part is not None
    found = re.findall(r'<img src="https://list\.example\.com(/open/[a-z2-7]+)"', part.get_content())
    assert len(found) == 1
    return str(found[0])


def counted(office: Office, clock: Clock) -> tuple[int, int]:
    with Journal(office.settings.shared) as journal:
        tally = Tally()
        Replies(office.campaign, journal, Rules(), now=lambda: clock.now + AN_HOUR).count_opens(tally)
    return tally.loaded, tally.opened


def test_no_mail_has_a_picture_unless_somebody_wants_it(office: Office) -> None:
    """Off by default."""
    office.start()
    office.send()
    part = office.taker.mails[0][1].get_body(("html",))
    assert part is not None
    assert "/open/" not in part.get_content()


def test_an_open_is_recorded_once_a_mail_and_decides_nothing(
    office: Office, clock: Clock, watched: Callable[..., Browser]
) -> None:
    """Loaded twice it is one mail's; no event is written, so that no metric and no guardrail can have it."""
    for _ in range(2):
        answer = watched().get(picture_of(office, 0))
        assert (answer.status, answer.body) == (200, PICTURE)
        assert answer.headers["content-type"] == "image/gif"
        assert answer.headers["cache-control"] == "private, no-store"
    assert counted(office, clock) == (1, 1)
    assert office.converted("open") == 0
    assert office.converted("positive_reply") == 0


def test_the_rules_for_clicks_hold_for_opens(office: Office, clock: Clock, watched: Callable[..., Browser]) -> None:
    """A mail provider's proxy, a HEAD and a load within seconds are recorded as loads by no person we know of."""
    watched(agent="Mozilla/5.0 (via ggpht.com GoogleImageProxy)").get(picture_of(office, 0))
    watched().ask("HEAD", picture_of(office, 1))
    clock.now -= AN_HOUR - 2.0
    watched().get(picture_of(office, 2))
    clock.now += AN_HOUR
    assert counted(office, clock) == (3, 0)


def test_an_address_that_was_not_made_here_is_shown_the_picture_and_not_recorded(
    office: Office, clock: Clock, watched: Callable[..., Browser]
) -> None:
    """Nobody learns by asking whether a token is one of ours."""
    assert watched().get(f"/open/{'a' * 56}").body == PICTURE
    assert counted(office, clock) == (0, 0)


def test_forgetting_somebody_forgets_their_opens(office: Office, clock: Clock, watched: Callable[..., Browser]) -> None:
    """They go with the mail that they belong to."""
    watched().get(picture_of(office, 0))
    with Journal(office.settings.shared) as journal:
        for address in journal.last_mails(office.mailing(journal).id):
            journal.forget(address)
    assert counted(office, clock) == (0, 0)
