"""Workers that serve one campaign: one lock, one socket, one segment of the log each; who dies is replaced.

The parent holds the campaign's lock, listens, starts the workers, runs the self-test and only then lets anybody be
counted. A worker ends when its parent has gone, so that nothing serves a campaign whose lock is free.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from autoresearch.adapters.marketing.live import LiveFolder, made_once
from autoresearch.adapters.marketing.site import askers, require_extra
from autoresearch.adapters.marketing.site.pages import CampaignPages
from autoresearch.adapters.marketing.site.settings import KEYS, SiteSettings
from autoresearch.adapters.marketing.surfaces import PAGE
from autoresearch.core import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    from filelock import FileLock

    from autoresearch.adapters.marketing.site.app import Site

ENGINES = ("uvicorn", "granian")
"""Servers that a worker may use; the second comes with an extra of its own."""

_LOCK = "serve.lock"
_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_RESTARTS = 5
"""Workers that may die within a minute before the server gives up."""


def campaign_settings(folder: Path) -> tuple[CampaignPages, SiteSettings]:
    """Return pages and settings of the campaign in a folder.

    Raises:
        UsageError: If campaign.toml has a fault.
    """
    from autoresearch.adapters.marketing.campaign import Campaign, typed_table

    campaign = Campaign.load(folder)
    table = typed_table(campaign.path, "site", campaign.sources.get("site", {}), KEYS)
    goal, holdout = campaign.goal.event, campaign.traffic.holdout
    return CampaignPages(campaign), SiteSettings.parse(campaign.path, table, goal=goal, holdout=holdout)


class Server:
    """Serves a campaign while the context is open.

    Args:
        folder: The campaign folder.
        host: Address to listen on.
        port: 0 takes a free one.
        workers: Processes; one per core is right.
        public_url: Where visitors reach the site, for the self-test; empty: where it listens.
        simulated: See `SiteSettings.simulated`.
        request_seconds: Time for one request to be whole; who takes longer is cut off, see patience.py.
        engine: What speaks HTTP in the workers, one of `ENGINES`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        workers: int = 2,
        public_url: str = "",
        simulated: bool = False,
        request_seconds: float = 20.0,
        engine: str = "uvicorn",
    ) -> None:
        require_extra(engine)
        self._engine = engine
        self.folder = folder
        self._host, self._port, self._workers = host, port, workers
        self._simulated = simulated
        self._request_seconds = request_seconds
        self._pages, self._settings = campaign_settings(folder)
        self._public_url = public_url or self._settings.base_url
        self._live = LiveFolder.of(folder)
        self._socket: socket.socket | None = None
        self._lock: FileLock | None = None
        self._processes: list[BaseProcess] = []
        self._deaths: deque[float] = deque(maxlen=_RESTARTS)

    @property
    def url(self) -> str:
        """Where it listens."""
        if self._socket is None:
            raise RuntimeError("The server is not open.")
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [process.pid for process in self._processes if process.pid is not None]

    def __enter__(self) -> Server:
        """Lock, listen, start the workers, run the self-test, and count from then on.

        Raises:
            UsageError: If another server is at work on this campaign.
            EnvironmentNotReadyError: If the port is taken, no worker starts or the self-test fails.
        """
        self._lock = _locked(self._live)
        try:
            self._ready_file.unlink(missing_ok=True)
            askers.fold(self._live.path)
            if self._pages.routes:
                self._live.publish(PAGE, self.folder)
            for name in self._settings.webhooks:
                made_once(self._live.path, f"webhook-{name}")
            self._socket = _listen(self._host, self._port)
            self._processes = [self._start() for _ in range(self._workers)]
            self._await_start()
            self._self_test()
            self._ready_file.touch()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the workers, each after the replies it is at, and free the campaign."""
        self._ready_file.unlink(missing_ok=True)
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(_STOP_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        if self._socket is not None:
            self._socket.close()
        if self._lock is not None:
            self._lock.release()

    def watch(self, stop: threading.Event) -> None:
        """Replace workers that die, until `stop` is set.

        Raises:
            EnvironmentNotReadyError: If they keep dying.
        """
        while not stop.is_set():
            wait([process.sentinel for process in self._processes], timeout=0.5)
            for index, process in enumerate(self._processes):
                if not process.is_alive() and not stop.is_set():
                    self._processes[index] = self._replacement(process)

    @property
    def _ready_file(self) -> Path:
        return self._live.path / "serving"

    def _replacement(self, dead: BaseProcess) -> BaseProcess:
        now = time.monotonic()
        if len(self._deaths) == _RESTARTS and now - self._deaths[0] < 60.0:
            raise EnvironmentNotReadyError(
                f"{_RESTARTS + 1} workers died within a minute, the last with exit code {dead.exitcode}.\n"
                "What they said stands above; when that is mended, serve again."
            )
        self._deaths.append(now)
        return self._start()

    def _start(self) -> BaseProcess:
        # Spawned, not forked: a fork would inherit the lock, and with it the right to serve.
        context = multiprocessing.get_context("spawn")
        process = context.Process(
            target=work,
            args=(self.folder, self._socket, self._simulated, os.getpid(), self._request_seconds, self._engine),
            daemon=True,
        )
        process.start()
        return process

    def _await_start(self) -> None:
        """Return when the server answers."""
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            dead = [process for process in self._processes if not process.is_alive()]
            if dead:
                raise EnvironmentNotReadyError(
                    f"A worker ended while it started, with exit code {dead[0].exitcode}.\n"
                    "What it said stands above; when that is mended, serve again."
                )
            try:
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=1.0):
                    return
            except urllib.error.HTTPError as error:
                raise EnvironmentNotReadyError(
                    f"The server started with a fault: {error.read().decode(errors='replace')}\n"
                    "When that is mended, serve again."
                ) from error
            except OSError:
                time.sleep(0.05)  # nobody listens yet
        raise EnvironmentNotReadyError(
            f"No worker answered within {_START_SECONDS:.0f} s.\n"
            "The machine may be too busy; try again, with --workers 1."
        )

    def _self_test(self) -> None:
        from autoresearch.adapters.marketing.site.selftest import check_cache
        from autoresearch.adapters.marketing.site.views import self_test_proof

        for base in dict.fromkeys((self.url, self._public_url or self.url)):
            for path in self._pages.routes:
                check_cache(f"{base.rstrip('/')}{path}", lambda unit: self_test_proof(self._live.secret, unit))


def is_serving(folder: Path) -> bool:
    """Say whether a server is at work on the campaign in a folder right now."""
    import filelock

    path = LiveFolder.of(folder).path / _LOCK
    if not path.exists():
        return False
    lock = filelock.FileLock(path, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        return True
    lock.release()
    return False


def work(
    folder: Path, listening: socket.socket, simulated: bool, parent: int, request_seconds: float, engine: str
) -> None:
    """Serve until told to stop; the body of a worker process."""
    # Ctrl-C goes to the whole group; the parent decides when workers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # uvicorn ends well and then raises the signal once more, which would kill us before anything is closed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    site = build_site(folder, simulated=simulated)
    site.body_seconds = request_seconds
    server, run = _engine(engine, site, listening, request_seconds)
    over = threading.Event()
    keeper = threading.Thread(target=_keep, args=(site, server, parent, over), daemon=True)
    keeper.start()
    try:
        run()
    finally:
        over.set()
        keeper.join()
        site.askers.write()
        site.writer.close()


def _engine(
    engine: str, site: Site, listening: socket.socket, request_seconds: float
) -> tuple[object, Callable[[], None]]:
    """Return a server, which ends when its `should_exit` is set, and what runs it."""
    if engine == "granian":
        from autoresearch.adapters.marketing.site.granian_server import GranianWorker

        worker = GranianWorker(site, listening, request_seconds)
        return worker, worker.run
    import uvicorn

    from autoresearch.adapters.marketing.site.patience import Connection, PatientServer

    config = uvicorn.Config(
        site,
        http=Connection,
        access_log=False,  # an address in a log is a person in a log
        lifespan="off",
        log_level="warning",
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(_STOP_SECONDS) // 2,
    )
    server = PatientServer(config, request_seconds)
    return server, partial(server.run, sockets=[listening])


def build_site(folder: Path, *, simulated: bool = False) -> Site:
    """Return the application of a campaign folder, for a worker or for another ASGI server.

    Nobody is counted before a `Server` has passed its self-test and while none is open.
    """
    from dataclasses import replace

    from autoresearch.adapters.marketing.site.app import Site

    pages, settings = campaign_settings(folder)
    live = LiveFolder.of(folder)
    return Site(live, pages, replace(settings, simulated=simulated), (live.path / "serving").exists)


def _keep(site: Site, server: object, parent: int, over: threading.Event) -> None:
    """Once a second: bring the log to the disk, and now and then who asks; see whether the parent lives."""
    wrote = time.monotonic()
    while not over.wait(1.0):
        try:
            site.writer.sync()
            if time.monotonic() - wrote >= askers.WRITE_SECONDS:
                site.askers.write()
                wrote = time.monotonic()
        except OSError as error:
            site.views.report(f"The event log cannot be brought to the disk: {error.strerror}.")
        if os.getppid() != parent:
            server.should_exit = True  # type: ignore[attr-defined]
            return


def _locked(live: LiveFolder) -> FileLock:
    import filelock

    # Not zero: `is_serving` takes the lock for an instant to see whether it is free.
    lock = filelock.FileLock(live.path / _LOCK, timeout=1)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise UsageError(
            f"Another server is at work on the campaign of {live.path}, and two would assign and count apart.\n"
            "Stop it first; more speed comes from --workers."
        ) from error
    return lock


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise EnvironmentNotReadyError(
            f"{host} port {port} cannot be listened on: {error.strerror}.\nTake another one: --port 8080"
        ) from error
    listening.setblocking(False)
    return listening
