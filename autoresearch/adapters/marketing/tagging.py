"""Rules that tag a text: what a headline, subject line or call to action does, apart from what it is about.

For English; in other languages only the tags that look at signs and digits mean anything, and `understood` says so.
The rules are plain and inspectable: a tag is a word list or a pattern, so that everybody can see why a text has it. A
language model may tag instead, with tags of its own, wherever a function `str -> Mapping[str, float]` is taken.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

Tagger = Callable[[str], Mapping[str, float]]
"""Turns a text into numbers by tag: 1 or 0 for most, a measure for a few. Every text gets the same tags."""


def _words(text: str) -> str:
    """Return a pattern that finds any of the words or phrases, as words of their own."""
    return r"\b(?:" + "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in text.split("|")) + r")\b"


_PATTERNS: dict[str, str] = {
    # Form.
    "number": r"\d",
    "list": r"^\W*\d+\s+(?!(?:am|pm|%|percent)\b)[a-z]|^\W*(?:two|three|four|five|six|seven|eight|nine|ten)\s+[a-z]",
    "question": r"\?",
    "exclamation": r"!",
    "quotation": r"[\"“”„«»]|(?:^|\s)['‘]\w[^'’]{6,}['’](?:\W|$)",
    "ellipsis": r"\.\.\.|…",
    "parentheses": r"\(.+\)|\[.+\]",
    "colon": r":\s",
    "two_sentences": r"[.!?…][\"”'’)]*\s+\S",
    "percent_or_money": r"\d\s*(?:%|percent)|[$€£¥]\s*\d|\d\s*(?:€|£|dollars|euros|bucks)",
    # What it does to the reader.
    "urgency": _words(
        "now|today|tonight|hurry|last chance|limited|deadline|ends|ending soon|expires|before it's too late|don't miss|"
        "final|immediately|right away|while supplies last|only hours left|this week only"
    ),
    "scarcity": _words("only|few left|exclusive|rare|limited|sold out|almost gone|invitation only|the last"),
    "proof": _words(
        "proven|study|studies|research|researchers|scientists|science|experts|expert|according to|tested|evidence|data|"
        "survey|customers|reviews|rated|trusted by|award|million people|people have|recommended"
    ),
    "how_to": r"^\W*how\s+to\b|" + _words("here's how|step by step|guide to|ways to|tips for|tips to|the way to"),
    "why": r"^\W*why\b|" + _words("here's why|the reason|reasons why|this is why|that's why|explains why"),
    "gap": _words(
        "this is what|what happened|what happens|happened next|what happens next|you won't believe|guess what|find out|"
        "turns out|the secret|secrets|the truth about|the thing|the one thing|wait till|wait until|see what|watch what|"
        "you'll never|didn't expect|here's what|no idea|what he does|what she does|what they do|the real reason"
    ),
    "benefit": _words(
        "save|earn|get|gain|grow|win|improve|boost|increase|reduce|cut|avoid|enjoy|learn|discover|free|faster|easier|"
        "cheaper|better|healthier|happier|without"
    ),
    "feature": _words(
        "new|now with|includes|including|features|featuring|powered by|built|made with|automatic|automatically|"
        "integrated|app|version|edition|tool|dashboard"
    ),
    "command": r"^\W*(?:see|watch|look|get|try|stop|start|meet|read|take|make|find|check|join|learn|discover|don't|"
    r"never|let|think|imagine|listen|remember|click|save|book|give|ask|tell|share|go|come|buy|send|use)\b",
    "negation": r"\b(?:not|no|never|nobody|nothing|none|cannot|can't|won't|don't|doesn't|didn't|isn't|aren't|wasn't)\b",
    "contrast": _words("but|yet|instead|except|until|however|versus|vs|unlike|although|though|actually"),
    "superlative": _words("most|best|worst|biggest|greatest|largest|smallest|ever|first|only|every|all|always|perfect")
    + r"|\b\w{3,}(?:iest)\b",
    # Tone.
    "positive": _words(
        "amazing|awesome|beautiful|beautifully|best|brilliant|fantastic|good|great|happy|hilarious|incredible|inspiring|"
        "love|loved|lovely|perfect|powerful|smart|wonderful|proud|hope|hero|heroes|joy|fun|funny|adorable|sweet"
    ),
    "negative": _words(
        "bad|worst|terrible|horrible|awful|angry|sad|hate|hated|fear|scared|scary|kill|killed|killing|dead|die|died|dying|"
        "death|war|attack|abuse|abused|rape|violence|racist|racism|sexist|poor|wrong|ugly|disturbing|shocking|outrageous|"
        "ridiculous|insane|sick|cancer|crime|lie|lies|lying|problem|problems|broken|ruin|ruined|lost|lose|fail|failed"
    ),
    "feeling": _words(
        "heart|heartbreaking|heartwarming|tears|cry|crying|cried|laugh|laughing|smile|goosebumps|chills|speechless|"
        "emotional|moving|touching|feel|feels|feeling|feelings|stunned|shocked|blown away|wow|omg"
    ),
    "casual": _words(
        "gonna|wanna|gotta|kinda|stuff|guy|guys|dude|dudes|kids|awesome|crap|damn|hell|yeah|oh|ok|okay|um|uh"
    )
    + r"|\b\w+'(?:ll|d|ve|re)\b",
    # Person.
    "you": _words("you|your|yours|yourself|you're|you'll|you've|you'd"),
    "we": _words("we|our|ours|us|ourselves|we're|we'll|we've"),
    "i": _words("i|my|me|mine|myself|i'm|i've|i'll|i'd"),
    "he": _words("he|his|him|himself|he's|man|men|boy|boys|dad|father|husband|son|brother"),
    "she": _words("she|her|hers|herself|she's|woman|women|girl|girls|mom|mother|wife|daughter|sister"),
    "they": _words("they|their|them|themselves|they're|people|everyone|everybody"),
    "pointing": _words("this|these|that|those|here's|here is"),
    "time": _words(
        "year|years|day|days|minute|minutes|second|seconds|hour|hours|week|weeks|month|months|decade|century"
    ),
}

_COMPILED = {name: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for name, pattern in _PATTERNS.items()}
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "the a an and or of to in is it that this for on with as are was be at by from what how why you your we they "
        "he she not have has but who when which do does if all can will just about more their our his her its",
    )
)

MEASURES = ("length", "short", "long", "word_length", "capitals", "names")
"""Tags that are measures or are taken from them; the others are 1 or 0."""
TAGS = (*MEASURES, *_PATTERNS)
"""All tags of `tag`, in order."""

ABOUT: Mapping[str, str] = {
    "length": "number of words, in doublings (one more is twice as long)",
    "short": "at most six words",
    "long": "more than sixteen words",
    "word_length": "letters per word, less four and a half",
    "capitals": "share of words of three letters or more in capitals",
    "names": "a name or other capitalised word inside a sentence that is not written in title case",
    "list": "begins with a number of things",
    "gap": "holds back what it is about",
    "proof": "names research, experts, customers or other evidence",
    "benefit": "says what the reader gets",
    "feature": "says what the thing has or is",
    "pointing": "this, these, here's",
    "percent_or_money": "a percentage or a sum of money",
}
"""What a tag means where its name does not say it."""


def tag(text: str) -> dict[str, float]:
    """Return every tag of `TAGS` for a text. Deterministic; an empty text has none."""
    plain = text.replace("’", "'").strip()
    words = _WORD.findall(plain)
    tags = {**_measures(words), **dict.fromkeys(_PATTERNS, 0.0)}
    for name, pattern in _COMPILED.items():
        # Quotation looks at the signs themselves, which the other tags want made plain.
        tags[name] = float(pattern.search(text if name == "quotation" else plain) is not None)
    return tags


def _measures(words: list[str]) -> dict[str, float]:
    if not words:
        return dict.fromkeys(MEASURES, 0.0)
    long_words = [word for word in words if len(word) >= 3]
    capitals = sum(word.isupper() for word in long_words)
    return {
        "length": math.log2(len(words)),
        "short": float(len(words) <= 6),
        "long": float(len(words) > 16),
        "word_length": sum(map(len, words)) / len(words) - 4.5,
        "capitals": capitals / max(len(long_words), 1),
        "names": float(_has_name(words)),
    }


def _has_name(words: list[str]) -> bool:
    """Say whether a capitalised word stands inside a sentence; unknowable where nearly every word is capitalised."""
    inner = [word for word in words[1:] if word.casefold() not in _COMMON and word != "I" and not word.isupper()]
    if len(inner) < 3:
        return False
    capital = sum(word[0].isupper() for word in inner)
    return 0 < capital <= 0.5 * len(inner)


def understood(text: str) -> bool:
    """Say whether a text seems to be English, so that the word lists mean something: every eighth word is a common one.

    Short texts get the benefit of the doubt.
    """
    words = [word.casefold() for word in _WORD.findall(text)]
    return len(words) < 8 or sum(word in _COMMON for word in words) >= len(words) / 8.0


def tag_slots(slots: Mapping[str, str], tagger: Tagger = tag) -> dict[str, float]:
    """Return the tags of an arm: those of each slot under `slot:tag`, or the bare tags where there is one slot only."""
    if len(slots) == 1:
        return dict(tagger(next(iter(slots.values()))))
    return {f"{slot}:{name}": value for slot, text in slots.items() for name, value in tagger(text).items()}
