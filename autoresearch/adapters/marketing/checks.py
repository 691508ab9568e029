"""What is refused before anybody sees it, and what is only remarked.

Refused: a slot that is missing, unknown, empty, too long or on too many lines; a banned word; a number or claim that
facts.md does not hold; markup, scripts, foreign addresses and characters that deceive; a template that cannot be
filled; a link or form of the template that is lost; in mail a missing unsubscribe line or postal address, and a subject
that pretends to answer; in ads the same text twice. Remarked: capitals, exclamation marks, lengths that phones cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoresearch.adapters.marketing.brand import banned_in
from autoresearch.adapters.marketing.facts import read_facts, unsupported
from autoresearch.adapters.marketing.limits import HARD_PLATFORMS, NUMBERS, PLATFORM_LIMITS, length, slot_of
from autoresearch.adapters.marketing.render import TemplateFault, parts_of, preview_context, render, slots_in, texts_in
from autoresearch.adapters.marketing.structure import Structure, read_structure
from autoresearch.adapters.marketing.surfaces import EVERYBODY, PAGE
from autoresearch.adapters.marketing.unsafe import host_of, hosts_in, unsafe_parts
from autoresearch.adapters.marketing.wording import Copy, category_of, slot_name

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.render import Rendered

_SUBJECT_ON_PHONES = 45  # characters that common phones show upright
_HOPELESS = 4  # times the allowed length above which a text is only told that it is too long
_MARKER = re.compile(r"zqslot_([a-z0-9_]+?)_qz")
_PROBE = "zqprobe"


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found in a copy.

    Attributes:
        refusals: Sentences that say why nobody may see it; empty when it is fine.
        warnings: Sentences about what a person may want to look at.
    """

    refusals: tuple[str, ...]
    warnings: tuple[str, ...]


def check(campaign: Campaign, copy: Copy) -> Findings:
    """Return everything that can be said about a copy before people see it."""
    return Findings(refusals(campaign, copy), warnings(campaign, copy))


def refusals(campaign: Campaign, copy: Copy) -> tuple[str, ...]:
    """Return why a copy may not be shown, a sentence or two each; empty when it is fine.

    Raises:
        EnvironmentNotReadyError: If Jinja2 is not installed.
    """
    faults = campaign_faults(campaign)
    if faults:
        return faults
    found = [*_slot_faults(campaign, copy)]
    # Without its slots a template cannot be filled; that has been said.
    if not any(name not in copy.slots for name in texts_in(campaign)):
        for page in _pages(campaign):
            for audience in _audiences(campaign):
                found += _rendered_faults(page, copy.seen_by(audience))
    return tuple(dict.fromkeys(found))


def campaign_faults(campaign: Campaign) -> tuple[str, ...]:
    """Return what is wrong with the campaign itself, whatever the copy: template, limits, address.

    A run should not begin while there are any: every candidate would be refused for them.
    """
    try:
        found = [*_limit_faults(campaign, texts_in(campaign)), *_surface_faults(campaign)]
        for page in _pages(campaign):
            found += _page_faults(page)
    except TemplateFault as fault:
        return (" ".join(str(fault).split("\n")),)
    return tuple(dict.fromkeys(found))


def _pages(campaign: Campaign) -> list[Campaign]:
    """Return the campaign as it is at each of its pages; what is no page is one alone."""
    return [campaign.at(page) for page in campaign.pages] if campaign.kind == "page" else [campaign]


def _audiences(campaign: Campaign) -> tuple[str, ...]:
    """Return everybody, and each audience."""
    return (EVERYBODY, *(one.name for one in campaign.surfaces if one.audience))


def _page_faults(campaign: Campaign) -> Iterator[str]:
    asked = slots_in(campaign)
    marked = render(campaign, _marked(asked))
    if not asked:
        yield f"{campaign.template} asks for no slot. Put {{{{ slot.NAME }}}} where a text may change."
    if campaign.kind == "ad":
        yield from _number_faults(campaign, asked)
    yield from _template_faults(campaign, marked)
    if campaign.kind == "email":
        yield from mail_faults(campaign, marked, preview_context(campaign).unsubscribe_url)


