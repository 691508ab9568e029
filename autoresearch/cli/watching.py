"""What `autoresearch watch` shows: a run at one moment, as text and as JSON."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from autoresearch.cli.render import clean, clock, crop, duration, fields, money, number
from autoresearch.cli.reporter import PHASES, experiment_event, experiment_line
from autoresearch.core.errors import UsageError
from autoresearch.core.ledger import Experiment
from autoresearch.core.progress import Progress
from autoresearch.core.readmodel import RunReader, RunView
from autoresearch.core.words import counts, headline, live_headline
from autoresearch.core.workspace import Layout
from autoresearch.web.dashboard.pages import Left, left_of, spent_of
from autoresearch.web.dashboard.watched import Condition, Watched

LAST = 8
"""Finished experiments that are shown."""

LOG_LINES = 6
"""Lines of the candidate's log that are shown."""

_HEIGHT = 4
_WIDEST = 60
_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Seen:
    """A workspace at one moment.

    Attributes:
        at_work: Whether a process is at work.
        sentence: What a person is told where there is no run to show, or where something is out of the ordinary.
        view: The run; None before there is one.
        progress: What the process at work notes; None where it does not.
        left: What of each limit is used.
        log: The end of what the candidate printed.
    """

    at_work: bool
    sentence: str = ""
    view: RunView | None = None
    progress: Progress | None = None
    left: tuple[Left, ...] = ()
    log: str = ""

    @property
    def finished(self) -> int:
        """How many experiments have ended, the baseline included."""
        return 0 if self.view is None else len(self.view.experiments)

    @property
    def number(self) -> int | None:
        """The experiment in progress."""
        if not self.at_work:
            return None
        if self.progress is not None:
            return self.progress.number
        return None if self.view is None or self.view.in_flight is None else self.view.in_flight.number

    @property
    def mark(self) -> tuple[object, ...]:
        """Something that differs where a reader should be told: a phase, a tenth of it, an experiment, the state."""
        now = self.progress
        tenth = None if now is None or now.share is None else int(now.share * 10)
        state = None if self.view is None else self.view.status.state
        return (self.at_work, state, self.finished, self.number, None if now is None else now.phase, tenth)

    def since(self, count: int) -> Sequence[Experiment]:
        """Return the experiments that ended after the first `count`."""
        return () if self.view is None else self.view.experiments[count:]


class Watcher:
    """Looks at a workspace again and again; writes nothing in it."""

    def __init__(self, layout: Layout) -> None:
        self._watched = Watched("", layout)
        self._reader: tuple[object, str, RunReader] | None = None
        self._view: RunView | None = None
        self._mark: object = None

    def look(self) -> Seen:
        """Return what is going on now.

        Raises:
            UsageError: If the workspace is gone, or its ledger is damaged or of a newer version.
        """
        watched = self._watched
        mark = watched.mark()
        look = watched.look()
        if look.condition in (Condition.GONE, Condition.UNREADABLE):
            raise UsageError(look.sentence)
        if look.condition is Condition.EMPTY:
            return Seen(look.at_work, look.sentence, progress=watched.progress())
        assert watched.ledger is not None, "it is open"
        run = watched.ledger.latest_run()
        assert run is not None, "there are runs"
        if self._view is None or mark != self._mark or run.id != self._view.run.id or watched.ledger.is_copy:
            reader = self._reader_of(run.id)
            self._view, self._mark = reader.view(at_work=look.at_work), mark
        view = self._view
        at_work = look.at_work and view.status.state in ("running", "paused")
        progress = watched.progress() if at_work else None
        number = progress.number if progress is not None else None
        log = watched.log_tail(run.id, number) if number is not None else ""
        left = left_of(spent_of(view, watched.ledger)) if at_work else ()
        # A process that prepares the next session is at work although its run still has the state of the last one.
        return Seen(look.at_work, look.sentence if look.at_work else "", view, progress, left, log)

    def close(self) -> None:
        """Let go of the files."""
        self._watched.close()

    def _reader_of(self, run_id: str) -> RunReader:
        ledger = self._watched.ledger
        assert ledger is not None, "it is open"
        if self._reader is None or self._reader[0] is not ledger or self._reader[1] != run_id:
            self._reader = (ledger, run_id, RunReader(ledger, run_id))
        return self._reader[2]


def doing(seen: Seen) -> str:
    """Return what is being done, in one line that changes with the phase and not with its progress."""
    if not seen.at_work:
        return "no run is in progress"
    if seen.view is not None and seen.view.status.state == "paused":
        return "paused"
    if seen.view is not None and seen.view.status.state != "running":
        # The run is over, and a process is at work all the same: nothing that it notes is about this run.
        return "preparing to go on, or measuring anew (confirm, calibrate)"
    if seen.number is None or seen.progress is None:
        return "preparing"
    what = "the baseline" if seen.number == 0 else f"experiment {seen.number}"
    return f"{PHASES.get(seen.progress.phase, clean(seen.progress.phase))}: {what}"


