"""`autoresearch marketing forget`: erase a person."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of


def forget(
    unit: Annotated[str, typer.Argument(help="What the cookie ar_unit holds, your own user id, or an e-mail address.")],
    workspace: CampaignOption = None,
) -> None:
    """Erase every event of a person, and keep a salted hash so that none is counted again."""
    from autoresearch.adapters.marketing import events
    from autoresearch.adapters.marketing.live import LiveFolder
    from autoresearch.adapters.marketing.site.views import LOOK_SECONDS

    root = layout_of(workspace).root
    live = LiveFolder.of(root)
    if "@" in unit:
        unit = _forget_mail(root, unit)
    key = live.unit_key(unit)
    erased = events.forget(live.events, [key])
    # A server that runs hears of it within LOOK_SECONDS and may have written until then.
    time.sleep(2 * LOOK_SECONDS)
    erased += events.erase(live.events, [key])
    typer.echo(f"Erased {_many(erased, 'event')} of this person. Later ones are neither written nor counted.")


def _many(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def _forget_mail(root: Path, address: str) -> str:
    """Erase an address from the record of mails, which keeps its salted hash on the suppression list; return its unit.

    The company that an address was assigned with, where mails go out by domain, is not a person and stays.
    """
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.email import suppression
    from autoresearch.adapters.marketing.email.journal import Journal
    from autoresearch.adapters.marketing.email.settings import EmailSettings

    shared = EmailSettings.of(Campaign.load(root)).shared
    hashed = suppression.address_hash(shared, address)
    # The list first: once the record is gone, it alone keeps the person from being written to again.
    suppression.suppress(shared, hashed, "forgotten")
    with Journal(shared) as journal:
        erased = journal.forget(hashed)
    typer.echo(
        f"Erased {_many(erased, 'row')} about this address; it is never written to again. Take it out of your files "
        "too."
    )
    return hashed