def _surface_faults(campaign: Campaign) -> Iterator[str]:
    for one in campaign.surfaces:
        if one.path:
            at = campaign.at(one.name if one.path != "/" else PAGE)
            for slot in set(one.slots) - set(slots_in(at)):
                yield (
                    f"{campaign.path}: [surfaces.{one.name}] may change {slot}, and {one.template} does not show it. "
                    f"Put {{{{ slot.{slot} }}}} there, or take it out."
                )


def option_faults(campaign: Campaign, copy: Copy) -> tuple[str, ...]:
    """Return which texts under [options] would be refused; the offline search would try them in vain."""
    found = []
    for name, texts in copy.options.items():
        for text in texts:
            for fault in text_faults(campaign, name, text):
                found.append(f"[options] {fault}")
    return tuple(found)


def text_faults(campaign: Campaign, name: str, text: str) -> Iterator[str]:
    """Yield why a text may not stand in a slot, whatever the other slots hold."""
    said = list(_text_faults(campaign, name, text))
    yield from (f"{name}: {fault}" for fault in said)


def mail_faults(campaign: Campaign, rendered: Rendered, unsubscribe_url: str) -> tuple[str, ...]:
    """Return what a mail lacks without which it may not be sent; ask again for every mail as rendered.

    Args:
        campaign: Whose postal address must be seen.
        rendered: The mail.
        unsubscribe_url: The recipient's own address for leaving the list.
    """
    found = []
    if len(re.findall(r"\w+", campaign.sender.postal_address)) < 3:
        found.append(
            f"{campaign.path}: [sender] postal_address is missing, and every mail must show one. "
            "Write street, town and country."
        )
    for part, text, links in _mail_parts(campaign, rendered):
        if _letters(campaign.sender.postal_address) not in _letters(text):
            found.append(f"{part} does not show the postal address. Put {{{{ sender.postal_address }}}} into it.")
        if unsubscribe_url not in links:
            found.append(f"{part} shows no unsubscribe line. Put a link to {{{{ link.unsubscribe_url }}}} into it.")
    return tuple(found)


def warnings(campaign: Campaign, copy: Copy) -> tuple[str, ...]:
    """Return what a person may want to look at; none of it keeps a copy from being shown."""
    found = []
    for name, text in copy.slots.items():
        letters = [c for c in text if c.isalpha()]
        if len(letters) >= 6 and sum(c.isupper() for c in letters) > 0.6 * len(letters):
            found.append(f"{name} is mostly in capitals, which reads as shouting and as spam.")
        marks = len(re.findall("[!！]", text))
        if marks > 1 or (marks and campaign.kind == "ad" and category_of(name) == "headline"):
            found.append(f"{name} has {marks} exclamation mark{'s' * (marks > 1)}, which reads as spam.")
        if re.search(r"[$€£]{2}|\?!|!\?|\.{4}", text):
            found.append(f"{name} has a row of signs that filters take for spam.")
    if campaign.kind == "email":
        found += _mail_warnings(copy)
    return tuple(found)


def allowed_hosts(campaign: Campaign) -> frozenset[str]:
    """Return the hosts that a slot's text may name: those of campaign.toml and facts.md."""
    goal, sender = campaign.goal, campaign.sender
    addresses = (goal.landing_url, goal.canonical_url, goal.privacy_url, sender.website)
    own = {host_of(address) for address in addresses} | {sender.email.rpartition("@")[2]}
    listed = {host_of(link) or link.casefold().removeprefix("www.") for link in campaign.links}
    return frozenset((own | listed | hosts_in(campaign.facts)) - {""})


