"""Several surfaces on one server: who is in which test, what they see, and that nobody is in two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("starlette", reason="the extra `marketing` is not installed")

from autoresearch.adapters.marketing.assignment import WHOLE
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.counting import holdout_counter
from autoresearch.adapters.marketing.live import LiveTest
from autoresearch.adapters.marketing.served import ServedSource
from autoresearch.adapters.marketing.site.app import Site
from autoresearch.adapters.marketing.site.pages import CampaignPages
from autoresearch.adapters.marketing.site.settings import SiteSettings
from autoresearch.adapters.marketing.site.views import Shown
from autoresearch.adapters.marketing.wording import set_slots
from autoresearch.core import Artifact, LiveExperiment
from tests.adapters.marketing.site.browser import Browser
from tests.adapters.marketing.with_surfaces import SURFACES, write_surfaces

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
UNITS = [f"unit-{i}" for i in range(20_000)]
LEVEL = (
    1e-3  # a sound assignment fails each test below with this chance; seeds are fixed, so it passes or fails for ever
)

HERO = [{"headline": "Stop planning shifts in a spreadsheet"}, {"cta": "Plan my first week"}]
PRICING = [{"price_note": "No card needed. Cancel at any time."}]
ADS = [{"ads.subhead": "One rota for everybody, always up to date, on any phone. There is no app to install."}]
REASONS = [{"bullet_1": "From the staff list to a full week in one sitting"}]
TESTS = {"hero": HERO, "reasons": REASONS, "pricing": PRICING, "ads": ADS}

PLACES = [("page", ""), ("page", "ads"), ("pricing", ""), ("pricing", "ads")]


@dataclass
class Stage:
    """A campaign with four surfaces on a server, and tests begun on some of them."""

    folder: Path
    surfaces: str = SURFACES
    holdout: float = 0.05

    def __post_init__(self) -> None:
        write_surfaces(self.folder, surfaces=self.surfaces)
        campaign = Campaign.load(self.folder)
        self.source = ServedSource(campaign, now=lambda: MONDAY)
        self.source.show_original()
        self.live = self.source.folder
        (self.live.path / "salt").write_text("campaign", encoding="ascii")
        self.site = Site(self.live, CampaignPages(campaign), SiteSettings(goal="signup", holdout=self.holdout))

    def begin(self, lane: str, number: int = 1) -> LiveTest:
        """Start a test of a lane's candidates."""
        changes = TESTS[lane]
        share = 1.0 / (len(changes) + 1)
        started = self.source.start_together(
            [
                LiveExperiment(
                    f"{lane}-{number + index}",
                    self.arm({}),
                    self.arm(changed),
                    {"control": share, "treatment": share},
                    MONDAY,
                    lane,
                    "treatment" if len(changes) == 1 else f"treatment-{number + index}",
                )
                for index, changed in enumerate(changes)
            ]
        )
        self.site.views.refresh()
        return started

    def arm(self, slots: dict[str, str]) -> Path:
        """Return a folder with the campaign's copy, some texts changed."""
        text = set_slots((self.folder / "copy.toml").read_text(encoding="utf-8"), slots)
        artifact = Artifact({"copy.toml": text})
        artifact.write(self.folder / "made" / artifact.fingerprint)
        return self.folder / "made" / artifact.fingerprint

    def shows(self, unit: str, page: str = "page", audience: str = "") -> Shown:
        """Say what a unit sees, without counting it."""
        views = self.site.views
        return views.show(views.by_surface[page], unit, 0, audience=audience, expose=False)

    def expose(self, units: Sequence[str]) -> None:
        """Let people look at the first page."""
        views = self.site.views
        for unit in units:
            views.show(views.by_surface["page"], unit, 1)

    def people(self, lane: str) -> Iterator[str]:
        """Yield people who are in a lane's test, by what a page and an audience of it show."""
        place = {"pricing": ("pricing", ""), "ads": ("page", "ads")}.get(lane, ("page", ""))
        return (unit for unit in UNITS if self.shows(unit, *place).lane == lane)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "campaign")


