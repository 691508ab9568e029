"""What is refused before anybody sees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.checks import (
    campaign_faults,
    check,
    mail_faults,
    option_faults,
    refusals,
    warnings,
)
from autoresearch.adapters.marketing.render import Context, render
from autoresearch.adapters.marketing.wording import Copy
from tests.adapters.marketing.campaigns import campaign, copy_of, edit, with_facts


@pytest.mark.parametrize(
    ("slot", "text", "said"),
    [
        ("headline", "x" * 71, "headline: 71 characters, and 70 are allowed. Cut 1."),
        ("headline", "One\ntwo", "headline: 2 lines, and one is allowed."),
        ("headline", " ", "headline: the text is empty."),
        ("cta", "Unlocking your week", "cta: “unlock” is banned by brand.md (here as “unlocking”)."),
        ("proof", "Loved by 14 customers", "proof: “14 customers” is not in facts.md"),
        ("cta", "<b>Go</b>", "cta: “<b” is markup."),
        ("cta", "Go to evil.com", "cta: “evil.com” is an address"),
        ("cta", "Pаy now", "cta: “Pаy” mixes letters"),
    ],
)
def test_a_text_is_refused_with_its_slot(tmp_path: Path, slot: str, text: str, said: str) -> None:
    """Every fault of a text names its slot."""
    page = campaign(tmp_path)
    assert any(sentence.startswith(said) for sentence in refusals(page, copy_of(page, **{slot: text})))


def test_a_text_far_too_long_is_only_told_so(tmp_path: Path) -> None:
    """A text of many times the allowed length is not searched for anything else."""
    page = campaign(tmp_path)
    assert refusals(page, copy_of(page, cta="The best " * 20)) == ("cta: 179 characters, and 30 are allowed. Cut 149.",)


def test_several_faults_are_all_named(tmp_path: Path) -> None:
    """One look tells everything that is wrong, each once."""
    page = campaign(tmp_path)
    found = refusals(page, copy_of(page, headline="The best solution of 2031", cta=""))
    assert len(found) == len(set(found))
    assert [sentence.split(":")[0] for sentence in found if ":" in sentence[:12]] == [
        "headline",
        "headline",
        "headline",
        "cta",
    ]


def test_slots_must_be_those_of_the_template(tmp_path: Path) -> None:
    """A slot that the template lacks and one that the copy lacks are both refused."""
    page = campaign(tmp_path)
    slots = dict(copy_of(page).slots)
    del slots["cta"]
    found = refusals(page, Copy({**slots, "extra": "x"}))
    assert any(sentence.startswith("cta: the template asks for this slot") for sentence in found)
    assert any(sentence.startswith("extra: the template has no such slot") for sentence in found)


def test_a_lost_link_is_refused(tmp_path: Path) -> None:
    """A link that a text makes vanish is missed."""
    page = campaign(tmp_path)
    edit(
        tmp_path,
        "template/page.html.j2",
        '<a class="again" href="#start">',
        '{% if slot.closing != "Bye." %}<a href="/more">x</a>{% endif %}<a class="again" href="#start">',
    )
    assert refusals(page, copy_of(page)) == ()
    assert refusals(page, copy_of(page, closing="Bye.")) == (
        "the link to /more is lost, or shows no text. Put it back.",
    )


def test_a_lost_form_is_refused(tmp_path: Path) -> None:
    """A form that a text makes vanish, or robs of a field, is missed."""
    page = campaign(tmp_path)
    edit(
        tmp_path,
        "template/page.html.j2",
        'name="email" type',
        "{% if slot.closing != 'Bye.' %}name=\"email\"{% endif %} type",
    )
    [found] = refusals(page, copy_of(page, closing="Bye."))
    assert found == "the form that posts to /convert with email is lost or changed. Put it back."


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<!doctype html>", "{% if %}", "line 1 is no template"),
        ("<!doctype html>", "{{ nobody }}", "'nobody' is undefined"),
        ("<!doctype html>", "{{ slot.extra }}", "has no [slots.extra], and the template asks for it"),
        ("{{ slot.closing }}", "", "[slots.closing] is in no template"),
        ("{{ slot.closing }}", "{{ slot.closing | safe }}", "switches escaping off"),
        ("{{ slot.closing }}", "{% autoescape false %}{{ slot.closing }}{% endautoescape %}", "switches escaping off"),
        ("{{ slot.closing }}", '<a href="{{ slot.closing }}">x</a>', "puts slot closing in href of <a>"),
        ("{{ slot.closing }}", "<p title={{ slot.closing }}>x</p>", "puts slot closing in the name of an attribute"),
        ("{{ slot.closing }}", "<script>{{ slot.closing }}</script>", "puts slot closing inside <script>"),
        ("{{ slot.closing }}", "{{ slot.closing }}<a href='/x'></a>", "has a link to /x that shows nothing"),
    ],
)
def test_a_bad_template_is_the_campaigns_fault(tmp_path: Path, old: str, new: str, said: str) -> None:
    """What is wrong with a template is found before any copy is tried, and refuses every copy."""
    page = campaign(tmp_path)
    edit(tmp_path, "template/page.html.j2", old, new)
    assert any(said in sentence for sentence in campaign_faults(page)), campaign_faults(page)
    assert refusals(page, copy_of(page)) == campaign_faults(page)


def test_a_page_must_lead_somewhere(tmp_path: Path) -> None:
    """A page without form and link is refused: nobody could convert."""
    page = replace(campaign(tmp_path), slots={})
    (tmp_path / "template" / "page.html.j2").write_text('<p>Hello</p><a href="#top">Up</a><a href="mailto:x@y">x</a>')
    found = campaign_faults(page)
    assert any("has neither form nor link" in sentence for sentence in found)
    assert any("asks for no slot" in sentence for sentence in found)


@pytest.mark.parametrize("part", ["html", "txt", "mjml"])
def test_a_mail_shows_address_and_way_out(tmp_path: Path, part: str) -> None:
    """Every part of a mail must show the postal address and the unsubscribe line."""
    mail = campaign(tmp_path, "email")
    path = f"template/email.{part}.j2"
    before = (tmp_path / path).read_text(encoding="utf-8")
    edit(tmp_path, path, "{{ link.unsubscribe_url }}", "/elsewhere")
    assert [sentence for sentence in refusals(mail, copy_of(mail)) if "shows no unsubscribe line" in sentence]
    (tmp_path / path).write_text(before, encoding="utf-8")
    assert refusals(mail, copy_of(mail)) == ()
    edit(tmp_path, path, "{{ sender.postal_address }}", "")
    [found] = refusals(mail, copy_of(mail))
    assert found.startswith(f"{tmp_path / path} does not show the postal address")


def test_what_is_hidden_is_not_shown(tmp_path: Path) -> None:
    """An unsubscribe line and an address that nobody can see do not count."""
    mail = campaign(tmp_path, "email")
    edit(tmp_path, "template/email.html.j2", '<div class="foot">', '<div class="foot" style="display:none">')
    found = refusals(mail, copy_of(mail))
    assert any("shows no unsubscribe line" in sentence for sentence in found)
    assert any("does not show the postal address" in sentence for sentence in found)


def test_an_address_may_be_set_on_several_lines(tmp_path: Path) -> None:
    """Line breaks and commas in the postal address do not matter."""
    mail = campaign(tmp_path, "email")
    mail = replace(mail, sender=replace(mail.sender, postal_address="Larkfield Ltd\n12 Example Street\nBristol"))
    edit(
        tmp_path,
        "template/email.html.j2",
        "{{ sender.postal_address }}",
        "Larkfield Ltd,<br>12 Example Street,<br>Bristol",
    )
    assert campaign_faults(mail) == ()


def test_a_campaign_for_mail_needs_a_postal_address(tmp_path: Path) -> None:
    """Without a postal address no mail may go out."""
    mail = campaign(tmp_path, "email")
    mail = replace(mail, sender=replace(mail.sender, postal_address=""))
    assert any("[sender] postal_address is missing" in sentence for sentence in campaign_faults(mail))


def test_the_mail_as_sent_is_asked_again(tmp_path: Path) -> None:
    """The recipient's own unsubscribe address must be the one in the mail."""
    mail = campaign(tmp_path, "email")
    sent = render(mail, copy_of(mail), context=Context(landing_url="/", unsubscribe_url="https://a.example/u/1"))
    assert mail_faults(mail, sent, "https://a.example/u/1") == ()
    assert len(mail_faults(mail, sent, "https://a.example/u/2")) == 3


