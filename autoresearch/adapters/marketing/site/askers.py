"""Who asks for pages, in numbers alone: people, crawlers, HEAD, fetching ahead, and people who agreed to nothing.

A page whose requests are mostly robots, or whose consent nobody gives, is one whose tests will take for ever; a share
that jumps is a fault somewhere. Workers count in memory and write a small file every few seconds: approximate, since a
kill loses what was not written yet, and about requests, never about anybody.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

FOLDER = "askers"
"""Folder of the files, in the folder of a campaign's state."""

PEOPLE, ROBOTS, HEAD, AHEAD, NO_CONSENT = "people", "robots", "head", "ahead", "no consent"
KINDS = (PEOPLE, ROBOTS, HEAD, AHEAD, NO_CONSENT)

WRITE_SECONDS = 5.0
"""Between two writes of a worker."""

_EARLIER = "earlier.json"

Askers = dict[str, Counter[str]]
"""Requests by page and kind."""


class AskerCount:
    """One worker's count.

    Args:
        state: Folder of the campaign's state.

    Attributes:
        counts: Requests since this worker began, by page and kind.
    """

    def __init__(self, state: Path) -> None:
        self.counts: Askers = defaultdict(Counter)
        self._path = state / FOLDER / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._written = 0

    def note(self, page: str, kind: str) -> None:
        """Count a request."""
        self.counts[page][kind] += 1

    def write(self) -> None:
        """Write the count by rename, where there is anything new. Raises OSError if the disk will not have it."""
        counts = {page: dict(kinds) for page, kinds in list(self.counts.items())}
        total = sum(map(sum, (kinds.values() for kinds in counts.values())))
        if total != self._written:
            _write(self._path, counts)
            self._written = total


def read(state: Path) -> Askers:
    """Return the requests of all workers, of now and of before; a file that cannot be read counts for nothing.

    Args:
        state: Folder of the campaign's state.
    """
    found: Askers = {}
    for path in sorted((state / FOLDER).glob("*.json")):
        try:
            for page, kinds in json.loads(path.read_bytes()).items():
                found.setdefault(page, Counter()).update(kinds)
        except (FileNotFoundError, ValueError):
            continue  # folded meanwhile, or cut short by a power cut: these are approximate counts
    return found


def fold(state: Path) -> None:
    """Make one file of those of workers that have ended; only while no worker of the campaign runs."""
    paths = [path for path in (state / FOLDER).glob("*.json") if path.name != _EARLIER]
    if paths:
        _write(state / FOLDER / _EARLIER, read(state))
        for path in paths:
            path.unlink()


def in_words(found: Mapping[str, Mapping[str, int]]) -> str:
    """Return a line for each page that was asked for; empty where none was."""
    lines = []
    for page, kinds in sorted(found.items()):
        total = sum(kinds.values())
        if not total:
            continue
        told = {
            "people": kinds.get(PEOPLE, 0),
            "robots by their name": kinds.get(ROBOTS, 0),
            "HEAD": kinds.get(HEAD, 0),
            "fetched ahead": kinds.get(AHEAD, 0),
            "without consent": kinds.get(NO_CONSENT, 0),
        }
        shares = ", ".join(f"{name} {n:,} ({n / total:.0%})" for name, n in told.items() if n or name == "people")
        lines.append(f"{page}: {total:,} requests since it was first served: {shares}")
    return "\n".join(lines)


def _write(path: Path, counts: Mapping[str, Mapping[str, int]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(counts), encoding="utf-8")
    partial.replace(path)
