"""How long a text may be: what campaign.toml says, else what the ad platform takes."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

from autoresearch.adapters.marketing.campaign import Slot
from autoresearch.adapters.marketing.wording import category_of, slot_name

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign

PLATFORM_LIMITS: Mapping[str, Mapping[str, int]] = {
    # Responsive search ads: longer texts are rejected, and a wide character counts as two. Sources: Google Ads Help,
    # answer 12437745 (30 and 90); Adobe Advertising, "Google Ads responsive search ad settings" (paths, wide
    # characters). As of November 2026.
    "search": {"headline": 30, "description": 90, "path": 15},
    # Feed ads: what is shown without "See more"; longer texts are cut, not rejected. Source: Meta's recommendation as
    # quoted by Ads Uploader, "Meta ad copy specs". As of November 2026.
    "social": {"primary_text": 125, "headline": 40, "description": 25},
}
"""Most characters by platform and kind of slot: `headline_2` is a `headline`."""

NUMBERS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "search": {"headline": (3, 15), "description": (2, 4), "path": (0, 2)},
    "social": {},
}
"""Fewest and most slots of each kind in one ad; the same sources."""

HARD_PLATFORMS = frozenset({"search"})
"""Platforms that reject a longer text instead of cutting it."""


def slot_of(campaign: Campaign, name: str) -> Slot | None:
    """Return a text's slot with its limits, for ads the platform's where campaign.toml has none; None: nobody says."""
    own = campaign.slots.get(slot_name(name))
    if own is not None or campaign.kind != "ad":
        return own
    most = PLATFORM_LIMITS[campaign.platform].get(category_of(name))
    return None if most is None else Slot(name, most)


def length(campaign: Campaign, text: str) -> int:
    """Return how long a text is for the campaign's limits, in characters as people see them."""
    composed = unicodedata.normalize("NFC", text.strip())
    if campaign.kind == "ad" and campaign.platform == "search":
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in composed)
    return len(composed)
