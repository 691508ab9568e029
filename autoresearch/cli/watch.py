"""`autoresearch watch`: a run seen from another terminal, which it never touches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.options import WorkspaceOption
from autoresearch.cli.place import locate, suffix

if TYPE_CHECKING:
    from autoresearch.cli.watching import Seen, Watcher
    from autoresearch.core.workspace import Layout

_SECONDS_BETWEEN = 0.5


def watch(
    workspace: WorkspaceOption = None,
    once: Annotated[bool, typer.Option("--once", help="Print what is going on now, and end.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON line per change; docs/json.md names the keys.")
    ] = False,
) -> None:
    """Follow the run at work from another terminal.

    Shows the phase, the learning curve, the end of the log, what is left of the limits and the last experiments, until
    the run ends. Ctrl-C ends the watching; the run goes on.
    """
    layout = locate(workspace)
    from autoresearch.cli.watching import Watcher

    with closing(Watcher(layout)) as watcher:
        try:
            if json:
                _as_json(watcher, once)
            elif once:
                typer.echo(_page(watcher.look(), layout), nl=False)
            elif _on_a_terminal():
                _living(watcher, layout)
            else:
                _line_by_line(watcher, layout)
        except KeyboardInterrupt:
            typer.echo("Watching ended; the run is as it was.", err=True)
            raise


def _on_a_terminal() -> bool:
    from rich.console import Console

    return sys.stdout.isatty() and not Console().is_dumb_terminal


def _looks(watcher: Watcher) -> Iterator[Seen]:
    """Yield what is seen again and again, the state in which the run ended last."""
    while True:
        seen = watcher.look()
        yield seen
        if not seen.at_work:
            return
        time.sleep(_SECONDS_BETWEEN)


def _as_json(watcher: Watcher, once: bool) -> None:
    from autoresearch.cli.render import as_json_line
    from autoresearch.cli.watching import state_event

    last: object = None
    for seen in _looks(watcher):
        if seen.mark != last:
            typer.echo(as_json_line(state_event(seen)))
            sys.stdout.flush()
        last = seen.mark
        if once:
            return


def _page(seen: Seen, layout: Layout, width: int | None = None, ascii_only: bool | None = None) -> str:
    from autoresearch.cli.place import terminal_width
    from autoresearch.cli.watching import page

    if ascii_only is None:
        ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    return page(seen, width=width or terminal_width(), where=suffix(layout), ascii_only=ascii_only)


def _line_by_line(watcher: Watcher, layout: Layout) -> None:
    """Write a line per phase of measuring and per finished experiment, and the whole state at the end."""
    from autoresearch.cli.reporter import experiment_line
    from autoresearch.cli.watching import doing

    known: int | None = None
    said = ""
    for seen in _looks(watcher):
        if not seen.at_work:
            typer.echo(_page(seen, layout), nl=False)
            return
        if known is None:
            known = seen.finished
        for row in seen.since(known):
            typer.echo(experiment_line(row))
        known = max(known, seen.finished)
        if (words := doing(seen)) != said:
            typer.echo(words)
            said = words
        sys.stdout.flush()


def _living(watcher: Watcher, layout: Layout) -> None:
    """Draw the state in place; the last one stays."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(
        console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as live:
        for seen in _looks(watcher):
            text = _page(seen, layout, width=console.width, ascii_only=console.options.ascii_only)
            # Text is never read as markup.
            live.update(Text(text.rstrip("\n"), no_wrap=True, overflow="ellipsis"), refresh=True)
    typer.echo(text, nl=False)