def _mail_warnings(copy: Copy) -> Iterator[str]:
    subject, preheader = copy.slots.get("subject", ""), copy.slots.get("preheader", "")
    if len(subject) > _SUBJECT_ON_PHONES:
        yield f"subject has {len(subject)} characters; many phones show about {_SUBJECT_ON_PHONES}."
    if subject and subject.casefold().strip(" .!?") == preheader.casefold().strip(" .!?"):
        yield "preheader says what the subject says; inboxes show both side by side."


def _slot_faults(campaign: Campaign, copy: Copy) -> Iterator[str]:
    asked = texts_in(campaign)
    for name in asked:
        if name not in copy.slots and "." in name:
            audience, _, slot = name.partition(".")
            yield (
                f"{name}: [surfaces.{audience}] is an audience with a text of its own here, and copy.toml has none. "
                f"Add it to [slots]; it may say at first what {slot} says."
            )
        elif name not in copy.slots:
            yield f"{name}: the template asks for this slot and copy.toml has no text for it. Add it to [slots]."
    for name, text in copy.slots.items():
        if name in asked:
            yield from text_faults(campaign, name, text)
        else:
            yield f"{name}: the template has no such slot; it has {', '.join(asked)}. Take it out of [slots]."
    if campaign.kind == "ad":
        for audience in _audiences(campaign):
            yield from _repeated(copy.seen_by(audience))


def _repeated(copy: Copy) -> Iterator[str]:
    first: dict[str, str] = {}
    for name, text in copy.slots.items():
        other = first.setdefault(" ".join(text.casefold().split()), name)
        if other != name:
            yield f"{name}: says the same as {other}, and platforms reject an ad for that. Write another text."


def _text_faults(campaign: Campaign, name: str, text: str) -> Iterator[str]:
    if not text.strip():
        yield "the text is empty. Every slot needs one."
        return
    yield from _length_faults(campaign, name, text)
    slot = slot_of(campaign, name)
    if slot is not None and len(text) > _HOPELESS * slot.max_chars:
        return  # nobody reads on, and reading it all takes long
    yield from unsafe_parts(text, hosts=allowed_hosts(campaign))
    for word, shown in banned_in(text, campaign.brand):
        as_form = "" if shown == word.casefold() else f" (here as “{shown}”)"
        yield f"“{word}” is banned by brand.md{as_form}. Say it in other words."
    yield from unsupported(text, read_facts(campaign.facts, campaign.language), campaign.language)
    if slot_name(name) == "subject" and re.match(r"\s*(re|aw|fwd?|wg|tr|rv|sv|antw)\s*[:：]", text, re.IGNORECASE):
        yield "a subject that pretends to be an answer or to be forwarded deceives. Leave that word out."
    if campaign.kind == "ad" and category_of(name) == "path" and "/" in text:
        yield "a path is one part of an address, and the platform rejects a slash in it. Use a hyphen."
    if campaign.kind == "ad" and re.match(r"\s*[=+@\t-]", text):
        yield "spreadsheets take a text with this first sign for a formula. Begin with a word."


def _length_faults(campaign: Campaign, name: str, text: str) -> Iterator[str]:
    slot = slot_of(campaign, name)
    if slot is None:
        return  # what has no limit is a fault of the campaign, and no slot of the template is without one
    size, lines = length(campaign, text), len(text.strip().splitlines())
    if size > slot.max_chars:
        yield f"{size} characters, and {slot.max_chars} are allowed. Cut {size - slot.max_chars}."
    if lines > slot.max_lines:
        allowed = "one is allowed" if slot.max_lines == 1 else f"{slot.max_lines} are allowed"
        yield f"{lines} lines, and {allowed}. Join or cut some."


