"""`autoresearch marketing import`: take past tests from a file that you have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.adapters.marketing.commands.place import CampaignOption, layout_of, writing

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.archive import ArchiveTest


def import_(
    file: Annotated[Path, typer.Argument(help="CSV of the Upworthy Research Archive, or one with the same columns.")],
    workspace: CampaignOption = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Make the folder a campaign first: one that replays a past test.")
    ] = False,
    test: Annotated[str | None, typer.Option(help="With --replay: which one; default: the largest.")] = None,
    days: Annotated[int, typer.Option(min=1, help="With --replay: days over which it is dealt out.")] = 14,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was taken as JSON.")] = False,
) -> None:
    """Take past tests into the campaign's state, for the traffic source replay and for the map."""
    from autoresearch.adapters.marketing.archive import ARCHIVE_NAME, headline_tests, read_archive, write_archive
    from autoresearch.adapters.marketing.campaign import Campaign

    root = (workspace or Path()) if replay else Campaign.load(layout_of(workspace).root).folder
    tests = read_archive(file)
    if replay:
        _make_campaign(root, tests, test, days)
    folder = root / ".autoresearch" / "marketing"
    with writing(folder / ARCHIVE_NAME):
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


def _make_campaign(folder: Path, tests: Sequence[ArchiveTest], name: str | None, days: int) -> None:
    """Write a campaign that replays a past test.

    Raises:
        UsageError: If the folder holds a campaign already, or there is no such test.
    """
    from autoresearch.adapters.marketing.archive import headline_tests
    from autoresearch.adapters.marketing.replay import choose_test
    from autoresearch.adapters.marketing.replay_campaign import campaign_files
    from autoresearch.core import UsageError

    files = campaign_files(choose_test(headline_tests(tests), name), days=days)
    there = [path for path in files if (folder / path).exists()]
    if there:
        raise UsageError(
            f"{folder} holds {', '.join(there)} already, and nothing is overwritten.\n"
            "Name a new folder with -w, or leave --replay out to add the past tests to this campaign."
        )
    with writing(folder):
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")


def _sentences(found: dict[str, int | str]) -> str:
    return (
        f"Took {found['tests']:,} tests with {found['arms']:,} arms and {found['impressions']:,} impressions into "
        f"{found['path']}.\n"
        f"{found['suspect_weeks']:,} of them ran in weeks whose splits are known to be broken "
        f"({found['suspect_weeks_split_fails']:,} fail the equal split at p < 0.001); of the others "
        f"{found['other_split_fails']:,} fail it.\n"
        f"{found['sound_headline_tests']:,} compare headlines and can be believed: these are replayed and mapped."
    )
