"""The pages and buttons of the dashboard as a Starlette application."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from urllib.parse import parse_qs, urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autoresearch.core.errors import AutoresearchError, UsageError
from autoresearch.core.ledger import Ledger
from autoresearch.core.steering import person, steer
from autoresearch.core.words import clean
from autoresearch.web.dashboard import pages
from autoresearch.web.dashboard.details import Detail, comparison_of, detail_of
from autoresearch.web.dashboard.guard import HEADERS, Guard
from autoresearch.web.dashboard.hall import Feed, Hall, Place
from autoresearch.web.dashboard.table import Filter

FIRST_PAINT_SECONDS = 0.5
"""A page waits this long for a run that is being read; what is missing then arrives on the open page."""

MOST_LISTENERS = 300
"""Pages that may stay open at once; each holds a connection."""

MOST_FORM_BYTES = 20_000
MOST_NOTE = 4_000

STATIC = {"htmx.min.js": "text/javascript", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""Files of the package that are served as they are; the style sheet is put together from the report's and its own."""

COMMANDS = ("pause", "resume", "stop", "approve", "reject", "note")

CSRF_PLACE = "@csrf@"
"""Stands in shared fragments where each reader's own token belongs."""


def create_app(hall: Hall, guard: Guard) -> Starlette:
    """Return the application; the hall is started and stopped with it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        hall.start()
        try:
            yield
        finally:
            await hall.stop()

    desk = _Desk(hall, guard)
    run = "/w/{place}/{run}"
    routes = [
        Route("/", desk.overview),
        Route("/events", desk.overview_events),
        Route("/static/{name}", static),
        Route("/w/{place}", desk.workspace),
        Route(run, desk.run),
        Route(f"{run}/events", desk.run_events),
        Route(f"{run}/table", desk.table),
        Route(f"{run}/compare", desk.compare),
        Route(f"{run}/experiment/{{number:int}}", desk.experiment),
        Route(f"{run}/steer", desk.steer, methods=["POST"]),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _told})
    app.add_middleware(Doorkeeper, guard=guard)
    return app


# ---- Before anything else


class Doorkeeper:
    """Turns away what the guard does not admit, and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                added = {"cache-control": "no-store", **HEADERS}
                extra = [(name.encode(), text.encode()) for name, text in added.items() if name.encode() not in known]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        request = Request(scope)
        await (self._refusal(request) or self._app)(scope, receive, headed)

    def _refusal(self, request: Request) -> ASGIApp | None:
        guard = self._guard
        if not guard.knows_host(request.headers.get("host", "")):
            return PlainTextResponse("This dashboard does not go by that name. Open the address it printed.", 421)
        given = guard.cookie in request.cookies and guard.knows_cookie(request.cookies[guard.cookie])
        if given:
            scope_cookie(request, request.cookies[guard.cookie])
            return self._without_token(request) if "token" in request.query_params else None
        if guard.token and not guard.opens(request.query_params.get("token", "")):
            return HTMLResponse(pages.rendered("closed"), 401)
        if request.method != "GET" or request.url.path.startswith("/static/"):
            return None  # no cookie, so that a form is refused where it is read
        if guard.token:
            return self._without_token(request, guard.new_cookie())
        cookie = guard.new_cookie()
        scope_cookie(request, cookie)
        request.scope["new_cookie"] = cookie
        return None

    def _without_token(self, request: Request, cookie: str = "") -> Response:
        """Go on without the token in the address, which would stay in histories and be copied with it."""
        query = [(name, text) for name, text in request.query_params.multi_items() if name != "token"]
        # The path alone: an address that begins with two slashes would lead to another host.
        path = "/" + request.url.path.lstrip("/")
        answer = RedirectResponse(f"{path}?{urlencode(query)}" if query else path, 303)
        if cookie:
            set_cookie(answer, self._guard, cookie)
        return answer


def scope_cookie(request: Request, cookie: str) -> None:
    """Note whose request it is."""
    request.scope["reader"] = cookie


def set_cookie(answer: Response, guard: Guard, cookie: str) -> None:
    """Give out a cookie that scripts cannot read and other sites cannot make a browser send."""
    answer.set_cookie(guard.cookie, cookie, httponly=True, samesite="strict", path="/")


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if request.headers.get("hx-request"):
        return HTMLResponse(pages.rendered("said", said=error.detail, fault=True), error.status_code)
    return HTMLResponse(pages.rendered("told", said=error.detail, title="Not here"), error.status_code)


