"""What a person wrote in an answer, without what the mail program quotes below it, and what the words say by rules."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path

LONGEST = 4_000
"""Characters of an answer that are looked at."""

_COUNTED = 700  # characters that say whether somebody wants it; further down come signatures and disclaimers

# A line that says who wrote what follows: "On ..., X wrote:" in many languages, or anything that ends with an address.
_WROTE = (
    r"^\W*(on|am|le|el|il|em|op|w dniu|den|dne)\b.{4,200}\b(wrote|schrieb|a écrit|escribió|ha scritto|escreveu|schreef"
    r"|napisał\(?a?\)?|skrev|napsal)\b.{0,120}:\s*$"
)
_ATTRIBUTION = re.compile(
    rf"{_WROTE}|^.{{0,200}}<[^<>\s]+@[^<>\s]+>.{{0,40}}:\s*$|\btarihinde\b.{{0,200}}\byazdı\b.{{0,10}}:?\s*$"
    r"|^\W*-{2,}\s*(original message|original-?nachricht|ursprüngliche nachricht|message d'origine|mensaje original"
    r"|messaggio originale|mensagem original|oorspronkelijk bericht|wiadomość oryginalna|orijinal mesaj|元のメッセージ)"
    r"|^_{20,}\s*$",
    re.IGNORECASE,
)
_WRAPPED = re.compile(_WROTE, re.IGNORECASE)
# The block of headers that Outlook puts over what it quotes.
_HEADERS = re.compile(
    r"^\W*(from|von|de|da|van|od|kimden|från|fra|差出人|发件人)\s?[:：].*\S.*$", re.IGNORECASE | re.MULTILINE
)
_SENT = re.compile(
    r"^\W*(sent|date|gesendet|datum|envoyé|enviado|inviato|data|verzonden|wysłano|gönderilme|gönderildi|skickat|送信日時"
    r"|日付|to|an|à|para|a|aan|do|kime|宛先)\s?[:：]",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(r"^--\s?$")
_DEVICE = re.compile(
    r"^\W*(sent from my|sent from mail|get outlook for|von meinem .{3,30} gesendet|gesendet von|envoyé de(puis)? mon"
    r"|enviado desde mi|enviado do meu|inviato da(l mio)?|verzonden vanaf mijn|wysłane z|iphone'umdan|iphoneから送信)",
    re.IGNORECASE,
)


_BLOCK_TAGS = "address article br div dl footer h1 h2 h3 h4 h5 h6 header hr li ol p pre table td th tr ul"
_VOID_TAGS = "area base br col embed hr img input link meta source track wbr"


class _Reader(HTMLParser):
    """Text of an HTML mail without what is quoted in it."""

    _BLOCKS = frozenset(_BLOCK_TAGS.split())
    _SILENT = frozenset(("blockquote", "head", "script", "style", "title"))
    _VOID = frozenset(_VOID_TAGS.split())
    _QUOTES = ("gmail_quote", "yahoo_quoted", "moz-cite-prefix", "divrplyfwdmsg", "appendonsend", "protonmail_quote")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []
        self._over = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element; from a quotation's own element on, nothing is read any more."""
        marks = " ".join(value or "" for name, value in attrs if name in ("class", "id")).casefold()
        if any(quote in marks for quote in self._QUOTES):
            self._over = True
        if tag in self._BLOCKS:
            self.parts.append("\n")
        if (self._silent or tag in self._SILENT) and tag not in self._VOID:
            self._silent.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element, and what was left open inside it."""
        if tag in self._silent:
            while self._silent.pop() != tag:
                pass
        if tag in self._BLOCKS:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        """Take text in; line ends in HTML are blanks."""
        if not self._silent and not self._over:
            self.parts.append(re.sub(r"\s+", " ", data))


def body_of(message: Message) -> str:
    """Return a message's text: the plain part, else the HTML's text; empty where it has neither."""
    found: dict[str, str] = {}
    for part in message.walk():
        kind = part.get_content_type()
        attached = part.get_content_disposition() == "attachment"
        if kind in ("text/plain", "text/html") and kind not in found and not attached:
            found[kind] = decoded(part)
        if kind in ("message/rfc822", "message/delivery-status"):
            break  # what follows is another mail
    if found.get("text/plain", "").strip():
        return found["text/plain"]
    reader = _Reader()
    reader.feed(found.get("text/html", "")[: 50 * LONGEST])
    reader.close()
    return "".join(reader.parts)


def decoded(part: Message) -> str:
    """Return a part's text, whatever its declaration is worth."""
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    for charset in (part.get_content_charset() or "utf-8", "utf-8"):
        try:
            return data.decode(charset)
        except (LookupError, UnicodeError):
            continue
    return data.decode("latin-1")


