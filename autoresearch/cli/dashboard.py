"""`autoresearch dashboard`: runs in a browser, while they go on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.cli.place import locate


def dashboard(
    workspace: Annotated[
        list[Path] | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR",
            help="Workspace; several times for several. [default: the one here]",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine a token is needed.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 finds a free one.")] = 8470,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="AUTORESEARCH_DASHBOARD_TOKEN",
            help="Ask for this token. [default: none on this machine, else a random one]",
            show_default=False,
            show_envvar=False,
        ),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Open no browser.")] = False,
) -> None:
    """Show runs in a browser while they go on: what is believed, what is confirmed, what is measured now.

    Pause, stop, approve and leave notes there, too. Ctrl-C ends the dashboard; no run ends with it.
    """
    layouts = [locate(given) for given in workspace] if workspace else [locate(None)]
    from autoresearch.web.dashboard.serve import opened

    served = opened(layouts, host=host, port=port, token=token)
    # The address with a token would be seen by everybody who may list the processes of this machine.
    wanted = not no_open and not served.guard.token and sys.stdout.isatty()
    try:
        typer.echo(f"Dashboard: {served.url}")
        typer.echo("Ctrl-C ends it; runs go on.", err=True)
        served.serve(lambda: _open(served.url) if wanted else None)
    except KeyboardInterrupt:
        return  # how a dashboard ends
    finally:
        served.listening.close()


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)
