"""A campaign's surfaces as the loop knows them: lanes, each with tests, people and candidates of its own."""

from __future__ import annotations

from collections.abc import Sequence

from autoresearch.adapters.marketing import wording
from autoresearch.adapters.marketing.campaign import COPY_NAME, Campaign
from autoresearch.adapters.marketing.render import slots_in
from autoresearch.adapters.marketing.surfaces import EVERYBODY, PAGE, Surface
from autoresearch.core import Artifact, Knob, Lane

NO_SURFACES = (Lane(PAGE),)
"""The whole copy, one candidate at a time."""


def lanes_of(campaign: Campaign) -> tuple[Lane, ...]:
    """Return a lane for every surface; the whole copy is the only one where the campaign names none."""
    arms = campaign.traffic.arms
    if not campaign.surfaces:
        return (Lane(PAGE, arms),)
    return tuple(Lane(one.name, arms, _is_alone(campaign, one), one.reach) for one in campaign.surfaces)


def surface_of(campaign: Campaign, lane: str) -> Surface | None:
    """Return the surface of a lane; None where the whole copy is the only one."""
    return next((one for one in campaign.surfaces if one.name == lane), None)


def audience_of(campaign: Campaign, lane: str) -> str:
    """Return the audience whose texts a lane tests; everybody where it is for all."""
    surface = surface_of(campaign, lane)
    return surface.name if surface is not None and surface.audience else EVERYBODY


def foreign(campaign: Campaign, lane: str, parent: Artifact, candidate: Artifact) -> str | None:
    """Return why a candidate does not belong to a lane; None where it does."""
    before, after = (wording.Copy.load(of.files.get(COPY_NAME, "")) for of in (parent, candidate))
    changed = wording.changed_slots(before, after)
    if not changed:
        return "It reads as what is shown already, so nobody would see a difference; change a text in [slots]."
    surface = surface_of(campaign, lane)
    others = [name for name in changed if surface is not None and name not in surface.keys]
    if surface is None or not others:
        return None
    return (
        f"It changes {', '.join(others)}, and [surfaces.{surface.name}] tests {', '.join(surface.keys)}. Leave the "
        "others as they are: they are tested elsewhere, on other people."
    )


def knobs(campaign: Campaign, lane: str, artifact: Artifact) -> Sequence[Knob]:
    """Return a knob for every text of a lane that lists options."""
    surface = surface_of(campaign, lane)
    names = None if surface is None else {f"slots.{key}" for key in surface.keys}
    return tuple(knob for knob in wording.knobs(artifact) if names is None or knob.name in names)


def brief(campaign: Campaign, lane: str) -> str:
    """Return what may change in a lane, and who sees it; always the same bytes for the same campaign."""
    surface = surface_of(campaign, lane)
    if surface is None:
        return "Any text under [slots] may change."
    names = ", ".join(surface.keys)
    start = f"Only {names} may change this time (surface {surface.name}); leave every other text as it is."
    if surface.audience:
        who = " and ".join(f"{name} {' or '.join(values)}" for name, values in surface.audience.items())
        return f"{start} They are shown to people with {who}, in place of everybody's."
    return f"{start} They are on the page {surface.path}." if surface.path else start


def _is_alone(campaign: Campaign, surface: Surface) -> bool:
    """Say whether no other surface's texts are shown where this one is tested, to the people that it is tested on."""
    pages = [campaign.at(page) for page in campaign.pages] if campaign.kind == "page" else [campaign]
    shown = [set(slots_in(page)) for page in pages]
    seen = set().union(*(slots for slots in shown if slots & set(surface.slots)))
    if surface.audience:
        seen -= set(surface.slots)  # its people see its own texts there
    others = (one for one in campaign.surfaces if one is not surface and not (one.audience and surface.audience))
    return not any(seen & set(one.slots) for one in others)
