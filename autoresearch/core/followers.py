"""Who hears of a run besides the person at its screen: notifications, mirrors in other tools.

A follower hears when a session begins, when an experiment ended and when the session ends. What goes wrong with it is
said in a sentence and never stops a run: the ledger is the truth, and a follower that was cut off can be caught up.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from autoresearch.core.errors import AutoresearchError
from autoresearch.core.proposers.redact import Redactor
from autoresearch.core.words import clean

if TYPE_CHECKING:
    from autoresearch.core.adapter import Metric
    from autoresearch.core.graph import Reporter
    from autoresearch.core.ledger import Experiment, Ledger, Run
    from autoresearch.core.readmodel import RunStatus
    from autoresearch.core.workspace import Layout


@dataclass(frozen=True, slots=True)
class Followed:
    """The session that is followed.

    Attributes:
        run: Its run.
        metric: What is measured.
        layout: The workspace.
        ledger: Where everything is written down.
        live: Whether the metric arrives from people.
        status: Returns the run in figures, as of now.
    """

    run: Run
    metric: Metric
    layout: Layout
    ledger: Ledger
    live: bool
    status: Callable[[], RunStatus]

    def finished(self) -> list[Experiment]:
        """Return every finished experiment of the run, without secrets, as followers are told of them."""
        return [outgoing(row) for row in self.ledger.experiments(self.run.id) if row.outcome is not None]


def outgoing(row: Experiment) -> Experiment:
    """Return a copy of an experiment without secrets: what followers are told leaves the machine."""
    redact = Redactor(os.environ)
    changes = [
        {key: redact(value) if isinstance(value, str) else value for key, value in change.items()}
        for change in row.changes
    ]
    words = {name: redact(getattr(row, name)) for name in ("hypothesis", "category", "reason", "diff", "log_tail")}
    # The text is a copy that no session of the database knows, so that nothing of it is ever written back.
    return type(row)(**{**row.model_dump(), **words, "changes": changes})


class Follower(Protocol):
    """Hears of a session. Every method may raise `EnvironmentNotReadyError`; the run goes on."""

    @property
    def name(self) -> str:
        """What it is called in a sentence about it; no part of it is secret."""
        ...

    def begun(self, session: Followed) -> None:
        """A session begins, maybe of a run that is followed already."""
        ...

    def experiment_ended(self, experiment: Experiment) -> None:
        """An experiment was recorded."""
        ...

    def ended(self, reason: str, *, fault: bool) -> None:
        """The session ended; with a fault where a person should look into it."""
        ...


class Followers:
    """A reporter that passes on what it hears, and tells followers of what they want to know.

    A follower that fails is told nothing more until the end, so that a server that does not answer costs its patience
    once, not at every experiment.
    """

    def __init__(self, reporter: Reporter, followers: Sequence[Follower]) -> None:
        self._reporter = reporter
        self._followers = tuple(followers)
        self._failed: set[int] = set()
        self._begun = False

    def say(self, text: str) -> None:
        """Pass the sentence on."""
        self._reporter.say(text)

    def phase(self, number: int, name: str) -> None:
        """Pass the phase on."""
        self._reporter.phase(number, name)

    def progress(self, share: float, text: str) -> None:
        """Pass the progress on."""
        self._reporter.progress(share, text)

    def experiment_ended(self, experiment: Experiment) -> None:
        """Pass it on, the person at the screen first."""
        self._reporter.experiment_ended(experiment)
        if self._followers:
            told = outgoing(experiment)
            self._tell(lambda follower: follower.experiment_ended(told))

    def begun(self, session: Followed) -> None:
        """Tell that a session begins."""
        self._begun = True
        self._tell(lambda follower: follower.begun(session))

    def ended(self, reason: str, *, fault: bool) -> None:
        """Tell that the session ended, also those that failed before: maybe they are back."""
        if self._begun:
            self._failed.clear()
            why = Redactor(os.environ)(reason)
            self._tell(lambda follower: follower.ended(why, fault=fault))

    def _tell(self, what: Callable[[Follower], None]) -> None:
        for index, follower in enumerate(self._followers):
            if index in self._failed:
                continue
            try:
                what(follower)
            except AutoresearchError as error:
                self._failed.add(index)
                self._reporter.say(f"{follower.name} could not be told: {clean(str(error))}")