def test_nobody_is_in_two_tests(stage: Stage) -> None:
    """Over all pages and audiences each of 20,000 people meets one test at most, and each surface gets its share."""
    for lane in TESTS:
        stage.begin(lane)
    lanes: Counter[str] = Counter()
    for unit in UNITS:
        met = {shown.lane for shown in (stage.shows(unit, *place) for place in PLACES) if shown.test}
        assert len(met) <= 1
        lanes.update(met)
    found = [lanes[lane] for lane in TESTS]
    assert stats.chisquare([*found, len(UNITS) - sum(found)], [0.95 * 5000] * 4 + [1000]).pvalue > LEVEL


def test_what_a_person_sees_stays(stage: Stage) -> None:
    """The same arm at every visit, on another server too, and whatever other surfaces begin meanwhile."""
    stage.begin("hero")
    before = {unit: stage.shows(unit) for unit in UNITS[:2000]}
    other = Site(stage.live, CampaignPages(Campaign.load(stage.folder)), stage.site.settings)
    stage.begin("pricing")
    for unit, shown in before.items():
        assert stage.shows(unit) == shown
        assert other.views.show(other.views.by_surface["page"], unit, 0, expose=False) == shown


def test_arms_of_surfaces_and_of_later_tests_are_independent(stage: Stage) -> None:
    """Surface, arm, the arm in the next test of the surface, and that in another's: no table shows an association."""
    tests = [stage.begin("hero"), stage.begin("reasons")]
    stage.source.finish("hero-1", kept=False)
    stage.source.finish("hero-2", kept=False)
    tests.append(stage.begin("hero", 3))
    arms = [
        [test.arms.index(arm) for unit in UNITS if (arm := _whole(test).arm_of("campaign", unit)) is not None]
        for test in tests
    ]
    layer = [int(tests[0].arm_of("campaign", unit) is None) for unit in UNITS]
    for one, other in ((arms[0], arms[1]), (arms[0], arms[2]), (arms[1], arms[2]), (arms[0], layer), (arms[2], layer)):
        table = np.zeros((3, 3))
        np.add.at(table, (one, other), 1)
        table = table[:, table.any(axis=0)][table.any(axis=1)]
        assert stats.chi2_contingency(table, correction=False).pvalue > LEVEL


def _whole(test: LiveTest) -> LiveTest:
    """Return the test as if it had all people, to look at its arms alone."""
    return replace(test, part=WHOLE)


def test_the_holdout_sees_the_original_on_all_surfaces(stage: Stage) -> None:
    """Kept changes of a page's slots, of another page and of an audience: the same 5 % see none of them."""
    for lane in ("hero", "pricing", "ads"):
        stage.begin(lane)
    stage.source.finish("hero-1", kept=True)
    merged = stage.arm(HERO[0] | PRICING[0] | ADS[0])
    for lane in ("pricing", "ads"):
        stage.source.finish(f"{lane}-1", kept=True)
    stage.source.show_to_everybody(merged)
    stage.site.views.refresh()
    held = [unit for unit in UNITS[:4000] if stage.shows(unit).arm == "original"]
    assert stats.binomtest(len(held), 4000, 0.05).pvalue > LEVEL
    for unit in held:
        assert {stage.shows(unit, *place).arm for place in PLACES} == {"original"}
    views = stage.site.views.by_surface
    for page, audience, old, new in (
        ("page", "", "The week&#39;s rota", "Stop planning shifts"),
        ("page", "ads", "behind the bar", "One rota for everybody"),
        ("pricing", "", "From €39", "No card needed."),
    ):
        before, after = (views[page].replies[audience, "", arm].body.decode() for arm in ("original", "incumbent"))
        assert old in before and new not in before
        assert new in after and old not in after


def test_an_audience_is_told_by_what_it_sends(stage: Stage) -> None:
    """Only people with the parameter enter the audience's test and read its texts; without it they see the page."""
    stage.begin("ads")
    there = Browser(stage.site)
    own = "behind the bar"
    assert own in there.get("/?utm_source=ads", **{"user-agent": "Googlebot/2.1"}).text
    assert own not in there.get("/").text
    assert own not in there.get("/?utm_source=somebody").text
    shown = {text for text in (own, "One rota for everybody") if text in there.get("/?utm_source=Partner&x=1").text}
    assert len(shown) == 1


