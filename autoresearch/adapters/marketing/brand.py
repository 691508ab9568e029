"""Words that the brand does not use, read from `brand.md`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from autoresearch.adapters.marketing.facts import items_by_heading
from autoresearch.adapters.marketing.unsafe import skeleton

_HEADING = re.compile(
    r"\b(banned|forbidden|never (?:use|say|write)|words? (?:we|to) (?:avoid|never)|avoid|do not (?:use|say)|"
    r"verboten\w*|vermeiden|interdits?|proscrits?|prohibid\w+|vietat\w+|verboden)\b",
    re.IGNORECASE,
)
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")  # Thai, Japanese, Chinese: no space between words
# Endings by which the forms of a word differ in English, German and the Romance languages, longest first.
_ENDINGS = r"(?:ingly|ings?|ers?|ed|es|ly|s|d|r|n|e[nrsm]?|t|te[nrst]?|st|a|o|as|os|i|amente|ment)?(?:['’]s?)?"


@lru_cache(maxsize=32)
def banned_words(brand: str) -> tuple[str, ...]:
    """Return the words and phrases listed under a heading like "Banned words", notes in brackets taken off.

    An item may list several, separated by commas.
    """
    words: dict[str, None] = {}
    for heading, item in items_by_heading(brand):
        if _HEADING.search(heading):
            listed = re.sub(r"\s*[(\[].*?[)\]]|\s+[–—].*", "", item)
            parts = (part.strip(" \t`*_\"'“”„‘’.") for part in re.split(r"[,;]", listed))
            words.update(dict.fromkeys(part for part in parts if part))
    return tuple(words)


def banned_in(text: str, brand: str) -> Iterator[tuple[str, str]]:
    """Yield (banned word, how the text has it) for every banned word of which the text has a form."""
    plain = _plain(text)
    for word in banned_words(brand):
        if match := _pattern(word).search(plain):
            yield word, match.group().strip()


def _plain(text: str) -> str:
    # Look-alikes of other alphabets, invisible characters and wide letters must not hide a word.
    visible = "".join(c for c in unicodedata.normalize("NFKC", skeleton(text)) if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFC", visible.casefold())


@lru_cache(maxsize=256)
def _pattern(word: str) -> re.Pattern[str]:
    plain = _plain(word)
    if _UNSPACED.search(plain):
        return re.compile(re.escape(plain))
    *first, last = re.split(r"[\s-]+", plain)
    parts = [re.escape(part) for part in first]
    return re.compile(r"(?<!\w)" + "[\\s\\-\u2010]*".join([*parts, _forms(last)]) + r"(?!\w)")


def _forms(word: str) -> str:
    """Return a pattern for the forms of a word: leverage, leveraging; spam, spammed; synergy, synergies."""
    if len(word) < 4 or not word[-1].isalpha():
        return re.escape(word) + ("(?:['’]?s)?" if word[-1:].isalpha() else "")
    stem = re.escape(word[:-1])
    last = re.escape(word[-1])
    if word.endswith("e"):
        return f"{stem}(?:{last}{_ENDINGS}|ing(?:ly|s)?)"
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{stem}(?:{last}{_ENDINGS}|i(?:es|ed|er|est|ly))"
    if word[-1] not in "aeiouwxy" and word[-2] in "aeiou":
        return f"{stem}{last}(?:{last}(?:ing|ed|ers?))?{_ENDINGS}"
    return f"{stem}{last}{_ENDINGS}"
