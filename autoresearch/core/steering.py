"""Words to a run at work, by the control table of its ledger: the same demands wherever they are sent from."""

from __future__ import annotations

import getpass

from autoresearch.core import lock
from autoresearch.core.errors import UsageError
from autoresearch.core.ledger import Experiment, Ledger, Run
from autoresearch.core.workspace import Layout

ANSWERS = ("approve", "reject")

THEN = {
    "pause": "It pauses after the experiment in progress.",
    "resume": "It goes on within a second.",
    "stop": "It ends after the experiment in progress; a test on people is taken up again.",
}
"""What follows a command."""


def at_work(layout: Layout, ledger: Ledger, run: Run) -> bool:
    """Say whether a process works on this very run."""
    sessions = ledger.sessions(run.id)
    return lock.is_held(layout) and bool(sessions) and sessions[-1].ended is None


def steer(layout: Layout, ledger: Ledger, run: Run, command: str, author: str, argument: str = "", go: str = "") -> str:
    """Leave a message for a run, and return what is said to the person.

    Args:
        layout: The workspace.
        ledger: Its ledger.
        run: The run that is meant.
        command: As in `CONTROL_COMMANDS`.
        author: Who sends it.
        argument: The number of the experiment for `approve` and `reject`, the text of a `note`.
        go: The ` -w DIR` that a command in an answer needs.

    Raises:
        UsageError: If nobody is there who could obey, the experiment waits for no answer, or a note is empty.
    """
    if command == "note":
        return _note(layout, ledger, run, author, argument)
    if not at_work(layout, ledger, run):
        raise UsageError(
            f"No process is at work on run {run.id}, so there is nobody to {command}.\n"
            f"Go on with the run: autoresearch run{go}"
        )
    if command in ANSWERS:
        _demand_waiting(ledger, run, argument, go)
        ledger.send(run.id, command, argument, author)
        return f"Told run {run.id} to {command} experiment {argument}."
    ledger.send(run.id, command, "", author)
    return f"Told run {run.id} to {command}. {THEN[command]}"


def _note(layout: Layout, ledger: Ledger, run: Run, author: str, text: str) -> str:
    if not text.strip():
        raise UsageError("An empty note tells nothing.\nSay what the proposer should know.")
    ledger.send(run.id, "note", text, author)
    working = at_work(layout, ledger, run)
    when = "with its next proposal" if working else "when the run goes on; no process is at work now"
    return f"Noted for run {run.id}; the proposer reads it {when}."


def _demand_waiting(ledger: Ledger, run: Run, argument: str, go: str) -> None:
    """Raise UsageError unless the experiment is the one that waits for an answer."""
    experiment = ledger.experiment(run.id, int(argument)) if argument.isdecimal() else None
    if experiment is not None and is_open(ledger, experiment):
        return
    state = "it has not begun" if experiment is None else f"it is {experiment.outcome or 'being measured'}"
    raise UsageError(
        f"Experiment {argument} of run {run.id} waits for no answer: {state}.\n"
        f"See what goes on: autoresearch status{go}"
    )


def is_open(ledger: Ledger, experiment: Experiment) -> bool:
    """Say whether an experiment has begun and nothing of it was measured, so that it can still be refused."""
    return experiment.outcome is None and not ledger.measurements(experiment.id)


def person() -> str:
    """Return who sends a message; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
