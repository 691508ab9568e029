"""Serving the dashboard: one process, one thread that answers, until somebody ends it."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.workspace import Layout
from autoresearch.web.dashboard.guard import SHORTEST_TOKEN, Guard, is_loopback, new_token
from autoresearch.web.dashboard.watched import keyed

PORT = 8470
"""Where the dashboard listens unless told otherwise."""

_END_SECONDS = 2
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard that listens already, so that its address can be told before anybody is served.

    Attributes:
        guard: Who may look.
        listening: The socket.
        layouts: The workspaces.
    """

    guard: Guard
    listening: socket.socket
    layouts: Sequence[Layout]

    @property
    def url(self) -> str:
        """The address to open, with the token where one is needed."""
        host = self.guard.host
        if host in ("0.0.0.0", "::"):
            host = socket.gethostname()
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.guard.port}/" + (f"?token={self.guard.token}" if self.guard.token else "")

    def serve(self, ready: Callable[[], None] = lambda: None, ended: Callable[[], bool] = lambda: False) -> None:
        """Serve until interrupted, or until `ended` says so; `ready` is called once pages are answered."""
        asyncio.run(self._serve(ready, ended))

    async def _serve(self, ready: Callable[[], None], ended: Callable[[], bool]) -> None:
        import uvicorn

        from autoresearch.web.dashboard.app import create_app
        from autoresearch.web.dashboard.hall import Hall

        hall = Hall(keyed(self.layouts))
        config = uvicorn.Config(
            create_app(hall, self.guard),
            log_level="warning",
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_graceful_shutdown=_END_SECONDS,
            # Who stands behind a proxy is of no concern here, and its headers could be anybody's.
            proxy_headers=False,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[self.listening]))
        told = False
        while not serving.done() and not server.should_exit:
            await asyncio.sleep(_LOOK_SECONDS)
            if server.started and not told:
                told = True
                ready()
            if hall.fault() is not None or ended():
                server.should_exit = True
        # Pages that stay open would keep the server from ending.
        hall.end_streams()
        await serving
        fault = hall.fault()
        if fault is not None:
            raise fault


def opened(layouts: Sequence[Layout], *, host: str, port: int, token: str | None) -> Dashboard:
    """Listen, and return what can be served then.

    Args:
        layouts: The workspaces.
        host: Where to listen.
        port: Likewise; 0 takes a free one.
        token: What must be shown; None: nothing on loopback, else one by lot.

    Raises:
        UsageError: If the token is too short to keep anybody out.
        EnvironmentNotReadyError: If starlette or uvicorn is missing, or nothing can listen there.
    """
    _require_extra()
    wanted = token_for(host, token)
    listening = _listen(host, port)
    return Dashboard(Guard(host, listening.getsockname()[1], wanted), listening, layouts)


def token_for(host: str, given: str | None) -> str:
    """Return the token that is asked for at an address: the given one, else none on loopback and one by lot elsewhere.

    Raises:
        UsageError: If the given one is too short to keep anybody out.
    """
    if given is None:
        return "" if is_loopback(host) else new_token()
    if len(given) < SHORTEST_TOKEN:
        raise UsageError(
            f"The token has {len(given)} characters, and one that short can be guessed.\n"
            f"Take at least {SHORTEST_TOKEN}, or leave --token out: the dashboard then makes one where it needs one."
        )
    return given


def _require_extra() -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise EnvironmentNotReadyError(
            f"The dashboard needs the package {error.name}, which is not installed.\n"
            "Install it: pip install 'autoresearch[dashboard]'"
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{host} is no address of this machine: {error.strerror or error}.\nName another with --host."
        ) from error
    try:
        # A port that an earlier dashboard used a moment ago is free, whatever its last connections still wait for.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(socket.SOMAXCONN)
    except OSError as error:
        listening.close()
        raise EnvironmentNotReadyError(_unbound(host, port, error)) from error
    listening.setblocking(False)
    return listening


def _unbound(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is taken: another program listens there, perhaps another dashboard.\n"
            "Open that one, or take another port: --port 0 finds a free one."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} of {host} may not be used by you.\nTake one above 1023 with --port."
    return f"Nothing can listen on port {port} of {host}: {error.strerror}.\nName others with --host and --port."
