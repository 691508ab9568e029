"""`autoresearch marketing suppress`: somebody said no by telephone, or in words that no rule understood."""

from __future__ import annotations

from typing import Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of


def suppress(
    address: Annotated[str, typer.Argument(help="The e-mail address that is never to be written to again.")],
    workspace: CampaignOption = None,
) -> None:
    """Put an address on the suppression list that the campaign shares with others; nothing takes it off again."""
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.email import suppression
    from autoresearch.adapters.marketing.email.recipients import address_fault
    from autoresearch.adapters.marketing.email.settings import EmailSettings
    from autoresearch.core import UsageError

    fault = address_fault(address.strip())
    if fault is not None:
        raise UsageError(f"That is no address: {fault}.\nNobody was put on the list.")
    shared = EmailSettings.of(Campaign.load(layout_of(workspace).root)).shared
    suppression.suppress(shared, suppression.address_hash(shared, address), "unsubscribe")
    typer.echo("On the list. No campaign that shares it writes there again.")
