"""Traffic that is made up: an audience with known truth walks through the real server over HTTP.

Only the people are invented. Pages are rendered, arms assigned, events written and counted by the same code that serves
real visitors; the calendar is the simulation's, told to the server with every request.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from autoresearch.adapters.marketing.audience import Audience, Visit
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest
from autoresearch.adapters.marketing.served import ServedSource
from autoresearch.adapters.marketing.site.pages import CampaignPages
from autoresearch.adapters.marketing.site.views import stamp
from autoresearch.adapters.marketing.site.visitors import COOKIE
from autoresearch.adapters.marketing.sources import Seen
from autoresearch.adapters.marketing.surfaces import EVERYBODY, LANGUAGE, PAGE
from autoresearch.adapters.marketing.wording import Copy
from autoresearch.core import EnvironmentNotReadyError, LiveExperiment, UsageError

CONNECTIONS = 16
"""Visitors at a time. More make nothing faster: server and audience share the processors."""

WEEKLY, BASELINE = 20_000, 0.05
"""Where the campaign does not say."""

RAIL_RATE = 0.002
"""Rate of a guardrail event without a ceiling; with one, half of the ceiling."""

_BEGAN = datetime(2026, 1, 5, tzinfo=UTC)  # a Monday
_STARTING_SECONDS = 60.0


class SimulatedSource:
    """Simulated people on a real server.

    Args:
        campaign: The campaign; `[simulated] spread` sets how much texts differ in worth, 0 for an A/A audience.
        seed: Of taste and people.
    """

    label = "simulated"

    def __init__(self, campaign: Campaign, *, seed: int = 0) -> None:
        from autoresearch.adapters.marketing.campaign import typed_table

        table = typed_table(campaign.path, "simulated", campaign.sources.get("simulated", {}), {"spread": (int, float)})
        traffic = campaign.traffic
        spread = {"spread": float(table["spread"])} if "spread" in table else {}
        self._campaign = campaign
        self._served = ServedSource(campaign, salted=repeatable)
        self._state = self._served.folder.path / "simulated.json"
        self._pages = CampaignPages(campaign)
        self._known: dict[tuple[str, str, Path], tuple[bytes, Mapping[str, str]]] = {}
        self._server: _Server | None = None
        self.audience = Audience(
            seed,
            BASELINE if traffic.baseline is None else traffic.baseline,
            WEEKLY if traffic.weekly is None else traffic.weekly,
            Copy.load(campaign.copy_path).slots,
            rails={rail.name: rail.ceiling / 2 if rail.ceiling else RAIL_RATE for rail in campaign.guardrails},
            audiences={one.name: one.reach for one in campaign.surfaces if one.audience},
            pages={one.name: one.reach for one in campaign.surfaces if one.path not in ("", "/")},
            **spread,
        )

    def prepare(self) -> None:
        """Show the campaign's own copy. The salt comes from the seed, so that a simulation can be repeated."""
        salt = self._served.folder.path / "salt"
        if not salt.exists():
            salt.write_text(f"simulated-{self.audience.seed}", encoding="ascii")
        self._served.show_original()
        state = self._read()
        if state["seed"] != self.audience.seed:
            raise UsageError(
                f"The audience of {self._campaign.folder} began with seed {state['seed']}, and people do not change "
                f"their taste to that of seed {self.audience.seed}.\nKeep the seed, or simulate another folder."
            )
        self._write(state)

    def start(self, experiment: LiveExperiment) -> datetime:
        """Make the test live on the server."""
        return self.start_together([experiment]).started

    def start_together(self, experiments: Sequence[LiveExperiment]) -> LiveTest:
        """Make a test of several candidates live on the server."""
        state = self._read()
        for experiment in experiments:
            began = state["tests"].setdefault(experiment.id, {"began": state["now"], "day": 0})["began"]
        self._write(state)
        self._served.now = lambda: datetime.fromisoformat(began)
        return self._served.start_together(experiments)

    def show_to_everybody(self, artifact: Path) -> None:
        """Make a copy the incumbent unless it is."""
        self._served.show_to_everybody(artifact)

    def look(self, experiment_id: str) -> Seen:
        """Let a day of people pass unless another test's look has let it pass already, then count."""
        state = self._read()
        test = state["tests"][experiment_id]
        evening = datetime.fromisoformat(test["began"]) + timedelta(days=test["day"] + 1)
        while (morning := datetime.fromisoformat(state["now"])) < evening:
            asyncio.run(self._pass_day(experiment_id, morning))
            # Only now: after a kill the same people come again, and nobody counts twice.
            state["now"] = (morning + timedelta(days=1)).isoformat()
            self._write(state)
        test["day"] += 1
        self._write(state)
        return self._served.seen_at(experiment_id, evening)

    def wait_seconds(self, experiment_id: str) -> float:
        """Nothing to wait for."""
        return 0.0

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        """End the test."""
        now = datetime.fromisoformat(self._read()["now"])
        self._served.now = lambda: now
        self._served.finish(experiment_id, kept=kept)

    def show(self, artifact: Path) -> None:
        """Make a copy the incumbent of the page."""
        self._served.show(artifact)

    def close(self) -> None:
        """Stop the server; it ends with this process in any case."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _pass_day(self, experiment_id: str, morning: datetime) -> None:
        if self._server is None:
            self._server = _Server(self._campaign.folder)
        await self._server.follows(self._served.folder)
        # People of a day belong to no test where several run.
        test = self._served.folder.find(experiment_id)
        assert test is not None, "a test is looked at after it was started"
        visits = self.audience.day("people" if test.lane else repeatable(test.id), morning)
        walker = _Walker(self._server.port, self._campaign, self.audience, self._texts())
        await asyncio.gather(*(walker.walk(visits) for _ in range(CONNECTIONS)))

    def _texts(self) -> Texts:
        """Return all that may be seen now, with the texts in it."""
        state = self._served.folder.read()
        surface = state.surfaces[PAGE]
        folders = {surface.original, surface.incumbent}
        folders |= {test.folder(arm) for test in state.tests.values() for arm in test.arms}
        places = itertools.product((PAGE, *self.audience.pages), (EVERYBODY, *self.audience.audiences))
        return {place: dict(self._text(*place, folder) for folder in folders) for place in places}

    def _text(self, page: str, audience: str, folder: Path) -> tuple[bytes, Mapping[str, str]]:
        """Return what is sent of an artifact, and the texts in it; an artifact's folder never changes."""
        known = (page, audience, folder)
        if known not in self._known:
            slots = self._pages.slots(folder, page, audience)
            seen = self._pages.html(folder, page, audience) if self._pages.routes else _slots_key(slots)
            self._known[known] = (seen, slots)
        return self._known[known]

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"seed": self.audience.seed, "now": _BEGAN.isoformat(), "tests": {}}
        return found

    def _write(self, state: Mapping[str, Any]) -> None:
        from autoresearch.core.formats import write_by_rename

        write_by_rename(self._state, json.dumps(state, indent=1))


