"""All workspaces of a dashboard: each is read once, however many pages look at it, and what changed is sent to them.

A workspace is asked every few hundredths of a second whether anything changed (a few system calls), and read only then.
What a page shows at once (state, figures, the experiment in progress, the newest rows) is made and sent first; pictures
and sections follow, which take longer the longer the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from markupsafe import Markup

from autoresearch.core.errors import AutoresearchError
from autoresearch.core.ledger import Run
from autoresearch.core.readmodel import RunReader, RunView, live_points
from autoresearch.core.words import clean, counts, money
from autoresearch.web.dashboard import pages
from autoresearch.web.dashboard.channel import Channel
from autoresearch.web.dashboard.table import ORDERS, Filter, Names, table_of
from autoresearch.web.dashboard.watched import Condition, Look, Mark, Watched
from autoresearch.web.report import Page, headline_of, page_of, state_of, tiles_of
from autoresearch.web.sections import sections_of

POLL_SECONDS = 0.04
NOTE_SECONDS = 0.25
"""How often the note of the process at work and its log are read at most."""

CALM_SECONDS = 1.0
"""How often a workspace is asked that nobody looks at."""

FORGET_SECONDS = 300.0
"""How long a run that nobody looks at stays in memory."""

REST = 4.0
"""The slow part of a page rests this many times as long as it took: a fast run leaves the processor to others."""

_TABLES = 64


class Feed:
    """One run: what is known of it, and the channel of its pages."""

    def __init__(self, hall: Hall, place: Place, run: Run) -> None:
        self.hall = hall
        self.place = place
        self.run_id = run.id
        self.channel = Channel()
        self.view: RunView | None = None
        self.page: Page | None = None
        self.used = time.monotonic()
        self.mark: Mark | None = None
        self._reader: RunReader | None = None
        self._reading = asyncio.Lock()
        self._seen: tuple[int, int] = (-1, -1)
        self._drawn: tuple[int, int] = (-1, -1)
        self._notes: Mark = ()
        self._noted = 0.0
        self._drawing: asyncio.Task[None] | None = None
        self._names = Names()
        self._spent = pages.Spent((), None)
        self._tables: dict[tuple[int, str], Markup] = {}

    @property
    def wanted(self) -> bool:
        """Whether anybody looks, or did so lately."""
        return self.channel.listeners > 0 or time.monotonic() - self.used < CALM_SECONDS

    def forget_ledger(self) -> None:
        """Read everything anew: another file lies there now."""
        self._reader, self._seen, self._drawn, self._names = None, (-1, -1), (-1, -1), Names()

    async def refresh(self) -> None:
        """Read what is new and send what changed by it; pictures follow later."""
        async with self._reading:
            view = await asyncio.to_thread(self._read)
            self.view = view
            await asyncio.to_thread(self._publish_fast, view)
        if self._drawn != self._seen and (self._drawing is None or self._drawing.done()):
            self._drawing = asyncio.create_task(self._draw())

    async def settle(self) -> None:
        """Wait until pictures and sections are drawn, too."""
        while self._drawing is not None and not self._drawing.done():
            await asyncio.wait([self._drawing])

    async def note(self) -> None:
        """Send what the process at work says of itself, where that changed and not too often."""
        if self.view is None or (self.view.in_flight is None and not self.place.look.at_work):
            return
        now = time.monotonic()
        if now - self._noted < NOTE_SECONDS:
            return
        row = self.view.in_flight
        watched = self.place.watched
        log = () if row is None else watched.log_mark(self.run_id, row.number)
        notes = (watched.note_mark(), log)
        if notes != self._notes:
            self._notes, self._noted = notes, now
            async with self._reading:
                await asyncio.to_thread(self._publish_now, self.view)

    def table(self, wanted: Filter) -> Markup:
        """Return the table that is wanted; the same one is rendered once."""
        key = (self._seen[0], wanted.address)
        if key not in self._tables:
            if len(self._tables) >= _TABLES:
                self._tables.clear()
            self._tables[key] = self.table_html(wanted)
        return self._tables[key]

    def table_html(self, wanted: Filter) -> Markup:
        """Render a table."""
        found = None if self.view is None else table_of(self.view, wanted, self._names)
        return pages.rendered("table", table=found, base=self.base, orders=ORDERS)

    @property
    def base(self) -> str:
        """Address of the run's page."""
        return f"/w/{self.place.watched.key}/{self.run_id}"

    def _read(self) -> RunView:
        ledger = self.place.watched.ledger
        if ledger is None:
            raise GoneError("The ledger is not open.")
        if self._reader is None:
            self._reader = RunReader(ledger, self.run_id)
        at_work = self.place.look.at_work
        view = self._reader.view(at_work=at_work, standings=False)
        self._spent = pages.spent_of(view, ledger)
        self._seen = (len(view.experiments), hash((view.claims and view.claims[-1].id, len(view.claims), at_work)))
        return view

    def _publish_fast(self, view: RunView) -> None:
        publish, look = self._publish, self.place.look
        newer = look.runs[-1].id if look.runs and look.runs[-1].id != self.run_id else ""
        publish(
            "head",
            pages.rendered(
                "head",
                headline=headline_of(view),
                state=state_of(view),
                tiles=tiles_of(view),
                said=look.sentence,
                newer=newer,
                base=f"/w/{self.place.watched.key}",
            ),
        )
        publish("table", self.table(Filter()))
        self._publish_now(view)

    def _publish_now(self, view: RunView) -> None:
        ledger = self.place.watched.ledger
        if ledger is None:
            return
        row = view.in_flight
        log = "" if row is None else self.place.watched.log_tail(self.run_id, row.number)
        now = pages.now_of(view, self.place.watched.progress(), ledger, log)
        working = view.status.state in ("running", "paused")
        self._publish("now", pages.rendered("now", now=now, base=self.base, at_work=working))
        self._publish("left", pages.rendered("left", left=pages.left_of(self._spent)))
        can = self.place.look.can_steer
        waits = now.number if now is not None and now.waits else None
        self._publish(
            "steer", pages.rendered("steer", base=self.base, state=view.status.state, can=can and working, waits=waits)
        )

    def _publish(self, name: str, html: Markup) -> None:
        self.hall.call(self.channel.publish, name, html)

    async def _draw(self) -> None:
        """Draw the slow parts, again and again while they are old; rest in between."""
        while self._drawn != self._seen:
            began = time.monotonic()
            try:
                async with self._reading:
                    self._drawn, page = self._seen, await asyncio.to_thread(self._page)
            except (AutoresearchError, GoneError):
                return  # the workspace changed under it; whoever looks next says how
            self.page = page
            for name in pages.SLOW:
                html = await asyncio.to_thread(pages.rendered, "part", name=name, page=page, base=self.base)
                self.channel.publish(name, html)
            await asyncio.sleep(REST * (time.monotonic() - began))

    def _page(self) -> Page:
        ledger, reader = self.place.watched.ledger, self._reader
        if ledger is None or reader is None:
            raise GoneError("The ledger is not open.")
        view = reader.view(at_work=self.place.look.at_work)
        return page_of(
            view,
            now=datetime.now(UTC),
            points=lambda row: live_points(ledger, view, row),
            sections=sections_of(self.place.watched.layout.root, view.run),
        )


