"""Links, forms and visible text of rendered HTML, and where in it the slots ended up."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr")
)
_SILENT = frozenset(("script", "style", "template", "noscript", "title"))
_TEXT_ATTRIBUTES = frozenset(
    ("alt", "title", "placeholder", "aria-label", "aria-description", "content", "value", "label")
)


@dataclass(slots=True)
class Structure:
    """What a page or mail offers to do.

    Attributes:
        links: Times that each address is linked with something to click on.
        empty_links: Addresses of links that show nothing.
        forms: Times of each form: method, address and names of its fields; only those with a button.
        text: Text that people see, spaces made single.
        misplaced: Slot markers found where no text belongs, with the place.
        tags: Names of all elements.
    """

    links: Counter[str] = field(default_factory=Counter)
    empty_links: list[str] = field(default_factory=list)
    forms: Counter[tuple[str, str, tuple[str, ...]]] = field(default_factory=Counter)
    text: str = ""
    misplaced: dict[str, str] = field(default_factory=dict)
    tags: Counter[str] = field(default_factory=Counter)


def read_structure(html: str, marker: re.Pattern[str] | None = None) -> Structure:
    """Read the structure of a document.

    Args:
        html: The document.
        marker: Pattern of what stands in for slots, whose first group is the slot's name; None when real texts do.
    """
    parser = _Reader(marker)
    parser.feed(html)
    parser.close()
    parser.found.text = " ".join("".join(parser.seen).split())
    return parser.found


@dataclass(slots=True)
class _Form:
    method: str
    action: str
    fields: list[str] = field(default_factory=list)
    has_button: bool = False


class _Reader(HTMLParser):
    """Collects a `Structure`; hidden parts show nothing."""

    def __init__(self, marker: re.Pattern[str] | None) -> None:
        super().__init__(convert_charrefs=True)
        self.found = Structure()
        self.seen: list[str] = []
        self._marker = marker
        self._open: list[tuple[str, bool]] = []  # element, and whether it hides what it holds
        self._link: tuple[str, int] | None = None
        self._form: _Form | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.found.tags[tag] += 1
        self._note_attributes(tag, attributes)
        if tag not in _VOID:
            self._open.append((tag, tag in _SILENT or _hides(attributes)))
        if tag in ("br", "p", "div", "li", "td", "h1", "h2", "h3", "tr", "button"):
            self.seen.append(" ")
        if tag == "a" and "href" in attributes:
            self._link = (attributes["href"], len(self.seen))
        if tag == "img" and attributes.get("alt") and not self._hidden:
            self.seen.append(attributes["alt"])
        self._note_form(tag, attributes)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._link is not None:
            self._close_link()
        if tag == "form" and self._form is not None:
            form, self._form = self._form, None
            if form.has_button:
                self.found.forms[(form.method, form.action, tuple(sorted(form.fields)))] += 1
        names = [name for name, _ in self._open]
        if tag in names:
            del self._open[len(names) - 1 - names[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        element = self._open[-1][0] if self._open else ""
        if element in ("script", "style"):
            self._misplace(data, f"inside <{element}>")
        elif not self._hidden:
            self.seen.append(data)

    def handle_comment(self, data: str) -> None:
        self._misplace(data, "inside a comment")

    @property
    def _hidden(self) -> bool:
        return any(hides for _, hides in self._open)

    def _close_link(self) -> None:
        assert self._link is not None
        address, start = self._link
        self._link = None
        if "".join(self.seen[start:]).strip():
            self.found.links[address] += 1
        elif not self._hidden:
            self.found.empty_links.append(address)

    def _note_attributes(self, tag: str, attributes: dict[str, str]) -> None:
        for name, value in attributes.items():
            self._misplace(name, f"in the name of an attribute of <{tag}>")
            if name not in _TEXT_ATTRIBUTES:
                self._misplace(value, f"in {name} of <{tag}>")

    def _note_form(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "form":
            self._form = _Form(attributes.get("method", "get").lower(), attributes.get("action", ""))
        if self._form is None:
            return
        if tag in ("input", "select", "textarea") and attributes.get("name"):
            self._form.fields.append(attributes["name"])
        kind = attributes.get("type", "submit" if tag == "button" else "text").lower()
        if (tag == "button" and kind == "submit") or (tag == "input" and kind in ("submit", "image")):
            self._form.has_button = True

    def _misplace(self, text: str, where: str) -> None:
        if self._marker is not None:
            for match in self._marker.finditer(text):
                self.found.misplaced.setdefault(match[1], where)


def _hides(attributes: dict[str, str]) -> bool:
    style = re.sub(r"\s", "", attributes.get("style", "").lower())
    unseen = ("display:none", "visibility:hidden", "font-size:0", "opacity:0")
    return "hidden" in attributes or any(re.search(rf"{rule}(?![.\d])", style) for rule in unseen)
