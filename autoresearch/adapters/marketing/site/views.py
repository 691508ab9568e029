"""One page view: who is it, which arm, written down, and only then shown. This is the path that must be fast.

Pages are rendered when an arm goes live, so that a view costs three hashes, one `os.write` and no template.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing import assignment, events
from autoresearch.adapters.marketing.counting import holdout_key
from autoresearch.adapters.marketing.live import CONTROL, LiveFolder, LiveState, LiveTest
from autoresearch.adapters.marketing.site.pages import Pages
from autoresearch.adapters.marketing.site.settings import SiteSettings
from autoresearch.adapters.marketing.site.visitors import Visitor, consent_pattern
from autoresearch.adapters.marketing.surfaces import EVERYBODY, LANGUAGE, PAGE, audience_of, traits_of
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
class Track:
    """A running test that a page shows.

    Attributes:
        test: The test.
        key: Subject of its exposures in the log.
        arms: Number of each arm in the log.
        audience: Who may enter; empty: everybody.
    """

    test: LiveTest
    key: int
    arms: Mapping[str, int]
    audience: str = EVERYBODY


@dataclass(frozen=True, slots=True)
class View:
    """A page as it is live.

    Attributes:
        name: Of the page.
        key: Subject of holdout exposures in the log; the same on all pages of a campaign.
        replies: By audience, lane (empty outside lanes) and `original`, `incumbent` or the arm of the lane's test.
        tracks: The running tests, each on a part of the people of its own.
        uncounted: What those see who are not counted.
        epoch: Another number whenever other tests run or something else is shown: exposures are written anew then.
    """

    name: str
    key: int
    replies: Mapping[tuple[str, str, str], Reply]
    tracks: tuple[Track, ...]
    uncounted: Shown
    epoch: int

    def reply(self, shown: Shown, audience: str = EVERYBODY) -> Reply:
        """Return what a member of an audience gets to see."""
        return self.replies[audience, shown.lane, shown.arm]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a unit gets to see.

    Attributes:
        arm: `original`, `incumbent` or an arm of the test.
        test: The test it is in, None where it is in none.
        counted: Whether the exposure is in the log.
        lane: The lane of the test.
    """

    arm: str
    test: str | None = None
    counted: bool = False
    lane: str = ""


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
        self._remembered: dict[tuple[str, int], tuple[int, int, int]] = {}
        self._live_fault: str | None = None
        self._write_fault: str | None = None
        self._rendered: dict[tuple[str, str, Path], Reply] = {}
        self._audiences = tuple(one for one in pages.surfaces if one.audience)
        by_language = any(LANGUAGE in one.audience for one in self._audiences)
        self._vary = _VARY + b", Accept-Language" if by_language else _VARY

    def refresh(self) -> None:
        """Take up what changed in the state folder, at most every `LOOK_SECONDS`; keep the last good state."""
        now = time.monotonic()
        # Until the self-test has passed every request looks: whoever comes first after it is counted.
        if self._is_ready and now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        self._is_ready = self._ready()
        self.killed = self.live.killed or not self._is_ready
        seen = (stamp(self.live.live), stamp(self.live.events / "forgotten"))
        if seen == self._seen:
            return
        try:
            self._forgotten = events.forgotten(self.live.events)
            state = self.live.read()
            # All pages of a campaign are made from one artifact; what is live besides, as mails, has no page.
            pages = [*self._pages.routes.values()] if PAGE in state.surfaces else []
            shown_by = dict.fromkeys(pages, PAGE) | {name: name for name in state.surfaces}
            self.by_surface = {name: self._view(name, surface, state) for name, surface in shown_by.items()}
            self.state, self._seen, self._live_fault = state, seen, None
        except UsageError as error:
            # Visitors must not pay for a broken file: they go on seeing what was live, and the health page tells.
            self._live_fault = str(error)
        self._tell()

    @property
    def followed(self) -> list[int] | None:
        """The state of live.json that this worker shows, as `stamp` has it; None before the first one."""
        return list(self._seen[0]) if self._seen and self._seen[0] else None

    def unit_key(self, unit: str) -> int:
        """Return the name of a unit in the log."""
        return self.live.unit_key(unit)

    def forgets(self, unit: int) -> bool:
        """Say whether a unit asked to be forgotten."""
        return unit in self._forgotten

    def audience_of(self, query: bytes, languages: bytes) -> str:
        """Return the audience that a request belongs to, from its query string and its Accept-Language header."""
        return audience_of(self._audiences, traits_of(query, languages)) if self._audiences else EVERYBODY

    def show(self, view: View, unit: str, time_us: int, *, audience: str = EVERYBODY, expose: bool = True) -> Shown:
        """Say what a unit sees and write its exposure first; where it cannot be written it is not counted.

        Args:
            view: The page.
            unit: Who, as the cookie or the caller names it.
            time_us: When, in microseconds since 1970.
            audience: The audience that the request belongs to.
            expose: False only asks.
        """
        number = self.unit_key(unit)
        if self.killed or number in self._forgotten:
            return view.uncounted
        name = f"{number:016x}"
        if assignment.held_out(self.live.salt, name, self.settings.holdout):
            shown = Shown(ORIGINAL, None, expose)
            return shown if not expose or self._expose(view, number, time_us, 0) else Shown(INCUMBENT)
        track = self._track(view, name)
        # Whoever is not of a test's audience at this visit is in no test at it, and in no other one's either.
        may = track is not None and track.audience in (EVERYBODY, audience)
        arm = track.test.arm_of(self.live.salt, name) if track is not None and may else None
        if track is None or arm is None:
            shown = Shown(INCUMBENT, None, expose)
            return shown if not expose or self._expose(view, number, time_us, 1) else view.uncounted
        if expose and not self._expose(view, number, time_us, 1, track, track.arms[arm]):
            return view.uncounted
        return Shown(arm, track.test.id, expose, track.test.lane)

    def _track(self, view: View, name: str) -> Track | None:
        """Return the test whose part of the people a unit is in."""
        if len(view.tracks) == 1 and view.tracks[0].test.part == assignment.WHOLE:
            return view.tracks[0]
        if not view.tracks:
            return None
        position = assignment.layer_position(self.live.salt, name)
        return next((track for track in view.tracks if position in track.test.part), None)

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

    def _expose(
        self, view: View, unit: int, time_us: int, group: int, track: Track | None = None, arm: int = -1
    ) -> bool:
        """Write that a unit met a page, unless that is in the log already.

        Args:
            view: The page.
            unit: Who.
            time_us: When.
            group: 0 as part of the holdout, 1 as one of the others.
            track: The test that it is in, with the number of the arm; None: in none.
            arm: See `track`.
        """
        place, what = (view.name, unit), (view.epoch, group, arm)
        if self._remembered.get(place) == what:
            return True
        records = events.pack(unit, time_us, view.key, kind=events.EXPOSURE, arm=group)
        if track is not None:
            # Second, so that a disk that takes only half leaves a unit outside the test, as which it is then treated.
            records += events.pack(unit, time_us, track.key, kind=events.EXPOSURE, arm=arm)
        if not self.record(records):
            return False
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        self._remembered[place] = what
        return True

    def _view(self, name: str, surface: str, state: LiveState) -> View:
        shown = state.surfaces[surface]
        tracks = tuple(self._tracks(name, surface, state))
        folders = {("", ORIGINAL): shown.original, ("", INCUMBENT): shown.incumbent}
        for track in tracks:
            folders |= {(track.test.lane, arm): track.test.folder(arm) for arm in track.test.arms}
        replies = {
            (audience, lane, arm): self._reply(folder, name, audience)
            for audience in (EVERYBODY, *(one.name for one in self._audiences))
            for (lane, arm), folder in folders.items()
        }
        uncounted = Shown(CONTROL if tracks and not tracks[0].test.lane else INCUMBENT)
        epoch = events.key("\0".join([shown.incumbent.name, *(test.id for test in state.tests.values())]))
        return View(name, holdout_key(surface), replies, tracks, uncounted, epoch)

    def _tracks(self, name: str, surface: str, state: LiveState) -> Iterator[Track]:
        """Yield the running tests that a page shows."""
        for test in state.tests.values():
            if test.surface == surface and (not test.lane or self._pages.shows(name, test.lane)):
                numbers = {arm: number for number, arm in enumerate(test.arms)}
                chosen = any(one.name == test.lane for one in self._audiences)
                yield Track(test, events.key(test.id), numbers, test.lane if chosen else EVERYBODY)

    def _reply(self, folder: Path, page: str, audience: str) -> Reply:
        """Render an arm once for a page and an audience; its folder is named by its fingerprint: it never changes."""
        known = (page, audience, folder)
        if known not in self._rendered:
            path = next((path for path, other in self._pages.routes.items() if other == page), None)
            body = self._pages.html(folder, page, audience) if path is not None else b""
            if len(self._rendered) > 1000:
                self._rendered.clear()
            headers = self._headers(len(body), path or "/")
            self._rendered[known] = Reply(headers, body, self._pages.slots(folder, page, audience))
        return self._rendered[known]

    def _headers(self, length: int, path: str) -> tuple[tuple[bytes, bytes], ...]:
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-length", str(length).encode()),
            (b"cache-control", b"private, no-store"),
            (b"vary", self._vary),
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


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is replaced or appended to; None where it is missing."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_mtime_ns, found.st_size)
