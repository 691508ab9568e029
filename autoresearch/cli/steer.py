"""`pause`, `resume`, `stop`, `approve`, `reject` and `note`: words to a run at work, by the control table."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.options import RunOption, WorkspaceOption
from autoresearch.cli.place import Place, opened, suffix
from autoresearch.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from autoresearch.core.ledger import Experiment

Number = Annotated[int, typer.Argument(metavar="N", min=0, help="Number of the experiment that waits.")]


def pause(workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Pause the run at work once its experiment is finished."""
    _send("pause", workspace, run, "It pauses after the experiment in progress.")


def resume(workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Let a paused run go on. To go on with a run that has ended: autoresearch run."""
    _send("resume", workspace, run, "It goes on within a second.")


def stop(workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """End the run at work once its experiment is finished."""
    _send("stop", workspace, run, "It ends after the experiment in progress; a test on people is taken up again.")


def approve(number: Number, workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Let the experiment N, which waits for a person, be measured."""
    _answer("approve", number, workspace, run)


def reject(number: Number, workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Refuse the experiment N, which waits for a person; it counts as reverted."""
    _answer("reject", number, workspace, run)


def note(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the proposer should know.")],
    workspace: WorkspaceOption = None,
    run: RunOption = None,
) -> None:
    """Tell the proposer something; it reads it with its next proposal, in this session and in later ones."""
    if not text.strip():
        raise typer.BadParameter("an empty note tells nothing.", param_hint="TEXT")
    with opened(workspace, run) as place:
        place.ledger.send(place.run.id, "note", text, _author())
        when = "with its next proposal" if _at_work(place) else "when the run goes on; no process is at work now"
        typer.echo(f"Noted for run {place.run.id}; the proposer reads it {when}.")


def _send(command: str, workspace: Path | None, run: str | None, then: str) -> None:
    with opened(workspace, run) as place:
        _demand_at_work(place, command)
        place.ledger.send(place.run.id, command, "", _author())
        typer.echo(f"Told run {place.run.id} to {command}. {then}")


def _answer(command: str, number: int, workspace: Path | None, run: str | None) -> None:
    with opened(workspace, run) as place:
        _demand_at_work(place, command)
        _demand_waiting(place, number)
        place.ledger.send(place.run.id, command, str(number), _author())
        typer.echo(f"Told run {place.run.id} to {command} experiment {number}.")


def _at_work(place: Place) -> bool:
    """Say whether a process works on this very run."""
    from autoresearch.core import lock

    sessions = place.ledger.sessions(place.run.id)
    return lock.is_held(place.layout) and bool(sessions) and sessions[-1].ended is None


def _demand_at_work(place: Place, command: str) -> None:
    if not _at_work(place):
        raise UsageError(
            f"No process is at work on run {place.run.id}, so there is nobody to {command}.\n"
            f"Go on with the run: autoresearch run{suffix(place.layout)}"
        )


def _demand_waiting(place: Place, number: int) -> None:
    """Raise UsageError unless the experiment is the one that waits for an answer."""
    experiment = place.ledger.experiment(place.run.id, number)
    if experiment is not None and experiment.outcome is None and not _measured(place, experiment):
        return
    state = "it has not begun" if experiment is None else f"it is {experiment.outcome or 'being measured'}"
    raise UsageError(
        f"Experiment {number} of run {place.run.id} waits for no answer: {state}.\n"
        f"See what goes on: autoresearch status{suffix(place.layout)}"
    )


def _measured(place: Place, experiment: Experiment) -> bool:
    return bool(place.ledger.measurements(experiment.id))


def _author() -> str:
    """Return who sends the message; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"
