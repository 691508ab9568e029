"""A campaign folder that replays one past test: its headlines are the options, and nothing else may change."""

from __future__ import annotations

from autoresearch.adapters.marketing.archive import ArchiveTest

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{{ slot.headline }}</title></head>
<body><h1><a href="{{ link.landing_url }}">{{ slot.headline }}</a></h1></body>
</html>
"""

_BRAND = """# Brand

The headlines of a past test, as its editors wrote them. None is banned.
"""


def campaign_files(test: ArchiveTest, *, days: int, min_effect: float = 0.5) -> dict[str, str]:
    """Return relative path -> text of a campaign that replays a test.

    The first headline of the archive is the incumbent. Numbers and claims of all headlines are facts here: they were
    printed, and the rehearsal is about finding the best, not about what is true.

    Args:
        test: A past test of headlines, see `archive.headline_tests`.
        days: Days over which it is dealt out.
        min_effect: Smallest lift worth having. The default is large, because past tests are small: with a few dozen
            clicks an arm a race that looks for a tenth more finds nothing.
    """
    import tomlkit

    headlines = [arm.headline for arm in test.arms]
    campaign = {
        "kind": "page",
        "name": f"Replay of the past test {test.id}",
        "goal": {"text": "Readers click the headline.", "event": "click", "landing_url": "/story"},
        "metric": {"name": "click_rate", "min_effect": min_effect, "unit": "share of impressions"},
        "traffic": {"source": "replay", "holdout": 0.0, "whole_weeks": False, "maturity_days": 0.0},
        "replay": {"test": test.id, "slot": "headline", "days": days},
        "slots": {
            "headline": {"max_chars": max(map(len, headlines)), "about": "One of the headlines that were shown."}
        },
    }
    copy = {"slots": {"headline": headlines[0]}, "options": {"headline": headlines}}
    facts = "\n".join(f"- {headline}" for headline in headlines)
    return {
        "campaign.toml": tomlkit.dumps(campaign),
        "copy.toml": tomlkit.dumps(copy),
        "template/page.html.j2": _PAGE,
        "facts.md": f"# Facts\n\nWhat the headlines said, for the checks of this rehearsal.\n\n{facts}\n",
        "brand.md": _BRAND,
    }
