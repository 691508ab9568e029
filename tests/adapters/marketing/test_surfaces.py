"""Surfaces as campaign.toml declares them, and as the loop knows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.adapters.marketing import lanes, wording
from autoresearch.adapters.marketing.brief import brief
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.checks import option_faults, refusals
from autoresearch.adapters.marketing.planning import setting_of
from autoresearch.adapters.marketing.surfaces import Surface, audience_of, traits_of
from autoresearch.core import Artifact, Lane, UsageError
from autoresearch.core.proposers.knobs import find_knobs, turn
from tests.adapters.marketing.campaigns import campaign, edit
from tests.adapters.marketing.with_surfaces import SURFACES, write_surfaces


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_surfaces(tmp_path / "campaign")


def copy_of(folder: Path, **slots: str) -> Artifact:
    """Return the campaign's artifact, some texts changed."""
    text = (folder / "copy.toml").read_text(encoding="utf-8")
    return Artifact({"copy.toml": wording.set_slots(text, slots)})


def test_surfaces_are_read_in_the_order_of_the_file(folder: Path) -> None:
    """Their order cuts people into parts, and must never change."""
    found = Campaign.load(folder).surfaces
    assert [one.name for one in found] == ["hero", "reasons", "pricing", "ads"]
    assert found[2] == Surface("pricing", ("price_note",), "/pricing", "pricing.html.j2", {}, 0.5)
    assert found[3].audience == {"utm_source": ("ads", "partner")} and found[3].keys == ("ads.subhead",)


def test_a_campaign_with_surfaces_passes_its_checks(folder: Path) -> None:
    """All pages are rendered for all audiences, and the texts of each are held to the limits of their slot."""
    found = Campaign.load(folder)
    copy = wording.Copy.load(folder)
    assert refusals(found, copy) == () and option_faults(found, copy) == ()
    long = copy.with_slot("ads.subhead", "x" * 171)
    assert "ads.subhead: 171 characters, and 170 are allowed" in refusals(found, long)[0]
    missing = wording.Copy({name: text for name, text in copy.slots.items() if name != "ads.subhead"})
    assert "ads.subhead: [surfaces.ads] is an audience with a text of its own" in refusals(found, missing)[0]
    strange = copy.with_slot("somebody.subhead", "Plan it")
    assert "somebody.subhead: the template has no such slot" in refusals(found, strange)[0]
    assert "- ads.subhead, 170" in brief(found)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('slots = ["bullet_1"', 'slots = ["cta"', r"\[surfaces.hero\] and \[surfaces.reasons\] both have cta"),
        ('slots = ["headline", "cta"]', 'slots = ["headlin"]', r"slots has headlin, and there is no \[slots.headlin\]"),
        ('slots = ["headline", "cta"]', "slots = []", "must list, each once, the slots"),
        ('slots = ["headline", "cta"]', 'slots = ["cta", "cta"]', "must list, each once, the slots"),
        ('"pricing.html.j2"', '"prices.html.j2"', "template 'prices.html.j2' is missing in template/"),
        ('"pricing.html.j2"', '"../facts.md"', "template '../facts.md' leads out of template/"),
        ('template = "pricing.html.j2"', "", "template '' is missing"),
        ('path = "/pricing"', 'path = "/convert"', "a path of the site that the server does not need itself"),
        ('path = "/pricing"', 'path = "pricing"', "must be a path of the site"),
        ('path = "/pricing"', "", "must be a path of the site"),
        ("[surfaces.pricing]", "[surfaces.page]", "bears the name of what lies at /"),
        ('{ utm_source = ["ads", "partner"] }', "{}", "names nobody"),
        ('{ utm_source = ["ads", "partner"] }', "{ utm_source = 7 }", "neither a text nor a list of texts"),
        ('{ utm_source = ["ads", "partner"] }', '{ "a b" = "c" }', "is no name of a query parameter"),
        ('{ utm_source = ["ads", "partner"] }', '{ unit = "c" }', "is no name of a query parameter"),
        ('{ utm_source = ["ads", "partner"] }', '{ accept_language = "German!" }', "which is no language"),
        ("audience = {", 'path = "/x"\naudience = {', "is a page and an audience at once"),
        ('slots = ["subhead"]', 'slots = ["subhead"]\nreach = 0', "reach must be above 0 and at most 1"),
        ('slots = ["subhead"]', 'slots = ["subhead"]\nweekly = 3', "weekly is unknown"),
        ('source = "simulated"', 'source = "counts"', "the source counts runs one test of one candidate at a time"),
        ('source = "simulated"', 'source = "replay"', "choose one of simulated, site, api"),
        ("holdout = 0.05", "arms = 9\nholdout = 0.05", "arms must be from 1 to 8"),
    ],
)
def test_surfaces_that_make_no_sense_are_refused(folder: Path, old: str, new: str, says: str) -> None:
    """Each with the file, the table and what to do."""
    edit(folder, "campaign.toml", old, new)
    with pytest.raises(UsageError, match=says):
        Campaign.load(folder)


