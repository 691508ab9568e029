"""`autoresearch export`: the experiments for other programs."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.cli.options import RunOption, WorkspaceOption
from autoresearch.cli.place import Place, opened
from autoresearch.cli.render import clean
from autoresearch.core.errors import EnvironmentNotReadyError


class Format(Enum):
    """What `export` writes."""

    RESULTS = "results.tsv"  # commit, metric, memory_gb, status, description
    JSONL = "jsonl"  # everything, one object a line
    PI = "pi"  # the log of pi-autoresearch
    CSV = "csv"  # one line an experiment, for a spreadsheet


def export(
    form: Annotated[Format, typer.Option("--format", "-f", help="What to write.")] = Format.RESULTS,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where; by default standard output.", show_default=False),
    ] = None,
    workspace: WorkspaceOption = None,
    run: RunOption = None,
) -> None:
    """Write the finished experiments: as results.tsv, as JSON lines with everything, or as CSV."""
    with opened(workspace, run, to_read=True) as place:
        text = exported(place, form)
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