# ---- Files


async def static(request: Request) -> Response:
    """Serve a file of the package; its address names its content, so that a browser may keep it."""
    name = request.path_params["name"]
    if name == "style.css":
        content, kind = style(), "text/css"
    elif name in STATIC:
        content, kind = _file(name), STATIC[name]
    else:
        raise HTTPException(404, "There is no such file.")
    kept = {"cache-control": "public, max-age=31536000, immutable"} if "v" in request.query_params else {}
    return Response(content, media_type=kind, headers=kept)


@cache
def _file(name: str) -> bytes:
    return files("autoresearch.web").joinpath("static", name).read_bytes()


@cache
def style() -> bytes:
    """Return the report's style sheet and the dashboard's own."""
    return b"".join(_template(name) for name in ("report.css.j2", "dashboard/dashboard.css.j2"))


def _template(name: str) -> bytes:
    return files("autoresearch.web").joinpath("templates", *name.split("/")).read_bytes()


@cache
def assets() -> Mapping[str, str]:
    """Return name -> address of every file, with a mark of its content."""
    contents = {"style.css": style(), **{name: _file(name) for name in STATIC}}
    return {name: f"/static/{name}?v={hashlib.sha256(data).hexdigest()[:12]}" for name, data in contents.items()}


# ---- Pages


class _Desk:
    def __init__(self, hall: Hall, guard: Guard) -> None:
        self._hall = hall
        self._guard = guard

    async def overview(self, request: Request) -> Response:
        """Show every workspace."""
        places = list(self._hall.places.values())
        await _soon(*(place.show(None) for place in places))
        cards = [(place.watched.key, place.card()) for place in places]
        version = self._hall.overview.version
        return self._page(request, "overview", cards=cards, version=version, title="Workspaces", many=len(places) > 1)

    async def overview_events(self, request: Request) -> Response:
        """Send cards as they change."""
        return self._stream(request, self._hall.overview.stream(_seen(request)))

    async def workspace(self, request: Request) -> Response:
        """Lead to the latest run of a workspace, or say why there is none."""
        place = self._place(request)
        await _soon(place.show(None))
        latest = place.latest
        if latest is not None:
            return RedirectResponse(latest.base, 302)
        return self._page(request, "nothing", place=place, title=place.watched.name)

    async def run(self, request: Request) -> Response:
        """Show a run."""
        place, feed = await self._feed(request)
        wanted = Filter.parse(request.query_params)
        version = feed.channel.version
        parts = {name: feed.channel.html(name) for name in (*pages.FAST, *pages.SLOW)}
        if wanted.address:
            parts["table"] = feed.table(wanted)
        return self._page(
            request,
            "run",
            title=f"{place.watched.name}: {feed.run_id}",
            place=place,
            base=feed.base,
            parts=parts,
            slow=pages.SLOW,
            version=version,
            filtered=bool(wanted.address),
            run=feed.run_id,
            runs=[run.id for run in reversed(place.look.runs)],
            page=feed.page,
            said=request.query_params.get("said", "")[:400],
            can_steer=place.look.can_steer,
        )

    async def run_events(self, request: Request) -> Response:
        """Send the parts of a run's page as they change."""
        _, feed = await self._feed(request)
        return self._stream(request, feed.channel.stream(_seen(request)))

    async def table(self, request: Request) -> Response:
        """Send the table that is wanted."""
        _, feed = await self._feed(request)
        return HTMLResponse(feed.table(Filter.parse(request.query_params)))

    async def experiment(self, request: Request) -> Response:
        """Show one experiment with everything that is known of it."""
        place, feed = await self._feed(request)
        (one,) = await asyncio.to_thread(_details, place, feed, [request.path_params["number"]])
        return self._page(request, "experiment", title=one.name, place=place, base=feed.base, one=one)

    async def compare(self, request: Request) -> Response:
        """Show two experiments side by side."""
        place, feed = await self._feed(request)
        picked = [text for text in request.query_params.getlist("pick") if text.isascii() and text.isdigit()][:2]
        if len(picked) < 2 or feed.view is None:
            raise HTTPException(400, "Two experiments can be compared: mark two of them in the table.")
        first, second = await asyncio.to_thread(_details, place, feed, [int(text[:9]) for text in picked])
        both = comparison_of(first, second, feed.view)
        title = f"Experiments {first.number} and {second.number}"
        return self._page(request, "compare", title=title, place=place, base=feed.base, both=both)

    async def steer(self, request: Request) -> Response:
        """Leave a message for a run, as the command line does."""
        if not self._guard.same_origin(request.headers):
            raise HTTPException(403, "This request comes from a page of another site.")
        form = await _form(request)
        cookie = request.scope.get("reader", "")
        given = request.headers.get("x-csrf-token") or form.get("csrf", "")
        if not self._guard.knows_form(cookie, given):
            raise HTTPException(403, "This page is from before the dashboard was started. Reload it and try again.")
        place, feed = await self._feed(request)
        command, argument = form.get("command", ""), form.get("argument", "")
        if command not in COMMANDS:
            raise HTTPException(400, f"There is no such command; found {', '.join(COMMANDS)}.")
        said, status = await asyncio.to_thread(_steered, place, feed, command, argument[:MOST_NOTE])
        if request.headers.get("hx-request"):
            return HTMLResponse(pages.rendered("said", said=said, fault=status != 200), status)
        return RedirectResponse(f"{feed.base}?{urlencode({'said': said})}", 303)

    # What all of them need

    def _place(self, request: Request) -> Place:
        place = self._hall.places.get(request.path_params["place"])
        if place is None:
            raise HTTPException(404, "This dashboard has no such workspace.")
        return place

    async def _feed(self, request: Request) -> tuple[Place, Feed]:
        place, run = self._place(request), request.path_params["run"]
        await _soon(place.show(run))
        feed = place.feed(run)
        if feed is None:
            raise HTTPException(404, place.look.sentence or "There is no such run in this workspace.")
        return place, feed

    def _page(self, request: Request, template: str, **values: object) -> Response:
        reader = request.scope.get("reader", "")
        token = self._guard.form_token(reader) if reader else ""
        html = pages.rendered(template, assets=assets(), csrf=token, **values)
        answer = HTMLResponse(html.replace(CSRF_PLACE, token))
        if "new_cookie" in request.scope:
            set_cookie(answer, self._guard, request.scope["new_cookie"])
        return answer

    def _stream(self, request: Request, events: AsyncIterator[bytes]) -> Response:
        if self._hall.listeners >= MOST_LISTENERS:
            raise HTTPException(503, "Too many pages are open at once; close some of them.")
        return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _soon(*work: Awaitable[None]) -> None:
    """Wait for work, but not for long; it goes on where it takes longer."""
    tasks = [asyncio.ensure_future(one) for one in work]
    done, _ = await asyncio.wait(tasks, timeout=FIRST_PAINT_SECONDS) if tasks else (set(), set())
    for task in done:
        task.result()


