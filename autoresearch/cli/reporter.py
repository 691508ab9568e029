"""Reporters: a run drawn on a terminal, as plain lines in a pipe, as JSON lines, or not at all."""

from __future__ import annotations

import errno
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from autoresearch.cli.render import (
    ABSENT,
    OUTCOME_STYLES,
    as_json_line,
    clean,
    clock,
    effect_in_words,
    number,
    probability,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    from autoresearch.core.graph import Reporter
    from autoresearch.core.ledger import Experiment

PHASES = {
    "prepare": "preparing",
    "propose": "proposing",
    "check": "checking",
    "approve": "waiting for approval",
    "observe": "measuring",
    "decide": "deciding",
    "keep": "recording",
    "revert": "recording",
    "record": "recording",
    "confirm": "confirming",
    "calibrate": "calibrating",
}
"""Node of the graph, or work beside it -> what a person reads."""

_REFRESH_PER_SECOND = 4
_PLAIN_STEP = 0.25
"""A pipe hears of a long preparation, or of measuring anew, once per quarter."""

_WITHOUT_NUMBERS = str.maketrans("", "", "0123456789.,%/ ")

_AS_ONE = frozenset({"confirm", "calibrate"})
"""Phases that take as long as many experiments, and are no experiment."""


def experiment_parts(row: Experiment) -> tuple[str, str, str]:
    """Return what one line says of a finished experiment: number, outcome, and everything else."""
    outcome = row.outcome or ""
    if row.number == 0:
        return f"{row.number:>3}", "baseline", f"{number(row.value):>9}"
    gain = ABSENT if row.effect is None else effect_in_words(row.effect)
    chance = "" if row.p_better is None else f"p {probability(row.p_better)}"
    text = clean(f"{row.category}: {row.hypothesis}")
    if row.value is None:
        text = f"{text} ({clean(row.reason)})"
    return f"{row.number:>3}", outcome, f"{number(row.value):>9}  {gain:<15}  {chance:<6}  {text}"


def experiment_line(row: Experiment) -> str:
    """Return one plain line about a finished experiment."""
    place, outcome, rest = experiment_parts(row)
    return f"{place}  {outcome:<12} {rest}"


def experiment_event(row: Experiment) -> dict[str, object]:
    """Return what `run --json` says of a finished experiment; docs/json.md explains the keys."""
    names = (
        "number", "outcome", "category", "hypothesis", "reason", "value", "effect", "effect_low", "effect_high",
        "p_better", "usd", "tokens", "seconds",
    )  # fmt: skip
    event: dict[str, object] = {"event": "experiment", "run": row.run_id}
    event.update({name: getattr(row, name) for name in names})
    event["commit"] = row.kept_commit or row.candidate_commit
    return event


class Quiet:
    """Says nothing while the run goes on."""

    def say(self, text: str) -> None:
        """Say nothing."""

    def phase(self, number: int, name: str) -> None:
        """Say nothing."""

    def progress(self, share: float, text: str) -> None:
        """Say nothing."""

    def experiment_ended(self, experiment: Experiment) -> None:
        """Say nothing."""


_NOBODY_READS = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT})
"""The terminal is closed, or there is no room for the file that was to be read later."""


class Lasting:
    """A stream that falls silent when nobody reads it any more, for a run outlives whoever watches it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        """Write, unless nobody reads any more."""
        self._unless_gone(lambda: self._file.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush, unless nobody reads any more."""
        self._unless_gone(self._file.flush)

    def _unless_gone(self, write: Callable[[], object]) -> None:
        if self._gone:
            return
        try:
            write()
        except OSError as error:
            if not isinstance(error, BrokenPipeError) and error.errno not in _NOBODY_READS:
                raise
            self._gone = True


class _Stream:
    """Writes whole lines at once."""

    def __init__(self, file: TextIO) -> None:
        self._file = Lasting(file)

    def line(self, text: str) -> None:
        """Write a line."""
        self._file.write(f"{text}\n")
        self._file.flush()