class GoneError(Exception):
    """The workspace was closed while it was being read."""


class Place:
    """One workspace and the feeds of those of its runs that somebody looked at."""

    def __init__(self, hall: Hall, watched: Watched) -> None:
        self.hall = hall
        self.watched = watched
        self.look = Look(Condition.EMPTY, "Not read yet.")
        self.feeds: dict[str, Feed] = {}
        self.ready = asyncio.Event()
        self._mark: Mark | None = None
        self._asked = 0.0
        self._step = asyncio.Lock()

    def feed(self, run_id: str) -> Feed | None:
        """Return the feed of a run; None where there is no such run."""
        found = next((run for run in self.look.runs if run.id == run_id), None)
        if found is None:
            return None
        feed = self.feeds.setdefault(run_id, Feed(self.hall, self, found))
        feed.used = time.monotonic()
        return feed

    @property
    def latest(self) -> Feed | None:
        """The feed of the run that began last."""
        return self.feed(self.look.runs[-1].id) if self.look.runs else None

    async def step(self, *, force: bool = False) -> None:
        """Look at the workspace where it changed, and refresh the feeds that somebody looks at."""
        async with self._step:
            now = time.monotonic()
            busy = self.hall.overview.listeners > 0 or any(feed.wanted for feed in self.feeds.values())
            if not force and not busy and now - self._asked < CALM_SECONDS:
                return
            self._asked = now
            mark = self.watched.mark()
            if mark != self._mark or force:
                await self._look(mark)
            for feed in list(self.feeds.values()):
                if feed.channel.listeners:
                    await feed.note()
            self._forget()

    async def _look(self, mark: Mark) -> None:
        before, self._mark = self.watched.ledger, mark
        self.look = await asyncio.to_thread(self.watched.look)
        if self.watched.ledger is not before:
            for feed in self.feeds.values():
                feed.forget_ledger()
        latest = None if not self.look.runs else self.look.runs[-1].id
        for run_id, feed in list(self.feeds.items()):
            if all(run.id != run_id for run in self.look.runs):
                feed.channel.publish("head", pages.rendered("lost", said=self.look.sentence))
            elif feed.wanted or run_id == latest:
                # What fails now is told by the next look: the file changed between the two.
                with suppress(AutoresearchError, GoneError):
                    await feed.refresh()
                    feed.mark = mark
        self.hall.overview.publish(f"card-{self.watched.key}", self.card())
        self.ready.set()

    async def show(self, run_id: str | None) -> None:
        """Bring a run up to date, by default the latest one, for a page that is opened now."""
        feed = self.latest if run_id is None else self.feed(run_id)
        await self.step(force=self._mark is None)
        feed = feed or (self.latest if run_id is None else self.feed(run_id))
        if feed is not None and (feed.view is None or feed.mark != self._mark):
            with suppress(AutoresearchError, GoneError):
                await feed.refresh()
                feed.mark = self._mark

    def card(self) -> Markup:
        """Return the workspace as the overview shows it."""
        feed = None if not self.look.runs else self.feeds.get(self.look.runs[-1].id)
        view = None if feed is None else feed.view
        return pages.rendered(
            "card",
            name=self.watched.name,
            where=clean(str(self.watched.layout.root)),
            base=f"/w/{self.watched.key}",
            look=self.look,
            view=view,
            headline="" if view is None else headline_of(view),
            state="" if view is None else state_of(view),
            counts="" if view is None else counts(view.status),
            spent="" if view is None else money(view.status.usd),
        )

    def _forget(self) -> None:
        latest = self.look.runs[-1].id if self.look.runs else None
        for run_id, feed in list(self.feeds.items()):
            idle = feed.channel.listeners == 0 and time.monotonic() - feed.used > FORGET_SECONDS
            if idle and run_id != latest:
                del self.feeds[run_id]


