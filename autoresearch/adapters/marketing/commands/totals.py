"""`autoresearch marketing totals`: what all kept changes together are worth, told three ways."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of


def totals(
    workspace: CampaignOption = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Which run; by default the latest.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the totals as JSON.")] = False,
) -> None:
    """Say what the kept changes are worth together: as tested, shrunk, and by the permanent holdout.

    The holdout has seen the original from the beginning, so that it tells the truth about the total, whatever the
    single tests said; it is small, and its interval wide.
    """
    from autoresearch.adapters.marketing.site import askers
    from autoresearch.adapters.marketing.total import in_words, totals_of
    from autoresearch.core import UsageError
    from autoresearch.core.ledger import Ledger

    layout = layout_of(workspace)
    if not layout.ledger.is_file():
        raise UsageError(f"No run has begun in {layout.root}.\nBegin one: autoresearch run -w {layout.root}")
    with Ledger.reading(layout.ledger) as ledger:
        found = totals_of(layout.root, ledger, run)
    asked = askers.read(layout.root / ".autoresearch" / "marketing")
    if as_json:
        typer.echo(json.dumps({**found.as_json(), "askers": asked}, indent=2))
        return
    typer.echo(in_words(found), nl=False)
    if asked:
        typer.echo(f"\nWho asked, roughly; only people are in tests and holdout:\n{askers.in_words(asked)}")
