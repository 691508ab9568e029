"""`autoresearch import FILE`: the log of a run that ended elsewhere, as a run to look at."""

from __future__ import annotations

import shlex
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.audit import Better
from autoresearch.cli.options import JsonOption, WorkspaceOption
from autoresearch.cli.place import refuse_ambiguity, suffix
from autoresearch.cli.render import as_json, clean
from autoresearch.core.adapter import Direction
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.workspace import Layout, find_workspace

if TYPE_CHECKING:
    from autoresearch.core.importing import FinishedRun


class Format(Enum):
    """What `import` reads."""

    RESULTS = "results.tsv"  # a table with commit, the metric, status
    JSONL = "jsonl"  # our JSON lines
    PI = "pi"  # the log of pi-autoresearch
    CSV = "csv"  # our CSV
    MLFLOW = "mlflow"  # a folder that export wrote for MLflow


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The log.", show_default=False)],
    form: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="What it must be. [default: told by its content]", show_default=False),
    ] = None,
    workspace: WorkspaceOption = None,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Column of the metric in a table; its name where the log has none.",
            show_default=False,
        ),
    ] = None,
    direction: Annotated[
        Better | None,
        typer.Option("--direction", help="Which way is better, where the log or the metric's name does not tell."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="Which run of the file; by default the last.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read the log of a finished run, of this tool or another, into a workspace: to look at, not to go on with.

    With -w DIR a folder that is no workspace yet becomes one. The same file, given again, is not imported again.
    """
    from autoresearch.core.importing import read_finished
    from autoresearch.core.ledger import Ledger

    layout = _place(workspace)
    file = _log_in(file, form)
    way = None if direction is None else Direction.MINIMIZE if direction is Better.LOWER else Direction.MAXIMIZE
    found = read_finished(file, form=_shape(form), metric=metric, direction=way, run=run)
    _make(layout)
    with Ledger.open(layout.ledger) as ledger:
        new = found.insert(ledger)
        alone = len(ledger.runs()) == 1
    if json:
        about = {"run": found.run.id, "new": new, "shape": found.shape, "experiments": len(found.experiments)}
        typer.echo(as_json({**about, "workspace": str(layout.root), "notes": list(found.notes)}))
        return
    where = suffix(layout) + ("" if alone else f" --run {found.run.id}")
    typer.echo(import_text(found, file, where, new=new), nl=False)


def _shape(form: Format | None) -> str | None:
    """Return the shape that the log must have; None where any will do."""
    return None if form is None else "jsonl" if form is Format.MLFLOW else form.value


def _log_in(file: Path, form: Format | None) -> Path:
    """Return the log: the file itself, or the JSON lines in a folder that was written for MLflow.

    Raises:
        UsageError: If it is a folder without them, or no folder where one was meant.
    """
    from autoresearch.core.mlflow_export import LINES

    if file.is_dir():
        if (file / LINES).is_file():
            return file / LINES
        raise UsageError(
            f"{file} is a folder without {LINES}, which autoresearch export --format mlflow writes.\n"
            "Name a log; a workspace needs no import, it is looked at with -w DIR."
        )
    if form is Format.MLFLOW:
        raise UsageError(f"{file} is no folder.\nName the one that autoresearch export --format mlflow wrote.")
    return file


def _place(given: Path | None) -> Layout:
    """Return the workspace that is meant; one that is named need not be there yet.

    Raises:
        UsageError: If there is none, or it is not clear which.
    """
    cwd = Path.cwd()
    layout = find_workspace(given, cwd=cwd)
    if layout is None:
        refuse_ambiguity(cwd)
        raise UsageError(
            f"There is no workspace in {cwd}.\nName one, or a new folder that becomes one: "
            "autoresearch import FILE -w DIR"
        )
    return layout


def _make(layout: Layout) -> None:
    try:
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{layout.root} cannot be made: {error.strerror}.\nName another folder: -w DIR"
        ) from error
    layout.make_state()


def import_text(found: FinishedRun, file: Path, where: str, *, new: bool) -> str:
    """Return what an import says; `where` is what a further command needs to find the run."""
    rows = len(found.experiments)
    what = f"run {found.run.id} ({clean(found.shape)}, {rows} {'row' if rows == 1 else 'rows'})"
    name = clean(file.name)
    lines = [f"Imported {name} as {what}." if new else f"{name} was imported before, as {what}; nothing was written."]
    lines += [clean(note) for note in found.notes]
    lines += [
        f"See it              autoresearch log{where}",
        f"How much is real    autoresearch audit {shlex.quote(str(file))}",
    ]
    return "\n".join(lines) + "\n"
