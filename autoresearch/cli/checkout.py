"""`autoresearch checkout`: the artifact of an experiment, in a folder of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoresearch.cli.options import JsonOption, RunOption, WorkspaceOption
from autoresearch.cli.place import demand_own, opened, shown_path, suffix
from autoresearch.cli.render import as_json
from autoresearch.cli.show import chosen
from autoresearch.core.errors import UsageError
from autoresearch.core.workspace import Layout


def checkout(
    which: Annotated[str, typer.Argument(metavar="N", help="Number of the experiment, or best, or baseline.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or an empty folder outside the workspace.")],
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    json: JsonOption = False,
) -> None:
    """Write the artifact of experiment N into DIR, whether it was kept or not; nothing is ever written over.

    `best` is the last kept experiment. What the workspace holds, and what git has checked out, stay as they are.
    """
    with opened(workspace, run, to_read=True) as place:
        demand_own(place.run)
        experiment = chosen(place, which)
        _demand_outside(place.layout, folder)
        from autoresearch.core.store import Store

        store = Store.open(place.layout.root)
        commit = experiment.kept_commit or experiment.candidate_commit
        if not commit or not store.holds(commit):
            raise UsageError(
                f"The artifact of experiment {experiment.number} is not in the repository any more: its ref was "
                "removed, and git has collected it.\n"
                f"What it changed is in the ledger: autoresearch show {experiment.number} --diff{suffix(place.layout)}"
            )
        files = store.lay_out(commit, folder.resolve())
    if json:
        about = {"run": experiment.run_id, "number": experiment.number, "commit": commit}
        typer.echo(as_json({**about, "folder": str(folder.resolve()), "files": list(files)}))
        return
    name = "the baseline" if experiment.number == 0 else f"experiment {experiment.number}"
    many = "1 file" if len(files) == 1 else f"{len(files)} files"
    typer.echo(f"Wrote {name} ({experiment.outcome or 'in progress'}) to {shown_path(folder.resolve())}: {many}.")


def _demand_outside(layout: Layout, folder: Path) -> None:
    """Raise UsageError for a folder in the workspace: what lies there may become part of the artifact."""
    if folder.resolve().is_relative_to(layout.root.resolve()):
        raise UsageError(
            f"{folder} lies in the workspace {layout.root}, and what lies there may become part of the artifact.\n"
            "Name a folder outside of it."
        )