def test_two_pages_at_one_path_are_refused(folder: Path) -> None:
    """The server could show one of them only."""
    more = '\n[surfaces.prices]\npath = "/pricing"\ntemplate = "pricing.html.j2"\nslots = ["price_note"]\n'
    path = folder / "campaign.toml"
    path.write_text(path.read_text(encoding="utf-8") + more, encoding="utf-8")
    with pytest.raises(UsageError, match=r"both have /pricing"):
        Campaign.load(folder)


def test_audiences_cannot_hold_more_people_than_there_are(folder: Path) -> None:
    """Nobody is in two, so that their reach adds up to all at most."""
    more = '\n[surfaces.news]\naudience = { utm_source = "news" }\nslots = ["subhead"]\nreach = 0.9\n'
    path = folder / "campaign.toml"
    path.write_text(path.read_text(encoding="utf-8") + more, encoding="utf-8")
    with pytest.raises(UsageError, match="reach 123% of the people together"):
        Campaign.load(folder)


@pytest.mark.parametrize("source", ["email", "counts", "replay"])
def test_arms_are_refused_where_a_source_cannot_serve_them(tmp_path: Path, source: str) -> None:
    """A source that runs one candidate at a time says so before anything begins."""
    made = campaign(tmp_path).folder
    edit(made, "campaign.toml", 'source = "simulated"', f'source = "{source}"\narms = 2')
    with pytest.raises(UsageError, match=rf"\[traffic\] arms asks for .* the source {source} runs one"):
        Campaign.load(made)


def test_a_page_must_show_what_it_tests(folder: Path) -> None:
    """A surface whose slot is on another page only would never be seen on its own."""
    edit(folder, "campaign.toml", 'slots = ["price_note"]', 'slots = ["price_note", "proof"]')
    found = refusals(Campaign.load(folder), wording.Copy.load(folder))
    assert "[surfaces.pricing] may change proof, and pricing.html.j2 does not show it" in found[0]


@pytest.mark.parametrize(
    ("query", "languages", "name"),
    [
        (b"utm_source=ads", b"", "ads"),
        (b"utm_source=ADS&utm_source=x", b"", "ads"),
        (b"utm_source=adss", b"", ""),
        (b"", b"de-CH, fr;q=0.8", "swiss"),
        (b"utm_source=ads", b"de-CH", "ads"),
        (b"", b"de", ""),
        (b"plan=pro", b"fr", "both"),
        (b"plan=pro", b"en", ""),
        (b"accept_language=fr&plan=pro", b"en", "both"),
        (b"\xff&%ff=%", b"\xff", ""),
    ],
)
def test_the_first_audience_that_fits_counts(query: bytes, languages: bytes, name: str) -> None:
    """By query parameters and by the language that comes first; all names of a rule must hold, any of its values."""
    rules = (
        Surface("ads", ("headline",), audience={"utm_source": ("ads", "partner")}),
        Surface("hero", ("cta",)),
        Surface("swiss", ("headline",), audience={"accept_language": ("de-CH",)}),
        Surface("both", ("headline",), audience={"plan": ("pro",), "accept_language": ("fr", "it")}),
    )
    assert audience_of(rules, traits_of(query, languages)) == name


def test_each_surface_is_a_lane(folder: Path) -> None:
    """A page that shares no slot with others is alone; slots of one page, and an audience of it, are not."""
    edit(folder, "campaign.toml", "holdout = 0.05", "arms = 3\nholdout = 0.05")
    assert lanes.lanes_of(Campaign.load(folder)) == (
        Lane("hero", 3),
        Lane("reasons", 3),
        Lane("pricing", 3, alone=True, reach=0.5),
        Lane("ads", 3, reach=0.5),
    )


