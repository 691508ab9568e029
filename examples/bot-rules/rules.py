"""How sure are we that a visitor is a program? What is found in its user agent gives points, which make the odds."""

from __future__ import annotations

import re

START = -2.0  # points of a visitor in whom nothing is found

SAYS_SO = 1.0  # it has bot, crawler, spider or the like in its name
ADDRESS = 1.0  # it leaves an address on the web, or one for mail
COMPATIBLE = 1.0  # it calls itself compatible, as old browsers did
NO_SYSTEM = 1.0  # it names no operating system
NO_ENGINE = 1.0  # it names no rendering engine
ENDING = 1.0  # it ends with a bracket or a bare word, where browsers end with a name and a version
BROWSER = -1.0  # it names a browser with a version
MOBILE = -1.0  # it names a telephone or a tablet
SHORT = 1.0  # it is shorter than SHORT_BELOW characters
SHORT_BELOW = 60

_PATTERNS = (
    (SAYS_SO, re.compile(r"bot\b|crawl|spider|scrap|fetch|monitor|preview", re.IGNORECASE)),
    (ADDRESS, re.compile(r"https?:|www\.|\.com\b|@", re.IGNORECASE)),
    (COMPATIBLE, re.compile(r"compatible;")),
    (NO_SYSTEM, re.compile(r"^(?!.*(?:Windows|Macintosh|Linux|iPhone|iPad|Android|CrOS))")),
    (NO_ENGINE, re.compile(r"^(?!.*(?:AppleWebKit|Gecko|Trident))")),
    (ENDING, re.compile(r"(?:\)|[A-Za-z])$")),
    (BROWSER, re.compile(r"(?:Chrome|Firefox|Safari|CriOS|FxiOS|Edg|OPR)/\d")),
    (MOBILE, re.compile(r"Mobile|iPhone|iPad|Android")),
)


def points(agent: str) -> float:
    """Return the log of the odds, to base 2, that a visitor with this user agent is a program."""
    found = sum(weight for weight, pattern in _PATTERNS if pattern.search(agent))
    return START + found + (SHORT if len(agent) < SHORT_BELOW else 0.0)
