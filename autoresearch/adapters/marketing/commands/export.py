"""`autoresearch marketing export`: the winner for production."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.wording import Copy
    from autoresearch.core.workspace import Layout


def export(
    workspace: CampaignOption = None,
    form: Annotated[
        str | None, typer.Option("--format", "-f", help="html, mjml, text, json or csv; default: what suits the kind.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File to write; default: print it.")] = None,
    run: Annotated[str | None, typer.Option(help="Run whose winner is meant; default: the latest.")] = None,
    source: Annotated[
        Path | None, typer.Option("--copy", help="Export this copy.toml instead of a run's winner.")
    ] = None,
    surface: Annotated[
        str, typer.Option(help="Page or audience to export, by its name in [surfaces]; default: the page at /.")
    ] = "",
    action_url: Annotated[str, typer.Option(help="Where the form of a page is posted to in production.")] = "",
    landing_url: Annotated[str, typer.Option(help="Where links lead; default: campaign.toml's.")] = "",
    unsubscribe_url: Annotated[
        str, typer.Option(help="Address or the sending tool's mark for leaving the list; default: campaign.toml's.")
    ] = "",
    first_name: Annotated[str, typer.Option(help="The sending tool's mark for the recipient's first name.")] = "",
) -> None:
    """Write the winner for production: HTML, MJML or text, JSON for a CMS, CSV for ad tools."""
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.export import FORMATS, placeholders
    from autoresearch.adapters.marketing.export import export as exported
    from autoresearch.adapters.marketing.render import Context
    from autoresearch.adapters.marketing.wording import Copy

    layout = layout_of(workspace)
    campaign = Campaign.load(layout.root)
    copy = Copy.load(source) if source is not None else winner(layout, run)
    context = Context(action_url, landing_url, unsubscribe_url, first_name)
    text = exported(campaign, copy, form or FORMATS[campaign.kind][0], context, surface)
    if "subject" in copy.slots and form != "json":
        typer.echo(f"Subject: {copy.slots['subject']}", err=True)
    invented = placeholders(campaign)
    if invented:
        typer.echo(f"Still those of the invented product in campaign.toml: {', '.join(invented)}.", err=True)
    _write(text, output)


def winner(layout: Layout, run_id: str | None = None) -> Copy:
    """Return the copy that a run kept last; before the first run, and saying so, the one in the folder.

    Raises:
        UsageError: If there is no run of that id.
    """
    from autoresearch.adapters.marketing.wording import COPY_NAME, Copy
    from autoresearch.core import UsageError
    from autoresearch.core.ledger import Ledger
    from autoresearch.core.memory import incumbent_of
    from autoresearch.core.store import Store

    if run_id is not None and not layout.ledger.is_file():
        raise UsageError(f"No run has begun in {layout.root} yet.\nLeave --run out to export {COPY_NAME} as it is.")
    run, kept = None, None
    if layout.ledger.is_file():
        with Ledger.open(layout.ledger) as ledger:
            run = ledger.run(run_id) if run_id is not None else ledger.latest_run()
            kept = incumbent_of(ledger.experiments(run.id)) if run is not None else None
    # A run that was refused before it began leaves a ledger without one.
    if run is None:
        typer.echo(f"No run has begun yet: this is {COPY_NAME} as it stands.", err=True)
        return Copy.load(layout.root)
    commit = (kept.kept_commit if kept else None) or run.baseline_commit
    return Copy.load(Store.open(layout.root).read(commit, (COPY_NAME,)).files[COPY_NAME])


def _write(text: str, output: Path | None) -> None:
    from autoresearch.core import EnvironmentNotReadyError

    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{output} cannot be written: {error.strerror}.\nChoose another file with -o FILE."
        ) from error
    typer.echo(f"wrote {output}", err=True)