def page(seen: Seen, *, width: int | None, where: str, ascii_only: bool = False) -> str:
    """Return everything that is seen as text: sentences wrapped to `width`, other lines cut to it.

    Args:
        seen: What is going on.
        width: Columns of the terminal; None where there is none, and nothing is cut.
        where: What a further command needs to find the workspace, such as ` -w DIR`.
        ascii_only: Draw the curve without block characters.
    """
    blocks = [_now(seen), _curve(seen, width, ascii_only), _log(seen), _last(seen)]
    lines = "\n\n".join(block.rstrip("\n") for block in blocks if block).splitlines()
    head = [part for line in _head(seen, where).splitlines() for part in _wrapped(line, width)]
    shown = [crop(line, width) for line in lines]
    return "\n".join([*head, *([""] if head and shown else []), *shown]) + "\n"


def _wrapped(line: str, width: int | None) -> list[str]:
    """Return a sentence in as many lines as it takes; a command in it must be readable to its end."""
    return [line] if width is None else textwrap.wrap(line, max(width, 20), break_on_hyphens=False)


def _head(seen: Seen, where: str) -> str:
    said = clean(seen.sentence, lines=True)
    if seen.view is None:
        return said
    view = seen.view
    words = (live_headline if view.live else headline)(view.status, view.metric)
    lines = [words, f"{counts(view.status)}; {money(view.status.usd)}, {duration(view.status.seconds)}"]
    if not seen.at_work:
        lines.append(_why_not(view, where))
    return "\n".join([*lines, *([said] if said else [])])


def _why_not(view: RunView, where: str) -> str:
    if view.status.state == "killed":
        return (
            f"No run is in progress: the process of {view.run.id} ended without a word. Go on: autoresearch run{where}"
        )
    reason = clean(view.status.stop_reason or "it ended")
    return f"No run is in progress; {view.run.id} ended: {reason}"


def _now(seen: Seen) -> str:
    if not seen.at_work:
        return ""
    now = seen.progress
    share = "" if now is None or now.share is None else f" {now.share:.0%}"
    since = "" if now is None or not now.began else f", for {clock(max(0.0, time.time() - now.began))}"
    words = "" if now is None or not now.words else f", {clean(now.words)}"
    rows = () if seen.view is None else seen.view.going_on
    tries = [(f"tries {row.number}" if len(rows) > 1 else "tries", clean(row.hypothesis)) for row in rows]
    pairs = [("now", f"{doing(seen)}{share}{since}{words}"), *tries]
    return fields([*pairs, *((one.name, one.words) for one in seen.left)])


def _curve(seen: Seen, width: int | None, ascii_only: bool) -> str:
    now = seen.progress
    if now is None or seen.view is None or len(now.curve) < 2:
        return ""
    values = [value for _, value in now.curve]
    name = clean(seen.view.metric.name)
    title = f"{name} {number(values[0])} -> {number(values[-1])} at {now.curve[-1][0]:.0%} of the measurement"
    return f"{title}\n" + drawn(values, min((width or _WIDEST) - 2, _WIDEST), ascii_only=ascii_only)


def drawn(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """Return a curve as lines of block characters, or of stars, the highest value at the top.

    Args:
        values: At least one finite number, in order.
        width: Columns at most; of more values, the last one of each stretch is drawn.
        ascii_only: Draw with stars.
    """
    width = max(1, width)
    columns = min(width, len(values))
    shown = [values[(index + 1) * len(values) // columns - 1] for index in range(columns)]
    low, high = min(shown), max(shown)
    steps = 1 if ascii_only else len(_BLOCKS) - 1
    most = _HEIGHT * steps
    # One step at least, so that the lowest value can be seen.
    heights = [1 + round((value - low) / (high - low) * (most - 1)) if high > low else 1 for value in shown]
    lines = []
    for floor in range((_HEIGHT - 1) * steps, -1, -steps):
        filled = [min(max(height - floor, 0), steps) for height in heights]
        lines.append("".join("*" if ascii_only and one else _BLOCKS[one] for one in filled).rstrip())
    return "\n".join(line for line in lines if line)


def _log(seen: Seen) -> str:
    lines = [line for line in seen.log.splitlines() if line.strip()][-LOG_LINES:]
    return "\n".join(["log", *(f"  {clean(line)}" for line in lines)]) if lines else ""


def _last(seen: Seen) -> str:
    if seen.view is None or not seen.view.experiments:
        return ""
    return "\n".join(experiment_line(row) for row in seen.view.experiments[-LAST:])


def state_event(seen: Seen) -> dict[str, object]:
    """Return a line of `watch --json`; docs/json.md explains the keys."""
    now, view = seen.progress, seen.view
    return {
        "event": "state",
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "at_work": seen.at_work,
        "sentence": seen.sentence or None,
        "phase": now.phase if now is not None else None,
        "number": seen.number,
        "share": now.share if now is not None else None,
        "words": now.words if now is not None else None,
        "began": _moment(now.began) if now is not None and now.began else None,
        "curve": [list(point) for point in now.curve] if now is not None else [],
        "left": [asdict(one) for one in seen.left],
        "log": seen.log,
        "status": None if view is None else view.status.as_json(),
        "last": [] if view is None else [experiment_event(row) for row in view.experiments[-LAST:]],
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
