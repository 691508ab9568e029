"""The table of experiments: filtered, newest first, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from autoresearch.core.ledger import Experiment
from autoresearch.core.readmodel import RunView
from autoresearch.core.words import clean
from autoresearch.web.report import Row, row_of

ROWS = 25
"""Experiments on one page of the table."""

OUTCOMES = ("kept", "reverted", "inconclusive", "crashed", "invalid")
ORDERS = {"newest": "newest first", "oldest": "oldest first", "effect": "largest effect first"}

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Filter:
    """What of the table is wanted; an empty text stands for everything.

    Attributes:
        outcome: One of `OUTCOMES`.
        category: As proposed.
        lane: As offered by the adapter.
        text: Words that hypothesis, reason or number must have.
        order: One of `ORDERS`.
        page: From 1.
    """

    outcome: str = ""
    category: str = ""
    lane: str = ""
    text: str = ""
    order: str = "newest"
    page: int = 1

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Filter:
        """Return what an address asks for; what makes no sense is left out."""
        page = query.get("page", "1")
        outcome, order = query.get("outcome", ""), query.get("order", "")
        return cls(
            outcome=outcome if outcome in OUTCOMES else "",
            category=clean(query.get("category", ""))[:_LONGEST],
            lane=clean(query.get("lane", ""))[:_LONGEST],
            text=clean(query.get("text", ""))[:_LONGEST],
            order=order if order in ORDERS else "newest",
            page=max(1, int(page)) if page.isascii() and page.isdigit() and len(page) < 7 else 1,
        )

    @property
    def address(self) -> str:
        """The filter as the query of an address, as short as it can be."""
        plain = Filter()
        names = ("outcome", "category", "lane", "text", "order", "page")
        chosen = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(plain, name)}
        return urlencode(chosen)

    def at(self, page: int) -> str:
        """Return the address of another page of the same table."""
        return replace(self, page=max(page, 1)).address

    @property
    def chooses(self) -> bool:
        """Whether anything is left out."""
        return bool(self.outcome or self.category or self.lane or self.text)

    def admits(self, row: Experiment) -> bool:
        """Say whether an experiment is wanted."""
        if self.outcome and (row.outcome != self.outcome or row.number == 0):
            return False
        if self.category and clean(row.category) != self.category:
            return False
        if self.lane and clean(row.lane) != self.lane:
            return False
        said = f"#{row.number} {row.hypothesis} {row.reason}".casefold()
        return all(word in said for word in self.text.casefold().split())


@dataclass(frozen=True, slots=True)
class Table:
    """One page of the table, ready to be shown.

    Attributes:
        rows: The experiments.
        found: How many the filter admits.
        of: How many there are.
        page: Which page this is.
        pages: How many there are.
        categories: Every category that occurs.
        lanes: Every lane; empty where the adapter offers none.
        wanted: What was asked for, the page among it.
        live: Whether people are what is measured.
    """

    rows: tuple[Row, ...]
    found: int
    of: int
    page: int
    pages: int
    categories: tuple[str, ...]
    lanes: tuple[str, ...]
    wanted: Filter
    live: bool


class Names:
    """The categories and lanes that occur among experiments; asked again, it looks at new ones only."""

    def __init__(self) -> None:
        self._taken = 0
        self._categories: set[str] = set()
        self._lanes: set[str] = set()

    def of(self, rows: Sequence[Experiment]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return (categories, lanes) of rows that only ever become more."""
        for row in rows[self._taken :]:
            self._categories.add(clean(row.category))
            self._lanes.add(clean(row.lane))
        self._taken = len(rows)
        return tuple(sorted(self._categories - {""})), tuple(sorted(self._lanes - {""}))


def table_of(view: RunView, wanted: Filter, names: Names | None = None) -> Table:
    """Return the page of the table that is wanted; of a page beyond the last one, the last."""
    found = [row for row in view.experiments if wanted.admits(row)] if wanted.chooses else view.experiments
    categories, lanes = (names or Names()).of(view.experiments)
    pages = max(1, -(-len(found) // ROWS))
    page = min(wanted.page, pages)
    chosen = _ordered(found, wanted.order)[(page - 1) * ROWS : page * ROWS]
    return Table(
        rows=tuple(row_of(row, view) for row in chosen),
        found=len(found),
        of=len(view.experiments),
        page=page,
        pages=pages,
        categories=categories,
        lanes=lanes,
        wanted=replace(wanted, page=page),
        live=view.live,
    )


def _ordered(rows: Sequence[Experiment], order: str) -> Sequence[Experiment]:
    if order == "effect":
        return sorted(rows, key=lambda row: (row.effect is None, -(row.effect or 0.0), -row.number))
    return rows if order == "oldest" else rows[::-1]
