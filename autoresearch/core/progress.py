"""What a run does at this moment, in a small file that other programs may read while it changes.

The ledger says what was begun and what ended; between the two only the process at work knows more. It notes the phase,
how far it is and the curve of the measurement in `progress.json`, a few times a second at most. Who reads the file must
ask the workspace's lock first: without a process at work it is of a session that is over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.core.adapter import RunContext
from autoresearch.core.formats import write_by_rename
from autoresearch.core.workspace import Layout

if TYPE_CHECKING:
    from autoresearch.core.graph import Reporter
    from autoresearch.core.ledger import Experiment

PREPARING = "prepare"
"""Phase before the first experiment of a session; the others are the nodes of the graph."""

MOST_POINTS = 120
"""Points of a curve that are noted: more than a small picture can tell apart."""

_SECONDS_BETWEEN = 0.25


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run does at this moment.

    Attributes:
        phase: Node of the graph, or `prepare`.
        number: The experiment; None before the first.
        share: How much of the phase is done, 0 to 1; None where nobody says.
        words: What is being done, in a few words.
        began: When the experiment or the preparation began, in seconds since 1970.
        curve: (share of the budget, value) of the measurement in progress.
    """

    phase: str = PREPARING
    number: int | None = None
    share: float | None = None
    words: str = ""
    began: float = 0.0
    curve: tuple[tuple[float, float], ...] = ()


def progress_file(layout: Layout) -> Path:
    """Return where the progress of a workspace is noted."""
    return layout.state / "progress.json"


def read_progress(layout: Layout) -> Progress | None:
    """Return what the last session noted; None where nothing was, or nothing that this version can read."""
    try:
        noted: dict[str, Any] = json.loads(progress_file(layout).read_text(encoding="utf-8"))
        curve = tuple((float(share), float(value)) for share, value in noted.pop("curve", ()))
        return Progress(**noted, curve=curve)
    except (OSError, ValueError, TypeError):
        return None


class Noted:
    """A reporter that notes what it hears and passes it on."""

    def __init__(self, layout: Layout, reporter: Reporter, clock: Callable[[], float] = time.time) -> None:
        self._file = progress_file(layout)
        self._reporter = reporter
        self._clock = clock
        self._written = 0.0
        self._now = Progress(began=clock())
        self._write()

    def say(self, text: str) -> None:
        """Pass the sentence on."""
        self._reporter.say(text)

    def phase(self, number: int, name: str) -> None:
        """Note a phase at once: there are few, and people wait for them."""
        began = self._now.began if number == self._now.number else self._clock()
        self._now = Progress(name, number, began=began)
        self._write()
        self._reporter.phase(number, name)

    def progress(self, share: float, text: str) -> None:
        """Note how far the phase is."""
        self._now = replace(self._now, share=min(max(share, 0.0), 1.0), words=text)
        self._write_at_times()
        self._reporter.progress(share, text)

    def experiment_ended(self, experiment: Experiment) -> None:
        """Pass it on; what ended stands in the ledger."""
        self._reporter.experiment_ended(experiment)

    def point(self, share: float, value: float) -> None:
        """Note a point of the curve; one that begins anew belongs to the next measurement."""
        known = self._now.curve if not self._now.curve or share >= self._now.curve[-1][0] else ()
        if len(known) >= MOST_POINTS:
            known = known[::2]
        self._now = replace(self._now, curve=(*known, (share, value)))
        self._write_at_times()

    def _write_at_times(self) -> None:
        if not 0 <= self._clock() - self._written < _SECONDS_BETWEEN:
            self._write()

    def _write(self) -> None:
        self._written = self._clock()
        now = self._now
        noted = {
            "phase": now.phase,
            "number": now.number,
            "share": now.share,
            "words": now.words,
            "began": now.began,
            "curve": now.curve,
        }
        # Nothing depends on the note: a disk that is full ends a run where the ledger notices it, with its sentence.
        with suppress(OSError):
            write_by_rename(self._file, json.dumps(noted))


def noting_curve(reporter: Reporter, context: RunContext) -> RunContext:
    """Return a context whose points reach a reporter that notes them, too; what judges them stays the same."""
    if not isinstance(reporter, Noted):
        return context
    judge = context.hopeless

    def hopeless(share: float, value: float) -> str | None:
        reporter.point(share, value)
        return judge(share, value)

    return replace(context, hopeless=hopeless)