def repeatable(experiment_id: str) -> str:
    """Return the part of a test's id that is the same in every run: its number.

    The id begins with the moment at which the run began, and with it in the dice the same seed would bring other people
    every time. Tests of two runs in one folder meet other people all the same, for they come on later days.
    """
    return experiment_id.rpartition("-")[2]


def audience_of(campaign: Campaign) -> tuple[Audience, datetime] | None:
    """Return the made-up audience of a campaign and the present moment of its calendar; None where none was made."""
    state = LiveFolder.of(campaign.folder).path / "simulated.json"
    if campaign.traffic.source != "simulated" or not state.exists():
        return None
    found = json.loads(state.read_text(encoding="utf-8"))
    return SimulatedSource(campaign, seed=found["seed"]).audience, datetime.fromisoformat(found["now"])


def true_rate(campaign: Campaign, audience: Audience, artifact: Path) -> float:
    """Return the true rate of an artifact that everybody sees, over all pages and audiences of a campaign."""
    pages = CampaignPages(campaign)
    return sum(
        share * audience.rate({k: v for page in seen for k, v in pages.slots(artifact, page, name).items()}, name)
        for share, name, seen in audience.crowds()
    )


Texts = Mapping[tuple[str, str], Mapping[bytes, Mapping[str, str]]]
"""By page and audience: what is sent, and the texts in it."""


def _slots_key(slots: Mapping[str, str]) -> bytes:
    return json.dumps(dict(slots), sort_keys=True).encode()


