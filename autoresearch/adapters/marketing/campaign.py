"""A campaign folder: what `campaign.toml` may say, and where the other files lie.

    campaign.toml   goal, metric, guardrails, traffic, sender, slots with their limits, surfaces (surfaces.py)
    copy.toml       the artifact: the texts that may change (wording.py)
    template/       where those texts go (render.py)
    facts.md        what may be claimed
    brand.md        voice, and words that are banned

Every key is typed, and one that nobody reads is refused with its file and table: no misspelt limit goes unnoticed.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from autoresearch.adapters.marketing import wording
from autoresearch.adapters.marketing.surfaces import PAGE, PAGE_TEMPLATE, Surface, rule_fault, rule_of
from autoresearch.core import Direction, MetricKind, UsageError

CAMPAIGN_NAME = "campaign.toml"
COPY_NAME = wording.COPY_NAME
FACTS_NAME = "facts.md"
BRAND_NAME = "brand.md"
TEMPLATE_FOLDER = "template"

KINDS = ("page", "email", "ad")
SOURCES = ("simulated", "site", "api", "email", "counts", "replay")
PLATFORMS = ("search", "social")

SERVING = ("simulated", "site", "api")
"""Sources that can run several arms and several surfaces at once: what people see is decided here, visit by visit."""

MOST_ARMS = 8
"""Candidates that may share one control. Each gets less of the traffic, and has to win by more."""

Keys = Mapping[str, type | tuple[type, ...]]
"""Names that a table may hold, with the types that each may have."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A named place in the template and what its text must keep to.

    Attributes:
        name: As in `copy.toml` and, after `slot.`, in the template.
        max_chars: Most characters; for search ads a wide character (Chinese, Japanese, Korean) counts as two.
        max_lines: Most lines; 1 forbids line breaks.
        about: What the text is for, in words for the person or model that writes it.
    """

    name: str
    max_chars: int
    max_lines: int = 1
    about: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """What the copy should bring about.

    Attributes:
        text: The goal in a sentence.
        event: Name of the conversion event (`signup`).
        audience: Who reads it.
        landing_url: Where links lead; empty where the campaign's own site or the tool that sends it decides.
        canonical_url: Public address of the page; empty where none is known.
        privacy_url: Page that says what happens with what people type in.
    """

    text: str
    event: str
    audience: str = ""
    landing_url: str = ""
    canonical_url: str = ""
    privacy_url: str = "/privacy"


@dataclass(frozen=True, slots=True)
class PrimaryMetric:
    """What decides.

    Attributes:
        name: As it appears in logs (`signup_rate`, `positive_reply_rate`).
        kind: A share of units, or a mean over units.
        direction: Which way is better.
        min_effect: Smallest relative lift worth having, 0.1 for 10 %.
        unit: Unit of one value.
    """

    name: str
    kind: MetricKind = MetricKind.PROPORTION
    direction: Direction = Direction.MAXIMIZE
    min_effect: float = 0.1
    unit: str = "share of visitors"


@dataclass(frozen=True, slots=True)
class Guardrail:
    """A share that a treatment must not raise.

    Attributes:
        name: Name of its event (`unsubscribe`, `complaint`, `bounce`, `refund`).
        ceiling: Share of exposed units above which the treatment is stopped; None: no absolute line.
        harm: Relative rise over the control that counts as harm (0.5: half as many again).
    """

    name: str
    ceiling: float | None = None
    harm: float = 0.5


@dataclass(frozen=True, slots=True)
class Traffic:
    """Who sees the copy, and how much of them there is.

    Attributes:
        source: Where traffic comes from; one of `SOURCES`.
        weekly: Units a week (visitors, recipients, impressions); None where nobody knows.
        baseline: Rate of the metric today; None where nobody knows.
        holdout: Share of traffic that always gets the original, to tell the truth about the total.
        whole_weeks: Tests end with whole weeks, since weekdays differ.
        maturity_days: Days that a unit is given to convert before it counts.
        max_weeks: Weeks after which a test without a verdict is inconclusive.
        arms: Candidates that are tested at once on a surface, all against one control.
    """

    source: str = "simulated"
    weekly: int | None = None
    baseline: float | None = None
    holdout: float = 0.05
    whole_weeks: bool = True
    maturity_days: float = 1.0
    max_weeks: int = 8
    arms: int = 1


@dataclass(frozen=True, slots=True)
class Sender:
    """Who speaks.

    Attributes:
        name: Person or team that signs.
        organisation: Name of the organisation.
        postal_address: Street address; every mail must show it.
        email: Address that mail comes from.
        reply_to: Address that answers go to; empty: `email`.
        website: Address of the organisation's site.
        unsubscribe_url: Address for leaving the list in exported mail, or the sending tool's own mark for it.
    """

    name: str = ""
    organisation: str = ""
    postal_address: str = ""
    email: str = ""
    reply_to: str = ""
    website: str = ""
    unsubscribe_url: str = ""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Everything about a campaign that no candidate may change.

    Attributes:
        folder: The campaign folder.
        name: Name for reports and exports.
        kind: `page`, `email` or `ad`.
        goal: What the copy should bring about.
        metric: What decides.
        guardrails: What must not get worse.
        traffic: Who sees it.
        sender: Who speaks.
        slots: Slots by name, in the order of `campaign.toml`.
        surfaces: What is tested at the same time, in that order; none: the whole copy is one surface.
        page_template: The page's file among the templates; another one for another page, see `at`.
        language: Language of the copy as a BCP 47 tag.
        platform: `search` or `social`, for ads.
        links: Further hosts that a slot's text may name.
        sources: Tables of the traffic sources as they stand; their modules read them with `typed_table`.
        facts: Text of `facts.md`.
        brand: Text of `brand.md`.
    """

    folder: Path
    name: str
    kind: str
    goal: Goal
    metric: PrimaryMetric
    guardrails: tuple[Guardrail, ...] = ()
    traffic: Traffic = field(default_factory=Traffic)
    sender: Sender = field(default_factory=Sender)
    slots: Mapping[str, Slot] = field(default_factory=dict)
    surfaces: tuple[Surface, ...] = ()
    page_template: str = PAGE_TEMPLATE
    language: str = "en"
    platform: str = "search"
    links: tuple[str, ...] = ()
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    facts: str = ""
    brand: str = ""

    @property
    def path(self) -> Path:
        """`campaign.toml`."""
        return self.folder / CAMPAIGN_NAME

    @property
    def template(self) -> Path:
        """The folder with the templates."""
        return self.folder / TEMPLATE_FOLDER

    @property
    def copy_path(self) -> Path:
        """`copy.toml` of the folder: the baseline."""
        return self.folder / COPY_NAME

    @property
    def pages(self) -> Mapping[str, str]:
        """Template by page: `page` is what lies at `/`, the others are named by their surfaces."""
        others = {one.name: one.template for one in self.surfaces if one.path not in ("", "/")}
        return {PAGE: PAGE_TEMPLATE, **others}

    def at(self, page: str) -> Campaign:
        """Return the campaign as it is at one of its `pages`: what is rendered and checked is that page."""
        return replace(self, page_template=self.pages[page])

    @classmethod
    def load(cls, folder: Path) -> Campaign:
        """Read the campaign in `folder`.

        Raises:
            UsageError: If a file is missing or broken, or a key is unknown, missing or senseless; names file and key.
        """
        path = folder / CAMPAIGN_NAME
        tables = _parsed(path)
        top = typed_table(path, "", {name: value for name, value in tables.items() if name not in _TABLES}, _TOP)
        kind = _one_of(path, "kind", _required(path, "", top, "kind"), KINDS)
        platform = _one_of(path, "platform", top.get("platform", "search"), PLATFORMS)
        slots = _slots(path, _table(path, tables, "slots"))
        traffic = _traffic(path, _table(path, tables, "traffic"))
        surfaces = _surfaces(path, _table(path, tables, "surfaces"), kind, slots)
        if (surfaces or traffic.arms > 1) and traffic.source not in SERVING:
            raise UsageError(
                f"{path}: {'[surfaces]' if surfaces else '[traffic] arms'} asks for tests that share people, and the "
                f"source {traffic.source} runs one test of one candidate at a time.\nTake "
                f"{'these tables' if surfaces else 'the line'} out, or choose one of {', '.join(SERVING)}."
            )
        return cls(
            folder=folder,
            name=_required(path, "", top, "name"),
            kind=kind,
            goal=_goal(path, _table(path, tables, "goal")),
            metric=_metric(path, _table(path, tables, "metric")),
            guardrails=_guardrails(path, _table(path, tables, "guardrails")),
            traffic=traffic,
            sender=Sender(**typed_table(path, "sender", _table(path, tables, "sender"), _texts(Sender))),
            slots=slots,
            surfaces=surfaces,
            language=top.get("language", "en"),
            platform=platform,
            links=_text_list(path, "links", top.get("links", [])),
            sources={name: _table(path, tables, name) for name in SOURCES if name in tables},
            facts=read_text(folder / FACTS_NAME),
            brand=read_text(folder / BRAND_NAME),
        )


