"""One page view: who is it, which arm, written down, and only then shown. This is the path that must be fast.

Pages are rendered when an arm goes live, so that a view costs three hashes, one `os.write` and no template.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing import assignment, events
from autoresearch.adapters.marketing.counting import holdout_key
from autoresearch.adapters.marketing.live import CONTROL, LiveFolder, LiveState, LiveTest
from autoresearch.adapters.marketing.site.pages import Pages
from autoresearch.adapters.marketing.site.settings import SiteSettings
from autoresearch.adapters.marketing.site.visitors import Visitor, consent_pattern
from autoresearch.core import EnvironmentNotReadyError, UsageError

ORIGINAL, INCUMBENT = "original", "incumbent"
"""What is shown outside tests: to the permanent holdout, and to everybody else."""

LOOK_SECONDS = 0.25
"""How long a server may show what is no longer live."""

_REMEMBERED = 200_000
"""Units per worker whose exposure is known to be in the log, so that looking again does not make it grow."""

_VARY = b"Cookie, User-Agent, Sec-Purpose, Purpose"


@dataclass(frozen=True, slots=True)
class Reply:
    """A rendered page, ready to be sent; one test's arms differ in nothing else.

    Attributes:
        headers: All but Set-Cookie.
        body: HTML.
        slots: The texts in it, for those who render them elsewhere.
    """

    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    slots: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class View:
    """A surface as it is live.

    Attributes:
        name: Of the surface.
        key: Subject of its holdout exposures in the log.
        replies: By `original`, `incumbent` and the test's arms.
        test: The running test, if any.
        test_key: Subject of its exposures.
        arms: Number of each arm in the log.
    """

    name: str
    key: int
    replies: Mapping[str, Reply]
    test: LiveTest | None = None
    test_key: int = 0
    arms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a unit gets to see.

    Attributes:
        arm: `original`, `incumbent` or an arm of the test.
        test: The test it is in, None where it is in none.
        counted: Whether the exposure is in the log.
    """

    arm: str
    test: str | None = None
    counted: bool = False


