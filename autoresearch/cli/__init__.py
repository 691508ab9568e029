"""The command line: a thin skin over `autoresearch.core`; a command is imported when it is typed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.cli.lazy import LazyGroup, forget_what_cannot_be_written, told_unwritable
from autoresearch.version import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="autoresearch",
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    # A bug keeps Python's own traceback: it is what people paste into reports, and it shows no values of variables.
    pretty_exceptions_enable=False,
    # Plain help costs no import of rich, which would be half of the time that --help takes.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"autoresearch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say the version and leave.")
    ] = False,
) -> None:
    """Leave it running overnight and wake up to improvements that are real.

    To begin: autoresearch run --adapter command --edit FILES --measure COMMAND --metric NAME --minimize
    """


def main() -> None:
    """Run the command line and leave with its exit code.

    Codes: 0 done, 1 a fault in use or environment, 2 wrong usage, 130 interrupted.
    """
    _open_closed_streams()
    try:
        app(prog_name="autoresearch")
    except OSError as error:  # --help and --version are printed before any command
        if not told_unwritable(error):
            raise
        sys.exit(1)
    finally:
        forget_what_cannot_be_written()


def _open_closed_streams() -> None:
    """Let a stream that was closed (`>&-`, some daemons) lead nowhere, before the ledger's file gets its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the process
