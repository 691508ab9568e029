"""What a request's headers say about who asks."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from autoresearch.adapters.marketing.site.robots import is_ahead_of_time, is_robot

COOKIE = "ar_unit"
"""The first-party cookie with a random unit id and nothing else."""

COOKIE_SECONDS = 400 * 24 * 3600
"""The longest life that browsers grant a cookie."""

_UNIT = re.compile(rb"(?:^|;)\s*" + COOKIE.encode() + rb"=([A-Za-z0-9_-]{22})\s*(?:;|$)")
_PURPOSES = (b"purpose", b"sec-purpose", b"x-moz", b"x-purpose")


@dataclass(slots=True)
class Visitor:
    """Who asks, as far as headers tell.

    Attributes:
        cookies: The Cookie header.
        robot: Whether a program asks, or a browser ahead of its user.
        ahead: Whether it is the latter.
        languages: The Accept-Language header.
        time_us: What the header of a simulated audience says; None in real life.
        proof: The header with which the self-test proves itself; empty otherwise.
    """

    cookies: bytes = b""
    robot: bool = False
    ahead: bool = False
    languages: bytes = b""
    time_us: int | None = None
    proof: bytes = b""

    @property
    def unit(self) -> str | None:
        """The unit id of the cookie; None without one, or with one that we never gave out."""
        found = _UNIT.search(self.cookies)
        return found[1].decode("ascii") if found else None

    def consents(self, consent: re.Pattern[bytes] | None) -> bool:
        """Say whether the cookies hold the consent that is asked for; without a pattern none is asked."""
        return consent is None or consent.search(self.cookies) is not None


def read_headers(headers: Iterable[tuple[bytes, bytes]], *, simulated: bool = False) -> Visitor:
    """Return who asks, from ASGI headers (names in lower case)."""
    visitor = Visitor()
    agent = b""
    for name, value in headers:
        if name == b"cookie":
            visitor.cookies = b"; ".join((visitor.cookies, value)) if visitor.cookies else value
        elif name == b"user-agent":
            agent = value
        elif name == b"accept-language":
            visitor.languages = value
        elif name in _PURPOSES:
            visitor.ahead = visitor.ahead or is_ahead_of_time(value.decode("latin-1"))
        elif name == b"x-autoresearch-selftest":
            visitor.proof = value
        elif simulated and name == b"x-autoresearch-time" and value.isdigit():
            visitor.time_us = int(value)
    visitor.robot = visitor.ahead or is_robot(agent.decode("latin-1"))
    return visitor


def consent_pattern(consent: str) -> re.Pattern[bytes] | None:
    """Return what finds `cookie=value` in a Cookie header; None for the empty text."""
    return re.compile(rb"(?:^|;)\s*" + re.escape(consent.encode()) + rb"\s*(?:;|$)") if consent else None


def new_unit() -> str:
    """Return a random unit id of 128 bits, 22 characters."""
    return secrets.token_urlsafe(16)


def cookie_header(unit: str, *, secure: bool) -> bytes:
    """Return the Set-Cookie value that gives a visitor a unit id."""
    text = f"{COOKIE}={unit}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Lax"
    return (text + "; Secure" if secure else text).encode("ascii")


def expired_cookie_header() -> bytes:
    """Return the Set-Cookie value that takes the unit id away."""
    return f"{COOKIE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax".encode("ascii")
