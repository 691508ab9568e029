"""People who are made up: what each text is worth to them is known, so that verdicts can be held against the truth."""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from autoresearch.adapters.marketing.surfaces import EVERYBODY, PAGE

WEEKDAYS = (1.10, 1.12, 1.08, 1.05, 0.95, 0.80, 0.90)
"""Traffic of each day of the week, Monday first, relative to the mean."""

ROBOTS = 0.05
"""Robots for each person; they are served and must never count."""

RETURNING = 0.10
"""Share of people who look twice; they must see the same again and count once."""

SPREAD = 0.09
"""Standard deviation of what one text adds to the logarithm of the rate."""

_TRAFFIC_RATES = (0.2, 0.8)  # of the day within which people come: between 5 and 19 o'clock


@dataclass(frozen=True, slots=True)
class Visit:
    """One person, or one robot.

    Attributes:
        unit: Cookie value of a person; empty for a robot.
        at: When, in the simulation's calendar.
        dice: In [0, 1): converts where this is below the rate of what is seen.
        rail_dice: The same for each guardrail, by name.
        again: When the person comes back; None where not.
        audience: Which audience the person belongs to; empty: none.
        pages: Which pages the person looks at, the first one at least.
    """

    unit: str
    at: datetime
    dice: float
    rail_dice: Mapping[str, float] = field(default_factory=dict)
    again: datetime | None = None
    audience: str = EVERYBODY
    pages: tuple[str, ...] = (PAGE,)


@dataclass(frozen=True, slots=True)
class Audience:
    """A population with known taste.

    Attributes:
        seed: Another seed, another taste and other people.
        baseline: Rate of the original copy.
        weekly: People a week.
        original: Slot texts of the original copy.
        spread: See `SPREAD`; 0 makes every text worth the same.
        rails: Rate of each guardrail event; the same whatever is seen.
        audiences: Share of people in each audience; each has a taste of its own.
        pages: Share of people who look at each further page besides the first.
    """

    seed: int
    baseline: float
    weekly: int
    original: Mapping[str, str]
    spread: float = SPREAD
    rails: Mapping[str, float] = field(default_factory=dict)
    audiences: Mapping[str, float] = field(default_factory=dict)
    pages: Mapping[str, float] = field(default_factory=dict)

    def rate(self, slots: Mapping[str, str], audience: str = EVERYBODY) -> float:
        """Return the true rate of the texts that a person sees; each multiplies it by what it is worth."""
        gain = sum(self._gain(name, text, audience) for name, text in slots.items())
        return min(self.baseline * math.exp(gain), 0.95)

    def crowds(self) -> Iterator[tuple[float, str, tuple[str, ...]]]:
        """Yield the kinds of people that there are: share, audience, and the pages that they look at."""
        others = 1.0 - math.fsum(self.audiences.values())
        for audience, share in {EVERYBODY: others, **self.audiences}.items():
            for looks in itertools.product((True, False), repeat=len(self.pages)):
                chances = [
                    reach if look else 1.0 - reach for look, reach in zip(looks, self.pages.values(), strict=True)
                ]
                pages = itertools.compress(self.pages, looks)
                yield share * math.prod(chances), audience, (PAGE, *pages)

    def lift(self, control: Mapping[str, str], treatment: Mapping[str, str]) -> float:
        """Return the true lift of one copy over another."""
        return self.rate(treatment) / self.rate(control) - 1.0

    def day(self, name: str, moment: datetime) -> Iterator[Visit]:
        """Yield everybody who comes within the day after `moment`; asked again, the same people come.

        Args:
            name: Of the test; people of two tests differ.
            moment: Beginning of the day.
        """
        dice = random.Random(f"{self.seed}/{name}/{moment.isoformat()}")
        count = round(self.weekly / 7.0 * WEEKDAYS[moment.weekday()])
        for index in range(count):
            at = moment + timedelta(days=_TRAFFIC_RATES[0] + dice.random() * (_TRAFFIC_RATES[1] - _TRAFFIC_RATES[0]))
            again = at + timedelta(hours=dice.uniform(0.1, 2.0)) if dice.random() < RETURNING else None
            rails = {rail: dice.random() for rail in self.rails}
            unit = _unit(f"{self.seed}/{name}/{moment.isoformat()}/{index}")
            yield Visit(unit, at, dice.random(), rails, again, *self._way(unit))
            if dice.random() < ROBOTS:
                yield Visit("", at, 1.0)

    def _way(self, unit: str) -> tuple[str, tuple[str, ...]]:
        """Return the audience of a person and the pages that it looks at."""
        if not self.audiences and not self.pages:
            return EVERYBODY, (PAGE,)
        dice = random.Random(f"{self.seed}/way/{unit}")
        position, audience = dice.random(), EVERYBODY
        for name, share in self.audiences.items():
            if 0.0 <= position < share:
                audience = name
            position -= share
        return audience, (PAGE, *(page for page, reach in self.pages.items() if dice.random() < reach))

    def _gain(self, slot: str, text: str, audience: str) -> float:
        own = f"{audience}.{slot}" if audience else slot
        original = self.original.get(own, self.original.get(slot, ""))
        return self._worth(own, text) - self._worth(own, original)

    def _worth(self, slot: str, text: str) -> float:
        return self.spread * random.Random(f"{self.seed}/{slot}/{text}").gauss(0.0, 1.0)


def _unit(name: str) -> str:
    """Return a unit id as the server hands them out: 128 bits, 22 characters."""
    return base64.urlsafe_b64encode(hashlib.sha256(name.encode()).digest()[:16]).decode("ascii").rstrip("=")
