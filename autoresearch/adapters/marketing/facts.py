"""What a text claims, and whether `facts.md` holds it.

Three kinds of claim are looked for: quantities (numbers, percentages, money, times, dates, in digits or words), telling
words (free, guaranteed, best, #1, last chance ...) and comparisons. A claim holds when a line of the facts has the same
quantity or word and shares a word near it: "14 days free" is covered by "The trial is free for 14 days", "14 customers"
is not. That is a net with small meshes, no proof: it refuses what it cannot find, and a person adds the fact or not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from autoresearch.adapters.marketing.claim_words import (
    COMPARISON,
    CURRENCIES,
    MAGNITUDES,
    MONTHS,
    NEGATIONS,
    STOP_WORDS,
    SUPERLATIVE,
    SUPERLATIVE_EXCEPTIONS,
    TELLING,
    UNITS,
)
from autoresearch.adapters.marketing.number_words import number_words

_STRICT = frozenset({"%", "x"})  # 40 and 40 % are different things, whatever stands beside them


@dataclass(frozen=True, slots=True)
class Claim:
    """Something that a text says and that must be true.

    Attributes:
        shown: As the text has it.
        kind: `number`, or the family of a telling word (`free`, `superlative`).
        readings: For numbers, every (value, unit) that may be meant: 1.234 may be a thousand or a little over one.
        word: The word itself where others of its family do not stand for it: fastest is not cheapest.
        near: Content words beside it, the following two if there are any, else the two before.
        followed: Whether `near` follows it.
        around: More words of its sentence.
        negated: Whether a "not" stands right before it.
    """

    shown: str
    kind: str
    readings: frozenset[tuple[Decimal, str]] = frozenset()
    word: str = ""
    near: tuple[str, ...] = ()
    followed: bool = False
    around: tuple[str, ...] = ()
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of `facts.md`.

    Attributes:
        text: The line.
        words: Its content words.
        claims: What it claims.
    """

    text: str
    words: frozenset[str]
    claims: tuple[Claim, ...]


@lru_cache(maxsize=32)  # the same facts are read for every slot of every candidate
def read_facts(text: str, language: str = "en") -> tuple[Fact, ...]:
    """Return the facts of a `facts.md`: its list items and table rows, except under headings like "Never claim"."""
    facts = []
    for heading, line in items_by_heading(text):
        if not _NOT_FACTS.search(heading):
            facts.append(Fact(line, frozenset(content_words(line)), tuple(claims_in(line, language))))
    return tuple(facts)


def items_by_heading(markdown: str) -> Iterator[tuple[str, str]]:
    """Yield (nearest heading, text) of every list item and table row, lines of one item joined.

    Other paragraphs explain; they are no items.
    """
    heading, item = "", ""
    for line in [*re.sub(r"<!--.*?(-->|\Z)", "", markdown, flags=re.DOTALL).splitlines(), ""]:
        stripped = line.strip()
        begins = _ITEM.match(stripped)
        if item and (not stripped or begins or stripped.startswith("#")):
            yield heading, item
            item = ""
        if stripped.startswith("#"):
            heading = stripped.lstrip("#").strip()
        elif begins:
            item = stripped[begins.end() :].strip(" |")
        elif item:
            item = f"{item} {stripped}"


def unsupported(text: str, facts: Sequence[Fact], language: str = "en") -> Iterator[str]:
    """Yield a sentence for every claim of `text` that no fact holds."""
    for claim in dict.fromkeys(claims_in(text, language)):
        if not any(_holds(fact, claim) for fact in facts):
            yield _refusal(claim, facts)


def claims_in(text: str, language: str = "en") -> Iterator[Claim]:
    """Yield what a text claims, sentence by sentence.

    Args:
        text: The text.
        language: Its BCP 47 tag: numbers in words are known in English, German, French and Spanish, superlatives and
            comparisons by their endings in English alone.
    """
    for sentence in re.split(r"(?<=[.!?;:…])\s+|\n+", plain(text)):
        taken: list[tuple[int, int]] = []
        for kind, match in _telling_in(sentence, language):
            taken.append(match.span())
            yield _claim(sentence, match.span(), kind, word=match.group() if kind in _BY_WORD else "")
        for span, readings in _quantities(sentence, language):
            if not any(start <= span[0] and span[1] <= end for start, end in taken):
                yield _claim(sentence, span, "number", readings=readings)


_REACH = 120  # characters to either side in which the words beside a claim are looked for
_BY_WORD = frozenset({"superlative", "comparison", "proof", "scarcity", "absolute", "price"})
_NOT_FACTS = re.compile(r"\b(never|not|nie|nicht|jamais|nunca|mai)\b", re.IGNORECASE)
_ITEM = re.compile(r"[-*+]\s+|\d+[.)]\s+|\|")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")