class Hall:
    """Every workspace of the dashboard.

    Args:
        watched: The workspaces, each under its key.
    """

    def __init__(self, watched: Sequence[Watched]) -> None:
        self.overview = Channel()
        self.places = {one.key: Place(self, one) for one in watched}
        self._tasks: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closed = False

    def start(self) -> None:
        """Begin to watch; belongs to the event loop that serves."""
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(self._watch(place)) for place in self.places.values()]

    def call(self, function: object, *arguments: object) -> None:
        """Call a function in the event loop, from whichever thread."""
        assert self._loop is not None and callable(function)
        self._loop.call_soon_threadsafe(function, *arguments)

    async def stop(self) -> None:
        """End every stream and every watch, and let go of the files."""
        self.closed = True
        self.end_streams()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for place in self.places.values():
            for feed in place.feeds.values():
                await feed.settle()
            place.watched.close()

    def end_streams(self) -> None:
        """End every stream, so that the server can end without waiting for pages that stay open."""
        self.overview.close()
        for place in self.places.values():
            for feed in place.feeds.values():
                feed.channel.close()

    def fault(self) -> BaseException | None:
        """Return what ended a watch that should never end: a bug of ours."""
        ended = (task for task in self._tasks if task.done() and not task.cancelled())
        return next((task.exception() for task in ended), None)

    @property
    def listeners(self) -> int:
        """How many pages listen."""
        feeds = (feed for place in self.places.values() for feed in place.feeds.values())
        return self.overview.listeners + sum(feed.channel.listeners for feed in feeds)

    async def _watch(self, place: Place) -> None:
        await place.show(None)
        self.overview.publish(f"card-{place.watched.key}", place.card())
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await place.step()
