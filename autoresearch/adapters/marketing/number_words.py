"""Numbers in words, by language. One is left out: it is an article in most languages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

_SHARE = ((Decimal("0.5"), ""), (Decimal(50), "%"))
_TWICE = ((Decimal(2), "x"),)
_THRICE = ((Decimal(3), "x"),)


@dataclass(frozen=True)
class NumberWords:
    """How a language writes numbers.

    Attributes:
        small: Two to twenty, in order.
        tens: Tens up to ninety, in order.
        first_ten: What the first of `tens` stands for.
        large: Words that multiply what stands before them.
        ratios: Words that are a ratio by themselves, with value and unit of every reading.
    """

    small: str
    tens: str
    first_ten: int
    large: Mapping[str, int]
    ratios: Mapping[str, tuple[tuple[Decimal, str], ...]]

    @cached_property
    def values(self) -> Mapping[str, int]:
        """Words that are added up."""
        small = {word: number for number, word in enumerate(self.small.split(), start=2)}
        tens = {word: self.first_ten + 10 * index for index, word in enumerate(self.tens.split())}
        return {**small, **tens}

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Finds a number in words, however many words it has."""
        one = "|".join(sorted((*self.values, *self.large), key=len, reverse=True))
        ratios = "|".join(sorted(self.ratios, key=len, reverse=True))
        return re.compile(rf"(?<![\w-])(?:(?:{one})(?:[- ](?:{one}))*|{ratios})(?![\w-]*\w)", re.IGNORECASE)

    def readings(self, words: str) -> tuple[tuple[Decimal, str], ...]:
        """Return value and unit of what `pattern` found; the unit is empty where the words do not say it."""
        words = words.casefold()
        if words in self.ratios:
            return self.ratios[words]
        total = part = 0
        for word in re.split(r"[- ]", words):
            factor = self.large.get(word)
            if factor is None:
                part += self.values[word]
            elif factor < 1_000:
                part = max(part, 1) * factor
            else:
                total, part = total + max(part, 1) * factor, 0
        return ((Decimal(total + part), ""),)


_LANGUAGES: Mapping[str, NumberWords] = {
    "en": NumberWords(
        "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen twenty",
        "twenty thirty forty fifty sixty seventy eighty ninety",
        20,
        {
            **dict.fromkeys(("dozen", "dozens"), 12),
            **dict.fromkeys(("hundred", "hundreds"), 100),
            **dict.fromkeys(("thousand", "thousands"), 1_000),
            **dict.fromkeys(("million", "millions"), 10**6),
            **dict.fromkeys(("billion", "billions"), 10**9),
        },
        {
            "half": _SHARE,
            **dict.fromkeys(("double", "doubles", "doubled", "twice"), _TWICE),
            **dict.fromkeys(("triple", "triples", "tripled", "thrice"), _THRICE),
        },
    ),
    "de": NumberWords(
        "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn "
        "achtzehn neunzehn zwanzig",
        "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
        20,
        {
            **dict.fromkeys(("dutzend", "dutzende"), 12),
            **dict.fromkeys(("hundert", "hunderte"), 100),
            **dict.fromkeys(("tausend", "tausende"), 1_000),
            **dict.fromkeys(("million", "millionen"), 10**6),
        },
        {
            **dict.fromkeys(("halb", "halbe", "halben", "halber", "hälfte"), _SHARE),
            **dict.fromkeys(("doppelt", "verdoppelt", "zweifach"), _TWICE),
            **dict.fromkeys(("dreifach", "verdreifacht"), _THRICE),
        },
    ),
    "fr": NumberWords(
        "deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize dix-sept dix-huit "
        "dix-neuf vingt",
        "vingt trente quarante cinquante soixante",
        20,
        {
            **dict.fromkeys(("douzaine", "douzaines"), 12),
            **dict.fromkeys(("cent", "cents", "centaine", "centaines"), 100),
            **dict.fromkeys(("mille", "milliers"), 1_000),
            **dict.fromkeys(("million", "millions"), 10**6),
        },
        {
            **dict.fromkeys(("moitié", "demi"), _SHARE),
            **dict.fromkeys(("double", "doublé"), _TWICE),
            "triple": _THRICE,
        },
    ),
    "es": NumberWords(
        "dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince dieciséis diecisiete "
        "dieciocho diecinueve veinte",
        "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa",
        20,
        {
            **dict.fromkeys(("docena", "docenas"), 12),
            **dict.fromkeys(("cien", "ciento", "cientos"), 100),
            **dict.fromkeys(("mil", "miles"), 1_000),
            **dict.fromkeys(("millón", "millones"), 10**6),
        },
        {"mitad": _SHARE, "doble": _TWICE, "triple": _THRICE},
    ),
}


def number_words(language: str) -> NumberWords | None:
    """Return the number words of a language by its BCP 47 tag; None where they are not known."""
    return _LANGUAGES.get(language.casefold().partition("-")[0])
