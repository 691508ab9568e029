"""Who is not a person: crawlers by their user agent, and browsers that fetch what nobody may ever look at.

One rule for every arm: robots see the control and are never counted, so that no arm gets more of them than another.
"""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST = 512
"""Characters of a user agent that are looked at; real ones are shorter, and patterns lie near the front."""


@lru_cache(maxsize=1)
def _patterns() -> re.Pattern[str]:
    from crawleruseragents import CRAWLER_USER_AGENTS_DATA

    return re.compile("|".join(f"(?:{entry['pattern']})" for entry in CRAWLER_USER_AGENTS_DATA))


# A thousand patterns take half a millisecond; the few thousand different browsers of a site are judged once each.
@lru_cache(maxsize=20_000)
def is_robot(user_agent: str) -> bool:
    """Say whether a user agent is that of a program; no user agent at all is one too."""
    return not user_agent.strip() or _patterns().search(user_agent[:_LONGEST]) is not None


@lru_cache(maxsize=1_000)
def is_ahead_of_time(purpose: str) -> bool:
    """Say whether a Purpose, Sec-Purpose or X-Moz header tells of fetching or rendering before anybody looks."""
    return any(word in purpose.lower() for word in ("prefetch", "prerender", "preview"))
