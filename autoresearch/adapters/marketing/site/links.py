"""Links that count a click and then lead on: signed, so that nobody can use the site to lead people elsewhere."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlencode, urlsplit


def signature(secret: str, target: str, goal: str) -> str:
    """Return the signature of a target and the goal that its click counts for."""
    return hmac.new(secret.encode(), f"go\0{goal}\0{target}".encode(), hashlib.sha256).hexdigest()[:32]


def signed_link(secret: str, target: str, goal: str, *, base_url: str = "") -> str:
    """Return the address on the site that counts a click for `goal` and redirects to `target`.

    Raises:
        ValueError: If the target is no http or https address.
    """
    if urlsplit(target).scheme not in ("http", "https"):
        raise ValueError(f"{target!r} is no address to lead to; it must begin with http:// or https://.")
    return f"{base_url}/go?{urlencode({'to': target, 'goal': goal, 'sig': signature(secret, target, goal)})}"


def is_signed(secret: str, target: str, goal: str, given: str) -> bool:
    """Say whether a link is one that we made."""
    return hmac.compare_digest(signature(secret, target, goal).encode(), given.encode())
