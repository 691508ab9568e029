"""Who may look, and who may press a button: host, token, cookie and origin, checked before anything else happens.

Three things are kept out. A page of another site that resolves its own name to this machine (DNS rebinding): its
requests name a host that is not ours. A page of another site that sends a form here: its requests bear another origin,
lack the cookie, which is never sent across sites, and lack the token that only our pages hold. Somebody else in the
network: beyond loopback nothing is shown without the token of the address that the command printed.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

SHORTEST_TOKEN = 16
"""Characters that a token must have at least."""

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

HEADERS: Mapping[str, str] = {
    # No script but ours from a file, no style but ours, nothing from elsewhere, nobody's frame. Pictures of adapters
    # come as data and are shown as images, so that nothing in them runs.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it a browser calls the origin of a form `null`, even of one that stays here.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer."""


def is_loopback(host: str) -> bool:
    """Say whether an address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def named_host(header: str) -> str:
    """Return the host of a Host header without its port, in lower case; empty where it is none."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules of one dashboard.

    Attributes:
        host: Where it listens.
        port: Likewise.
        token: What must be shown before anything is; empty where nothing need be.
        secret: Key of the cookies and of the tokens of forms.
    """

    host: str
    port: int
    token: str = ""
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @property
    def cookie(self) -> str:
        """Name of the cookie; cookies do not know ports, and two dashboards may run on one machine."""
        return f"autoresearch-{self.port}"

    def knows_host(self, header: str) -> bool:
        """Say whether a request was meant for this server.

        On loopback only the names of this machine are ours. Elsewhere an address is: a name that another site owns is
        what an attack needs, an address is not.
        """
        name = named_host(header)
        if name in LOOPBACK_NAMES:
            return True
        if is_loopback(self.host):
            return False
        return name in {self.host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()} or _is_address(name)

    def opens(self, token: str) -> bool:
        """Say whether a token is the right one; takes as long for every wrong one."""
        return bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())

    def new_cookie(self) -> str:
        """Return the value of a new cookie: a name by lot and its signature."""
        name = secrets.token_urlsafe(18)
        return f"{name}.{self._signed('cookie', name)}"

    def knows_cookie(self, value: str) -> bool:
        """Say whether this dashboard gave out a cookie."""
        name, dot, signature = value.partition(".")
        return bool(dot) and hmac.compare_digest(signature.encode(), self._signed("cookie", name).encode())

    def form_token(self, cookie: str) -> str:
        """Return what a form must bear that is sent with this cookie."""
        return self._signed("form", cookie)

    def knows_form(self, cookie: str, token: str) -> bool:
        """Say whether a form came from a page of ours."""
        return self.knows_cookie(cookie) and hmac.compare_digest(token.encode(), self.form_token(cookie).encode())

    def same_origin(self, headers: Mapping[str, str]) -> bool:
        """Say whether a request comes from a page of ours, as far as the browser says where it comes from."""
        site = headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        origin = headers.get("origin")
        if origin is None:
            return True
        return origin != "null" and urlsplit(origin).netloc.lower() == headers.get("host", "").lower()

    def _signed(self, purpose: str, words: str) -> str:
        # With a token of the person's own choice, cookies outlive a restart.
        key = hashlib.sha256(b"autoresearch dashboard " + (self.token.encode() or self.secret)).digest()
        return hmac.new(key, f"{purpose} {words}".encode(), hashlib.sha256).hexdigest()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
