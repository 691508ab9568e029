"""Words by which claims are known: English, with the usual ones of German, French, Spanish, Italian and Dutch."""

from __future__ import annotations

import re
from collections.abc import Mapping


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _any(*parts: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)", re.IGNORECASE)


TELLING: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "free",
        _any(
            r"(?<!-)(?<!feel )free(?! (?:up|time|hand|hands|evenings?|weekends?|from|of (?!charge))\b)",
            r"complimentary|at no (?:cost|charge)|no cost|on the house",
            r"kostenlos\w*|kostenfrei\w*|gratis|umsonst|gratuit\w*|sans frais|sin coste|grátis|senza costi",
        ),
    ),
    (
        "guarantee",
        _any(
            r"guarante\w+|warrant(?:y|ies|ed)|money[- ]back|risk[- ]free|no risk|refund\w*",
            r"garant\w+|geld[- ]zurück\w*|risikofrei\w*|risikolos\w*|ohne risiko",
            r"satisfait ou remboursé|sans risque|remboursé\w*|sin riesgo|reembols\w+|senza rischi|rimbors\w+",
        ),
    ),
    (
        "rank",
        _any(
            r"number[- ]one|(?:world|market|industry)(?:'s)?[- ]?lead(?:er|ing)|(?:the|a|any) leading|top[- ]rated",
            r"award[- ]winning|nummer eins|marktführe\w+|führend\w*|preisgekrönt\w*|testsieger",
            r"numéro un|leader (?:du|mondial)\w*|número uno|líder\w*|numero uno|leader di",
        ),
    ),
    ("rank", re.compile(r"(?:#\s?|\b(?:no|nr|n)\.?\s?[º°]?\s?)1(?![\w.,]*\d)", re.IGNORECASE)),
    (
        "proof",
        _any(
            r"proven|clinically|scientifically|stud(?:y|ies) shows?|research shows|experts? (?:say|agree|recommend)\w*",
            r"certified|certification|patented|officially?|endorsed|as seen (?:in|on)|compliant|accredited",
            r"nachweislich\w*|bewiesen\w*|zertifizier\w+|patentiert\w*|studien zeigen|amtlich\w*",
            r"prouvé\w*|certifié\w*|breveté\w*|comprobad\w+|certificad\w+|patentad\w+|certificat[oiae]|brevettat\w+",
        ),
    ),
    (
        "absolute",
        _any(
            r"unlimited|limitless|unbeatabl\w+|unmatched|unrivall?ed|unparalleled|flawless\w*|foolproof|lifetime|forever",
            r"instantly|zero|never fails?|always works?|unbegrenzt\w*|unschlagbar\w*|einzigartig\w*|lebenslang\w*",
            r"illimité\w*|imbattable\w*|ilimitad\w+|inmejorable\w*|illimitat\w+|imbattibil\w+",
        ),
    ),
    (
        "scarcity",
        _any(
            r"last chance|limited[- ](?:time|offer|edition|places|seats|spots|stock)|while (?:stocks?|supplies) last",
            r"today only|only today|ends (?:today|tonight|tomorrow|soon|in|on|this)|expir(?:es|ing)|hurry",
            r"almost gone|selling (?:out|fast)|(?:only|just) a few|few(?: \w+)? left|final (?:hours|days|call)",
            r"before it'?s too late|nur heute|nur noch|letzte chance|solange der vorrat reicht|begrenzt\w*",
            r"dernière chance|offre limitée|jusqu'à épuisement|última oportunidad|tiempo limitado|s[oó]lo hoy",
            r"ultima occasione|solo oggi|laatste kans|alleen vandaag",
        ),
    ),
    (
        "price",
        _any(r"cheap(?:er|est)?|lowest prices?|discount\w*|bargain|half[- ]price|rabatt\w*|billig\w*|günstigste\w*"),
    ),
    (
        "superlative",
        _any(
            r"(?<!all the )(?<!at )(?<!your )best(?! (?:wishes|regards|before|of luck|served)\b)|the only|the most \w+",
            r"most (?!of\b)\w+(?:ed|ive|ful|able|ible|ant|ent|al|ous|ular|ing|ic)",
            r"beste[nrsm]?|größte[nrsm]?|schnellste[nrsm]?|einfachste[nrsm]?|einzige[nrsm]?|am \w+sten",
            r"(?:le|la|les) (?:plus|meilleure?s?|seule?s?)|(?:el|la|los|las) (?:mejor(?:es)?|únic[oa]s?)",
            r"(?:il|la|i|le) (?:migliore?i?|unic[oa])|(?:de|het) beste|(?:de|het) enige",
        ),
    ),
)
"""Family and pattern of words that claim something by themselves, in all languages at once."""

SUPERLATIVE = re.compile(r"(?<!\w)[a-z]{3,}(?:est)(?!\w)", re.IGNORECASE)
"""English superlatives in -est; `SUPERLATIVE_EXCEPTIONS` only look like them."""

