"""What Claude models cost: a dated table, and the dollars of one call.

Source: the table at https://platform.claude.com/docs/en/about-claude/pricing and the model pages that it links, as they
were at `PRICES_AS_OF`. Prices are list prices of Anthropic's own API in US dollars per million tokens; discounts,
taxes and other providers are not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from ipaddress import ip_address
from urllib.parse import urlsplit

__all__ = ["MODEL_PRICES", "PRICES_AS_OF", "UNKNOWN_MODEL", "Price", "Rate", "Usage", "is_loopback", "price_of"]

PRICES_AS_OF = date(2026, 11, 10)
"""When the table below was last compared with its source."""

_PER = 1_000_000
_DATED = re.compile(r"-\d{8}$")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call as the API reports them; the four kinds are disjoint.

    Attributes:
        fresh: Prompt tokens that were neither read from nor written to a cache.
        cache_read: Prompt tokens read from a cache.
        write_5m: Prompt tokens written to the cache for five minutes.
        write_1h: Prompt tokens written to the cache for an hour.
        out: Answer tokens, thinking included.
    """

    fresh: int = 0
    cache_read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    out: int = 0

    @property
    def prompt(self) -> int:
        """All prompt tokens."""
        return self.fresh + self.cache_read + self.write_5m + self.write_1h


@dataclass(frozen=True, slots=True)
class Rate:
    """Dollars per million tokens of each kind."""

    fresh: float
    out: float
    cache_read: float
    write_5m: float
    write_1h: float

    def usd(self, usage: Usage) -> float:
        """Return the dollars of one call."""
        return (
            usage.fresh * self.fresh
            + usage.cache_read * self.cache_read
            + usage.write_5m * self.write_5m
            + usage.write_1h * self.write_1h
            + usage.out * self.out
        ) / _PER


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one model.

    Attributes:
        rate: What a call costs.
        long_rate: What a call costs, answer included, when its prompt is longer than `long_from`; None: the same.
        long_from: Prompt tokens up to which `rate` holds.
        known: False where the model is not in the table and the price is a guess on the safe side.
    """

    rate: Rate
    long_rate: Rate | None = None
    long_from: int = 0
    known: bool = True

    def usd(self, usage: Usage) -> float:
        """Return the dollars of one call."""
        return self.rate_for(usage.prompt).usd(usage)

    def rate_for(self, prompt_tokens: int) -> Rate:
        """Return the rate that holds for a prompt of that many tokens."""
        if self.long_rate is not None and prompt_tokens > self.long_from:
            return self.long_rate
        return self.rate


def _rate(fresh: float, out: float, read: float = 0.1) -> Rate:
    """Return a rate with Anthropic's cache factors: reading costs `read`, writing 1.25 or 2 (1 h) times `fresh`."""
    return Rate(fresh=fresh, out=out, cache_read=fresh * read, write_5m=fresh * 1.25, write_1h=fresh * 2)


MODEL_PRICES = {
    "claude-fable-5-2": Price(_rate(8, 40, read=0.025)),
    "claude-fable-5-1": Price(_rate(10, 50, read=0.025)),
    "claude-mythos-5-1": Price(_rate(10, 50, read=0.025)),
    "claude-fable-5": Price(_rate(10, 50)),
    "claude-mythos-5": Price(_rate(10, 50)),
    "claude-opus-5-5": Price(_rate(4, 20, read=0.05)),
    "claude-opus-5": Price(_rate(5, 25)),
    "claude-opus-4-8": Price(_rate(5, 25)),
    "claude-opus-4-7": Price(_rate(5, 25)),
    "claude-opus-4-6": Price(_rate(5, 25)),
    "claude-opus-4-5": Price(_rate(5, 25)),
    # Cache reads were halved on 2026-10-07.
    "claude-sonnet-5-5": Price(_rate(2, 10, read=0.05)),
    "claude-sonnet-5": Price(_rate(2, 10)),
    "claude-sonnet-4-6": Price(_rate(3, 15)),
    "claude-sonnet-4-5": Price(_rate(3, 15)),
    "claude-haiku-5-5": Price(_rate(0.1, 0.5), long_rate=_rate(0.5, 2.5), long_from=100_000),
    "claude-haiku-4-5": Price(_rate(1, 5)),
}
"""Price by model name without its date."""

UNKNOWN_MODEL = Price(_rate(25, 125), known=False)
"""For a model that is not in the table: two and a half times the dearest row, so that a cap stops early, never late."""

FREE = Price(_rate(0, 0))
"""For a model that a server on this very machine runs."""


def price_of(model: str, base_url: str) -> Price:
    """Return what a call to `model` at `base_url` costs.

    A name that does not begin with `claude` on a loopback address costs nothing: the person's own server runs it. A
    Claude name on a loopback address is charged as listed, because a proxy may stand there that forwards to the paid
    API, and a cap that counts too much is a nuisance while one that counts too little is a bill.
    """
    if is_loopback(base_url) and not model.startswith("claude"):
        return FREE
    return MODEL_PRICES.get(_DATED.sub("", model), UNKNOWN_MODEL)


def is_loopback(base_url: str) -> bool:
    """Say whether a URL points to this machine."""
    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name: only those above are certain to stay on this machine
        return False
