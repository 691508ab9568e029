"""granian instead of uvicorn in a worker: the same application, on the socket that the parent listens on.

What is promised does not change: the application writes an exposure before it answers, the parent holds the campaign's
lock, and a worker that is told to stop ends after the replies it is at. granian bounds the time for a request's head,
the application that for its body. granian calls its embedded server experimental, and handing it a socket that is open
already takes a method that is not public, so uvicorn stays the default.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import TYPE_CHECKING

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.net import SocketHolder
from granian.server.embed import Server

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.site.app import Site

_BACKLOG = 2048
_STOP_SECONDS = 5


class GranianWorker(Server):  # type: ignore[misc]
    """Serves an application on an open socket until told to stop.

    Args:
        site: The application.
        listening: The socket.
        request_seconds: Time for the head of a request.
    """

    def __init__(self, site: Site, listening: socket.socket, request_seconds: float) -> None:
        super().__init__(
            site,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            http1_settings=HTTP1Settings(header_read_timeout=round(request_seconds * 1000)),
            log_enabled=False,  # an address in a log is a person in a log
        )
        self.workers_kill_timeout = _STOP_SECONDS
        self._listening = listening
        self._should_exit = False

    @property
    def should_exit(self) -> bool:
        """Whether it was told to stop; as uvicorn's, set from any thread."""
        return self._should_exit

    @should_exit.setter
    def should_exit(self, wanted: bool) -> None:
        self._should_exit = wanted
        if wanted:
            self._loop_of_server.call_soon_threadsafe(self.stop)

    def run(self) -> None:
        """Serve until SIGTERM or `should_exit`."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        self._loop_of_server = asyncio.get_running_loop()
        self._loop_of_server.add_signal_handler(signal.SIGTERM, self.stop)
        await self.serve()

    def _init_shared_socket(self) -> None:
        # granian closes what it is given, and the parent's socket must outlive a worker.
        descriptor = os.dup(self._listening.fileno())
        self._ssp = None
        self._shd = SocketHolder(descriptor, False, _BACKLOG)
