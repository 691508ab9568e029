"""`autoresearch report`: a run as one file to look at and to send."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.options import RunOption, WorkspaceOption
from autoresearch.cli.place import Place, opened
from autoresearch.core.errors import EnvironmentNotReadyError

if TYPE_CHECKING:
    from autoresearch.web.report import Page


class Format(Enum):
    """What `report` writes."""

    HTML = "html"  # one file with pictures
    MARKDOWN = "md"  # the same in words and tables


def report(
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format", "-f", help="What to write. [default: html, or by the file's name]", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where; - for standard output. [default: .autoresearch/report.html in the workspace]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a run as one file: what is believed, what is confirmed, the picture of its progress, all that was tried.

    The HTML file needs no network and no script, so that it can be sent and kept.
    """
    from autoresearch.web.report import as_html, as_markdown

    with opened(workspace, run, to_read=True) as place:
        page = page_at(place)
    if form is None:
        form = Format.MARKDOWN if output is not None and output.suffix == ".md" else Format.HTML
    text = as_html(page) if form is Format.HTML else as_markdown(page)
    if str(output) == "-":
        sys.stdout.write(text)
        return
    # Never beside the artifact by default: there a glob of editable files could take the report for a part of it.
    file = place.layout.state / f"report.{form.value}" if output is None else output
    _write(file, text)
    typer.echo(f"wrote {file}", err=True)


def page_at(place: Place) -> Page:
    """Return what the report of an open run says."""
    from autoresearch.core import lock
    from autoresearch.core.readmodel import live_points, view_of
    from autoresearch.web.report import page_of
    from autoresearch.web.sections import sections_of

    view = view_of(place.ledger, place.run, at_work=lock.is_held(place.layout))
    return page_of(
        view,
        now=datetime.now(UTC),
        points=lambda row: live_points(place.ledger, view, row),
        sections=sections_of(place.layout.root, place.run),
    )


def _write(file: Path, text: str) -> None:
    from autoresearch.core.formats import write_by_rename

    try:
        write_by_rename(file, text)
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{file} cannot be written: {error.strerror}.\nName another file with --output, or - for standard output."
        ) from error