class Plain(Quiet):
    """Plain lines without control codes: one when an experiment is measured for the first time, one when it ended."""

    def __init__(self, file: TextIO) -> None:
        self._stream = _Stream(file)
        self._measured: set[int] = set()  # with lanes several are in progress, in turns
        self._step: tuple[str, int] | None = None
        self._followed: str | None = "prepare"

    def say(self, text: str) -> None:
        """Write the sentence."""
        self._stream.line(clean(text, lines=True))

    def phase(self, number: int, name: str) -> None:
        """Write that an experiment is being measured, once; the other phases pass in an instant or cost a call."""
        self._followed = name if name in _AS_ONE else None
        if name == "observe" and number not in self._measured:
            self._measured.add(number)
            what = "the baseline" if number == 0 else f"experiment {number}"
            self._stream.line(f"measuring {what}")

    def progress(self, share: float, text: str) -> None:
        """Write how far a preparation or a confirmation is, in quarters; single measurements are too many in a pipe."""
        if self._followed is None:
            return
        done = min(max(share, 0.0), 1.0)
        words = clean(text)
        # A preparation has parts that each begin at nothing; measuring anew is one piece of work.
        part = words.translate(_WITHOUT_NUMBERS) if self._followed == "prepare" else self._followed
        step = (part, int(done / _PLAIN_STEP))
        if step != self._step:
            self._step = step
            self._stream.line(f"{PHASES[self._followed]} {done:.0%}  {words}")

    def experiment_ended(self, experiment: Experiment) -> None:
        """Write the experiment's line."""
        self._stream.line(experiment_line(experiment))


class JsonLines(Quiet):
    """One JSON object per finished experiment on one stream; sentences for people on another, None for nowhere."""

    def __init__(self, file: TextIO, words: TextIO | None) -> None:
        self._stream = _Stream(file)
        self._words = None if words is None else _Stream(words)

    def say(self, text: str) -> None:
        """Write the sentence where people read."""
        if self._words is not None:
            self._words.line(clean(text, lines=True))

    def experiment_ended(self, experiment: Experiment) -> None:
        """Write the experiment as JSON."""
        self.event(experiment_event(experiment))

    def event(self, event: dict[str, object]) -> None:
        """Write one event."""
        self._stream.line(as_json_line(event))


class Terminal(Quiet):
    """One line that lives at the bottom, one that stays per finished experiment."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._doing = "preparing"
        self._number: int | None = None
        self._share: float | None = None
        self._words = ""
        self._since = time.monotonic()

    def say(self, text: str) -> None:
        """Print the sentence above the living line."""
        self._console.print(_text(clean(text, lines=True)), soft_wrap=True)

    def phase(self, number: int, name: str) -> None:
        """Show the phase; the clock starts anew with each experiment."""
        if number != self._number:
            self._number, self._since = number, time.monotonic()
        self._doing, self._share, self._words = PHASES.get(name, name), None, ""

    def progress(self, share: float, text: str) -> None:
        """Show how far the phase is."""
        self._share, self._words = min(max(share, 0.0), 1.0), clean(text)

    def experiment_ended(self, experiment: Experiment) -> None:
        """Print the experiment's line, cut to the width of the terminal."""
        place, outcome, rest = experiment_parts(experiment)
        line = _text(f"{place}  ").append(f"{outcome:<12}", style=OUTCOME_STYLES.get(outcome, ""))
        self._console.print(line.append(f" {rest}"), no_wrap=True, overflow="ellipsis", crop=True)
        self._number = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the living line."""
        share = "" if self._share is None else f"{self._share:>4.0%}"
        place = "" if self._number is None else f"{self._number:>3}"
        parts = [place, self._doing, share, clock(time.monotonic() - self._since), self._words]
        line = _text("  ".join(part for part in parts if part))
        line.truncate(options.max_width, overflow="ellipsis")
        line.no_wrap = True
        yield line


def _text(words: str) -> Text:
    """Return text that is never read as markup."""
    from rich.text import Text

    return Text(words)


@contextmanager
def terminal(console: Console) -> Iterator[Terminal]:
    """Draw on a terminal until the block ends; the living line vanishes with it."""
    from rich.live import Live

    reporter = Terminal(console)
    # stdout stays what it is: whatever else prints would otherwise be read as markup.
    with Live(
        reporter,
        console=console,
        refresh_per_second=_REFRESH_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield reporter


@contextmanager
def going_on_later(reporter: Reporter, command: str) -> Iterator[None]:
    """Say, where a person ends a command that keeps what it measured, which command goes on with the rest."""
    try:
        yield
    except KeyboardInterrupt:
        with suppress(OSError):  # the terminal may be what went away
            reporter.say(f"Interrupted. What was measured stays; the rest: {command}")
        raise


@contextmanager
def reporter_for(*, quiet: bool, json: bool) -> Iterator[Reporter]:
    """Choose how a run is shown: JSON lines, nothing, a living terminal, or plain lines."""
    if json:
        yield JsonLines(sys.stdout, None if quiet else sys.stderr)
    elif quiet:
        yield Quiet()
    elif sys.stdout.isatty() and not (console := _console()).is_dumb_terminal:
        with terminal(console) as living:
            yield living
    else:
        yield Plain(sys.stdout)


def _console() -> Console:
    """Return a console that neither highlights nor reads markup; it heeds NO_COLOR and TERM by itself."""
    from rich.console import Console

    return Console(file=cast("TextIO", Lasting(sys.stdout)), highlight=False, markup=False, emoji=False)