def _limit_faults(campaign: Campaign, asked: tuple[str, ...]) -> Iterator[str]:
    for name in asked:
        if slot_of(campaign, name) is None:
            yield f"{campaign.path} has no [slots.{name}], and the template asks for it. Say its max_chars there."
    for name, slot in campaign.slots.items():
        if name not in asked:
            yield f"{campaign.path}: [slots.{name}] is in no template. Take it out, or use {{{{ slot.{name} }}}}."
        most = PLATFORM_LIMITS[campaign.platform].get(category_of(name)) if campaign.kind == "ad" else None
        if most is not None and slot.max_chars > most and campaign.platform in HARD_PLATFORMS:
            yield (
                f"{campaign.path}: [slots.{name}] max_chars is {slot.max_chars}, and the platform rejects more than "
                f"{most}. Lower it."
            )


def _number_faults(campaign: Campaign, asked: tuple[str, ...]) -> Iterator[str]:
    kinds = [category_of(name) for name in asked]
    for kind, (fewest, most) in NUMBERS[campaign.platform].items():
        if not fewest <= kinds.count(kind) <= most:
            yield (
                f"{campaign.template} has {kinds.count(kind)} slots for a {kind}, and the platform takes {fewest} to "
                f"{most}. Add or take out some: {kind}_1, {kind}_2."
            )


def _marked(names: tuple[str, ...]) -> Copy:
    """Return a copy whose texts can be found again in what is rendered, with markup and a space to see them escape."""
    return Copy({name: f"zqslot_{name}_qz zqslot_{name}_qz <{_PROBE}>" for name in names})


def _template_faults(campaign: Campaign, marked: Rendered) -> Iterator[str]:
    names = parts_of(campaign)
    for part, document in (("html", marked.html), ("mjml", marked.mjml)):
        if document is None:
            continue
        path = campaign.template / names[part]
        found = read_structure(document, _MARKER)
        if found.tags[_PROBE]:
            yield f"{path} switches escaping off, so that a slot could bring markup. Take out `safe` and `autoescape`."
        for name, where in found.misplaced.items():
            yield f"{path} puts slot {name} {where}, where no text belongs. Move it between tags."
        for address in found.empty_links:
            yield f"{path} has a link to {address or 'nowhere'} that shows nothing. Give it a text."
    if campaign.kind == "page" and marked.html is not None:
        found = read_structure(marked.html)
        if not found.forms and not any(link for link in found.links if not link.startswith(("#", "mailto:"))):
            yield f"{campaign.template / names['html']} has neither form nor link that leads to the goal. Add one."


def _rendered_faults(campaign: Campaign, copy: Copy) -> Iterator[str]:
    """Yield what the template offers and the filled page or mail does not."""
    expected, actual = render(campaign, _marked(slots_in(campaign))), render(campaign, copy)
    if expected.html is not None and actual.html is not None:
        yield from _lost(read_structure(expected.html), read_structure(actual.html))
    if campaign.kind == "email":
        yield from mail_faults(campaign, actual, preview_context(campaign).unsubscribe_url)
    if actual.subject is not None and len(actual.subject.splitlines()) != 1:
        yield "the subject is not one line. A mail has exactly one subject line."


def _lost(expected: Structure, actual: Structure) -> Iterator[str]:
    for address in expected.links - actual.links:
        yield f"the link to {address} is lost, or shows no text. Put it back."
    for _, address, names in expected.forms - actual.forms:
        fields = f" with {', '.join(names)}" if names else ""
        yield f"the form that posts to {address or 'the page itself'}{fields} is lost or changed. Put it back."


def _mail_parts(campaign: Campaign, rendered: Rendered) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield name, visible text and linked addresses of each part of a mail."""
    names = parts_of(campaign)
    for part, document in (("html", rendered.html), ("mjml", rendered.mjml)):
        if document is not None:
            found = read_structure(document)
            yield f"{campaign.template / names[part]}", found.text, frozenset(found.links)
    text = rendered.text or ""
    yield f"{campaign.template / names['text']}", text, frozenset(text.split())


def _letters(text: str) -> str:
    """Return letters and digits only, since an address may be set on one line or several."""
    return re.sub(r"\W+", "", text.casefold())
