"""`autoresearch export`: the experiments for other programs, the kept steps for reviewers."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.options import RunOption, WorkspaceOption
from autoresearch.cli.place import Place, demand_own, opened, shown_path
from autoresearch.cli.render import clean
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    from autoresearch.core.store import ReviewBranch


class Format(Enum):
    """What `export` writes."""

    RESULTS = "results.tsv"  # commit, metric, memory_gb, status, description
    JSONL = "jsonl"  # everything, one object a line
    PI = "pi"  # the log of pi-autoresearch
    CSV = "csv"  # one line an experiment, for a spreadsheet
    MLFLOW = "mlflow"  # a folder with a database that MLflow opens


def export(
    form: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="What to write. [default: results.tsv]", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "--out",
            "-o",
            metavar="FILE",
            help="Where; by default standard output. A new folder for mlflow.",
            show_default=False,
        ),
    ] = None,
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch",
            metavar="NAME",
            help="Write the kept steps as a new git branch, one commit a change, and nothing else.",
            show_default=False,
        ),
    ] = None,
    pr: Annotated[
        bool, typer.Option("--pr", help="Write the text of a pull request with the kept steps, in Markdown.")
    ] = False,
    workspace: WorkspaceOption = None,
    run: RunOption = None,
) -> None:
    """Write the finished experiments for other tools, or the kept steps as a branch and a pull request.

    Neither --branch nor --pr touches what is checked out.
    """
    if form is not None and (branch is not None or pr):
        raise typer.BadParameter(
            "formats are of experiments; leave it out with --branch and --pr.", param_hint="--format"
        )
    with opened(workspace, run, to_read=True) as place:
        if form is Format.MLFLOW:
            _to_mlflow(place, output)
            return
        if branch is not None or pr:
            text = _for_review(place, branch, pr=pr)
        else:
            text = exported(place, form or Format.RESULTS)
    _write(text, output)


def exported(place: Place, form: Format) -> str:
    """Return the text of an export."""
    from autoresearch.core import formats
    from autoresearch.core.memory import metric_from_json

    ledger, run = place.ledger, place.run
    experiments, measurements = ledger.experiments(run.id), ledger.run_measurements(run.id)
    if form is Format.CSV:
        return formats.as_csv(experiments, measurements, metric_from_json(run.metric))
    if form is Format.JSONL:
        looks = ledger.live_looks_of([row.id for row in experiments if row.id not in measurements])
        return formats.as_jsonl(experiments, measurements, run, looks)
    if form is Format.PI:
        return formats.as_pi(run, experiments, measurements)
    return formats.results_tsv(str(run.metric["name"]), experiments, measurements)


def _for_review(place: Place, name: str | None, *, pr: bool) -> str:
    """Write the branch where one is wanted; return the text of the pull request, or what was written."""
    from autoresearch.core.review import kept_work, write_branch

    demand_own(place.run)
    work = kept_work(place.ledger, place.run)
    written = None
    if name is not None:
        from autoresearch.core.store import Store

        written = write_branch(Store.open(place.layout.root), work, name)
        typer.echo(_branch_text(place, name, written), err=True, nl=False)
    if not pr:
        return ""
    from autoresearch.cli.pull_request import pull_request
    from autoresearch.cli.report import page_at
    from autoresearch.core import lock
    from autoresearch.core.readmodel import status_of

    status = status_of(place.ledger, place.run, at_work=lock.is_held(place.layout))
    return pull_request(work, page_at(place), status, None if name is None or written is None else (name, written))


def _branch_text(place: Place, name: str, written: ReviewBranch) -> str:
    """Return what a person wants to know of a new branch."""
    many = "1 commit" if len(written.commits) == 1 else f"{len(written.commits)} commits"
    on = f" on {written.base[:12]}" if written.base else ""
    git = "git" if place.layout.root == Path.cwd().resolve() else f"git -C {shown_path(place.layout.root)}"
    lines = [f"Wrote the branch {name}: {many}{on}, one for each kept change; nothing that is checked out was touched."]
    if written.as_found is not None:
        lines.append("Before them stands one with your files as the run found them: they were not committed then.")
    start = written.as_found or written.base
    lines.append(f"See it    {git} log -p {f'{start[:12]}..' if start else ''}{name}")
    return "\n".join(lines) + "\n"


def _write(text: str, output: Path | None) -> None:
    if not text:
        return
    if output is None or str(output) == "-":
        # A pipe gets the texts as they are (typer.echo would drop some sequences); a terminal would obey them.
        sys.stdout.write(clean(text, lines=True) if sys.stdout.isatty() else text)
        return
    from autoresearch.core.formats import write_by_rename

    try:
        write_by_rename(output, text)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{output} cannot be written: {error.strerror}.\nName another file with -o, or leave -o out."
        ) from error
    typer.echo(f"wrote {output}", err=True)


def _to_mlflow(place: Place, output: Path | None) -> None:
    from autoresearch.core.mlflow_export import write_mlflow

    if output is None or str(output) == "-":
        raise UsageError("MLflow reads a folder, not a stream.\nName a new one: -o DIR")
    experiments, measurements = place.ledger.experiments(place.run.id), place.ledger.run_measurements(place.run.id)
    looks = place.ledger.live_looks_of([row.id for row in experiments if row.id not in measurements])
    uri = write_mlflow(output.resolve(), place.run, experiments, measurements, looks)
    typer.echo(f"wrote {output}: {uri}\nLook at it    mlflow ui --backend-store-uri {uri}", err=True)
