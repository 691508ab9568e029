"""`autoresearch marketing serve` and `autoresearch marketing kill`."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign


def serve(
    workspace: CampaignOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes; one per core is right.")] = 2,
    engine: Annotated[str, typer.Option("--server", help="What speaks HTTP: uvicorn or granian.")] = "uvicorn",
    public_url: Annotated[
        str, typer.Option(help="Where visitors reach the site; the self-test goes this way, through every cache.")
    ] = "",
) -> None:
    """Serve the campaign's page, assign visitors and count them; a run may stop and resume meanwhile."""
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.site.server import ENGINES, Server
    from autoresearch.core import UsageError

    if engine not in ENGINES:
        raise UsageError(f"--server must be {' or '.join(ENGINES)}, not {engine!r}.")
    folder = layout_of(workspace).root
    note = untested(Campaign.load(folder))
    stop = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with Server(folder, host=host, port=port, workers=workers, public_url=public_url, engine=engine) as server:
            typer.echo(f"Serving {folder} at {server.url} with {workers} workers; the self-test has passed.")
            typer.echo("Everybody sees the incumbent until a run starts a test. Ctrl-C stops.")
            if note is not None:
                typer.echo(note, err=True)
            server.watch(stop)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def untested(campaign: Campaign) -> str | None:
    """Return why no test will ever meet the visitors of this server; None where tests do."""
    from autoresearch.adapters.marketing.sources import SERVED

    source = campaign.traffic.source
    if source in SERVED:
        return None
    return (
        f'Nobody who comes here is in a test: campaign.toml says source = "{source}" under [traffic], and the sources '
        f"that are served are {', '.join(SERVED)}."
    )


def kill(
    workspace: CampaignOption = None,
    off: Annotated[bool, typer.Option("--off", help="Turn the switch off again.")] = False,
) -> None:
    """Show everybody the control at once and count nobody, until --off; servers follow within a second."""
    from autoresearch.adapters.marketing.live import LiveFolder

    LiveFolder.of(layout_of(workspace).root).kill(not off)
    typer.echo("The kill switch is off: tests go on." if off else "Killed: everybody sees the control, uncounted.")