class Views:
    """Everything live, kept up to date from the state folder.

    Args:
        live: The campaign's state.
        pages: Renders arms.
        settings: How the server behaves.
        writer: This worker's segment.
        ready: Whether the server has passed its self-test; until then everybody sees the control, uncounted.
    """

    def __init__(
        self,
        live: LiveFolder,
        pages: Pages,
        settings: SiteSettings,
        writer: events.EventWriter,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.live = live
        self.settings = settings
        self.writer = writer
        self.fault: str | None = None
        self.uncounted = 0
        self.killed = True
        self.by_surface: dict[str, View] = {}
        self.state = LiveState()
        self.consent = consent_pattern(settings.consent)
        self._pages = pages
        self._ready = ready
        self._forgotten: frozenset[int] = frozenset()
        self._seen: tuple[Any, ...] = ()
        self._looked = -LOOK_SECONDS
        self._is_ready = False
        self._remembered: dict[tuple[int, int], tuple[int, int]] = {}
        self._live_fault: str | None = None
        self._write_fault: str | None = None
        self._rendered: dict[tuple[str | None, Path], Reply] = {}

    def refresh(self) -> None:
        """Take up what changed in the state folder, at most every `LOOK_SECONDS`; keep the last good state."""
        now = time.monotonic()
        # Until the self-test has passed every request looks: whoever comes first after it is counted.
        if self._is_ready and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        self._is_ready = self._ready()
        self.killed = self.live.killed or not self._is_ready
        seen = (_stamp(self.live.live), _stamp(self.live.events / "forgotten"))
        if seen == self._seen:
            return
        try:
            self._forgotten = events.forgotten(self.live.events)
            state = self.live.read()
            names = {*self._pages.routes.values(), *state.surfaces}
            self.by_surface = {name: self._view(name, state) for name in names if name in state.surfaces}
            self.state, self._seen, self._live_fault = state, seen, None
        except UsageError as error:
            # Visitors must not pay for a broken file: they go on seeing what was live, and the health page tells.
            self._live_fault = str(error)
        self._tell()

    def unit_key(self, unit: str) -> int:
        """Return the name of a unit in the log."""
        return self.live.unit_key(unit)

    def forgets(self, unit: int) -> bool:
        """Say whether a unit asked to be forgotten."""
        return unit in self._forgotten

    def show(self, view: View, unit: str, time_us: int, *, expose: bool = True) -> Shown:
        """Say what a unit sees and write its exposure first; where it cannot be written it is not counted.

        Args:
            view: The surface.
            unit: Who, as the cookie or the caller names it.
            time_us: When, in microseconds since 1970.
            expose: False only asks.
        """
        number = self.unit_key(unit)
        if self.killed or number in self._forgotten:
            return Shown(CONTROL if view.test else INCUMBENT)
        name = f"{number:016x}"
        if assignment.held_out(self.live.salt, name, self.settings.holdout):
            shown = Shown(ORIGINAL, None, expose)
            return shown if not expose or self._expose(view, number, time_us, None) else Shown(INCUMBENT)
        arm = view.test.arm_of(self.live.salt, name) if view.test else None
        shown = Shown(arm or INCUMBENT, view.test.id if view.test and arm else None, expose)
        if expose and not self._expose(view, number, time_us, arm or INCUMBENT):
            return Shown(CONTROL if view.test else INCUMBENT)
        return shown

    def record(self, records: bytes) -> bool:
        """Write records and say whether that worked; what did not is counted and told on the health page."""
        try:
            self.writer.write(records)
        except (events.LogFullError, EnvironmentNotReadyError) as error:
            self.uncounted += 1
            self.report(str(error))
            return False
        if self._write_fault is not None:
            self._write_fault = None
            self._tell()
        return True

    def report(self, fault: str) -> None:
        """Show a fault on the health page until the next write succeeds."""
        self._write_fault = fault
        self._tell()

    def now_us(self, visitor: Visitor) -> int:
        """Return the time of a request in microseconds."""
        return visitor.time_us if visitor.time_us is not None else time.time_ns() // 1000

    def proof(self, unit: str) -> bytes:
        """Return what the self-test of this campaign sends along."""
        return self_test_proof(self.live.secret, unit)

    def _expose(self, view: View, unit: int, time_us: int, arm: str | None) -> bool:
        """Write that a unit met a surface (arm None: as part of the holdout), unless that is in the log already."""
        place, what = (view.key, unit), (view.test_key, -1 if arm is None else view.arms.get(arm, -2))
        if self._remembered.get(place) == what:
            return True
        held = 0 if arm is None else 1
        records = events.pack(unit, time_us, view.key, kind=events.EXPOSURE, arm=held)
        if arm is not None and arm in view.arms:
            # Second, so that a disk that takes only half leaves a unit outside the test, as which it is then treated.
            records += events.pack(unit, time_us, view.test_key, kind=events.EXPOSURE, arm=view.arms[arm])
        if not self.record(records):
            return False
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[place] = what
        return True

    def _view(self, name: str, state: LiveState) -> View:
        surface = state.surfaces[name]
        test = state.tests.get(name)
        folders = {ORIGINAL: surface.original, INCUMBENT: surface.incumbent}
        if test is not None:
            folders |= {arm: test.folder(arm) for arm in test.arms}
        paths = {surface: path for path, surface in self._pages.routes.items()}
        replies = {arm: self._reply(folder, paths.get(name)) for arm, folder in folders.items()}
        if test is None:
            return View(name, holdout_key(name), replies)
        numbers = {arm: number for number, arm in enumerate(test.arms)}
        return View(name, holdout_key(name), replies, test, events.key(test.id), numbers)

    def _reply(self, folder: Path, path: str | None) -> Reply:
        """Render an arm once for a path; its folder is named by its fingerprint, so it never changes."""
        known = (path, folder)
        if known not in self._rendered:
            body = self._pages.html(folder) if path is not None else b""
            if len(self._rendered) > 1000:
                self._rendered.clear()
            self._rendered[known] = Reply(self._headers(len(body), path or "/"), body, self._pages.slots(folder))
        return self._rendered[known]

    def _headers(self, length: int, path: str) -> tuple[tuple[bytes, bytes], ...]:
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(length).encode()),
            (b"cache-control", b"private, no-store"),
            (b"vary", _VARY),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"strict-origin-when-cross-origin"),
        ]
        if self.settings.base_url:
            headers.append((b"link", f'<{self.settings.base_url}{path}>; rel="canonical"'.encode()))
        return tuple(headers)

    def _tell(self) -> None:
        self.fault = self._write_fault or self._live_fault


def self_test_proof(secret: str, unit: str) -> bytes:
    """Return what proves that a visit is the self-test's: such a visit is answered with its unit and never counted."""
    return hmac.new(secret.encode(), f"selftest {unit}".encode(), hashlib.sha256).hexdigest().encode()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced or appended to; None where it is missing."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
