"""A campaign with four surfaces: two groups of slots of its page, another page, and an audience."""

from __future__ import annotations

from pathlib import Path

from tests.adapters.marketing.campaigns import edit, write_campaign

SURFACES = """
[slots.price_note]
max_chars = 90

[surfaces.hero]
slots = ["headline", "cta"]

[surfaces.reasons]
slots = ["bullet_1", "bullet_2", "bullet_3"]

[surfaces.pricing]
path = "/pricing"
template = "pricing.html.j2"
slots = ["price_note"]

[surfaces.ads]
audience = { utm_source = ["ads", "partner"] }
slots = ["subhead"]
"""

PRICING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Prices</title></head>
<body><p>{{ slot.price_note }}</p>
<form method="post" action="{{ link.action_url }}"><button>Start</button></form></body></html>
"""

PRICING_COPY = """
price_note = "From €39 a month for each location after the free trial."
"""

ADS_COPY = """
ads.subhead = "Rota planning for owners who would rather be behind the bar than in front of a spreadsheet."
"""

PRICING_OPTIONS = """
price_note = [
    "From €39 a month for each location after the free trial.",
    "No card needed. Cancel at any time.",
    "Set up in one afternoon, with your own staff list.",
]
"""

ADS_OPTIONS = """
"ads.subhead" = [
    "Rota planning for owners who would rather be behind the bar than in front of a spreadsheet.",
    "One rota for everybody, always up to date, on any phone. There is no app to install.",
]
"""


def write_surfaces(folder: Path, *, surfaces: str = SURFACES, arms: int = 1) -> Path:
    """Write the packaged page with these surfaces and return its folder."""
    write_campaign(folder)
    if arms > 1:
        edit(folder, "campaign.toml", "holdout = 0.05", f"holdout = 0.05\narms = {arms}")
    path = folder / "campaign.toml"
    path.write_text(path.read_text(encoding="utf-8") + surfaces, encoding="utf-8")
    (folder / "template" / "pricing.html.j2").write_text(PRICING, encoding="utf-8")
    for name, copy, options in (("pricing", PRICING_COPY, PRICING_OPTIONS), ("ads", ADS_COPY, ADS_OPTIONS)):
        if f"[surfaces.{name}]" in surfaces:
            edit(folder, "copy.toml", "\n[options]\n", f"{copy}\n[options]\n{options}")
    return folder