def _seen(request: Request) -> int:
    """Return the version that a page has seen: of the last event where it lost the connection, else of its making."""
    text = request.headers.get("last-event-id") or request.query_params.get("seen", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; one field of a name, as our forms have them."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    fields = parse_qs(body.decode("utf-8", errors="replace"), keep_blank_values=True, max_num_fields=20)
    return {name: texts[0] for name, texts in fields.items()}


def _details(place: Place, feed: Feed, numbers: Sequence[int]) -> list[Detail]:
    """Return experiments with everything that is known of them."""
    ledger, view = place.watched.ledger, feed.view
    if ledger is None or view is None:
        raise HTTPException(404, place.look.sentence or "The run is being read; try again in a moment.")
    found = []
    try:
        for number in numbers:
            row = ledger.experiment(feed.run_id, number)
            if row is None:
                raise HTTPException(404, f"Run {feed.run_id} has no experiment {number}.")
            found.append(detail_of(row, view, ledger, place.watched.log_tail(feed.run_id, number)))
    except AutoresearchError as error:
        raise HTTPException(404, clean(str(error), lines=True)) from error
    return found


def _steered(place: Place, feed: Feed, command: str, argument: str) -> tuple[str, int]:
    """Leave the message and return what is said, with the status of the answer."""
    layout = place.watched.layout
    try:
        if not place.look.can_steer or not layout.ledger.is_file():
            raise UsageError(place.look.sentence or "Nothing can be sent to this run now.")
        with Ledger.open(layout.ledger) as ledger:
            run = ledger.run(feed.run_id)
            return steer(layout, ledger, run, command, person(), clean(argument, lines=True)), 200
    except AutoresearchError as error:
        return clean(str(error), lines=True), 409
