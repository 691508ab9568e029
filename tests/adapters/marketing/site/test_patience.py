"""Connections that keep the server waiting are cut off, and others are served meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.site.server import Server
from tests.adapters.marketing.site.test_server import write_campaign

WHOLE = b"GET / HTTP/1.1\r\nhost: x\r\nuser-agent: Mozilla/5.0\r\n\r\n"
LIMIT = 20.0  # seconds in which a test gives up; the server's own limit is half a second


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Where a server listens that waits half a second for a request."""
    folder: Path = tmp_path_factory.mktemp("patience")
    write_campaign(folder)
    with Server(folder, port=0, workers=1, request_seconds=0.5) as server:
        host, _, port = server.url.removeprefix("http://").partition(":")
        yield host, int(port)


def is_cut(connection: socket.socket) -> bool:
    """Wait for the server's end of a connection; False where it stays open."""
    connection.settimeout(LIMIT)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ",
        b"POST /convert HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\na=1",
        b"\r\n",
    ],
    ids=["nothing", "half a header", "half a body", "a blank line"],
)
def test_who_sends_half_a_request_is_cut_off(address: tuple[str, int], sent: bytes) -> None:
    """Half a header, half a body, a blank line or nothing at all holds no place for long."""
    with socket.create_connection(address, timeout=LIMIT) as connection:
        connection.sendall(sent)
        assert is_cut(connection)


def test_half_a_second_request_is_cut_off_too(address: tuple[str, int]) -> None:
    """After a good request, in the same packet, the next one is owed as the first was."""
    with socket.create_connection(address, timeout=LIMIT) as connection:
        connection.sendall(WHOLE + WHOLE[:30])
        assert is_cut(connection)


def test_a_connection_that_owes_nothing_stays_open(address: tuple[str, int]) -> None:
    """Between two requests a browser may pause for longer than one request may take."""
    with (
        socket.create_connection(address, timeout=LIMIT) as good,
        socket.create_connection(address, timeout=LIMIT) as slow,
    ):
        good.sendall(WHOLE)
        assert good.recv(65_536).startswith(b"HTTP/1.1 200")
        slow.sendall(WHOLE[:20])
        assert is_cut(slow), "by now more than the limit has passed for the other one as well"
        good.settimeout(LIMIT)
        good.setblocking(False)
        rest = b""
        try:
            while part := good.recv(65_536):
                rest += part
            pytest.fail("the connection was closed")
        except BlockingIOError:
            pass
        good.settimeout(LIMIT)
        good.sendall(WHOLE)
        assert b"200" in good.recv(65_536)
