"""Does anything between this server and its visitors mix arms? Asked before anybody is counted.

A cache that stores one visitor's page and hands it to the next shows people another arm than the one they are counted
in, and no statistics can tell afterwards. So the server visits itself by its public address as two units in turn; every
answer must name the unit that asked.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable

from autoresearch.adapters.marketing.site.visitors import COOKIE, new_unit
from autoresearch.core import EnvironmentNotReadyError

_SECONDS = 10.0


def check_cache(url: str, proof: Callable[[str], bytes]) -> None:
    """Visit a page as two units, A, B and A again, and raise unless each gets an answer of its own.

    Args:
        url: The page as visitors reach it.
        proof: Gives the header that proves to the server that it talks to itself, for a unit.

    Raises:
        EnvironmentNotReadyError: If the page cannot be reached, another server answers, or a cache mixes units.
    """
    first, second = new_unit(), new_unit()
    for unit in (first, second, first):
        headers = _visit(url, unit, proof(unit))
        echo = headers.get("x-autoresearch-unit")
        if echo is None:
            raise _failed(url, "the answer does not come from this server, or a proxy removes headers")
        if echo != unit or int(headers.get("age") or 0) > 0:
            raise _failed(url, "a cache answered one visitor with the page of another")
        if "no-store" not in headers.get("cache-control", ""):
            raise _failed(url, "the header Cache-Control: no-store is lost on the way, so caches may store pages")


def _visit(url: str, unit: str, proof: bytes) -> dict[str, str]:
    request = urllib.request.Request(
        url,
        headers={
            "cookie": f"{COOKIE}={unit}",
            "user-agent": "Mozilla/5.0 (self-test)",
            "x-autoresearch-selftest": proof.decode("ascii"),
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as response:
            return {name.lower(): value for name, value in response.headers.items()}
    except (urllib.error.URLError, OSError) as error:
        raise _failed(url, f"it cannot be reached ({getattr(error, 'reason', error)})") from error


def _failed(url: str, why: str) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"The self-test at {url} failed: {why}.\n"
        "Nobody was counted. Keep caches from storing these pages and from dropping the cookie, then serve again."
    )
