"""granian in place of uvicorn: the same promises."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoresearch.adapters.marketing.commands import app
from autoresearch.adapters.marketing.counting import counter_of
from autoresearch.adapters.marketing.live import LiveFolder
from autoresearch.adapters.marketing.site import askers
from autoresearch.adapters.marketing.site.server import Server
from autoresearch.core import EnvironmentNotReadyError, UsageError
from tests.adapters.marketing.site.browser import AGENT
from tests.adapters.marketing.site.test_patience import is_cut
from tests.adapters.marketing.site.test_server import write_campaign


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Server]]:
    """A campaign with a live test that granian serves."""
    pytest.importorskip("granian", reason="granian is not installed (extra `granian`)")
    folder = tmp_path_factory.mktemp("granian")
    write_campaign(folder)
    with Server(folder, port=0, workers=2, engine="granian", request_seconds=1.0) as server:
        yield folder, server


def visit(server: Server, agent: str = AGENT) -> tuple[int, str, str]:
    request = urllib.request.Request(server.url, headers={"user-agent": agent})
    with urllib.request.urlopen(request, timeout=20) as reply:
        return reply.status, reply.read().decode(), reply.headers.get("set-cookie", "")


def exposed(folder: Path) -> int:
    live = LiveFolder.of(folder)
    test = live.find("t/1")
    assert test is not None
    counter = counter_of(live.events, test, ["signup"])
    counter.update()
    return sum(counter.count("signup", now=datetime.now(UTC) + timedelta(days=1), window=None).exposed.values())


def test_an_exposure_is_written_before_the_reply(served: tuple[Path, Server]) -> None:
    """When a person has the page, the log has the exposure; a robot leaves none."""
    folder, server = served
    before = exposed(folder)
    for n in range(1, 11):
        status, page, cookie = visit(server)
        assert (status, "ar_unit=" in cookie) == (200, True)
        assert "<h1" in page
        assert exposed(folder) == before + n
    visit(server, "Googlebot/2.1")
    assert exposed(folder) == before + 10


def test_a_second_server_is_refused(served: tuple[Path, Server]) -> None:
    """One server for a campaign, whatever speaks HTTP in it."""
    folder, _ = served
    with pytest.raises(UsageError, match="Another server is at work"):
        Server(folder, port=0, workers=1).__enter__()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\nx-slow: ",
        b"POST /convert HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\na=1",
    ],
    ids=["half a header", "half a body"],
)
def test_who_sends_half_a_request_is_cut_off(served: tuple[Path, Server], sent: bytes) -> None:
    """Half a header and half a body hold no place for long."""
    host, _, port = served[1].url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(sent)
        assert is_cut(connection)


def test_a_worker_that_is_told_to_stop_ends_well(tmp_path: Path) -> None:
    """SIGTERM ends it after its replies, with its count of requests written; another takes its place."""
    pytest.importorskip("granian", reason="granian is not installed (extra `granian`)")
    write_campaign(tmp_path)
    stop = threading.Event()
    with Server(tmp_path, port=0, workers=1, engine="granian") as server:
        visit(server)
        (first,) = server.pids
        watcher = threading.Thread(target=server.watch, args=(stop,))
        watcher.start()
        os.kill(first, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while server.pids == [first] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert server.pids != [first]
        visit(server)
        stop.set()
        watcher.join()
    assert exposed(tmp_path) == 2
    assert askers.read(LiveFolder.of(tmp_path).path) == {"page": {"people": 2}}


def test_without_the_package_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence has the command that installs it."""
    monkeypatch.setitem(sys.modules, "granian", None)
    write_campaign(tmp_path)
    with pytest.raises(EnvironmentNotReadyError, match=r"pip install 'autoresearch\[marketing,granian\]'"):
        Server(tmp_path, engine="granian")


def test_an_engine_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    """The names are said."""
    write_campaign(tmp_path)
    with pytest.raises(UsageError, match="uvicorn or granian"):
        CliRunner().invoke(app, ["serve", "-w", str(tmp_path), "--server", "apache"], catch_exceptions=False)