def own_words(message: Message, ours: Collection[str] = frozenset()) -> str:
    """Return what the person wrote in an answer, at most `LONGEST` characters.

    Left out are quotations, whatever program made them, the signature and lines of our own mail.

    Args:
        message: The answer.
        ours: Lines of the mails that were sent, as `line_key` returns them.
    """
    kept: list[str] = []
    lines = body_of(message)[: 10 * LONGEST].splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if _quotes_from_here(line, following) or _SIGNATURE.match(line):
            break
        if line.lstrip().startswith(">") or _DEVICE.match(line) or line_key(line) in ours:
            continue
        kept.append(line.strip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()[:LONGEST]


def line_key(line: str) -> str:
    """Return a line as lines are compared; empty for lines so short that a person may have written them too."""
    key = re.sub(r"\W+", "", plain(line))
    return key if len(key) >= 12 else ""


def plain(text: str) -> str:
    """Return a text in small letters without accents, so that a rule needs one spelling; Japanese stays as it is."""
    text = unicodedata.normalize("NFKD", text.casefold().replace("’", "'").replace("‘", "'"))
    text = "".join(c for c in text if not "\u0300" <= c <= "\u036f")
    return unicodedata.normalize("NFC", text).translate({ord("ł"): "l", ord("ı"): "i", ord("ø"): "o"})


@dataclass(frozen=True, slots=True)
class Said:
    """What the rules find in a text.

    Attributes:
        kind: `auto_reply`, `unsubscribe`, `positive`, `neutral` or `negative`.
        sure: False where no rule said anything, and the text counts as neutral for that.
    """

    kind: str
    sure: bool


def judged(text: str) -> Said:
    """Return what the rules say about a person's own words.

    Programs first, then wishes to be left alone; then refusals, which take their words away from the rules for interest
    ("not interested"); where both are left, what is said last counts, as after "but". Somebody else, another time and
    questions of who we are make a text neutral, whatever interest it shows.
    """
    text = plain(text[:LONGEST])
    for kind in ("auto_reply", "unsubscribe"):
        if any(rule.search(text) for rule in _rules()[kind]):
            return Said(kind, True)
    text = text[:_COUNTED]
    refusals = list(_found("negative", text))
    for start, end in refusals:
        text = text[:start] + "\0" * (end - start) + text[end:]
    wishes = list(_found("positive", text))
    if refusals and (not wishes or max(refusals)[0] > max(wishes)[0]):
        return Said("negative", True)
    if next(_found("neutral", text), None) is not None:
        return Said("neutral", True)
    return Said("positive", True) if wishes else Said("neutral", False)


def asks_to_leave(text: str) -> bool:
    """Say whether words ask for no more mail; looked at whoever judges the rest, for it must not wait."""
    text = plain(text[:LONGEST])
    return any(rule.search(text) for rule in _rules()["unsubscribe"])


def _found(kind: str, text: str) -> Iterator[tuple[int, int]]:
    for rule in _rules()[kind]:
        for match in rule.finditer(text):
            yield match.span()


@lru_cache(maxsize=1)
def _rules() -> Mapping[str, tuple[re.Pattern[str], ...]]:
    tables = tomllib.loads((Path(__file__).parent / "phrases.toml").read_text(encoding="utf-8"))
    return {
        kind: tuple(re.compile(rule, re.MULTILINE) for rules in languages.values() for rule in rules)
        for kind, languages in tables.items()
    }


def _quotes_from_here(line: str, following: str) -> bool:
    if _ATTRIBUTION.search(line):
        return True
    # Programs break the line that says who wrote. It holds a date, and no sentence ends in it.
    if re.search(r"\d", line) and not re.search(r"[.!?]\s*$", line) and _WRAPPED.search(f"{line} {following.strip()}"):
        return True
    return _HEADERS.match(line) is not None and _SENT.match(following) is not None
