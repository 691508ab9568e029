"""Clicks in mails: a person's count once, a scanner's never."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from autoresearch.adapters.marketing.email import clicks
from autoresearch.adapters.marketing.email.classify import Rules
from autoresearch.adapters.marketing.email.clicks import BURST, GOAL, LEAVE, SOON, Click, person_in, rule_of_request
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.replies import Replies, Tally
from autoresearch.adapters.marketing.site.app import Site
from autoresearch.adapters.marketing.site.server import campaign_settings
from tests.adapters.marketing.campaigns import edit
from tests.adapters.marketing.email.conftest import Office
from tests.adapters.marketing.site.browser import Browser

SENT = 1_000_000.0
LATER = SENT + 3_600.0


@pytest.mark.parametrize(
    ("visits", "person"),
    [
        ([Click("t", GOAL, LATER)], LATER),
        ([Click("t", GOAL, SENT + SOON - 1)], None),
        ([Click("t", GOAL, SENT + SOON)], SENT + SOON),
        ([Click("t", GOAL, LATER, dropped=1)], None),
        ([Click("t", LEAVE, LATER)], None),
        ([Click("t", GOAL, LATER), Click("t", LEAVE, LATER + BURST)], None),
        ([Click("t", GOAL, LATER), Click("t", LEAVE, LATER - 1)], None),
        ([Click("t", GOAL, LATER), Click("t", LEAVE, LATER + BURST + 1)], LATER),
        ([Click("t", GOAL, SENT + 1), Click("t", LEAVE, SENT + 2), Click("t", GOAL, LATER)], LATER),
        ([], None),
    ],
)
def test_the_rules_about_time(visits: list[Click], person: float | None) -> None:
    """Too soon, or with all links at once, is a scanner; a person may still come after it, and counts."""
    found = person_in(SENT, visits)
    assert (None if found is None else found.at) == person


@pytest.mark.parametrize(
    ("method", "agent", "robot", "rule"),
    [
        ("GET", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36", False, 0),
        ("HEAD", "Mozilla/5.0 (Windows NT 10.0; Win64; x64)", False, 1),
        ("GET", "Mozilla/5.0 (compatible; Barracuda Sentinel)", False, 2),
        ("GET", "python-requests/2.32", False, 2),
        ("GET", "Mozilla/5.0 HeadlessChrome/140.0", False, 2),
        ("GET", "Mozilla/5.0 (Windows NT 10.0)", True, 2),
    ],
)
def test_the_rules_about_the_request(method: str, agent: str, robot: bool, rule: int) -> None:
    """HEAD, crawlers and scanners by name are dropped by what they say of themselves."""
    assert rule_of_request(method, agent, robot=robot) == rule


@pytest.fixture
def tracked(office: Office, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Browser]]:
    """Mails with counted links are out; gives browsers on the site that answers them. An hour has passed since."""
    edit(office.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    office.set(track_clicks=True)
    edit(office.folder, "campaign.toml", "track_clicks = True", "track_clicks = true")
    office.start()
    office.send()
    pages, settings = campaign_settings(office.folder)
    site = Site(office.live, pages, settings)
    monkeypatch.setattr(site.views, "now_us", lambda visitor: round(clock[0] * 1e6))
    with Journal(office.settings.shared) as journal:
        first = journal.first_mail(office.mailing(journal).id)
    assert first is not None
    clock[0] = first + 3_600.0
    yield lambda **more: Browser(site, **more)
    site.writer.close()


clock = [0.0]


def links_of(office: Office, number: int) -> tuple[str, str]:
    """Return a mail's link to the goal and its link for leaving, as paths."""
    _, mail = office.taker.mails[number]
    part = mail.get_body(("plain",))
    assert part is not None
    base = "https://list.example.com"
    goal = next(line for line in part.get_content().split() if line.startswith(f"{base}/go?"))
    return goal.removeprefix(base), mail["List-Unsubscribe"].split(">")[0][1:].removeprefix(base)


def settle(office: Office) -> int:
    """Take clicks in and return how many units the log has a click of."""
    clock[0] += 1_000.0
    with Journal(office.settings.shared) as journal:
        taker = Replies(office.campaign, journal, Rules(), now=lambda: clock[0])
        taker.take_clicks(Tally())
        if taker._writer is not None:
            taker._writer.close()
    return int(office.converted("click"))


def test_a_persons_click_leads_on_and_counts_once(office: Office, tracked: Callable[..., Browser]) -> None:
    """Clicked twice and settled twice it is one conversion of the unit that got the mail."""
    goal, _ = links_of(office, 0)
    for _ in range(2):
        answer = tracked().get(goal)
        assert answer.status == 302
        assert answer.headers["location"] == "https://www.example.com/trial"
    assert settle(office) == 1
    assert settle(office) == 1


def test_a_scanner_is_led_on_and_not_counted(office: Office, tracked: Callable[..., Browser]) -> None:
    """One that says so, one that asks by HEAD, and one that looks like a browser and visits every link."""
    tracked(agent="Mozilla/5.0 (compatible; Mimecast)").get(links_of(office, 0)[0])
    assert tracked().ask("HEAD", links_of(office, 1)[0]).status == 302
    for path in links_of(office, 2):
        tracked().get(path)
    assert settle(office) == 0


def test_a_visit_within_seconds_of_sending_is_a_scanners(office: Office, tracked: Callable[..., Browser]) -> None:
    """Nobody reads that fast."""
    clock[0] -= 3_600.0 - SOON / 2
    tracked().get(links_of(office, 0)[0])
    assert settle(office) == 0


def test_a_click_is_judged_when_all_has_happened(office: Office, tracked: Callable[..., Browser]) -> None:
    """What a scanner may still do is waited for."""
    tracked().get(links_of(office, 0)[0])
    with Journal(office.settings.shared) as journal:
        name = office.mailing(journal).id
        assert list(clicks.people_in(journal, name, clock[0] - clicks.SETTLED)) == []
        assert len(list(clicks.people_in(journal, name, clock[0] + 1))) == 1


def test_a_forged_token_counts_for_nobody(office: Office, tracked: Callable[..., Browser]) -> None:
    """The link still leads on, for it is one of ours."""
    goal = links_of(office, 0)[0]
    assert tracked().get(goal[:-4] + "aaaa").status == 302
    assert settle(office) == 0


def test_a_flood_of_visits_is_not_kept(office: Office, tracked: Callable[..., Browser]) -> None:
    """Fifty visits of one link say all there is to say."""
    with Journal(office.settings.shared) as journal:
        token = journal.last_to(next(iter(journal.last_mails(office.mailing(journal).id))))
        assert token is not None
        for n in range(60):
            clicks.record(journal, Click(token.token, GOAL, LATER + n))
        assert len(journal.clicks(token.campaign, float("inf"), (GOAL, LEAVE))) == 50


def test_links_lead_straight_to_the_goal_unless_somebody_wants_to_count(office: Office) -> None:
    """Tracking is off by default."""
    office.start()
    office.send()
    part = office.taker.mails[0][1].get_body(("plain",))
    assert part is not None
    assert "https://www.example.com/trial" in part.get_content().split()
    assert "/go?" not in part.get_content()