def test_a_page_with_a_slot_of_another_surface_is_not_alone(folder: Path) -> None:
    """What the other one keeps changes what people of this page see."""
    edit(folder, "template/pricing.html.j2", "<p>", "<h1>{{ slot.headline }}</h1><p>")
    assert not any(lane.alone for lane in lanes.lanes_of(Campaign.load(folder)))


def test_without_surfaces_the_whole_copy_is_the_lane(tmp_path: Path) -> None:
    """One lane of one arm: the loop runs as it always did."""
    made = campaign(tmp_path)
    assert lanes.lanes_of(made) == (Lane("page"),)
    before, after = (
        copy_of(made.folder),
        copy_of(made.folder, cta="Plan my first week", closing="Plan one week, then decide."),
    )
    assert lanes.foreign(made, "page", before, after) is None
    assert "reads as what is shown already" in (lanes.foreign(made, "page", before, before) or "")


def test_a_candidate_belongs_to_the_surface_whose_texts_it_changes(folder: Path) -> None:
    """Another surface's text, or everybody's in place of the audience's, is named."""
    made, before = Campaign.load(folder), copy_of(folder)
    both = copy_of(
        folder, headline="Stop planning shifts in a spreadsheet", bullet_1="From the staff list to a full week"
    )
    assert lanes.foreign(made, "hero", before, copy_of(folder, cta="Plan my first week")) is None
    assert "It changes bullet_1, and [surfaces.hero] tests headline, cta." in (
        lanes.foreign(made, "hero", before, both) or ""
    )
    own = copy_of(folder, **{"ads.subhead": "One rota for everybody"})
    assert lanes.foreign(made, "ads", before, own) is None
    assert "It changes subhead" in (lanes.foreign(made, "ads", before, copy_of(folder, subhead="One rota")) or "")


def test_the_search_turns_a_surface_s_own_knobs(folder: Path) -> None:
    """With quotes or without, `ads.subhead` is a knob, and turning it changes that text alone."""
    made, before = Campaign.load(folder), copy_of(folder)
    names = {lane.name: [knob.name for knob in lanes.knobs(made, lane.name, before)] for lane in lanes.lanes_of(made)}
    assert names == {
        "hero": ["slots.headline", "slots.cta"],
        "reasons": ["slots.bullet_1", "slots.bullet_2", "slots.bullet_3"],
        "pricing": ["slots.price_note"],
        "ads": ["slots.ads.subhead"],
    }
    quoted = Artifact({"copy.toml": before.files["copy.toml"].replace("ads.subhead =", '"ads.subhead" =', 1)})
    for artifact in (before, quoted):
        (found,) = find_knobs(artifact, lanes.knobs(made, "ads", artifact))
        turned = wording.Copy.load(turn(artifact, found, '"One rota"').files["copy.toml"])
        assert wording.changed_slots(wording.Copy.load(artifact.files["copy.toml"]), turned) == ("ads.subhead",)
        assert turned.seen_by("ads").slots["subhead"] == "One rota" != turned.seen_by().slots["subhead"]


def test_the_language_model_is_told_what_may_change(folder: Path) -> None:
    """Which texts, and who reads them."""
    made = Campaign.load(folder)
    assert lanes.brief(made, "hero").startswith("Only headline, cta may change")
    assert lanes.brief(made, "pricing").endswith("They are on the page /pricing.")
    assert "people with utm_source ads or partner, in place of everybody's" in lanes.brief(made, "ads")


def test_a_plan_knows_surfaces_arms_and_reach(folder: Path) -> None:
    """People of one arm: a quarter of half of the visitors, over four arms of a test."""
    edit(folder, "campaign.toml", "holdout = 0.05", "arms = 3\nholdout = 0.05")
    setting = setting_of(Campaign.load(folder))
    assert (setting.surfaces, setting.arms, setting.reach) == (4, 3, 0.5)
    assert setting.daily_per_arm == pytest.approx(20_000 / 7 * 0.95 * 0.5 / 4 / 4)
    assert setting.alpha_per_arm == pytest.approx(0.05 / 3)


def test_a_text_for_nobody_is_no_slot(tmp_path: Path) -> None:
    """A name has at most one dot, and a table in [slots] is an audience's texts."""
    with pytest.raises(Exception, match=r"'a\.b\.c' cannot name a slot"):
        wording.Copy.load('[slots]\n"a.b.c" = "x"\n')
    with pytest.raises(Exception, match=r"\[slots\] a\.b must be a text"):
        wording.Copy.load("[slots]\na.b = 1\n")
    assert SURFACES.count("[surfaces.") == 4
