from __future__ import annotations

import http.client
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from autoresearch.adapters import marketing
from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.commands.forget import forget
from autoresearch.adapters.marketing.commands.serve import kill
from autoresearch.adapters.marketing.counting import Count, counter_of
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest
from autoresearch.adapters.marketing.site.selftest import check_cache
from autoresearch.adapters.marketing.site.server import Server, is_serving
from autoresearch.core import EnvironmentNotReadyError, UsageError
from tests.adapters.marketing.site.browser import AGENT
from tests.adapters.marketing.site.chromium import MISSING, PROGRAM, chromium

TEMPLATE = Path(marketing.__file__).parent / "template"


@dataclass
class Served:
    folder: Path
    live: LiveFolder
    test: LiveTest
    server: Server

    def count(self, goal: str = "signup") -> Count:
        counter = counter_of(self.live.events, self.test, ["signup", "click"])
        counter.update()
        return counter.count(goal, now=datetime.now(UTC) + timedelta(days=1), window=None)


def write_campaign(folder: Path, more: str = "") -> tuple[LiveFolder, LiveTest]:
    """Write a page campaign without a holdout, with a live test of two headlines."""
    for part in ("common", "page"):
        for path in (TEMPLATE / part).rglob("*"):
            if path.is_file():
                target = folder / path.relative_to(TEMPLATE / part)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    settings = (folder / "campaign.toml").read_text()
    settings, changed = re.subn(r"(?m)^holdout = [\d.]+", "holdout = 0.0", settings)
    assert changed == 1
    (folder / "campaign.toml").write_text(settings + more)
    other = folder / "candidate"
    other.mkdir()
    copy, changed = re.subn(
        r'(?m)^headline = ".*"', 'headline = "Another headline"', (folder / "copy.toml").read_text()
    )
    assert changed == 1
    (other / "copy.toml").write_text(copy)
    live = LiveFolder.of(folder)
    split = {"control": 0.5, "treatment": 0.5}
    return live, live.start(LiveTest("t/1", "page", "s", folder, {"treatment": other}, split, datetime.now(UTC)))


def page_port() -> int:
    """Return a free port, for a server that must be named in the settings before it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture(scope="module")
def other_port() -> int:
    return page_port()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, other_port: int) -> Iterator[Served]:
    """One real server with one worker, for all tests that do no harm to it."""
    folder = tmp_path_factory.mktemp("campaign")
    live, test = write_campaign(folder, f'\n[site]\norigins = ["http://127.0.0.1:{other_port}"]\n')
    with Server(folder, port=0, workers=1) as server:
        yield Served(folder, live, test, server)


def get(server: Server, unit: str) -> int:
    """Visit as a unit and return the status; raises OSError or HTTPException when the answer does not come."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", "/", headers={"user-agent": AGENT, "cookie": f"ar_unit={unit}"})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_a_browser_visits_stays_sticky_converts_and_counts_once(served: Served, tmp_path: Path) -> None:
    """Chromium sees one arm at every visit, after a restart too, sends the form, and is one unit, converted once."""
    before = served.count()
    headlines = set()
    for _ in range(2):
        with chromium(tmp_path / "profile") as browser:
            for _ in range(2):
                browser.visit(f"{served.server.url}/")
                headlines.add(browser.run("document.querySelector('h1').innerText"))
    with chromium(tmp_path / "profile") as browser:
        browser.visit(f"{served.server.url}/")
        browser.run("document.querySelector('input[type=email]').value = 'ann@example.com'")
        browser.run("document.querySelector('form button').click()")
        browser.until("document.body.innerText.includes('Thank you')")
    after = served.count()
    assert len(headlines) == 1
    arm = "treatment" if headlines == {"Another headline"} else "control"
    gained = {name: after.exposed[name] - before.exposed[name] for name in after.exposed}
    assert gained == {"control": 0, "treatment": 0, arm: 1}
    assert sum(row.total for row in after.arms) - sum(row.total for row in before.arms) == 1.0


