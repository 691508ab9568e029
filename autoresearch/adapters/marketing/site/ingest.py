"""Other people's events: `POST /events` in Segment's shape, and webhooks whose sender proves who it is.

One event is an object; several come as a list or as `{"batch": [...]}`. Known fields:

    event            "Experiment Viewed" is an exposure, any other name is a conversion of that name
    anonymousId      the unit (or `unit`, or `userId`; in a browser the cookie, where none is given)
    messageId        a repeated one counts once
    timestamp        ISO 8601; now, where it is left out
    properties       experiment_id and variation_id (or variation_name) of an exposure; value or revenue of a conversion
    context          userAgent: events of robots are flagged, and not counted
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.counting import holdout_key
from autoresearch.adapters.marketing.live import LiveTest, made_once
from autoresearch.adapters.marketing.site.robots import is_robot
from autoresearch.adapters.marketing.site.views import Views

VIEWED = "Experiment Viewed"
LONGEST = 200
"""Characters of an id or a name."""

OLDEST = timedelta(days=30)
NEWEST = timedelta(minutes=5)
"""How far the time of an event may lie from the time it comes in."""

WEBHOOK_WINDOW = timedelta(minutes=5)
"""How old, or how far ahead, the signed time of a webhook may be."""

_LARGEST = 1e12


class BadRequestError(Exception):
    """The request as a whole is of no use; the message says why."""


class BadEventError(Exception):
    """One event is of no use; the message says why."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a request's events.

    Attributes:
        accepted: How many are in the log.
        refused: Why the others are not, by position.
        written: False where the log could not be written: the sender should try again.
    """

    accepted: int
    refused: tuple[tuple[int, str], ...] = ()
    written: bool = True


class Ingest:
    """Turns events into records of the log.

    Args:
        views: What is live, and the log.
    """

    def __init__(self, views: Views) -> None:
        self._views = views
        self._tests: dict[str, LiveTest] = {}

    def parse(self, body: bytes) -> list[Any]:
        """Return the events in a request body.

        Raises:
            BadRequestError: If it is no JSON, holds no events or too many.
        """
        import orjson

        try:
            data = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadRequestError(f"The body is no JSON: {error}.") from error
        rows = data.get("batch", [data]) if isinstance(data, dict) else data
        if not isinstance(rows, list) or not rows:
            raise BadRequestError('The body holds no events: send an object, a list, or {"batch": [...]}.')
        if len(rows) > self._views.settings.max_batch:
            raise BadRequestError(
                f"{len(rows)} events in one request; at most {self._views.settings.max_batch} are taken."
            )
        return rows

    def take(self, rows: list[Any], *, unit: str | None, now_us: int, agent: str | None, source: str = "") -> Taken:
        """Write the events and say what became of each.

        Args:
            rows: What `parse` returned.
            unit: The cookie's unit, for events that name none; None where there is no cookie or no consent.
            now_us: The time they came in.
            agent: User agent of a browser that sent them for itself; None for servers, which may pass one per event.
            source: Name of the sender, so that message ids of two senders do not meet.
        """
        records: list[bytes] = []
        refused: list[tuple[int, str]] = []
        for index, row in enumerate(rows):
            try:
                records.append(self._record(row, unit, now_us, agent, source))
            except BadEventError as error:
                refused.append((index, str(error)))
        kept = [record for record in records if record]
        written = not kept or self._views.record(b"".join(kept))
        return Taken(len(records) if written else 0, tuple(refused), written)

    def _record(self, row: Any, cookie_unit: str | None, now_us: int, agent: str | None, source: str) -> bytes:
        """Return the records of one event, or nothing where its unit asked to be forgotten."""
        if not isinstance(row, dict):
            raise BadEventError("An event must be an object.")
        name = _text(row, "event")
        unit = self._views.unit_key(_unit(row, cookie_unit))
        if self._views.forgets(unit):
            return b""
        properties = _object(row, "properties")
        message = _text(row, "messageId", required=False)
        agent = agent or _text(_object(row, "context"), "userAgent", required=False) or None
        common: dict[str, Any] = {
            "event": events.key(message, f"{source}/message") if message else 0,
            "flags": events.BOT if agent is not None and is_robot(agent) else 0,
        }
        time_us = _time_us(row, now_us)
        if name == VIEWED:
            test, arm = self._arm(properties)
            # Who is in a test is not in the holdout: one record for each of the two comparisons, as for a page view.
            rest = events.pack(unit, time_us, holdout_key(test.surface), kind=events.EXPOSURE, arm=1, **common)
            return rest + events.pack(unit, time_us, events.key(test.id), kind=events.EXPOSURE, arm=arm, **common)
        return events.pack(unit, time_us, events.key(name), kind=events.CONVERSION, value=_value(properties), **common)

    def _arm(self, properties: Mapping[str, Any]) -> tuple[LiveTest, int]:
        test_id = _text(properties, "experiment_id")
        test = self._test(test_id)
        if test is None:
            raise BadEventError(f"No experiment {test_id!r} was started here.")
        given = properties.get("variation_id", properties.get("variation_name"))
        if isinstance(given, str) and given in test.arms:
            return test, test.arms.index(given)
        # The position, as a number or its text: the way of systems that number variations.
        if str(given) in map(str, range(len(test.arms))):
            return test, int(str(given))
        raise BadEventError(f"Experiment {test_id!r} has no variation {given!r}; it has {', '.join(test.arms)}.")

    def _test(self, test_id: str) -> LiveTest | None:
        for test in self._views.state.tests.values():
            if test.id == test_id:
                return test
        if test_id not in self._tests:
            found = self._views.live.find(test_id)
            if found is None:
                return None
            if len(self._tests) > 1000:
                self._tests.clear()
            self._tests[test_id] = found
        return self._tests[test_id]


class Webhooks:
    """Checks signatures as Standard Webhooks has them, and remembers what was taken.

    A signed request carries an id, a time and `v1,` with the base64 of HMAC-SHA-256 over `id.time.body`. What was taken
    is remembered on the disk, for all workers and over restarts, as long as a repetition could still be in time.

    Args:
        folder: The campaign's state folder.
        names: Known senders.
    """

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self._taken = folder / "webhooks"
        self._taken.mkdir(exist_ok=True)
        self._keys = {name: webhook_secret(folder, name).encode() for name in names}

    def check(self, name: str, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
        """Return the id of a genuine request.

        Raises:
            BadRequestError: If the sender is unknown, a header is missing, the time is off or the signature wrong.
        """
        secret = self._keys.get(name)
        if secret is None:
            raise BadRequestError(f"No sender {name!r} is set up.")
        message, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "")
        if not message or len(message) > LONGEST or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 12):
            raise BadRequestError("webhook-id or webhook-timestamp is missing or malformed.")
        expected = sign_webhook(secret, message, stamp, body)
        # There may be several: a sender that changes its key signs with both.
        if not any(hmac.compare_digest(expected.encode(), part.encode()) for part in given.split(" ")):
            raise BadRequestError("The signature does not fit.")
        if abs(now.timestamp() - int(stamp)) > WEBHOOK_WINDOW.total_seconds():
            raise BadRequestError("The request is too old, or the clocks differ by more than five minutes.")
        return message

    def is_repeated(self, name: str, message: str) -> bool:
        """Say whether a request with this id was taken before."""
        return self._mark(name, message).exists()

    def remember(self, name: str, message: str) -> None:
        """Note that a request was taken, and forget those whose repetition would be too old anyway."""
        self._mark(name, message).touch()
        limit = datetime.now(UTC).timestamp() - 2 * WEBHOOK_WINDOW.total_seconds()
        for mark in self._taken.iterdir():
            try:
                if mark.stat().st_mtime < limit:
                    mark.unlink()
            except FileNotFoundError:
                continue  # another worker was faster

    def _mark(self, name: str, message: str) -> Path:
        return self._taken / hashlib.sha256(f"{name}\0{message}".encode()).hexdigest()[:40]


def webhook_secret(folder: Path, name: str) -> str:
    """Return the secret that a sender signs with; it is made at the first call, and lies where only the owner reads."""
    return made_once(folder, f"webhook-{name}")


def sign_webhook(secret: bytes, message: str, stamp: str, body: bytes) -> str:
    """Return the signature of a request, `v1,` and base64."""
    digest = hmac.new(secret, f"{message}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode("ascii")


def _text(row: Mapping[str, Any], name: str, *, required: bool = True) -> str:
    value = row.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or not value:
        raise BadEventError(f"{name} must be a text.")
    if len(value) > LONGEST and name != "userAgent":
        raise BadEventError(f"{name} is longer than {LONGEST} characters.")
    return value


def _object(row: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = row.get(name) or {}
    if not isinstance(value, dict):
        raise BadEventError(f"{name} must be an object.")
    return value


def _unit(row: Mapping[str, Any], cookie_unit: str | None) -> str:
    for name in ("unit", "anonymousId", "userId"):
        if row.get(name) is not None:
            return _text(row, name)
    if cookie_unit is None:
        raise BadEventError("Nobody is named: give unit, anonymousId or userId, or send the cookie.")
    return cookie_unit


def _time_us(row: Mapping[str, Any], now_us: int) -> int:
    given = row.get("timestamp")
    if given is None:
        return now_us
    try:
        moment = datetime.fromisoformat(given)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        time_us = int((moment - datetime.fromtimestamp(0, UTC)) / timedelta(microseconds=1))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadEventError("timestamp is no ISO 8601 time.") from error
    age = timedelta(microseconds=now_us - time_us)
    if age > OLDEST or -age > NEWEST:
        raise BadEventError("timestamp is more than 30 days past or more than 5 minutes ahead.")
    return time_us


def _value(properties: Mapping[str, Any]) -> float:
    value = properties.get("value", properties.get("revenue", 0.0))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadEventError("value must be a number.")
    if abs(value) > _LARGEST:
        raise BadEventError(f"value is larger than {_LARGEST:g}.")
    return float(value)
