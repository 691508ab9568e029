"""`autoresearch marketing map`: what resonates, over all finished tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of


def map_(
    workspace: CampaignOption = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture there.")] = None,
    prompt: Annotated[bool, typer.Option("--prompt", help="Print what a writer is told instead of the table.")] = False,
    own: Annotated[bool, typer.Option("--own", help="Leave the imported archive out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the map as JSON.")] = False,
) -> None:
    """Show what kinds of text do better, fitted over the campaign's finished tests and an imported archive."""
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.resonance import make_map, tests_of

    found = make_map(tests_of(Campaign.load(layout_of(workspace).root).folder, archive=not own))
    if svg is not None:
        from autoresearch.adapters.marketing.resonance_picture import picture

        svg.write_text(picture(found), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        typer.echo(found.for_prompt() if prompt else found.table(), nl=False)
