"""Banned words are found in all their forms and no others."""

from __future__ import annotations

import pytest

from autoresearch.adapters.marketing.brand import banned_in, banned_words

BRAND = """
# Brand
- this is no banned word

## Words we avoid
- leverage (say "use")
- synergy, spam
- game-changing — a cliché
- `solution`
- Straße
- act now
- CEO
- 革命
- "free lunch"
"""


def found(text: str, brand: str = BRAND) -> list[str]:
    return [word for word, _ in banned_in(text, brand)]


def test_the_list_is_read_from_its_heading() -> None:
    """Items under the heading count, without marks and notes; other lists do not."""
    assert banned_words(BRAND) == (
        "leverage", "synergy", "spam", "game-changing", "solution", "Straße", "act now", "CEO", "革命", "free lunch",
    )  # fmt: skip
    assert banned_words("# Voice\n- plain") == ()
    assert banned_words("## Verbotene Wörter\n- Synergie") == ("Synergie",)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("We leverage it", "leverage"),
        ("LEVERAGING your team", "leverage"),
        ("He leveraged. Then", "leverage"),
        ("synergies", "synergy"),
        ("spamming", "spam"),
        ("spammers", "spam"),
        ("Game changing!", "game-changing"),
        ("a game‑changing idea", "game-changing"),
        ("our solution’s price", "solution"),
        ("solutions", "solution"),
        ("STRASSE", "Straße"),
        ("Act  now", "act now"),
        ("CEOs", "CEO"),
        ("これは革命的です", "革命"),
        ("no free lunches", "free lunch"),
        ("s\u200bpam", "spam"),
        ("ｓｐａｍ", "spam"),
        ("lеverage", "leverage"),  # with a Cyrillic letter
        ("spa\u0301m spam", "spam"),
    ],
)
def test_every_form_is_found(text: str, word: str) -> None:
    """Endings, capitals, hyphens and tricks of spelling hide nothing."""
    assert found(text) == [word]


@pytest.mark.parametrize(
    "text", ["a spa in May", "resolution", "react nowhere", "soluble", "ceoliac", "lever", "act. Now", "Strass"]
)
def test_other_words_stay_allowed(text: str) -> None:
    """A word that only contains a banned one, or shares its beginning, is another word."""
    assert found(text) == []