def test_a_language_makes_an_audience(tmp_path: Path) -> None:
    """The language that the browser asks for first decides, its regions included; caches are told so."""
    rules = SURFACES.replace('{ utm_source = ["ads", "partner"] }', '{ accept_language = "de" }')
    browser = Browser(Stage(tmp_path / "campaign", rules).site)
    own = "behind the bar"
    answer = browser.get("/", accept_language="de-AT,de;q=0.9,en;q=0.8")
    assert own in answer.text and "Accept-Language" in answer.headers["vary"]
    for other in ("en,de;q=0.9", "den", ""):
        assert own not in browser.get("/", accept_language=other).text


def test_a_surface_is_tested_where_it_is_shown(stage: Stage) -> None:
    """A test of the page of prices has no people on the first page, and one of its slots none on the page of prices."""
    stage.begin("pricing")
    stage.begin("hero")
    for unit in UNITS[:2000]:
        assert stage.shows(unit).lane in ("", "hero")
        assert stage.shows(unit, "pricing").lane in ("", "pricing")


def test_a_shared_slot_is_tested_on_all_its_pages(tmp_path: Path) -> None:
    """Where two pages show a slot its test runs on both, for what is kept will be read on both."""
    stage = Stage(tmp_path / "campaign")
    path = stage.folder / "template" / "pricing.html.j2"
    path.write_text(path.read_text(encoding="utf-8").replace("<p>", "<h1>{{ slot.headline }}</h1><p>"), "utf-8")
    stage.begin("hero")
    unit = next(unit for unit in stage.people("hero") if stage.shows(unit).arm == "treatment-1")
    assert stage.shows(unit, "pricing").arm == "treatment-1"
    assert (
        "Stop planning shifts"
        in stage.site.views.by_surface["pricing"].reply(stage.shows(unit, "pricing")).body.decode()
    )


def test_an_arm_that_is_taken_out_leaves_the_others_as_they_are(stage: Stage) -> None:
    """Its people see the control and are in no test; nobody else moves, and with the last arm the test ends."""
    stage.begin("hero")
    before = {unit: stage.shows(unit).arm for unit in stage.people("hero")}
    stage.source.finish("hero-1", kept=False)
    stage.source.finish("hero-1", kept=False)
    stage.site.views.refresh()
    for unit, arm in before.items():
        shown = stage.shows(unit)
        assert (shown.arm, shown.test) == (("incumbent", None) if arm == "treatment-1" else (arm, "hero-1+2"))
    stage.source.finish("hero-2", kept=False)
    assert stage.live.read().tests == {}
    assert stage.live.find("hero-1") == stage.live.find("hero-2") is not None


def test_people_of_an_arm_that_is_out_are_uncounted(stage: Stage) -> None:
    """Counts of the arms that go on grow, that of the one that is out stays, and everybody is there for the holdout."""
    stage.begin("hero")
    people = list(stage.people("hero"))
    first, later = people[:600], people[600:1200]
    stage.expose(first)
    before = stage.source.seen_at("hero-2", MONDAY).exposed
    assert set(before) == {"control", "treatment-1", "treatment-2"} and sum(before.values()) == 600
    stage.source.finish("hero-1", kept=False)
    stage.site.views.refresh()
    stage.expose(later)
    after = stage.source.seen_at("hero-2", MONDAY).exposed
    assert set(after) == {"control", "treatment-2"}
    assert 300 < sum(after.values()) - before["control"] - before["treatment-2"] < 500
    everybody = holdout_counter(stage.live.events, "page", ["signup"])
    everybody.update()
    assert everybody.count("signup", now=MONDAY, window=None).exposed == {"holdout": 0, "rest": 1200}


def test_a_site_of_its_own_asks_for_page_and_audience(stage: Stage) -> None:
    """`/assign` names the page, takes what makes an audience as a parameter, and gives the page's texts alone."""
    stage.begin("pricing")
    server = Browser(stage.site)
    answers = [server.get(f"/assign?unit=u{i}&surface=pricing&expose=1").json for i in range(60)]
    assert {answer["test"] for answer in answers} == {None, "pricing-1"}
    assert all(set(answer["slots"]) == {"price_note"} for answer in answers)
    subheads = [
        server.get(f"/assign?unit=u1&surface=page{more}").json["slots"]["subhead"] for more in ("", "&utm_source=ads")
    ]
    assert "behind the bar" in subheads[1] and subheads[0] != subheads[1]
    assert "there are page, pricing" in server.get("/assign?unit=u1").json["error"]
