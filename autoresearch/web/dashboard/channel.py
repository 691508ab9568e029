"""What open pages listen to: fragments that are rendered once and sent to everybody who has not seen them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from markupsafe import Markup

HEARTBEAT_SECONDS = 15.0
"""A comment is sent this often, so that a connection that is gone is noticed by either side."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of a page.

    Attributes:
        version: Of the channel, when it was published.
        html: The piece.
        event: The same as an event of the stream, ready to be sent.
    """

    version: int
    html: Markup
    event: bytes


def as_event(name: str, html: str, version: int) -> bytes:
    """Return a server-sent event; every line of the text is a line of data."""
    data = "\n".join(f"data: {line}" for line in html.splitlines() or [""])
    return f"id: {version}\nevent: {name}\n{data}\n\n".encode()


class Channel:
    """The newest version of every fragment, and who waits for news.

    A listener that is slow skips what became old meanwhile: nothing is queued, so that any number of listeners, however
    slow, cost no memory.
    """

    def __init__(self) -> None:
        self.fragments: dict[str, Fragment] = {}
        self.version = 0
        self.listeners = 0
        self._news = asyncio.Event()
        self._closed = False

    def publish(self, name: str, html: Markup) -> bool:
        """Replace a fragment; False where it is as it was."""
        known = self.fragments.get(name)
        if known is not None and known.html == html:
            return False
        self.version += 1
        self.fragments[name] = Fragment(self.version, html, as_event(name, html, self.version))
        news, self._news = self._news, asyncio.Event()
        news.set()
        return True

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        self._news.set()

    def html(self, name: str) -> Markup:
        """Return the newest text of a fragment; empty where it was never published."""
        found = self.fragments.get(name)
        return Markup() if found is None else found.html

    async def stream(self, seen: int) -> AsyncIterator[bytes]:
        """Yield what is newer than the version `seen`, and go on with news until the channel is closed."""
        self.listeners += 1
        try:
            yield b": listening\n\n"
            while not self._closed:
                news = self._news
                fresh = sorted(
                    (one for one in self.fragments.values() if one.version > seen), key=lambda one: one.version
                )
                if fresh:
                    seen = fresh[-1].version
                    yield b"".join(one.event for one in fresh)
                    continue
                try:
                    await asyncio.wait_for(news.wait(), HEARTBEAT_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.listeners -= 1