_TABLES = frozenset({"goal", "metric", "guardrails", "traffic", "sender", "slots", "surfaces", *SOURCES})
_NUMBER = (int, float)
_TOP: Keys = {"name": str, "kind": str, "language": str, "platform": str, "links": list}
_METRIC: Keys = {"name": str, "kind": str, "direction": str, "min_effect": _NUMBER, "unit": str}
_GUARDRAIL: Keys = {"ceiling": _NUMBER, "harm": _NUMBER}
_SLOT: Keys = {"max_chars": int, "max_lines": int, "about": str}
_TRAFFIC: Keys = {
    "source": str,
    "weekly": int,
    "baseline": _NUMBER,
    "holdout": _NUMBER,
    "whole_weeks": bool,
    "maturity_days": _NUMBER,
    "max_weeks": int,
    "arms": int,
}
_SURFACE: Keys = {"slots": list, "path": str, "template": str, "audience": dict, "reach": _NUMBER}


def typed_table(path: Path, name: str, table: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """Return a copy of a TOML table whose keys are all known and of the right type.

    Args:
        path: The file, for the message.
        name: Name of the table, for the message; empty for the top of the file.
        table: What TOML gave.
        keys: What may be there.

    Raises:
        UsageError: If a key is unknown or of the wrong type.
    """
    for key, value in table.items():
        if key not in keys:
            raise UsageError(
                f"{path}: {_place(name, key)} is unknown; {f'[{name}]' if name else 'the top of the file'} knows "
                f"{', '.join(keys)}.\nCorrect the name or take the line out."
            )
        # True is an int to Python and not to a person.
        if not isinstance(value, keys[key]) or (isinstance(value, bool) and keys[key] is not bool):
            raise UsageError(
                f"{path}: {_place(name, key)} must be {_in_words(keys[key])}, not {value!r}.\nCorrect the value."
            )
    return dict(table)


def read_text(path: Path) -> str:
    """Return a UTF-8 text file of a campaign.

    Raises:
        UsageError: If it is missing, unreadable or no UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UsageError(
            f"{path} is missing, and a campaign needs it.\nWrite it, or make a complete campaign to copy from: "
            "autoresearch init --adapter marketing DIR"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.\nIt must be a file that you may read.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start}).\nSave it as UTF-8.") from error


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}.\nCorrect that line.") from error


def _place(table: str, key: str) -> str:
    return f"[{table}] {key}" if table else key


_WORDS = {
    dict: "a table",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
}


def _in_words(types: type | tuple[type, ...]) -> str:
    return _WORDS[types[-1] if isinstance(types, tuple) else types]


def _texts(kind: type[Goal] | type[Sender]) -> Keys:
    return {each.name: str for each in fields(kind)}


def _table(path: Path, tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {name} must be a table, [{name}], not {table!r}.\nCorrect it.")
    return table


def _required(path: Path, name: str, table: Mapping[str, Any], key: str) -> str:
    value = table.get(key, "")
    if not value.strip():
        raise UsageError(f"{path}: {_place(name, key)} is missing.\nA campaign cannot do without it: give it a text.")
    return str(value)


def _one_of(path: Path, place: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise UsageError(f"{path}: {place} must be one of {', '.join(known)}, not {value!r}.\nCorrect the value.")
    return value


def _within(path: Path, place: str, value: float, low: float, high: float, *, above: bool = False) -> float:
    """Return a number that must lie in [low, high], or in (low, high] with `above`."""
    if not math.isfinite(value) or not low <= value <= high or (above and value == low):
        span = f"above {low:g} and at most {high:g}" if above else f"from {low:g} to {high:g}"
        raise UsageError(f"{path}: {place} must be {span}, not {value!r}.\nCorrect the value.")
    return value


def _text_list(path: Path, place: str, values: Sequence[object]) -> tuple[str, ...]:
    for value in values:
        if not isinstance(value, str):
            raise UsageError(f"{path}: {place} must be a list of texts, and holds {value!r}.\nCorrect the value.")
    return tuple(map(str, values))


def _goal(path: Path, table: Mapping[str, Any]) -> Goal:
    given = typed_table(path, "goal", table, _texts(Goal))
    for key in ("text", "event"):
        _required(path, "goal", given, key)
    for key in ("landing_url", "canonical_url", "privacy_url"):
        if given.get(key) and not re.match(r"(https?://|/)\S+$|/$", given[key]):
            raise UsageError(
                f"{path}: [goal] {key} must be an address that begins with https:// or a path that begins with /, not "
                f"{given[key]!r}.\nCorrect the value."
            )
    return Goal(**given)


def _metric(path: Path, table: Mapping[str, Any]) -> PrimaryMetric:
    given = typed_table(path, "metric", table, _METRIC)
    _required(path, "metric", given, "name")
    kinds = (MetricKind.PROPORTION.value, MetricKind.MEAN.value)
    if "kind" in given:
        given["kind"] = MetricKind(_one_of(path, "[metric] kind", given["kind"], kinds))
    if "direction" in given:
        directions = [direction.value for direction in Direction]
        given["direction"] = Direction(_one_of(path, "[metric] direction", given["direction"], directions))
    if "min_effect" in given:
        given["min_effect"] = float(_within(path, "[metric] min_effect", given["min_effect"], 0, 10, above=True))
    return PrimaryMetric(**given)


def _guardrails(path: Path, table: Mapping[str, Any]) -> tuple[Guardrail, ...]:
    rails = []
    for name in table:
        given = typed_table(path, f"guardrails.{name}", _table(path, table, name), _GUARDRAIL)
        for key, high in (("ceiling", 1.0), ("harm", 100.0)):
            if key in given:
                given[key] = float(_within(path, f"[guardrails.{name}] {key}", given[key], 0, high, above=True))
        rails.append(Guardrail(name, **given))
    return tuple(rails)


def _traffic(path: Path, table: Mapping[str, Any]) -> Traffic:
    given = typed_table(path, "traffic", table, _TRAFFIC)
    if "source" in given:
        _one_of(path, "[traffic] source", given["source"], SOURCES)
    if "weekly" in given:
        _within(path, "[traffic] weekly", given["weekly"], 1, 10**12)
    if "baseline" in given:
        given["baseline"] = float(_within(path, "[traffic] baseline", given["baseline"], 0, 10**9, above=True))
    if "holdout" in given:
        given["holdout"] = float(_within(path, "[traffic] holdout", given["holdout"], 0, 0.5))
    if "maturity_days" in given:
        given["maturity_days"] = float(_within(path, "[traffic] maturity_days", given["maturity_days"], 0, 365))
    if "max_weeks" in given:
        _within(path, "[traffic] max_weeks", given["max_weeks"], 1, 520)
    if "arms" in given:
        _within(path, "[traffic] arms", given["arms"], 1, MOST_ARMS)
    return Traffic(**given)


def _slots(path: Path, table: Mapping[str, Any]) -> dict[str, Slot]:
    slots = {}
    for name in table:
        given = typed_table(path, f"slots.{name}", _table(path, table, name), _SLOT)
        if not wording.is_name(name):
            raise UsageError(f"{path}: {name!r} cannot name a slot.\n{wording.NAME_RULE}")
        if "max_chars" not in given:
            raise UsageError(f"{path}: [slots.{name}] max_chars is missing.\nSay how long its text may be.")
        for key, high in (("max_chars", 100_000), ("max_lines", 1_000)):
            if key in given:
                _within(path, f"[slots.{name}] {key}", given[key], 1, high)
        slots[name] = Slot(name, **given)
    return slots


def _surfaces(path: Path, table: Mapping[str, Any], kind: str, slots: Mapping[str, Slot]) -> tuple[Surface, ...]:
    audiences = sum("audience" in row for row in table.values() if isinstance(row, dict))
    found = tuple(_surface(path, name, _table(path, table, name), slots, audiences) for name in table)
    if kind != "page" and any(one.path for one in found):
        raise UsageError(
            f"{path}: a surface with a path is a page, and a campaign of kind {kind} has none.\nTake it out."
        )
    _refuse_twins(path, found)
    reached = sum(one.reach for one in found if one.audience)
    if reached > 1.0 + 1e-9:
        raise UsageError(
            f"{path}: the audiences reach {reached:.0%} of the people together, and nobody is in two.\n"
            "Correct reach in [surfaces]."
        )
    return found


def _surface(path: Path, name: str, table: Mapping[str, Any], slots: Mapping[str, Slot], audiences: int) -> Surface:
    place = f"surfaces.{name}"
    given = typed_table(path, place, table, _SURFACE)
    if not wording.is_name(name):
        raise UsageError(f"{path}: {name!r} cannot name a surface.\n{wording.NAME_RULE}")
    chosen = _text_list(path, f"[{place}] slots", given.get("slots", []))
    if not chosen or len(set(chosen)) < len(chosen):
        raise UsageError(f"{path}: [{place}] slots must list, each once, the slots that its candidates may change.")
    unknown = [slot for slot in chosen if slot not in slots]
    if unknown:
        raise UsageError(
            f"{path}: [{place}] slots has {', '.join(unknown)}, and there is no [slots.{unknown[0]}]. There are "
            f"{', '.join(slots)}.\nCorrect the name, or say its max_chars there."
        )
    if "audience" in given:
        _check_audience(path, place, given)
    elif "path" in given or "template" in given:
        _check_page(path, place, name, given)
    usual = 1.0 / (audiences + 1) if "audience" in given else 0.5 if given.get("path", "/") != "/" else 1.0
    reach = float(_within(path, f"[{place}] reach", given.get("reach", usual), 0, 1, above=True))
    return Surface(name, chosen, given.get("path", ""), given.get("template", ""), given.get("audience", {}), reach)


def _check_audience(path: Path, place: str, given: dict[str, Any]) -> None:
    """Refuse an audience that nobody can tell, and put its values into tuples."""
    if "path" in given or "template" in given:
        raise UsageError(
            f"{path}: [{place}] is a page and an audience at once, and each is a surface of its own.\n"
            "Make two tables of it."
        )
    fault = rule_fault(given["audience"])
    if fault is not None:
        raise UsageError(
            f"{path}: the audience of [{place}] {fault}.\n"
            'Name query parameters or accept_language: audience = { utm_source = "newsletter" }'
        )
    given["audience"] = rule_of(given["audience"])


def _check_page(path: Path, place: str, name: str, given: dict[str, Any]) -> None:
    """Refuse a page that cannot be served, and fill in the template of `/`."""
    at = given.get("path", "")
    if not _PATH.fullmatch(at) or at.split("/")[1] in _OWN_PATHS:
        raise UsageError(
            f"{path}: [{place}] path must be a path of the site that the server does not need itself (/pricing), not "
            f"{at!r}.\nCorrect the value."
        )
    if (at == "/") != (given.setdefault("template", PAGE_TEMPLATE if at == "/" else "") == PAGE_TEMPLATE):
        raise UsageError(
            f"{path}: [{place}] {PAGE_TEMPLATE} is the page at /, and no other.\nCorrect path or template."
        )
    if at != "/" and name == PAGE:
        raise UsageError(f"{path}: [{place}] bears the name of what lies at /.\nGive it another one.")
    if ".." in Path(given["template"]).parts or Path(given["template"]).is_absolute():
        raise UsageError(
            f"{path}: [{place}] template {given['template']!r} leads out of {TEMPLATE_FOLDER}/.\n"
            "Put the page there, and name its file: pricing.html.j2"
        )
    if not given["template"] or not (path.parent / TEMPLATE_FOLDER / given["template"]).is_file():
        raise UsageError(
            f"{path}: [{place}] template {given['template']!r} is missing in {TEMPLATE_FOLDER}/.\n"
            "Write the page there, and name its file."
        )


_PATH = re.compile(r"(/|(/[A-Za-z0-9][A-Za-z0-9_.-]*)+)")
_OWN_PATHS = frozenset(
    {"convert", "go", "assign", "events", "webhooks", "unsubscribe", "snippet.js", "healthz", "robots.txt"}
)


def _refuse_twins(path: Path, found: Sequence[Surface]) -> None:
    """Refuse two pages at one path, and two surfaces of slots that may change the same one."""
    owners: dict[str, str] = {}
    for one in found:
        # Pages may show what others change too, each on people of its own; two surfaces of slots would be one.
        marks = [one.path] if one.path else [] if one.audience else one.slots
        for mark in marks:
            if mark in owners:
                raise UsageError(
                    f"{path}: [surfaces.{owners[mark]}] and [surfaces.{one.name}] both have {mark}.\n"
                    "Leave it to one of them."
                )
            owners[mark] = one.name
