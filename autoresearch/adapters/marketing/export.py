"""The winner for production: HTML, MJML, text, JSON for a content system, CSV for ad tools."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from autoresearch.adapters.marketing.checks import mail_faults, refusals
from autoresearch.adapters.marketing.render import Context, parts_of, render, slots_in
from autoresearch.adapters.marketing.wording import Copy, category_of
from autoresearch.core import UsageError

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign

FORMATS: Mapping[str, tuple[str, ...]] = {
    "page": ("html", "json"),
    "email": ("html", "mjml", "text", "json"),
    "ad": ("csv", "text", "json"),
}
"""Formats of each kind of campaign, the usual one first."""

JSON_FORMAT = 1
_SUFFIXES = {"text": "txt"}
# Column of each kind of slot. Google Ads Editor knows headers in English, whatever their case and spaces (its help page
# "CSV file columns"). For Meta's bulk upload the headers are the customary ones, not checked against its own page.
_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "search": {"headline": "Headline", "description": "Description", "path": "Path"},
    "social": {"primary_text": "Body", "headline": "Title", "description": "Link Description"},
}
_FORMULA_SIGNS = ("=", "+", "-", "@", "\t")


def export(campaign: Campaign, copy: Copy, form: str, context: Context | None = None, surface: str = "") -> str:
    """Return a copy in a form that other tools take.

    Args:
        campaign: The campaign, with template, sender and addresses.
        copy: The texts.
        form: One of `FORMATS` for the campaign's kind.
        context: Addresses in production; what is left empty is taken from campaign.toml.
        surface: Which page, or what which audience reads, by the name of its surface; empty: what is at `/`, for
            everybody, and in JSON all texts.

    Raises:
        UsageError: If there is no such form or surface, the copy would be refused, or a needed address is unknown.
    """
    known = FORMATS[campaign.kind]
    if form not in known:
        raise UsageError(f"A campaign of kind {campaign.kind} has no form {form!r}.\nChoose one of {', '.join(known)}.")
    found = refusals(campaign, copy)
    if found:
        listed = "\n".join(f"- {sentence}" for sentence in found)
        raise UsageError(f"This copy may not go out:\n{listed}\nCorrect it, or the file that is named.")
    if form == "json" and not surface:
        return _json(campaign, copy)
    campaign, copy = _seen_at(campaign, copy, surface)
    if form == "json":
        return _json(campaign, copy)
    filled = _with_campaign(campaign, context or Context(action_url=""))
    if form == "csv":
        return _csv(campaign, copy, filled)
    return _document(campaign, copy, form, filled)


def file_name(campaign: Campaign, form: str) -> str:
    """Return a name for the exported file."""
    return f"{campaign.kind}.{_SUFFIXES.get(form, form)}"


def placeholders(campaign: Campaign) -> tuple[str, ...]:
    """Return which settings still hold the invented product's addresses."""
    goal, sender = campaign.goal, campaign.sender
    settings = {
        "[goal] landing_url": goal.landing_url,
        "[goal] canonical_url": goal.canonical_url,
        "[goal] privacy_url": goal.privacy_url,
        "[sender] email": sender.email,
        "[sender] website": sender.website,
        "[sender] postal_address": sender.postal_address,
    }
    return tuple(
        name for name, value in settings.items() if "example.com" in value or "example street" in value.casefold()
    )


def _with_campaign(campaign: Campaign, context: Context) -> Context:
    return replace(
        context,
        landing_url=context.landing_url or campaign.goal.landing_url,
        unsubscribe_url=context.unsubscribe_url or campaign.sender.unsubscribe_url,
    )


_OPTIONS = {
    "action_url": "Say where the form is posted to: --action-url ADDRESS",
    "landing_url": "Say where links lead: [goal] landing_url in campaign.toml, or --landing-url ADDRESS",
    "unsubscribe_url": "Say how people leave the list: [sender] unsubscribe_url in campaign.toml, or "
    "--unsubscribe-url with an address or the sending tool's own mark",
}


def _document(campaign: Campaign, copy: Copy, form: str, context: Context) -> str:
    if form not in parts_of(campaign):
        raise UsageError(
            f"{campaign.template} has no template for {form}.\nWrite email.{form}.j2 there, or choose another form."
        )
    for name, advice in _OPTIONS.items():
        mark = f"zq-{name}-zq"
        probe = Context(**{**asdict(context), name: mark})
        if not getattr(context, name) and mark in _part(campaign, copy, form, probe):
            raise UsageError(f"The template needs link.{name}, and it is not known.\n{advice}")
    text = _part(campaign, copy, form, context)
    if campaign.kind == "email":
        faults = mail_faults(campaign, render(campaign, copy, context=context), context.unsubscribe_url)
        if faults:
            raise UsageError("This mail may not go out:\n" + "\n".join(f"- {fault}" for fault in faults))
    return text


def _part(campaign: Campaign, copy: Copy, form: str, context: Context) -> str:
    return getattr(render(campaign, copy, context=context), form) or ""


def _seen_at(campaign: Campaign, copy: Copy, surface: str) -> tuple[Campaign, Copy]:
    """Return campaign and copy as they are on a surface.

    Raises:
        UsageError: If there is none of that name.
    """
    if not surface:
        return campaign, copy.seen_by()
    named = next((one for one in campaign.surfaces if one.name == surface), None)
    if named is None:
        there = ", ".join(one.name for one in campaign.surfaces) or "none"
        raise UsageError(f"{campaign.path} has no surface {surface!r}; there are {there}.\nName one of these, or none.")
    at = campaign.at(surface) if surface in campaign.pages else campaign
    seen = copy.seen_by(surface if named.audience else "")
    return at, Copy({name: seen.slots[name] for name in slots_in(at)})


def _json(campaign: Campaign, copy: Copy) -> str:
    record = {
        "format": JSON_FORMAT,
        "campaign": campaign.name,
        "kind": campaign.kind,
        "language": campaign.language,
        "slots": dict(copy.slots),
    }
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"


def _csv(campaign: Campaign, copy: Copy, context: Context) -> str:
    if not context.landing_url:
        raise UsageError(f"An ad leads to a page, and its address is not known.\n{_OPTIONS['landing_url']}")
    columns = _COLUMNS[campaign.platform]
    row = {"Campaign": campaign.name, "Ad Group": campaign.name} if campaign.platform == "search" else {}
    row |= {"Ad type": "Responsive search ad"} if campaign.platform == "search" else {"Ad Name": campaign.name}
    for name, text in copy.slots.items():
        kind = category_of(name)
        if kind not in columns:
            raise UsageError(
                f"Slot {name} has no column in a table for {campaign.platform} ads; known are {', '.join(columns)}, "
                "with or without a number.\nRename the slot, or export as json."
            )
        number = name[len(kind) :].strip("_")
        row[f"{columns[kind]} {number}".strip()] = text
    row["Final URL" if campaign.platform == "search" else "Link"] = context.landing_url
    out = io.StringIO()
    writer = csv.DictWriter(out, list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow({name: _cell(text) for name, text in row.items()})
    return out.getvalue()


def _cell(text: str) -> str:
    if text.startswith(_FORMULA_SIGNS):
        raise UsageError(f"{text!r} begins with a sign that spreadsheets take for a formula.\nBegin with a word.")
    return text
