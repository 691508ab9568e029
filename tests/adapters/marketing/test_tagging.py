"""Rules that tag texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoresearch.adapters.marketing.tagging import ABOUT, MEASURES, TAGS, tag, tag_slots, understood


def tags_of(text: str) -> set[str]:
    return {name for name, value in tag(text).items() if value and name not in MEASURES}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Save 3 hours a week", "number"),
        ("7 ways to sleep better", "list"),
        ("Five reasons it works", "list"),
        ("Is your team ready?", "question"),
        ("Done!", "exclamation"),
        ("She said “I will not give up today” and left", "quotation"),
        ("And then…", "ellipsis"),
        ("It works (really)", "parentheses"),
        ("New: reports", "colon"),
        ("He ran. She won.", "two_sentences"),
        ("Cut costs by 20 %", "percent_or_money"),
        ("Only $9", "percent_or_money"),
        ("The offer ends tonight", "urgency"),
        ("A few left: the last seats", "scarcity"),
        ("Trusted by 900 companies", "proof"),
        ("How to write faster", "how_to"),
        ("Why nobody reads it", "why"),
        ("You won’t believe what happened next", "gap"),
        ("Save time without training", "benefit"),
        ("The new dashboard", "feature"),
        ("Watch this man dance", "command"),
        ("It doesn't hurt", "negation"),
        ("Small but strong", "contrast"),
        ("The friendliest bank", "superlative"),
        ("A wonderful day", "positive"),
        ("A shocking crime", "negative"),
        ("It brought me to tears", "feeling"),
        ("They're gonna love it", "casual"),
        ("Your inbox", "you"),
        ("Our promise", "we"),
        ("I quit my job", "i"),
        ("His last letter", "he"),
        ("A mother speaks", "she"),
        ("People love their cats", "they"),
        ("This is new", "pointing"),
        ("In ten minutes", "time"),
    ],
)
def test_texts_that_have_a_tag(text: str, name: str) -> None:
    """Each rule finds what it is named after, curly apostrophes included."""
    assert name in tags_of(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Knowledge grows", "negation"),
        ("The show went on", "urgency"),
        ("Thousands of thistles", "pointing"),
        ("Unsafe at any speed", "benefit"),
        ("Stress test", "superlative"),
        ("A heroine", "he"),
        ("Sheets of paper", "she"),
        ("10 % off", "list"),
        ("Don't ask", "quotation"),
        ("Don't ask, won't tell, can't say anything", "quotation"),
        ("Version 2.5 is here", "two_sentences"),
        ("Overlook nothing", "command"),
    ],
)
def test_parts_of_words_do_not_count(text: str, name: str) -> None:
    """A word list means words, and signs inside numbers and contractions are none."""
    assert name not in tags_of(text)


def test_measures() -> None:
    """Length is counted in doublings; short and long are its ends; capitals are a share of the longer words."""
    four, eight = tag("one two six ten"), tag("one two six ten one two six ten")
    assert eight["length"] == four["length"] + 1
    assert (four["short"], four["long"], eight["short"]) == (1, 0, 0)
    assert tag("a " * 17)["long"] == 1
    assert tag("FREE BEER for all")["capitals"] == pytest.approx(0.5)
    assert tag("all words have four")["word_length"] == pytest.approx(15 / 4 - 4.5 + 0.25)


def test_names_need_a_sentence_that_is_not_in_title_case() -> None:
    """A capitalised word inside a sentence is a name; where every word is capitalised nobody can tell."""
    assert tag("we asked Merkel about her garden and lunch")["names"] == 1
    assert tag("We Asked Merkel About Her Garden And Lunch")["names"] == 0
    assert tag("we asked someone about her garden and lunch")["names"] == 0


@given(text=st.text(max_size=200))
def test_every_text_has_every_tag(text: str) -> None:
    """Whatever the text, the same tags come back, finite, and patterns are 1 or 0."""
    tags = tag(text)
    assert tuple(tags) == TAGS
    assert all(abs(value) < 1e3 for value in tags.values())
    assert {tags[name] for name in TAGS if name not in MEASURES} <= {0.0, 1.0}


def test_an_empty_text_has_no_tags() -> None:
    """Nothing is said of nothing."""
    assert not any(tag("").values())


def test_explanations_belong_to_tags() -> None:
    """What is explained exists."""
    assert set(ABOUT) <= set(TAGS)


def test_slots_have_tags_of_their_own() -> None:
    """With several slots a tag names its slot; with one it does not need to."""
    assert tag_slots({"headline": "Why?"}) == tag("Why?")
    both = tag_slots({"headline": "Why?", "button": "Go"})
    assert both["headline:question"] == 1
    assert both["button:question"] == 0
    assert len(both) == 2 * len(TAGS)


def test_another_tagger_takes_its_place() -> None:
    """A model may tag instead, with tags of its own."""
    assert tag_slots({"a": "x", "b": "yy"}, lambda text: {"size": len(text)}) == {"a:size": 1, "b:size": 2}


def test_english_is_told_from_other_languages() -> None:
    """Word lists mean nothing in German; short texts get the benefit of the doubt."""
    assert understood("What the people of this town did is more than you think")
    assert not understood("Warum die Leute dieser Stadt nie wieder mit dem Auto fahren wollen")
    assert understood("Jetzt kaufen")
