"""How long a connection may take: who sends half a request and waits holds a place that somebody else may need.

uvicorn bounds the pause between two requests and nothing else. Here a request must be whole, its body included, within
some seconds of the moment at which one could come, and who does not read the answer is cut off after as many. One sweep
a second over all connections costs a request nothing but a comparison.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

REQUEST_SECONDS = 20.0
"""Time for one request. A form on a poor connection takes a second or two."""

_TICKS = 10  # of uvicorn's main loop, a tenth of a second each


class Connection(HttpToolsProtocol):
    """A connection that knows since when it owes something.

    Attributes:
        owes_since: When the request began that is not whole yet, by the loop's clock; None while none is awaited.
        closing_since: When its end was seen first, while the answer is not taken; None before.
    """

    owes_since: float | None = None
    closing_since: float | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; the first request is owed from now on."""
        super().connection_made(transport)
        self.owes_since = self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Take bytes; a blank line now and then begins to owe a request too."""
        if self.owes_since is None:
            self.owes_since = self.loop.time()
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Begin a request, which may follow another one in the same packet."""
        super().on_message_begin()
        if self.owes_since is None:
            self.owes_since = self.loop.time()

    def on_message_complete(self) -> None:
        """Have a whole request: from here on it is we who owe."""
        super().on_message_complete()
        self.owes_since = None

    def end_if_late(self, now: float, seconds: float) -> None:
        """Cut the connection where it has owed a request, or left an answer unread at its end, for so long."""
        if self.transport.is_closing():
            self.closing_since = now if self.closing_since is None else self.closing_since
        since = self.owes_since if self.closing_since is None else self.closing_since
        if since is not None and now - since >= seconds:
            self.transport.abort()


class PatientServer(uvicorn.Server):
    """A server that cuts off connections which keep it waiting.

    Args:
        config: As uvicorn's, with `http=Connection`.
        request_seconds: Time for one request.
    """

    def __init__(self, config: uvicorn.Config, request_seconds: float = REQUEST_SECONDS) -> None:
        super().__init__(config)
        self.request_seconds = request_seconds

    async def on_tick(self, counter: int) -> bool:
        """Sweep once a second."""
        if counter % _TICKS == 0:
            now = asyncio.get_running_loop().time()
            connections: set[Any] = set(self.server_state.connections)
            for connection in connections:
                if isinstance(connection, Connection):
                    connection.end_if_late(now, self.request_seconds)
        return await super().on_tick(counter)