def plain(text: str) -> str:
    """Return a text with one spelling for what looks alike: digits, spaces, quotes, dates."""
    text = unicodedata.normalize("NFKC", text).replace("’", "'").replace("\u2010", "-").replace("−", "-")
    text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    text = re.sub(r"\b(n[or])\. (?=\d)", r"\1.", text, flags=re.IGNORECASE)  # no. 1 does not end a sentence
    text = re.sub(r"\b(\d{4})-(\d{2})-(\d{2})\b", lambda m: _date(m[3], m[2], m[1], m[0]), text)
    return re.sub(r"\b(\d{1,2})\.(\d{1,2})\.(\d{4})\b", lambda m: _date(m[1], m[2], m[3], m[0]), text)


def _date(day: str, month: str, year: str, as_written: str) -> str:
    names = list(MONTHS)
    return f"{int(day)} {names[int(month) - 1]} {year}" if 1 <= int(month) <= 12 else as_written


def content_words(text: str) -> list[str]:
    """Return the words of a text that say something, small and without accents; of Chinese and Japanese, pairs."""
    words = []
    for word in _WORD.findall(_bare(plain(text))):
        if re.match(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]", word):
            words += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
        elif len(word) > 2 and (word := word.removesuffix("'s")) not in STOP_WORDS:
            words.append(word)
    return words


def _bare(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in decomposed if not unicodedata.combining(c)))


