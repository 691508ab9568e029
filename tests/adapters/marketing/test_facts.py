"""A claim holds when a fact has the same number or word and shares words around it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.adapters.marketing.facts import (
    claims_in,
    content_words,
    items_by_heading,
    read_facts,
    same_word,
    unsupported,
)

FACTS = """
# Facts
A paragraph that explains, with 77 things in it, is no fact.

- The trial is free for 14 days; no card is needed.
- Planning a week takes 25 minutes on average,
  down from 2 hours (survey, March 2026).
- 1,200 cafés in 9 countries plan with it.
- It costs €39 a month for each location.
- Set-up is 40% faster than by hand.
- Guests rate it 4.7 out of 5.
- We answer within one working day, guaranteed.
- The offer ends on 31 December 2026.
- Voted the fastest rota tool by readers.
<!-- - 5,000 hotels use it. -->

## Never claim
- 99 percent of guests come back.
"""


def refused(text: str, facts: str = FACTS) -> list[str]:
    return list(unsupported(text, read_facts(facts)))


@pytest.mark.parametrize(
    "text",
    [
        "14 days free",
        "a free 14-day trial",
        "Free for fourteen days",
        "A week planned in 25 minutes",
        "From 2 hours to 25 minutes",
        "1,200 cafés plan with it",
        "1.200 cafés",
        "1 200 cafés",
        "1’200 cafés",
        "1.2k cafés",
        "twelve hundred cafés",
        "１２００ cafés",
        "€39 a month",
        "39 € a month",
        "EUR 39 a month",
        "39 euros a month",
        "39,00 € a month",
        "40 % faster set-up",
        "forty percent faster set-up",
        "4.7 of 5 from guests",
        "rated 4,7/5",
        "Guaranteed: we answer within a working day",
        "The offer ends on 2026-12-31",
        "The offer ends on 31.12.2026",
        "The offer ends on December 31, 2026",
        "The fastest rota tool",
        "One place, no spreadsheet, B2B and MP3",
        "Best wishes from a guest who is honest about the rest of the test",
        "Feel free to write, and free up your evening",
        "More than a rota, rather than a list, other than paper",
        "",
    ],
)
def test_what_the_facts_hold_may_be_said(text: str) -> None:
    """The same quantity in another spelling, beside words of its fact, passes; so does what claims nothing."""
    assert refused(text) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("14 customers", "14 customers"),
        ("25 hours a week", "25 hours"),
        ("Delivered in 25 minutes", "25 minutes"),
        ("1,300 cafés", "1,300 cafés"),
        ("12,000 cafés", "12,000 cafés"),
        ("9 cafés", "9 cafés"),
        ("1,200 countries", "1,200 countries"),
        ("1.2 cafés", "1.2 cafés"),
        ("Thousands of cafés", "Thousands"),
        ("$39 a month", "$39"),
        ("€390 a month", "€390"),
        ("39% a month", "39%"),
        ("40 faster set-ups", "40 faster"),
        ("40% cheaper", "40%"),
        ("30 times faster set-up", "30 times"),
        ("Twice as fast", "Twice"),
        ("half the time", "half"),
        ("77 things", "77 things"),
        ("5,000 hotels", "5,000 hotels"),
        ("99 percent of guests", "99 percent"),
        ("Rated 4.8 by guests", "4.8"),
        ("The offer ends on 30 December", "30 December"),
        ("The offer ends on 31 January", "31 January"),
        ("٤٢ cafés", "42 cafés"),
        ("½ price", "1"),
        ("free delivery", "free"),
        ("a gratis month", "gratis"),
        ("Kostenlos testen", "Kostenlos"),
        ("Guaranteed weight loss", "Guaranteed"),
        ("money-back promise", "money-back"),
        ("the cheapest rota tool", "cheapest"),
        ("The best rota", "best"),
        ("the most popular rota", "the most popular"),
        ("our most trusted rota", "most trusted"),
        ("Ends tonight", "Ends tonight"),
        ("#1 rota tool", "#1"),
        ("The No. 1 rota tool", "No.1"),
        ("Award-winning rota", "Award-winning"),
        ("clinically proven", "clinically"),
        ("faster than Excel", "faster than"),
        ("more reliable than paper", "more reliable than"),
        ("Last chance to plan", "Last chance"),
        ("only today: plan a week", "only today"),
        ("Nur heute", "Nur heute"),
        ("unlimited staff", "unlimited"),
        ("le meilleur planning", "le meilleur"),
    ],
)
def test_what_the_facts_do_not_hold_is_refused(text: str, shown: str) -> None:
    """A quantity or claim without its fact is refused, and shown as the text has it."""
    assert any(f"“{shown}”" in sentence for sentence in refused(text)), refused(text)


def test_the_refusal_says_what_the_facts_have() -> None:
    """Where the number is known of something else, that fact is quoted; else the known numbers are listed."""
    [of_another] = refused("14 customers")
    assert "has that number only in “The trial is free for 14 days; no card is needed.”" in of_another
    [unknown] = refused("17 customers")
    assert "holds only 14 days, 25 minutes, 2 hours" in unknown
    [none] = refused("17 customers", "")
    assert "holds no number at all" in none
    [free] = refused("free delivery")
    assert "has that word only in “The trial is free for 14 days; no card is needed.”" in free


@pytest.mark.parametrize(
    ("language", "text", "shown"),
    [
        ("de", "zwölf Läden", ["zwölf Läden"]),
        ("de", "Findest du das? Try 3 Läden, 10 miles, fünf.", ["3 Läden", "10 miles", "fünf"]),
        ("fr", "deux cents cafés en Sept 2026", ["deux cents cafés", "Sept", "2026"]),
        ("es", "miles de bares", ["miles"]),
        ("it", "due bar, 3 bar", ["3 bar"]),
        ("en", "Try 3 cafés 10 miles away in Sept 2026, dos and don'ts", ["3 cafés", "10 miles", "2026"]),
        ("en-GB", "the finest dozen", ["finest", "dozen"]),
    ],
)
def test_each_language_has_its_own_number_words(language: str, text: str, shown: list[str]) -> None:
    """Words are numbers in their own language only, and English endings make superlatives in English only."""
    assert sorted(claim.shown for claim in claims_in(text, language)) == sorted(shown)


def test_a_denied_claim_is_no_licence() -> None:
    """A fact that says no does not cover a text that says yes, nor the other way round."""
    facts = "- Delivery is not free."
    assert refused("Delivery is free", facts)
    assert refused("Delivery is not free", facts) == []
    assert refused("Delivery is not free", "- Delivery is free.")


def test_only_items_are_facts() -> None:
    """Lines of one item are joined, tables count by row, headings and comments do not."""
    text = "# A\n- one\n  two\n\nnot this\n* three\n1. four\n## B\n| five | six |\n<!-- - no -->"
    assert list(items_by_heading(text)) == [("A", "one two"), ("A", "three"), ("A", "four"), ("B", "five | six")]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("10.000", {"10000"}),
        ("1.234", {"1234", "1.234"}),
        ("10'000", {"10000"}),
        ("1.234.567", {"1234567"}),
        ("1,234.5", {"1234.5"}),
        ("1.234,50", {"1234.5"}),
        ("10.5", {"10.5"}),
        ("10k", {"10000"}),
        ("3m", {"3", "3000000"}),
        ("two hundred and fifty", {"200", "50"}),
        ("twenty-five thousand", {"25000"}),
    ],
)
def test_every_reading_of_a_number_counts(text: str, values: set[str]) -> None:
    """A spelling that may mean two numbers has both readings, and no third."""
    assert {f"{value:f}" for claim in claims_in(text) for value, _ in claim.readings} == values


@given(st.integers(2, 10**9))
def test_every_number_is_seen(number: int) -> None:
    """Whatever number is written, in whatever common spelling, without facts it is refused, with its fact it passes."""
    for spelling in (str(number), f"{number:,}", f"{number:,}".replace(",", "."), f"{number:,}".replace(",", "\u202f")):
        assert refused(f"Loved by {spelling} guests", "")
        assert refused(f"Loved by {spelling} guests", f"- {number} guests come every week.") == []


@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_can_be_asked_about(text: str, facts: str) -> None:
    """No text and no facts break the check, and a text holds what it says itself."""
    refused(text, facts)
    assert all(sentence.endswith(".") for sentence in refused(text, ""))


def test_forms_of_a_word_are_one_word() -> None:
    """Endings do not matter, beginnings do; accents and small words do not count."""
    assert same_word("plan", "planning")
    assert same_word("rated", "rates")
    assert same_word("bar", "bars")
    assert not same_word("contract", "contact")
    assert not same_word("car", "cargo")
    assert content_words("The Cafés' owner's 3 weeks") == ["cafes", "owner", "weeks"]