@pytest.mark.skipif(PROGRAM is None, reason=MISSING)
def test_the_snippet_fills_the_page_of_another_server(served: Served, other_port: int, tmp_path: Path) -> None:
    """A page from elsewhere gets the arm's text by script, and its click is a conversion of that arm."""
    page = (
        f'<!doctype html><h1 data-slot="headline">Old</h1><button data-goal="click">Buy</button>'
        f'<script src="{served.server.url}/snippet.js" data-surface="page"></script>'
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    before = served.count("click")
    with http.server.ThreadingHTTPServer(("127.0.0.1", other_port), Handler) as elsewhere:
        thread = threading.Thread(target=elsewhere.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        with chromium(tmp_path / "profile") as browser:
            browser.visit(f"http://127.0.0.1:{other_port}/")
            browser.until("document.querySelector('h1').innerText !== 'Old'")
            browser.until("getComputedStyle(document.querySelector('h1')).visibility === 'visible'")
            headline = browser.run("document.querySelector('h1').innerText")
            browser.run("document.querySelector('button').click()")
            end = time.monotonic() + 20
            while sum(row.total for row in served.count("click").arms) == sum(row.total for row in before.arms):
                assert time.monotonic() < end, "the click did not arrive"
                time.sleep(0.05)
        elsewhere.shutdown()
        thread.join()
    arm = "treatment" if headline == "Another headline" else "control"
    after = {row.arm: row.total for row in served.count("click").arms}
    assert after[arm] - {row.arm: row.total for row in before.arms}[arm] == 1.0


def test_a_second_server_on_the_same_campaign_is_refused(served: Served) -> None:
    """Two servers would count apart; the second says so and the first goes on."""
    with pytest.raises(UsageError, match="Another server is at work"), Server(served.folder, port=0):
        pass
    assert get(served.server, "x" * 22) == 200


def test_a_run_can_see_whether_a_server_is_up(served: Served, tmp_path: Path) -> None:
    """The lock tells, and asking does not disturb it."""
    assert is_serving(served.folder)
    assert is_serving(served.folder)
    write_campaign(tmp_path)
    assert not is_serving(tmp_path)


def test_a_taken_port_is_named(served: Served, tmp_path: Path) -> None:
    """The message says which address, and what to do."""
    write_campaign(tmp_path)
    port = int(served.server.url.rsplit(":", 1)[1])
    for _ in range(2):  # the first attempt has freed the campaign again
        with pytest.raises(EnvironmentNotReadyError, match=f"port {port} cannot be listened on"):
            Server(tmp_path, port=port).__enter__()


def test_the_openfeature_provider_agrees_with_the_page(served: Served) -> None:
    """A Python program gets the same arm and texts by flag, counts as exposed, and tracks a conversion."""
    api = pytest.importorskip("openfeature.api", reason="openfeature-sdk is not installed")
    from openfeature.evaluation_context import EvaluationContext

    from autoresearch.adapters.marketing.site.provider import AutoresearchProvider

    api.set_provider_and_wait(AutoresearchProvider(served.server.url, timeout_seconds=10))
    client = api.get_client()
    before = served.count()
    person = EvaluationContext("user-1", {"user_agent": AGENT})
    arm = client.get_string_value("page", "none", person)
    headline = client.get_string_value("page.headline", "none", person)
    assert (headline == "Another headline") is (arm == "treatment") is client.get_boolean_value("page", None, person)
    assert client.get_object_value("page", {}, person)["headline"] == headline
    assert client.get_string_details("page", "none", person).reason == "SPLIT"
    client.track("signup", person)
    after = served.count()
    assert after.exposed[arm] - before.exposed[arm] == 1
    assert sum(row.total for row in after.arms) - sum(row.total for row in before.arms) == 1
    assert client.get_string_details("nothing", "mine", person).error_code == "FLAG_NOT_FOUND"
    assert client.get_string_details("page.nothing", "mine", person).error_code == "FLAG_NOT_FOUND"
    assert client.get_integer_details("page", 7, person).error_code == "TYPE_MISMATCH"
    assert client.get_string_details("page", "mine").error_code == "TARGETING_KEY_MISSING"
    api.set_provider_and_wait(AutoresearchProvider("http://127.0.0.1:1"))
    assert api.get_client().get_string_value("page", "mine", person) == "mine"
    api.clear_providers()


def test_forget_erases_a_visitor_of_a_running_server(served: Served) -> None:
    """The command finds a cookie's events in the segment that is being written, and nothing of them is left."""
    unit = "forgetme" + "0" * 14
    get(served.server, unit)
    key = served.live.unit_key(unit)
    assert key in units(served.live)
    app = typer.Typer()
    app.command()(forget)
    result = CliRunner().invoke(app, [unit, "-w", str(served.folder)])
    assert result.exit_code == 0, result.output
    assert "Erased 2 events" in result.output
    assert get(served.server, unit) == 200
    assert key not in units(served.live)


def test_the_kill_command_turns_the_switch(tmp_path: Path) -> None:
    """On by default, --off turns it off."""
    write_campaign(tmp_path)
    app = typer.Typer()
    app.command()(kill)
    assert CliRunner().invoke(app, ["-w", str(tmp_path)]).exit_code == 0
    assert LiveFolder.of(tmp_path).killed
    assert CliRunner().invoke(app, ["-w", str(tmp_path), "--off"]).exit_code == 0
    assert not LiveFolder.of(tmp_path).killed


SERVE = """
import typer
from autoresearch.adapters.marketing.commands.serve import kill, serve
app = typer.Typer()
app.command()(serve)
app.command()(kill)
if __name__ == "__main__":
    app()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_command(tmp_path: Path, number: signal.Signals) -> None:
    """Asked to stop it ends cleanly; killed, its workers notice: nothing serves a campaign that is not locked."""
    write_campaign(tmp_path)
    script = tmp_path / "serve.py"
    script.write_text(SERVE)
    command = [sys.executable, str(script), "serve", "-w", str(tmp_path), "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert port is not None
        process.send_signal(number)
        assert process.wait(30) == (0 if number is signal.SIGTERM else -signal.SIGKILL)
    wait_for(lambda: not answers(int(port[1])))
    assert not is_serving(tmp_path)
    if number is signal.SIGTERM:
        assert not (LiveFolder.of(tmp_path).path / "serving").exists()


def answers(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def units(live: LiveFolder) -> set[int]:
    return {int(unit) for _, _, records in events.read(live.events, {}) for unit in records["unit"]}


def test_nothing_acknowledged_is_lost_when_workers_are_killed(tmp_path: Path) -> None:
    """SIGKILL in mid-load: every page that came back complete is in the log, and new workers take over."""
    live, _ = write_campaign(tmp_path)
    acknowledged: list[str] = []
    stop = threading.Event()

    def visit(server: Server, name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            unit = f"{name}{number:0>{22 - len(name)}}"
            try:
                if get(server, unit) == 200:
                    acknowledged.append(unit)
            except (OSError, http.client.HTTPException):
                time.sleep(0.01)

    with Server(tmp_path, port=0, workers=2) as server:
        watching = threading.Event()
        watcher = threading.Thread(target=server.watch, args=(watching,))
        watcher.start()
        visitors = [threading.Thread(target=visit, args=(server, f"v{i}-")) for i in range(4)]
        for thread in visitors:
            thread.start()
        wait_for(lambda: len(acknowledged) > 50)
        killed = server.pids
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        reached = len(acknowledged)
        wait_for(lambda: len(acknowledged) > reached + 50)
        stop.set()
        for thread in visitors:
            thread.join()
        assert not set(killed) & set(server.pids)
        watching.set()
        watcher.join()
    logged = units(live)
    assert [unit for unit in acknowledged if live.unit_key(unit) not in logged] == []
    assert all(events.sound(records).all() for _, _, records in events.read(live.events, {}))


def wait_for(condition: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


class Proxy(http.server.BaseHTTPRequestHandler):
    """A cache before the server, sound or not."""

    echo = "cookie"  # what it answers with: the unit that asks, or the first one that ever asked
    stored: str | None = None
    cache_control = "private, no-store"

    def do_GET(self) -> None:
        unit = self.headers["cookie"].partition("=")[2]
        cls = type(self)
        cls.stored = cls.stored or unit
        self.send_response(200)
        if cls.echo != "none":
            self.send_header("X-Autoresearch-Unit", unit if cls.echo == "cookie" else cls.stored)
        self.send_header("Cache-Control", cls.cache_control)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"echo": "first"}, "a cache answered one visitor with the page of another"),
        ({"echo": "none"}, "does not come from this server"),
        ({"cache_control": "public, max-age=60"}, "no-store is lost"),
    ],
)
def test_the_self_test_sees_a_cache_that_mixes(changes: dict[str, str], message: str | None) -> None:
    """A sound way passes; a cache that hands one unit's page to another is named."""
    handler = type("Handler", (Proxy,), changes)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        url = f"http://127.0.0.1:{proxy.server_port}/"
        try:
            if message is None:
                check_cache(url, lambda unit: b"proof")
            else:
                with pytest.raises(EnvironmentNotReadyError, match=message):
                    check_cache(url, lambda unit: b"proof")
        finally:
            proxy.shutdown()
            thread.join()


def test_the_self_test_counts_nobody(served: Served) -> None:
    """Its visits leave no record: the units it asked as are in no arm."""
    from autoresearch.adapters.marketing.site.views import self_test_proof

    before = events.size(served.live.events)
    check_cache(f"{served.server.url}/", lambda unit: self_test_proof(served.live.secret, unit))
    assert events.size(served.live.events) == before
