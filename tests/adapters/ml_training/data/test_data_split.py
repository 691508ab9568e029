from __future__ import annotations

import hashlib
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoresearch.adapters.ml_training.data.split import (
    DUPLICATE,
    EMPTY,
    HOLDOUT,
    SEARCH,
    TRAIN,
    Assignment,
    NearDuplicates,
    Splitter,
    text_hash,
)
from tests.adapters.ml_training.data.texts import made_up_documents


def assign(texts: list[str]) -> Assignment:
    splitter = Splitter()
    for text in texts:
        splitter.add(text)
    return splitter.result()


def parts(texts: list[str]) -> dict[int, set[str]]:
    labels = assign(texts).labels
    return {part: {texts[at] for at in np.flatnonzero(labels == part)} for part in (TRAIN, SEARCH, HOLDOUT)}


def test_the_hash_is_sha256_of_the_normal_form() -> None:
    """Case, spacing and the form of characters do not make another text."""
    expected = hashlib.sha256("straße und café".casefold().encode()).digest()
    assert text_hash(" Straße\n und \t CAFE\u0301 ") == expected
    assert text_hash("strasse und cafe") != expected


@given(st.lists(st.text(), max_size=40))
def test_each_text_is_in_one_split_once(texts: list[str]) -> None:
    """Splits share no text, repeated texts are kept once, and empty ones never."""
    labels = assign(texts).labels
    kept = [text_hash(texts[at]) for at in np.flatnonzero(labels <= HOLDOUT)]
    assert len(kept) == len(set(kept))
    assert set(kept) == {text_hash(text) for text in texts if text.strip()}
    assert all((labels[at] == EMPTY) == (not text.strip()) for at, text in enumerate(texts))
    assert (labels != EMPTY).sum() - (labels == DUPLICATE).sum() == len(kept)


def test_scored_splits_take_a_few_percent_each() -> None:
    """Each scored split has about 4 % of the bytes."""
    texts = made_up_documents(3000)
    found = parts(texts)
    total = sum(map(len, texts))
    for part in (SEARCH, HOLDOUT):
        assert 0.04 <= sum(map(len, found[part])) / total < 0.045


def test_the_order_of_documents_does_not_matter() -> None:
    """The same texts in another order are split the same way and scored in the same order."""
    texts = made_up_documents(500)
    shuffled = random.Random(1).sample(texts, len(texts))
    ours, theirs = assign(texts), assign(shuffled)
    assert [texts[at] for at in ours.search] == [shuffled[at] for at in theirs.search]
    assert [texts[at] for at in ours.holdout] == [shuffled[at] for at in theirs.holdout]
    hashes = [text_hash(texts[at]) for at in ours.search]
    assert len(hashes) > 5 and hashes == sorted(hashes)


@settings(max_examples=20)
@given(st.integers(10, 400), st.integers(0, 400), st.integers(0, 3))
def test_a_growing_text_never_moves_a_search_document_into_holdout(first: int, more: int, seed: int) -> None:
    """What keep decisions have seen stays out of claims, whatever is added later."""
    texts = made_up_documents(first + more, seed=seed)
    before, after = parts(texts[:first]), parts(texts)
    assert not before[SEARCH] & after[HOLDOUT]
    assert not before[HOLDOUT] & after[SEARCH]


def test_a_huge_document_is_never_scored() -> None:
    """One document of a megabyte would be most of a scored split, so it goes to train."""
    huge = [f"{number} " + "word " * 200_000 for number in range(10)]
    assert assign([*huge, *made_up_documents(50)]).labels[:10].tolist() == [TRAIN] * 10


SENTENCE = "the quick brown fox jumps over the lazy dog while seven grey geese look on from the far side of the pond"


@pytest.mark.parametrize(
    "variant",
    [
        SENTENCE.upper().replace(" ", ", "),
        SENTENCE.replace("seven", "eight"),
        f"{SENTENCE} and wait",
        "  ".join(SENTENCE.split()) + "!!!",
    ],
)
def test_small_changes_make_near_duplicates(variant: str) -> None:
    """Case, punctuation, spacing, one word or two more: still the same document."""
    assert NearDuplicates([*made_up_documents(20), SENTENCE]).matches([variant]).tolist() == [True]


@pytest.mark.parametrize(
    ("scored", "variant"),
    [
        ("我今天早上去了市场买了一些苹果和梨", "我今天早上去了市场买了一些苹果和桃"),
        (
            "мы вчера долго гуляли по старому городу и ели мороженое",
            "Мы вчера долго гуляли по старому городу и ели мороженое!",
        ),
        ("hi", "Hi!!"),
        ("C'est l’été à Paris", "c'est l'été à paris"),
    ],
)
def test_scripts_with_and_without_spaces_are_compared(scored: str, variant: str) -> None:
    """Chinese, Russian, French, and texts of one word."""
    assert NearDuplicates([scored]).matches([variant]).tolist() == [True]


def test_a_copy_inside_a_longer_document_is_found() -> None:
    """A scored document that stands whole in a long train document would be learned by heart."""
    scored = " ".join(made_up_documents(4, words=40, seed=3))
    around = " ".join(made_up_documents(40, seed=4))
    assert NearDuplicates([scored]).matches([f"{around} {scored} {around}"]).tolist() == [True]


def test_different_documents_are_left_alone() -> None:
    """A shared phrase does not make near-duplicates, nor does an empty set or an empty text."""
    others = ["we all like the quick brown fox and its friends in the wood", "", "...", "dog"]
    assert not NearDuplicates([SENTENCE]).matches(others).any()
    assert not NearDuplicates([]).matches(others).any()
    assert NearDuplicates([SENTENCE]).matches([]).shape == (0,)


def test_boilerplate_in_every_document_does_not_hide_copies() -> None:
    """With a licence text on top of hundreds of documents, exact copies are still found, and only those."""
    licence = made_up_documents(1, words=30, seed=9)[0]
    texts = [f"{licence} {body}" for body in made_up_documents(300, seed=5, words=200) if len(body) > 400]
    strangers = [f"{licence} {body}" for body in made_up_documents(100, seed=6, words=200) if len(body) > 800]
    near = NearDuplicates(texts)
    assert near.matches([text.upper() for text in texts]).all()
    assert not near.matches(strangers).any()


def reference(scored: list[str], text: str) -> bool:
    """The definition, word by word, with sets."""

    def shingles(source: str) -> set[tuple[str, ...]]:
        words = re.findall(r"[a-z0-9]+", source)
        return {tuple(words[at : at + 5]) for at in range(max(len(words) - 4, 1))} if words else set()

    mine = shingles(text)
    for other in map(shingles, scored):
        common = len(mine & other)
        smaller = min(len(mine), len(other))
        if common and (common >= 0.5 * len(mine | other) or (smaller >= 32 and common >= 0.8 * smaller)):
            return True
    return False


WORDY = st.lists(st.sampled_from(["a", "b", "ab", "c 1", "x", "-"]), max_size=60).map(" ".join)


@settings(max_examples=200)
@given(st.lists(WORDY, max_size=6), st.lists(WORDY, min_size=1, max_size=6))
def test_matches_agree_with_the_definition(scored: list[str], texts: list[str]) -> None:
    """The arithmetic on whole arrays finds exactly what sets of shingles find."""
    assert NearDuplicates(scored).matches(texts).tolist() == [reference(scored, text) for text in texts]


def test_a_last_word_of_one_letter_makes_another_shingle() -> None:
    """Shingles that differ in their last short word only are counted apart."""
    assert not NearDuplicates(["a a a a a"]).matches(["a a a a a b a"]).any()
