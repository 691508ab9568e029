"""`autoresearch rollback`: take kept steps back."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from autoresearch.cli.options import JsonOption, RunOption, WorkspaceOption
from autoresearch.cli.place import opened, suffix
from autoresearch.cli.render import as_json


def rollback(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[N]", min=1, help="Kept experiment; by default the last.", show_default=False),
    ] = None,
    why: Annotated[str, typer.Option("--why", help="Your reason, for the ledger.")] = "",
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Take a kept experiment back, with every later one; the incumbent before it is the incumbent again.

    Nothing is lost: the candidates stay as refs, and their rows say who took them back and why. A live test shows the
    former incumbent at once. Stop a run at work first.
    """
    from autoresearch.core import lock, registry
    from autoresearch.core.rollback import roll_back

    with opened(workspace, run) as place, lock.held(place.layout):
        adapter, _ = registry.create_adapter(place.run.adapter, place.run.options)
        reason = f"Rolled back by {getpass.getuser()}" + (f": {why.strip()}." if why.strip() else ".")
        found = roll_back(place.layout, place.ledger, place.run, number, adapter, reason)
        where = suffix(place.layout)
    if json:
        about = {
            "run": found.run,
            "numbers": list(found.numbers),
            "ended": list(found.ended),
            "incumbent": found.incumbent,
        }
        typer.echo(as_json(about))
        return
    many = "experiment" if len(found.numbers) == 1 else "experiments"
    now = "the baseline" if found.incumbent == 0 else f"experiment {found.incumbent}"
    typer.echo(f"Took back {many} {', '.join(map(str, found.numbers))}; the incumbent is {now} again.")
    for ended in found.ended:
        typer.echo(f"Experiment {ended} was compared with what is gone, and ended as inconclusive.")
    typer.echo(f"To go on from here: autoresearch run{where}")