class _Walker:
    """Walks people through the server, one connection a call of `walk`."""

    def __init__(self, port: int, campaign: Campaign, audience: Audience, texts: Texts) -> None:
        self._port, self._audience, self._texts = port, audience, texts
        self._paths = {PAGE: "/"} | {one.name: one.path for one in campaign.surfaces if one.path not in ("", "/")}
        self._is_page = campaign.kind == "page"
        self._traits = {one.name: {name: v[0] for name, v in one.audience.items()} for one in campaign.surfaces}
        self._rates: dict[tuple[str, tuple[bytes, ...]], float] = {}

    async def walk(self, visits: Iterator[Visit]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            for visit in visits:
                await self._visit(reader, writer, visit)
        finally:
            writer.close()
            await writer.wait_closed()

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visit: Visit) -> None:
        seen = tuple([await self._look(reader, writer, visit, page, visit.at) for page in visit.pages])
        if not visit.unit:
            return
        if visit.again is not None and await self._look(reader, writer, visit, PAGE, visit.again) != seen[0]:
            raise EnvironmentNotReadyError(
                f"A returning visitor saw another page than before, at {visit.again:%Y-%m-%d %H:%M} of the simulation."
            )
        soon = visit.at + timedelta(minutes=3)
        if visit.dice < self._rate(visit, seen):
            await _request(reader, writer, "POST /convert", visit.unit, soon)
        for rail, dice in visit.rail_dice.items():
            if dice < self._audience.rails[rail]:
                await _request(reader, writer, f"POST /convert/{rail}", visit.unit, soon)

    def _rate(self, visit: Visit, seen: tuple[bytes, ...]) -> float:
        """Return the true rate of a person by what it saw, a text on two pages once."""
        known = (visit.audience, seen)
        if known not in self._rates:
            texts: dict[str, str] = {}
            for page, what in zip(visit.pages, seen, strict=True):
                texts |= self._texts[page, visit.audience][what]
            self._rates[known] = self._audience.rate(texts, visit.audience)
        return self._rates[known]

    async def _look(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, visit: Visit, page: str, at: datetime
    ) -> bytes:
        """Return what a visitor sees: the page, or the texts where the campaign has no page."""
        traits = dict(self._traits.get(visit.audience, {}))
        if not self._is_page:
            who = {"unit": visit.unit} if visit.unit else {"unit": "robot", "ua": "Googlebot/2.1"}
            asked = f"GET /assign?{urlencode({'expose': 1, **who, **traits})}"
            return _slots_key(json.loads(await _request(reader, writer, asked, visit.unit, at))["slots"])
        language = traits.pop(LANGUAGE, "")
        query = f"?{urlencode(traits)}" if traits else ""
        return await _request(reader, writer, f"GET {self._paths[page]}{query}", visit.unit, at, language)


async def _request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str, unit: str, at: datetime, language: str = ""
) -> bytes:
    """Send one request and return the body of its answer."""
    who = f"cookie: {COOKIE}={unit}\r\nuser-agent: Mozilla/5.0 (Windows NT 10.0) Chrome/130.0" if unit else _ROBOT
    time = round(at.timestamp() * 1e6)
    length = "content-length: 0\r\n" if line.startswith("POST") else ""
    who += f"\r\naccept-language: {language}" if language else ""
    head = f"{line} HTTP/1.1\r\nhost: 127.0.0.1\r\n{who}\r\nx-autoresearch-time: {time}\r\n{length}\r\n"
    writer.write(head.encode("ascii"))
    answer = await reader.readuntil(b"\r\n\r\n")
    status = int(answer[9:12])
    start = answer.lower().index(b"content-length: ") + 16
    body = await reader.readexactly(int(answer[start : answer.index(b"\r", start)]))
    if status >= 400:
        raise EnvironmentNotReadyError(
            f"The server answered {line} with {status}: {body[:200].decode(errors='replace')}\n"
            "Look at its health page, then run again."
        )
    return body


_ROBOT = "user-agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"


class _Server:
    """The campaign's server in a process of its own, on a free port of the loopback; it ends when its stdin does."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.simulated_server", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # out of reach of Ctrl-C, which lets the experiment finish
        )
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        if not told:
            raise EnvironmentNotReadyError(
                f"The server of the simulation did not start (exit code {self._process.wait()}).\n"
                "Install what it needs: pip install 'autoresearch[marketing]'"
            )
        self.port = int(told)

    async def follows(self, live: LiveFolder) -> None:
        """Return once the server shows what is live now."""
        wanted = list(stamp(live.live) or ())
        loop = asyncio.get_running_loop()
        until = loop.time() + _STARTING_SECONDS
        while loop.time() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                health = json.loads(await _request(reader, writer, "GET /healthz", "", _BEGAN))
            finally:
                writer.close()
            if health["followed"] == wanted:
                return
            await asyncio.sleep(0.05)
        raise EnvironmentNotReadyError("The server of the simulation did not follow what is live within a minute.")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
