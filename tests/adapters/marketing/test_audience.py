"""People who are made up: several pages and audiences, and what is true of all of them together."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from scipy import stats

from autoresearch.adapters.marketing.audience import Audience
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.simulated import SimulatedSource, true_rate
from autoresearch.adapters.marketing.site.pages import CampaignPages
from autoresearch.adapters.marketing.wording import set_slots
from autoresearch.core import Artifact
from tests.adapters.marketing.campaigns import campaign
from tests.adapters.marketing.with_surfaces import write_surfaces

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
MANY = Audience(
    3, 0.2, 50_000, {"headline": "A", "note": "N"}, 0.3, audiences={"ads": 0.3, "news": 0.2}, pages={"pricing": 0.4}
)


def test_kinds_of_people_are_all_of_them() -> None:
    """Their shares add up to one, by audience and by page."""
    crowds = list(MANY.crowds())
    assert sum(share for share, _, _ in crowds) == pytest.approx(1.0)
    assert sum(share for share, audience, _ in crowds if audience == "ads") == pytest.approx(0.3)
    assert sum(share for share, _, pages in crowds if "pricing" in pages) == pytest.approx(0.4)
    assert list(Audience(0, 0.1, 10, {}).crowds()) == [(1.0, "", ("page",))]


def test_people_come_in_the_shares_that_are_meant() -> None:
    """Of a day's people as many are in each audience and look at each page as the kinds say; asked again, the same."""
    people = [visit for visit in MANY.day("x", MONDAY) if visit.unit]
    counts = Counter((visit.audience, visit.pages) for visit in people)
    expected = {(audience, pages): share * len(people) for share, audience, pages in MANY.crowds()}
    assert counts.keys() == expected.keys()
    assert stats.chisquare([counts[kind] for kind in expected], list(expected.values())).pvalue > 1e-3
    assert [visit for visit in MANY.day("x", MONDAY) if visit.unit] == people


def test_an_audience_has_a_taste_of_its_own() -> None:
    """The same text is worth something else to it, and the original is worth the same to everybody."""
    assert MANY.rate({"headline": "A"}, "ads") == MANY.rate({"headline": "A"}) == pytest.approx(0.2)
    assert MANY.rate({"headline": "B"}, "ads") != pytest.approx(MANY.rate({"headline": "B"}))


def test_the_truth_is_the_mean_over_those_who_come(tmp_path: Path) -> None:
    """The rate of an artifact over all surfaces is what a day's people would convert at, each by what it sees."""
    folder = write_surfaces(tmp_path / "campaign")
    made = Campaign.load(folder)
    audience = SimulatedSource(made, seed=1).audience
    text = (folder / "copy.toml").read_text(encoding="utf-8")
    changed = {"headline": "Stop planning shifts in a spreadsheet", "ads.subhead": "One rota", "price_note": "No card"}
    Artifact({"copy.toml": set_slots(text, changed)}).write(tmp_path / "other")
    pages = CampaignPages(made)
    kinds = Counter((visit.audience, visit.pages) for visit in audience.day("x", MONDAY) if visit.unit)
    total = 0.0
    for (name, looked_at), n in kinds.items():
        texts: dict[str, str] = {}
        for page in looked_at:
            texts |= pages.slots(tmp_path / "other", page, name)
        total += n * audience.rate(texts, name)
    assert true_rate(made, audience, folder) == pytest.approx(0.05)
    assert true_rate(made, audience, tmp_path / "other") == pytest.approx(total / kinds.total(), rel=0.01)


def test_without_surfaces_nothing_but_one_page_is_visited(tmp_path: Path) -> None:
    """The people of a simulation that was begun before there were surfaces come as they came."""
    audience = SimulatedSource(campaign(tmp_path), seed=0).audience
    first = next(audience.day("0001", MONDAY))
    assert (first.unit, first.audience, first.pages) == ("g8B4cmWy5BnXMVKh5b8BzQ", "", ("page",))