def same_word(one: str, other: str) -> bool:
    """Say whether two words are forms of one: plan and planning, rated and rates."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < 4:
        return long in (f"{short}s", f"{short}es")
    common = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    return common >= max(4, len(short) - 2)


def _claim(
    sentence: str,
    span: tuple[int, int],
    kind: str,
    *,
    readings: frozenset[tuple[Decimal, str]] = frozenset(),
    word: str = "",
) -> Claim:
    start = max(0, span[0] - _REACH)
    before = content_words(sentence[start : span[0]])
    after = content_words(sentence[span[1] : span[1] + _REACH])
    following = after[:2]
    if kind == "number":  # what stands behind the next number belongs to that one
        following = content_words(re.split(r"\d", sentence[span[1] : span[1] + _REACH], maxsplit=1)[0])[:2]
    close = sentence[start : span[0]].casefold().split()[-3:]
    return Claim(
        shown=_shown(sentence, span, bare=kind == "number" and all(unit[:1] in ("", "/") for _, unit in readings)),
        kind=kind,
        readings=readings,
        word=_bare(word),
        near=tuple(following or before[-2:]),
        followed=bool(following),
        around=(*before[-4:], *after[:4]),
        negated=any(part.strip(",.'\"") in NEGATIONS or part.endswith("n't") for part in close),
    )


def _shown(sentence: str, span: tuple[int, int], *, bare: bool) -> str:
    """Return a claim as the text has it; a bare number or a date with the word that follows."""
    end = re.compile(r"[ -]*[^\W\d_]{3,}").match(sentence, span[1]) if bare else None
    return sentence[span[0] : end.end() if end else span[1]].strip()


def _telling_in(sentence: str, language: str) -> Iterator[tuple[str, re.Match[str]]]:
    for family, pattern in TELLING:
        for match in pattern.finditer(sentence):
            yield family, match
    if not language.casefold().startswith("en"):
        return  # the rules by endings are English: "findest" is no superlative
    for match in SUPERLATIVE.finditer(sentence):
        if match.group().casefold() not in SUPERLATIVE_EXCEPTIONS:
            yield "superlative", match
    for match in COMPARISON.finditer(sentence):
        yield "comparison", match


# Groups of three after a point, comma, apostrophe or space are thousands; after one point or comma perhaps decimals.
_NUMBER = re.compile(
    r"(?<![\w.,])(?P<number>\d{1,3}(?:[.,' ]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d+)?)"
    rf"(?:\s?(?P<magnitude>{'|'.join(sorted(MAGNITUDES, key=len, reverse=True))})(?!\w))?",
    re.IGNORECASE,
)


def _quantities(sentence: str, language: str) -> Iterator[tuple[tuple[int, int], frozenset[tuple[Decimal, str]]]]:
    """Yield place and readings of every quantity."""
    for match in _NUMBER.finditer(sentence):
        values = _read(match["number"])
        if match["magnitude"]:
            factor = MAGNITUDES[match["magnitude"].casefold()]
            # 10m may be metres as well as millions.
            values = {value * factor for value in values} | (values if match["magnitude"] == "m" else set())
        unit, span = _unit(sentence, *match.span())
        yield span, frozenset((value, unit) for value in values)
    words = number_words(language)
    if words is None:
        return
    for match in words.pattern.finditer(sentence):
        unit, span = _unit(sentence, *match.span())
        yield span, frozenset((value, own or unit) for value, own in words.readings(match.group()))


def _read(number: str) -> set[Decimal]:
    parts = re.split(r"[.,' ]", number)
    marks = re.findall(r"[.,' ]", number)
    if not marks:
        return {Decimal(number)}
    if len(parts[-1]) != 3 or (len(marks) > 1 and marks[-1] != marks[0]):
        return {Decimal(f"{''.join(parts[:-1])}.{parts[-1]}").normalize()}
    values = {Decimal("".join(parts))}
    # Nobody writes 1.2 as 1.200, but 1.234 may be either.
    if len(marks) == 1 and marks[0] in ".," and number[-1] != "0":
        values.add(Decimal(f"{parts[0]}.{parts[1]}").normalize())
    return values


def _unit(sentence: str, start: int, end: int) -> tuple[str, tuple[int, int]]:
    """Return the unit of the number at a place, empty without one, and the place of both."""
    for unit, pattern in UNITS:
        if match := pattern.match(sentence, end):
            return unit, (start, match.end())
    after = re.compile(r"\s?([^\W\d_]+|[^\w\s])").match(sentence, end)
    if after and (code := CURRENCIES.get(after[1])):
        return code, (start, after.end())
    close = sentence[max(0, start - _REACH) : start]
    before = re.search(r"([^\W\d_]+|[^\w\s])\s?$", close)
    if before and (code := CURRENCIES.get(before[1])):
        return code, (start - len(close) + before.start(), end)
    return _month(sentence, start, end), (start, end)


def _month(sentence: str, start: int, end: int) -> str:
    after = re.compile(r"(?:st|nd|rd|th|\.)?(?: of)? ?([^\W\d_]+)").match(sentence, end)
    close = sentence[max(0, start - _REACH) : start]
    before = re.search(r"([^\W\d_]+)(?: \d{1,2}(?:st|nd|rd|th)?,)? ?$", close)
    for found in (before, after):
        if found:
            for number, names in enumerate(MONTHS.values(), start=1):
                if _bare(found[1]) in names:
                    return f"/{number}"
    return ""


def _holds(fact: Fact, claim: Claim) -> bool:
    return any(_same_claim(own, claim) and _shares_words(fact, own, claim) for own in fact.claims)


def _same_claim(own: Claim, claim: Claim) -> bool:
    if own.kind != claim.kind:
        return False
    if claim.kind == "number":
        return any(_same_quantity(a, b) for a in own.readings for b in claim.readings)
    if own.negated != claim.negated:
        return False
    return own.word == claim.word or (" " not in claim.word and same_word(own.word, claim.word))


def _same_quantity(own: tuple[Decimal, str], claimed: tuple[Decimal, str]) -> bool:
    if own[0] != claimed[0]:
        return False
    return own[1] == claimed[1] or (not {own[1], claimed[1]} & _STRICT and "" in (own[1], claimed[1]))


def _shares_words(fact: Fact, own: Claim, claim: Claim) -> bool:
    """Say whether the words beside a claim are those of the fact; where there are none, nothing contradicts."""
    bare = claim.kind == "number" and not any(unit for _, unit in claim.readings)
    words = claim.near if bare or claim.kind != "number" else claim.around
    # "9 cafés" is not covered by "1,200 cafés in 9 countries": what follows a bare number is what it counts.
    known = own.near if bare and claim.followed and own.followed else fact.words
    return not words or any(same_word(word, other) for word in words for other in known)


def _refusal(claim: Claim, facts: Sequence[Fact]) -> str:
    if claim.kind != "number":
        held = next((fact.text for fact in facts for own in fact.claims if _same_claim(own, claim)), None)
        said = f"has that word only in “{held}”" if held else "holds no such claim"
        return (
            f"“{claim.shown}” is a claim ({claim.kind}) and facts.md {said}. "
            "Say it in other words, or let a person add the fact."
        )
    held = next((fact.text for fact in facts for own in fact.claims if _same_value(own, claim)), None)
    if held is not None:
        said = f"has that number only in “{held}”"
    else:
        known = list(dict.fromkeys(own.shown for fact in facts for own in fact.claims if own.kind == "number"))
        said = f"holds only {', '.join(known[:8])}{' …' * (len(known) > 8)}" if known else "holds no number at all"
    return f"“{claim.shown}” is not in facts.md, which {said}. Leave it out, or let a person add the fact."


def _same_value(own: Claim, claim: Claim) -> bool:
    return bool({value for value, _ in own.readings} & {value for value, _ in claim.readings})