SUPERLATIVE_EXCEPTIONS = _set(
    "arrest attest behest bequest conquest contest crest detest digest divest earnest everest fest forest "
    "guest harvest honest infest ingest inquest interest invest jest latest lest manifest midwest modest "
    "molest nearest nest northwest pest protest quest reinvest request rest southwest suggest tempest test "
    "unrest vest west wrest zest budapest podest chest retest pretest breast disinterest armrest backrest "
    "dishonest immodest rainforest self-interest soonest furthest farthest youngest oldest eldest best "
    "priest incest bucharest pinterest headrest footrest oktoberfest slugfest gabfest reforest deforest"
)

COMPARISON = re.compile(
    r"(?<!\w)(?:(?!(?:rath|oth|lat|long|earli|soon|aft)er\b)[a-z]{2,}er|(?:more|less) [a-z]+) than(?!\w)",
    re.IGNORECASE,
)
"""Faster than, more reliable than."""

NEGATIONS = _set(
    "no not never without cannot neither nor nicht kein keine keinen keiner ohne nie pas jamais sans sin nunca "
    "non senza niet geen zonder"
)

UNITS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (unit, re.compile(rf"[\s-]?(?:{words})(?!\w)", re.IGNORECASE))
    for unit, words in (
        ("%", r"%|per ?cent|percent(?:age points?)?|prozent|pour ?cent|por ?ciento|per ?cento|procent"),
        ("x", r"x|×|times|fold|fach|mal|fois|veces|volte|keer"),
        ("second", r"s|secs?|seconds?|sekunden?|secondes?|segundos?|second[oi]|seconden"),
        ("minute", r"min|mins|minutes?|minuten?|minutos?|minut[oi]|minuut"),
        ("hour", r"h|hrs?|hours?|stunden?|heures?|horas?|or[ae]|uur|uren"),
        ("day", r"days?|tagen?|tage|jours?|d[ií]as?|giorn[oi]|dag(?:en)?"),
        ("week", r"weeks?|wochen?|semaines?|semanas?|settiman[ae]|weken"),
        ("month", r"months?|monaten?|monate|mois|mes(?:es)?|mes[ei]|maand(?:en)?"),
        ("year", r"years?|jahren?|jahre|ans?|années?|años?|ann[oi]|jaar|jaren"),
    )
)

CURRENCIES: Mapping[str, str] = {
    **dict.fromkeys(("€", "EUR", "euro", "Euro", "euros"), "EUR"),
    **dict.fromkeys(("$", "USD", "dollar", "dollars", "Dollar"), "USD"),
    **dict.fromkeys(("£", "GBP", "pound", "pounds"), "GBP"),
    **dict.fromkeys(("¥", "JPY", "CNY", "RMB", "yen"), "JPY"),
    **dict.fromkeys(("CHF", "Franken", "francs"), "CHF"),
    **{code: code for code in ("INR", "BRL", "SEK", "NOK", "DKK", "PLN", "CZK", "AUD", "CAD", "TRY", "KRW")},
    "₹": "INR",
    "₩": "KRW",
    "zł": "PLN",
}
"""Signs, codes and names, with their capitals: TRY is money, Try is not."""

MONTHS: Mapping[str, frozenset[str]] = {
    "january": _set("january jan januar janvier enero gennaio januari"),
    "february": _set("february feb februar fevrier febrero febbraio februari"),
    "march": _set("march mar marz mars marzo maart"),
    "april": _set("april apr avril abril aprile"),
    "may": _set("may mai mayo maggio mei"),
    "june": _set("june jun juni juin junio giugno"),
    "july": _set("july jul juli juillet julio luglio"),
    "august": _set("august aug aout agosto augustus"),
    "september": _set("september sep sept septembre septiembre settembre"),
    "october": _set("october oct oktober octobre octubre ottobre okt"),
    "november": _set("november nov novembre noviembre"),
    "december": _set("december dec dezember decembre diciembre dicembre dez"),
}
"""Names of the months without accents."""

STOP_WORDS = _set(
    "the and for with from that this these those your you our ours their them they are was were has have had "
    "will can may but not nor its his her all any more most than then into onto over under out off per each "
    "every who whom what when where which while how why one get got let just only even also too very much many "
    "such own same some about after before until since down back again once here there between against both "
    "few other would could should does did der die das den dem des ein eine einen einem einer und oder mit von "
    "für auf aus bei nach bis zum zur wie als auch nur noch sich sie wir ihr uns sind ist war wird werden les "
    "une aux avec pour par sur dans que qui est sont vos nos votre notre los las una del con por para sus son "
    "esta gli dei della che sono van het een met voor takes make makes made take"
)
"""Words that say nothing about what a number is of."""


MAGNITUDES: Mapping[str, int] = {
    **dict.fromkeys(("k", "thousand", "tsd", "tausend", "mille", "mil", "mila", "duizend"), 1_000),
    **dict.fromkeys(("m", "mio", "mn", "million", "millions", "millionen", "millones", "milioni", "miljoen"), 10**6),
    **dict.fromkeys(("bn", "billion", "billions", "milliarden", "milliarde", "milliards", "miljard"), 10**9),
    **dict.fromkeys(("hundred", "hundert"), 100),
}
"""Letters and words that multiply the digits before them."""
