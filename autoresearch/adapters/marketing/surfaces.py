"""Surfaces: the parts of a campaign that are tested at the same time, each on people of its own.

`[surfaces.NAME]` in campaign.toml names the slots that the candidates of a surface may change. With `path` and
`template` the surface is another page of the campaign. With `audience` it is for some people only: what it keeps is
shown to them alone, as texts `NAME.slot` in copy.toml that take the place of `slot`. Without such tables the whole copy
is one surface.

A surface is tested wherever its slots are shown, so that what is kept is what was tested. Nobody is in tests of two
surfaces: people are cut into equal parts by a salted hash, one part a surface (`assignment.parts`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

PAGE = "page"
"""What is shown at `/`, and the one surface of a campaign that names none."""

PAGE_TEMPLATE = "page.html.j2"

LANGUAGE = "accept_language"
"""The key of an audience rule that is no query parameter: the language that a browser asks for first."""

EVERYBODY = ""
"""The audience of people whom no rule fits."""

_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_TAG = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")
_LONGEST = 100
_TAKEN = frozenset({"unit", "surface", "expose", "ua"})
"""Query parameters of `/assign` that mean something else."""


@dataclass(frozen=True, slots=True)
class Surface:
    """What one series of tests may change, and who meets it.

    Attributes:
        name: As in `[surfaces.NAME]`.
        slots: The slots whose texts its candidates may change.
        path: Path of its page on the site; empty where it is no page of its own.
        template: Its page's file in the folder of templates; empty where it has none.
        audience: Accepted values by name; empty: everybody. All names must hold.
        reach: Share of the campaign's people who meet it, for planning and for people who are made up.
    """

    name: str
    slots: tuple[str, ...]
    path: str = ""
    template: str = ""
    audience: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reach: float = 1.0

    @property
    def keys(self) -> tuple[str, ...]:
        """The names in copy.toml that its candidates may change."""
        return tuple(f"{self.name}.{slot}" for slot in self.slots) if self.audience else self.slots

    def fits(self, traits: Mapping[str, str]) -> bool:
        """Say whether somebody with these traits belongs to its audience."""
        return all(_holds(name, traits.get(name, ""), values) for name, values in self.audience.items())


def audience_of(surfaces: Iterable[Surface], traits: Mapping[str, str]) -> str:
    """Return the name of the audience that somebody belongs to: the first in the file whose rule fits, else ''."""
    return next((one.name for one in surfaces if one.audience and one.fits(traits)), EVERYBODY)


def traits_of(query: bytes, languages: bytes) -> dict[str, str]:
    """Return what a request tells of its sender, for audience rules; nothing of it is stored.

    Args:
        query: The query string, as sent. The first of two values of a name counts.
        languages: The header Accept-Language, as sent; a parameter of that name takes its place.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1")):
        given.setdefault(name, value)
    given.setdefault(LANGUAGE, languages.decode("latin-1"))
    return given


def rule_fault(rule: Mapping[str, Any]) -> str | None:
    """Return what cannot be understood of an audience rule as TOML has it; None where all can."""
    if not rule:
        return "names nobody"
    for name, value in rule.items():
        values = value if isinstance(value, list) else [value]
        if not _PARAMETER.fullmatch(name) or name in _TAKEN:
            return f"has {name!r}, which is no name of a query parameter and not {LANGUAGE}"
        if not values or not all(isinstance(one, str) and 0 < len(one) <= _LONGEST for one in values):
            return f"asks {name} to be {value!r}, which is neither a text nor a list of texts"
        if name == LANGUAGE and not all(_TAG.fullmatch(one) for one in values):
            return f"asks {name} to be {value!r}, which is no language (de, pt-BR)"
    return None


def rule_of(rule: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return an audience rule as TOML has it, without a fault, as `Surface.audience`."""
    return {name: tuple(value) if isinstance(value, list) else (value,) for name, value in rule.items()}


def _holds(name: str, given: str, values: tuple[str, ...]) -> bool:
    if name == LANGUAGE:
        first = given.split(",")[0].split(";")[0].strip().lower()
        return any(first == value.lower() or first.startswith(f"{value.lower()}-") for value in values)
    return given.lower() in (value.lower() for value in values)
