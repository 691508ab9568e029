"""`pause`, `resume`, `stop`, `approve`, `reject` and `note`: words to a run at work, by the control table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.options import RunOption, WorkspaceOption
from autoresearch.cli.place import opened, suffix

if TYPE_CHECKING:
    from pathlib import Path

Number = Annotated[int, typer.Argument(metavar="N", min=0, help="Number of the experiment that waits.")]


def pause(workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Pause the run at work once its experiment is finished."""
    _send("pause", workspace, run)


def resume(workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Let a paused run go on. To go on with a run that has ended: autoresearch run."""
    _send("resume", workspace, run)


def stop(workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """End the run at work once its experiment is finished."""
    _send("stop", workspace, run)


def approve(number: Number, workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Let the experiment N, which waits for a person, be measured."""
    _send("approve", workspace, run, str(number))


def reject(number: Number, workspace: WorkspaceOption = None, run: RunOption = None) -> None:
    """Refuse the experiment N, which waits for a person; it counts as reverted."""
    _send("reject", workspace, run, str(number))


def note(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the proposer should know.")],
    workspace: WorkspaceOption = None,
    run: RunOption = None,
) -> None:
    """Tell the proposer something; it reads it with its next proposal, in this session and in later ones."""
    if not text.strip():
        raise typer.BadParameter("an empty note tells nothing.", param_hint="TEXT")
    _send("note", workspace, run, text)


def _send(command: str, workspace: Path | None, run: str | None, argument: str = "") -> None:
    from autoresearch.core.steering import person, steer

    with opened(workspace, run) as place:
        go = suffix(place.layout)
        typer.echo(steer(place.layout, place.ledger, place.run, command, person(), argument, go))
