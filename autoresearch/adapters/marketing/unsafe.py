"""What no text of a slot may hold: markup, scripts, addresses of others, characters that deceive.

Templates escape every slot, so markup would only show as text. It is refused all the same: nobody writes it by mistake,
and the same texts are exported to systems that may not escape.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

_MARKUP: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a script address", re.compile(r"(?:java|vb|live)\s*script\s*:|data\s*:\s*[\w/+.-]*\s*[;,]", re.IGNORECASE)),
    ("markup", re.compile(r"<[/!?a-z]|-->|\]\]>", re.IGNORECASE)),
    (
        "a character code",
        re.compile(r"&(?:#\d+|#x[0-9a-f]+|[a-z][a-z0-9]{1,31});|\\u[0-9a-f]{4}|\\x[0-9a-f]{2}", re.IGNORECASE),
    ),
    ("template code", re.compile(r"\{\{|\}\}|\{%|%\}|\{#|#\}|\$\{|<%|%>|\*\|")),
    ("an event handler", re.compile(r"\bon[a-z]{3,20}\s*=\s*[\"'\w(]", re.IGNORECASE)),
    ("a style", re.compile(r"\bstyle\s*=\s*[\"']|expression\s*\(|url\s*\(|@import\b", re.IGNORECASE)),
    ("a Markdown link", re.compile(r"\]\s*\(\s*\S+\s*\)")),
)

_ADDRESS = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,15}:)//(?P<host>[^\s/?#]+)"
    r"|(?P<mail>[\w.+-]+@(?P<mailhost>[\w-]+(?:\.[\w-]+)+))"
    r"|(?<![\w@.])(?P<bare>(?:www\.)?[\w-]+(?:\.[\w-]+)*\.(?:com|net|org|io|co|dev|app|info|biz|shop|store|online|site|xyz|"
    r"top|club|ru|cn|de|fr|es|it|nl|eu|uk|us|ch|at|be|pl|me|ly|gg|to|tv|zip|click|link|live))(?![\w.]*\w)",
    re.IGNORECASE,
)

# Letters of other alphabets that look like Latin ones, and the ones they look like.
_LOOK_ALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТХҮаесіјорѕхуһԁԛԝӏΑΒΕΖΗΙΚΜΝΟΡΤΥΧοντακιυρχɡıⅼ",
    "ABESIJKMHOPCTXYaecijopsxyhdqwlABEZHIKMNOPTYXovtakiupxgil",
)

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_JOINERS = frozenset("\u200c\u200d")
_MARKS = frozenset("\u200e\u200f\u061c")


def unsafe_parts(text: str, *, hosts: Collection[str] = ()) -> Iterator[str]:
    """Yield a sentence for everything in `text` that no slot may hold.

    Args:
        text: Text of a slot.
        hosts: Hosts that it may name, those of their sub-domains included.
    """
    yield from _bad_characters(text)
    readable = unicodedata.normalize("NFKC", "".join(c for c in text if unicodedata.category(c) != "Cf"))
    for name, pattern in _MARKUP:
        if match := pattern.search(readable):
            yield f"“{_shown(match.group())}” is {name}. A slot holds plain text; markup belongs to the template."
    yield from _foreign_addresses(readable, hosts)
    yield from _mixed_scripts(text)


def skeleton(text: str) -> str:
    """Return a text with look-alike letters of other alphabets replaced by the Latin ones that they look like."""
    return "".join(word.translate(_LOOK_ALIKES) if _is_disguised(word) else word for word in re.split(r"(\W+)", text))


def _bad_characters(text: str) -> Iterator[str]:
    for index, character in enumerate(text):
        reason = _deceit(text, index, character)
        if reason:
            name = unicodedata.name(character, "no name")
            yield (
                f"character {index + 1} (U+{ord(character):04X}, {name.lower()}) {reason}. "
                "Type the text anew without it."
            )
            return  # one tells enough; a text full of them would fill the page
    if re.search(r"[\u0300-\u036f\u0483-\u0489]{4}", unicodedata.normalize("NFD", text)):
        yield "a letter carries four marks or more, which spill over the lines around it. Type the text anew."


def _deceit(text: str, index: int, character: str) -> str:
    """Return why a character may not be in a text, empty where it may."""
    category, code = unicodedata.category(character), ord(character)
    if character in _BIDI:
        return "turns the reading direction, so that people see another text than the one checked"
    if character in _MARKS:
        return "" if any(unicodedata.bidirectional(c) in ("R", "AL") for c in text) else "is invisible"
    if character in _JOINERS:
        around = text[max(0, index - 1) : index] + text[index + 1 : index + 2]
        joins = len(around) == 2 and not any(c.isspace() or _is_western(c) for c in around)
        return "" if joins else "is invisible"
    if (
        category in ("Cf", "Zl", "Zp")
        or 0xFE00 <= code <= 0xFE0D
        or 0xE0100 <= code <= 0xE01EF
        or character == "\u3164"
    ):
        return "is invisible"
    # Unassigned ones may be emoji that are newer than this Python.
    if (category in ("Cc", "Co", "Cs") and character != "\n") or (category == "Cn" and not 0x1F000 <= code <= 0x1FAFF):
        return "is no character that can be shown"
    if 0x1D400 <= code <= 0x1D7FF or 0x24B6 <= code <= 0x24E9 or 0x1F130 <= code <= 0x1F189 or 0xFF21 <= code <= 0xFF5A:
        return "only imitates a letter, which screen readers spell out or leave away"
    return ""


def _is_western(character: str) -> bool:
    return unicodedata.name(character, "").startswith(("LATIN", "GREEK", "CYRILLIC", "DIGIT"))


def _foreign_addresses(text: str, hosts: Collection[str]) -> Iterator[str]:
    for match in _ADDRESS.finditer(text):
        host = (match["host"] or match["mailhost"] or match["bare"]).rpartition("@")[2].split(":")[0].casefold()
        scheme = (match["scheme"] or "https:").casefold()
        known = any(host == own or host.endswith(f".{own}") for own in hosts)
        if not known or scheme not in ("http:", "https:") or "@" in (match["host"] or ""):
            yield (
                f"“{_shown(match.group())}” is an address that neither campaign.toml nor facts.md names. "
                "Leave links to the template, or let a person list the host: links = [...] in campaign.toml."
            )


def hosts_in(text: str) -> frozenset[str]:
    """Return the hosts that a text names."""
    found = (match["host"] or match["mailhost"] or match["bare"] for match in _ADDRESS.finditer(text))
    return frozenset(host.split(":")[0].casefold().removeprefix("www.") for host in found)


def host_of(address: str) -> str:
    """Return the host of a web address, without `www.`; empty where there is none."""
    return (urlsplit(address).hostname or "").removeprefix("www.")


def _mixed_scripts(text: str) -> Iterator[str]:
    for word in re.findall(r"\w+", text):
        if _is_disguised(word):
            yield f"“{word}” mixes letters of several alphabets that look alike. Type the word anew."
            return


def _is_disguised(word: str) -> bool:
    """Say whether a word holds look-alikes among Latin letters, or is made of nothing else."""
    if word.isascii() or word.translate(_LOOK_ALIKES) == word:
        return False
    scripts = {unicodedata.name(c, "").split(" ")[0] for c in word if c.isalpha()}
    # Greek letters alone beside digits are formulas; a whole word of look-alikes in a Russian text is Russian.
    return "LATIN" in scripts and bool(scripts & {"CYRILLIC", "GREEK"})


def _shown(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