@pytest.mark.parametrize("subject", ["Re: our call", "RE : x", "Fwd: offer", "AW: Angebot"])
def test_a_subject_must_not_pretend_to_answer(tmp_path: Path, subject: str) -> None:
    """Subjects that begin as answers do are refused; words that begin alike are not."""
    mail = campaign(tmp_path, "email")
    assert any("deceives" in sentence for sentence in refusals(mail, copy_of(mail, subject=subject)))
    assert refusals(mail, copy_of(mail, subject="Recipe: a calm week")) == ()


def test_a_header_cannot_be_injected(tmp_path: Path) -> None:
    """A subject of two lines is refused."""
    mail = campaign(tmp_path, "email")
    found = refusals(mail, copy_of(mail, subject="Hello\nBcc: everybody"))
    assert any("2 lines, and one is allowed" in sentence for sentence in found)
    assert any("not one line" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("PLAN YOUR WEEK", "mostly in capitals"),
        ("Plan!! Your week!", "3 exclamation marks"),
        ("Plan your week $$", "a row of signs"),
        ("Plan your week, your shifts and your swaps at once", "many phones show about 45"),
        ("How other cafés stopped planning shifts on Sunday evening", "says what the subject says"),
    ],
)
def test_spammy_subjects_are_remarked(tmp_path: Path, subject: str, said: str) -> None:
    """What filters take for spam is a warning and no refusal."""
    mail = campaign(tmp_path, "email")
    found = check(mail, copy_of(mail, subject=subject))
    assert any(said in sentence for sentence in found.warnings)
    assert not [sentence for sentence in found.refusals if "characters, and" not in sentence]


