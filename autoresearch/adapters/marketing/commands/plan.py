"""`autoresearch marketing plan`: what the traffic can afford."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, folder_here

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.planning import Setting


def plan(
    workspace: CampaignOption = None,
    weekly: Annotated[int | None, typer.Option(min=1, help="Visitors, recipients or impressions a week.")] = None,
    baseline: Annotated[float | None, typer.Option(help="Conversion rate today, as a share: 0.05 for 5 %.")] = None,
    lift: Annotated[float | None, typer.Option(help="Smallest relative lift worth having: 0.1 for 10 %.")] = None,
    weeks: Annotated[int | None, typer.Option(min=1, help="Weeks that a test may take.")] = None,
    surfaces: Annotated[
        int | None, typer.Option(min=1, help="Tests at once, each on a share of the traffic; default: the campaign's.")
    ] = None,
    people: Annotated[
        int | None, typer.Option("--list", min=2, help="Length of a list that ends: plan a test on a part of it.")
    ] = None,
    spread: Annotated[
        float | None, typer.Option(help="With --list: spread of variants' true rates; default: that of earlier tests.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Say how long tests take here, how many a year holds, and what cannot be tested."""
    from autoresearch.adapters.marketing.planning import describe, make_plan

    folder = workspace or folder_here() or Path()  # a plan needs no campaign where the figures are given
    if people is not None:
        _plan_list(folder, people, baseline, spread, as_json)
        return
    setting = _setting(folder, weekly, baseline, lift, weeks, surfaces)
    made = make_plan(setting)
    typer.echo(json.dumps(made.as_json(), indent=2) if as_json else describe(made), nl=as_json)


def _plan_list(folder: Path, people: int, baseline: float | None, spread: float | None, as_json: bool) -> None:
    from dataclasses import asdict

    from autoresearch.adapters.marketing.planning import describe_list, list_prior
    from autoresearch.core.decision.arms import plan_finite_list

    prior, learned = list_prior(folder, baseline, spread)
    found = {"people": people, "prior": asdict(prior), "from": learned, **asdict(plan_finite_list(people, prior))}
    typer.echo(json.dumps(found, indent=2) if as_json else describe_list(people, prior, learned), nl=as_json)


def _setting(
    folder: Path,
    weekly: int | None,
    baseline: float | None,
    lift: float | None,
    weeks: int | None,
    surfaces: int | None,
) -> Setting:
    """Return what to plan for: what was given, then the campaign's.

    Raises:
        UsageError: If nobody says how much traffic there is, or how much of it converts.
    """
    from dataclasses import replace

    from autoresearch.adapters.marketing.campaign import CAMPAIGN_NAME, Campaign
    from autoresearch.adapters.marketing.email.volume import bound_of
    from autoresearch.adapters.marketing.planning import Setting, setting_of
    from autoresearch.core import UsageError

    if (folder / CAMPAIGN_NAME).is_file():
        campaign = Campaign.load(folder)
        setting = setting_of(campaign, weekly, baseline, lift, weeks, surfaces)
        bound = None if weekly is not None else bound_of(campaign, setting.weekly, setting.max_weeks)
        if bound is None:
            return setting
        typer.echo(bound.why, err=True)
        return replace(setting, weekly=bound.weekly)
    if weekly is None or baseline is None:
        raise UsageError(
            f"There is no {CAMPAIGN_NAME} in {folder.absolute()}, so a plan needs --weekly and --baseline.\n"
            "For example: autoresearch marketing plan --weekly 10000 --baseline 0.05 --lift 0.2"
        )
    given = Setting(weekly, baseline, 0.1 if lift is None else lift, surfaces=surfaces or 1)
    return given if weeks is None else replace(given, max_weeks=weeks)
