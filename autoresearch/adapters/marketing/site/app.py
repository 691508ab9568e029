"""The application: pages by the fast path, everything else by Starlette.

GET  /, ...            pages                         GET  /assign        which arm, for other servers and browsers
POST /convert[/GOAL]   a form was sent               POST /events        events in Segment's shape
GET  /go               a signed link was clicked     POST /webhooks/NAME signed events of another system
GET, POST /unsubscribe/TOKEN                         GET  /snippet.js, /healthz, /open/TOKEN
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.email import clicks, suppression
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.message import tokens_in
from autoresearch.adapters.marketing.events import Durability
from autoresearch.adapters.marketing.live import LiveFolder
from autoresearch.adapters.marketing.site import links
from autoresearch.adapters.marketing.site.askers import AHEAD, HEAD, NO_CONSENT, PEOPLE, ROBOTS, AskerCount
from autoresearch.adapters.marketing.site.ingest import BadRequestError, Ingest, Webhooks
from autoresearch.adapters.marketing.site.pages import Pages
from autoresearch.adapters.marketing.site.robots import is_robot
from autoresearch.adapters.marketing.site.settings import SiteSettings
from autoresearch.adapters.marketing.site.views import Shown, View, Views
from autoresearch.adapters.marketing.site.visitors import (
    Visitor,
    cookie_header,
    expired_cookie_header,
    new_unit,
    read_headers,
)
from autoresearch.core import EnvironmentNotReadyError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_PRIVATE = {"cache-control": "private, no-store", "vary": "Cookie, User-Agent, Sec-Purpose, Purpose"}
_RETRY = {**_PRIVATE, "retry-after": "5"}


class TooLargeError(Exception):
    """A request body is larger than anything we ask for."""


class GroupSync:
    """Waits until what was written is on the disk; all who wait meanwhile share one sync."""

    def __init__(self, writer: events.EventWriter) -> None:
        self._writer = writer
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return when everything written before this call is on the disk."""
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        if self._task is None:
            self._task = loop.create_task(self._run())
        await mine

    async def _run(self) -> None:
        # A sync that has begun may miss a later write, so whoever comes during one waits for the next.
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            try:
                await loop.run_in_executor(None, self._writer.sync)
            except OSError as error:
                for waiter in group:
                    waiter.set_exception(error)
                continue
            for waiter in group:
                waiter.set_result(None)
        self._task = None