def test_ads_have_the_platforms_limits(tmp_path: Path) -> None:
    """Without a limit of its own an ad's slot has the platform's, and wide characters count twice in search ads."""
    ad = replace(with_facts(campaign(tmp_path, "ad")), slots={})
    own = {name: f"{word} rota" for name, word in zip(copy_of(ad).slots, "abcdefg", strict=True)}
    assert refusals(ad, Copy(own)) == ()
    assert refusals(ad, Copy({**own, "headline_1": "日" * 15})) == ()
    assert refusals(ad, Copy({**own, "headline_1": "日" * 16})) == (
        "headline_1: 32 characters, and 30 are allowed. Cut 2.",
    )
    assert refusals(ad, Copy({**own, "description_2": "x" * 91}))[0].startswith("description_2: 91 characters, and 90")


def test_limits_above_the_platforms_are_refused(tmp_path: Path) -> None:
    """A limit that lets through what the platform rejects is a fault of the campaign."""
    campaign(tmp_path, "ad")
    edit(tmp_path, "campaign.toml", "[slots.headline_1]\nmax_chars = 30", "[slots.headline_1]\nmax_chars = 31")
    [found] = campaign_faults(Campaign.load(tmp_path))
    assert "[slots.headline_1] max_chars is 31, and the platform rejects more than 30" in found


def test_a_search_ad_needs_three_headlines(tmp_path: Path) -> None:
    """A template with fewer headlines than the platform takes is refused, and a slash in a path too."""
    ad = campaign(tmp_path, "ad")
    assert any("rejects a slash" in sentence for sentence in refusals(ad, copy_of(ad, path_1="rota/free")))
    for name in ("ad.j2", "ad.html.j2"):
        edit(tmp_path, f"template/{name}", "{{ slot.headline_3 }}", "")
    assert any("has 2 slots for a headline, and the platform takes 3 to 15" in fault for fault in campaign_faults(ad))


def test_an_ad_says_nothing_twice(tmp_path: Path) -> None:
    """Platforms reject the same text in two places, and spreadsheets run formulas."""
    ad = campaign(tmp_path, "ad")
    [found] = refusals(ad, copy_of(ad, headline_2="rota planning  for cafés"))
    assert found.startswith("headline_2: says the same as headline_1")
    assert any("for a formula" in sentence for sentence in refusals(ad, copy_of(ad, headline_2="=Rota")))
    assert any("1 exclamation mark," in sentence for sentence in warnings(ad, copy_of(ad, headline_2="Plan!")))


def test_options_are_checked_beforehand(tmp_path: Path) -> None:
    """What the offline search could never show is named before the run."""
    page = campaign(tmp_path)
    copy = copy_of(page)
    copy = Copy(copy.slots, {**copy.options, "cta": ("Go", "Unlock it", "")})
    assert [sentence.split(".")[0] for sentence in option_faults(page, copy)] == [
        "[options] cta: “unlock” is banned by brand",
        "[options] cta: the text is empty",
    ]


def test_a_listed_host_may_be_named(tmp_path: Path) -> None:
    """Addresses of the campaign, its facts and its list pass."""
    page = replace(campaign(tmp_path), links=("partner.org", "https://www.other.net/x"))
    for text in ("See www.example.com", "See partner.org", "See shop.other.net"):
        assert refusals(page, copy_of(page, closing=text)) == ()
    assert refusals(page, copy_of(page, closing="See mypartner.org")) != ()
