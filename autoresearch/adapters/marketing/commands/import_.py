"""`autoresearch marketing import`: take past tests from a file that you have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of


def import_(
    file: Annotated[Path, typer.Argument(help="CSV of the Upworthy Research Archive, or one with the same columns.")],
    workspace: CampaignOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was taken as JSON.")] = False,
) -> None:
    """Take past tests into the campaign's state, for the traffic source replay and for the map."""
    from autoresearch.adapters.marketing.archive import ARCHIVE_NAME, headline_tests, read_archive, write_archive
    from autoresearch.adapters.marketing.campaign import Campaign

    folder = Campaign.load(layout_of(workspace).root).folder / ".autoresearch" / "marketing"
    tests = read_archive(file)
    write_archive(tests, folder / ARCHIVE_NAME)
    suspect = [test for test in tests if test.suspect]
    found: dict[str, int | str] = {
        "path": str(folder / ARCHIVE_NAME),
        "tests": len(tests),
        "arms": sum(len(test.arms) for test in tests),
        "impressions": sum(arm.n for test in tests for arm in test.arms),
        "suspect_weeks": len(suspect),
        "suspect_weeks_split_fails": sum(test.split_fails for test in suspect),
        "other_split_fails": sum(test.split_fails for test in tests if not test.suspect),
        "sound_headline_tests": len(headline_tests(tests)),
    }
    typer.echo(json.dumps(found, indent=2) if as_json else _sentences(found))


def _sentences(found: dict[str, int | str]) -> str:
    return (
        f"Took {found['tests']:,} tests with {found['arms']:,} arms and {found['impressions']:,} impressions into "
        f"{found['path']}.\n"
        f"{found['suspect_weeks']:,} of them ran in weeks whose splits are known to be broken "
        f"({found['suspect_weeks_split_fails']:,} fail the equal split at p < 0.001); of the others "
        f"{found['other_split_fails']:,} fail it.\n"
        f"{found['sound_headline_tests']:,} compare headlines and can be believed: these are replayed and mapped."
    )