class Site:
    """An ASGI application that serves one campaign.

    Args:
        live: The campaign's state.
        pages: Renders arms.
        settings: How to behave.
        ready: Whether the self-test has passed; until then everybody sees the control and nobody is counted.
    """

    def __init__(
        self, live: LiveFolder, pages: Pages, settings: SiteSettings, ready: Callable[[], bool] = lambda: True
    ) -> None:
        self.writer = events.EventWriter(
            live.events, max_per_second=settings.max_events_per_second, max_bytes=settings.max_log_bytes
        )
        self.views = Views(live, pages, settings, self.writer, ready)
        self.askers = AskerCount(live.path)
        self.body_seconds = 20.0
        self.settings = settings
        self._live = live
        self._pages = pages
        self._routes = dict(pages.routes)
        self._ingest = Ingest(self.views)
        self._webhooks = Webhooks(live.path, settings.webhooks)
        self._sync = GroupSync(self.writer)
        self._snippet = (Path(__file__).parent / "snippet.js").read_bytes()
        self._rest = self._starlette()
        self.views.refresh()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            self.views.refresh()
            surface = self._routes.get(scope["path"])
            if surface is not None and scope["method"] in ("GET", "HEAD"):
                await self._page(scope, send, surface)
                return
        await self._rest(scope, receive, send)

    async def _page(self, scope: Scope, send: Send, surface: str) -> None:
        view = self.views.by_surface.get(surface)
        if view is None:
            plain = ((b"content-type", b"text/plain"), (b"retry-after", b"5"))
            await _send(send, 503, plain, b"Nothing is live yet.\n")
            return
        visitor = read_headers(scope["headers"], simulated=self.settings.simulated)
        audience = self.views.audience_of(scope["query_string"], visitor.languages)
        shown, extra = self._visit(view, visitor, audience, head=scope["method"] == "HEAD")
        if shown.counted:
            await self._durable()
        reply = view.reply(shown, audience)
        await _send(send, 200, reply.headers + extra, reply.body)

    def _visit(
        self, view: View, visitor: Visitor, audience: str, *, head: bool
    ) -> tuple[Shown, tuple[tuple[bytes, bytes], ...]]:
        """Return what a visitor sees, and the headers that go with it."""
        uncounted = view.uncounted
        unit = visitor.unit
        if visitor.proof and unit is not None and visitor.proof == self.views.proof(unit):
            return uncounted, ((b"x-autoresearch-unit", unit.encode()),)
        kind = self._kind_of(visitor, head=head)
        self.askers.note(view.name, kind)
        if visitor.robot or head:
            return uncounted, ()
        if kind == NO_CONSENT:
            return uncounted, ((b"set-cookie", expired_cookie_header()),) if unit else ()
        if self.views.killed:
            return uncounted, ()
        cookie: tuple[tuple[bytes, bytes], ...] = ()
        if unit is None:
            unit = new_unit()
            cookie = ((b"set-cookie", cookie_header(unit, secure=self.settings.secure)),)
        return self.views.show(view, unit, self.views.now_us(visitor), audience=audience), cookie

    def _kind_of(self, visitor: Visitor, *, head: bool = False) -> str:
        """Return who asks, for the count of requests."""
        if visitor.robot:
            return AHEAD if visitor.ahead else ROBOTS
        if head:
            return HEAD
        return PEOPLE if visitor.consents(self.views.consent) else NO_CONSENT

    async def _durable(self) -> None:
        if self.settings.sync is Durability.ALWAYS:
            try:
                await self._sync.wait()
            except OSError as error:
                # The system has the records, so they count; that the disk does not is for the health page to tell.
                self.views.report(f"The event log cannot be brought to the disk: {error.strerror}.")

    def _starlette(self) -> Starlette:
        routes = [
            Route("/convert", self._convert, methods=["POST"]),
            Route("/convert/{goal}", self._convert, methods=["POST"]),
            Route("/go", self._go, methods=["GET", "HEAD"]),
            Route("/assign", self._assign, methods=["GET"]),
            Route("/events", self._events, methods=["POST"]),
            Route("/webhooks/{name}", self._webhook, methods=["POST"]),
            Route("/unsubscribe/{token}", self._unsubscribe, methods=["GET", "HEAD", "POST"]),
            Route("/open/{token}", self._open, methods=["GET", "HEAD"]),
            Route("/snippet.js", self._snippet_js, methods=["GET", "HEAD"]),
            Route("/healthz", self._health, methods=["GET", "HEAD"]),
        ]
        middleware = []
        if self.settings.origins:
            middleware.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=list(self.settings.origins),
                    allow_credentials=True,
                    allow_methods=["GET", "POST"],
                    allow_headers=["content-type"],
                )
            )
        handlers = {TooLargeError: _too_large, TimeoutError: _too_slow, EnvironmentNotReadyError: _not_ready}
        return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)

    def _person(self, request: Request) -> tuple[Visitor, str | None]:
        """Return who asks, and the unit of the cookie where a person sent it and agreed to be counted."""
        visitor = read_headers(request.scope["headers"], simulated=self.settings.simulated)
        return visitor, visitor.unit if visitor.consents(self.views.consent) and not visitor.robot else None

    async def _count(self, unit: str | None, goal: str, visitor: Visitor) -> bool:
        """Write a conversion of a unit and say whether it is in the log."""
        if unit is None:
            return False
        number = self.views.unit_key(unit)
        if self.views.forgets(number):
            return False
        time_us = self.views.now_us(visitor)
        done = self.views.record(events.pack(number, time_us, events.key(goal), kind=events.CONVERSION))
        if done:
            await self._durable()
        return done

    async def _convert(self, request: Request) -> Response:
        """Count a form post. The fields are not read: a form's own handler, where one is set up, gets them as sent."""
        goal = request.path_params.get("goal", self.settings.goal)
        await _body(request, self.settings.max_body, self.body_seconds)
        visitor, unit = self._person(request)
        if len(goal) > 100:
            return JSONResponse({"error": "The goal's name is too long."}, 400, _PRIVATE)
        await self._count(unit, goal, visitor)
        if goal in self.settings.forms:
            return RedirectResponse(self.settings.forms[goal], 307, _PRIVATE)
        if self.settings.thanks_url:
            return RedirectResponse(self.settings.thanks_url, 303, _PRIVATE)
        return HTMLResponse(_document("Thank you", "<p>Your answer has arrived.</p>"), 200, _PRIVATE)

    async def _go(self, request: Request) -> Response:
        """Count a click and lead on, to nowhere but where we signed for."""
        query = request.query_params
        target, goal = query.get("to", ""), query.get("goal", "")
        if not links.is_signed(self._live.secret, target, goal, query.get("sig", "")):
            return JSONResponse({"error": "This link was not made here."}, 400, _PRIVATE)
        visitor, unit = self._person(request)
        if "m" in query:
            for mail in tokens_in(self._live.secret, query["m"]):
                self._visited(request, visitor, mail.text, clicks.GOAL)
        elif request.method == "GET":
            await self._count(unit, goal, visitor)
        return RedirectResponse(target, 302, {**_PRIVATE, "referrer-policy": "no-referrer"})

    async def _assign(self, request: Request) -> Response:
        """Say what a unit sees. With expose=1 the exposure is written first, otherwise this only asks."""
        query = request.query_params
        names = [*self.views.by_surface]
        name = query.get("surface", names[0] if len(names) == 1 else "")
        view = self.views.by_surface.get(name)
        if view is None:
            return JSONResponse({"error": f"No surface {name!r} is live; there are {', '.join(names) or 'none'}."}, 404)
        visitor, cookie_unit = self._person(request)
        given = query.get("unit")
        if given is not None and not 0 < len(given) <= 200:
            return JSONResponse({"error": "unit must have 1 to 200 characters."}, 400, _PRIVATE)
        headers = dict(_PRIVATE)
        if given is None and cookie_unit is None and not visitor.robot and visitor.consents(self.views.consent):
            cookie_unit = new_unit()
            headers["set-cookie"] = cookie_header(cookie_unit, secure=self.settings.secure).decode("ascii")
        # A server that asks for a visitor has a robot's user agent itself, and may pass the visitor's on.
        robot = is_robot(query["ua"]) if "ua" in query else given is None and visitor.robot
        unit = given or cookie_unit
        self.askers.note(name, ROBOTS if robot else PEOPLE if unit is not None else NO_CONSENT)
        shown = view.uncounted
        audience = self.views.audience_of(request.scope["query_string"], visitor.languages)
        if unit is not None and not robot:
            expose = query.get("expose") == "1"
            shown = self.views.show(view, unit, self.views.now_us(visitor), audience=audience, expose=expose)
            if shown.counted:
                await self._durable()
        answer = {"surface": name, "test": shown.test, "arm": shown.arm, "counted": shown.counted}
        return JSONResponse({**answer, "slots": dict(view.reply(shown, audience).slots)}, 200, headers)

    async def _events(self, request: Request) -> Response:
        """Take events: 200 with what was refused and why, 400 when nothing was of use, 503 when the log is at fault."""
        body = await _body(request, self.settings.max_body, self.body_seconds)
        visitor, unit = self._person(request)
        try:
            rows = self._ingest.parse(body)
        except BadRequestError as error:
            return JSONResponse({"error": str(error)}, 400, _PRIVATE)
        # Only a browser speaks for itself; what a server sends may carry the user agent of the visitor.
        agent = request.headers.get("user-agent", "") if "cookie" in request.headers else None
        taken = self._ingest.take(rows, unit=unit, now_us=self.views.now_us(visitor), agent=agent)
        return await self._taken(taken)

    async def _webhook(self, request: Request) -> Response:
        """Take events of a sender that proves itself; a repeated request changes nothing."""
        name = request.path_params["name"]
        body = await _body(request, self.settings.max_body, self.body_seconds)
        now_us = self.views.now_us(Visitor())
        try:
            now = datetime.fromtimestamp(now_us / 1e6, UTC)
            message = self._webhooks.check(name, request.headers, body, now)
        except BadRequestError as error:
            return JSONResponse({"error": str(error)}, 401, _PRIVATE)
        if self._webhooks.is_repeated(name, message):
            return JSONResponse({"accepted": 0, "repeated": True}, 200, _PRIVATE)
        try:
            rows = self._ingest.parse(body)
        except BadRequestError as error:
            return JSONResponse({"error": str(error)}, 400, _PRIVATE)
        # Each event gets an id of its own where it has none, so that a retry after a crash in here counts once.
        rows = [
            {"messageId": f"{message}/{index}"[-200:], **row} if isinstance(row, dict) else row
            for index, row in enumerate(rows)
        ]
        taken = self._ingest.take(rows, unit=None, now_us=now_us, agent=None, source=name)
        response = await self._taken(taken)
        if taken.written:
            self._webhooks.remember(name, message)
        return response

    async def _taken(self, taken: Any) -> Response:
        if not taken.written:
            return JSONResponse({"error": "The events could not be written; send them again."}, 503, _RETRY)
        if taken.accepted:
            await self._durable()
        refused = [{"index": index, "reason": reason} for index, reason in taken.refused]
        status = 200 if taken.accepted else 400
        return JSONResponse({"accepted": taken.accepted, "refused": refused}, status, _PRIVATE)

    async def _unsubscribe(self, request: Request) -> Response:
        """Show a form at GET, for scanners follow every link; suppress at POST, by a click or by the mail program."""
        token = request.path_params["token"]
        hashed, unit = (
            read(self._live.secret, token) for read in (suppression.hash_in_token, suppression.unit_in_token)
        )
        if hashed is None:
            return HTMLResponse(_document("Unknown link", "<p>This link was not made here.</p>"), 404, _PRIVATE)
        if request.method != "POST":
            self._visited(request, self._person(request)[0], hashed, clicks.LEAVE)
            form = '<form method="post"><button>Unsubscribe</button></form>'
            return HTMLResponse(_document("Unsubscribe", f"<p>Get no more mail from us?</p>{form}"), 200, _PRIVATE)
        await _body(request, self.settings.max_body, self.body_seconds)
        suppression.suppress(self._suppression, hashed, "unsubscribe")
        visitor = read_headers(request.scope["headers"], simulated=self.settings.simulated)
        await self._count(unit, "unsubscribe", visitor)
        return HTMLResponse(_document("Unsubscribed", "<p>You will get no more mail from us.</p>"), 200, _PRIVATE)

    async def _open(self, request: Request) -> Response:
        """Record that a mail's picture was loaded, and show it whoever asks; nothing is ever decided by it."""
        visitor, _ = self._person(request)
        for mail in tokens_in(self._live.secret, request.path_params["token"]):
            self._visited(request, visitor, mail.text, clicks.OPEN)
        return Response(clicks.PICTURE, 200, _PRIVATE, "image/gif")

    @property
    def _suppression(self) -> Path:
        return self.settings.suppression or self._live.path / "suppression"

    def _visited(self, request: Request, visitor: Visitor, whose: str, link: str) -> None:
        """Write down that a mail's link was visited: of whom decides later, see email/clicks.py.

        Args:
            request: The visit.
            visitor: What its headers say.
            whose: The mail's token, or for the unsubscribe link the hash of the address.
            link: `clicks.GOAL`, `clicks.LEAVE` or `clicks.OPEN`.
        """
        if not (self._suppression / "mail.db").exists():
            return  # nothing was sent from here
        rule = clicks.rule_of_request(request.method, request.headers.get("user-agent", ""), robot=visitor.robot)
        try:
            with Journal(self._suppression) as journal:
                sent = journal.last_to(whose) if link == clicks.LEAVE else journal.find(whose)
                if sent is not None:
                    clicks.record(journal, clicks.Click(sent.token, link, self.views.now_us(visitor) / 1e6, rule))
        except EnvironmentNotReadyError as error:
            # Whoever clicked must get there all the same.
            self.views.report(str(error))

    async def _snippet_js(self, request: Request) -> Response:
        return Response(self._snippet, 200, {"cache-control": "public, max-age=300"}, "text/javascript; charset=utf-8")

    async def _health(self, request: Request) -> Response:
        """Say how this worker is: 200 when visitors are served and counted, 503 when they are not counted."""
        views = self.views
        report = {
            "status": "killed" if views.killed else "ok" if views.fault is None else "fault",
            "fault": views.fault,
            "tests": {place: test.id for place, test in views.state.tests.items()},
            "followed": views.followed,
            "surfaces": sorted(views.by_surface),
            "worker": os.getpid(),
            "written": self.writer.written,
            "uncounted": views.uncounted,
            "requests": {page: dict(kinds) for page, kinds in self.askers.counts.items()},
        }
        return JSONResponse(report, 503 if views.fault else 200, {"cache-control": "no-store"})


async def _send(send: Send, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(request: Request, limit: int, seconds: float) -> bytes:
    """Read a request body of at most `limit` bytes. Raises TooLargeError, or TimeoutError if it takes longer."""
    stated = request.headers.get("content-length", "0")
    if stated.isdigit() and int(stated) > limit:
        raise TooLargeError
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(seconds):
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise TooLargeError
            parts.append(part)
    return b"".join(parts)


async def _too_slow(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The request took too long."}, 408, {**_PRIVATE, "connection": "close"})


async def _too_large(request: Request, error: Exception) -> Response:
    # The rest of the body is not read, so the connection is of no more use.
    return JSONResponse({"error": "The request is too large."}, 413, {**_PRIVATE, "connection": "close"})


async def _not_ready(request: Request, error: Exception) -> Response:
    return HTMLResponse(_document("Please try again", "<p>We could not save that just now.</p>"), 503, _RETRY)


def _document(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="robots" content="noindex">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><h1>{escape(title)}</h1>{body}"
    )
