"""`autoresearch marketing forget`: erase a person."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of


def forget(
    unit: Annotated[str, typer.Argument(help="The unit id: what the cookie ar_unit holds, or your own user id.")],
    workspace: CampaignOption = None,
) -> None:
    """Erase every event of a person, and keep a salted hash so that none is counted again."""
    from autoresearch.adapters.marketing import events
    from autoresearch.adapters.marketing.live import LiveFolder
    from autoresearch.adapters.marketing.site.views import LOOK_SECONDS

    live = LiveFolder.of(layout_of(workspace).root)
    key = live.unit_key(unit)
    erased = events.forget(live.events, [key])
    # A server that runs hears of it within LOOK_SECONDS and may have written until then.
    time.sleep(2 * LOOK_SECONDS)
    erased += events.erase(live.events, [key])
    typer.echo(f"Erased {erased} events of this person. Later ones are neither written nor counted.")
