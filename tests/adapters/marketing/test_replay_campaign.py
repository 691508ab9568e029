"""A whole rehearsal: a campaign made of a past test, run by the loop."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import autoresearch
from autoresearch.adapters.marketing.adapter import create_adapter
from autoresearch.adapters.marketing.archive import (
    ARCHIVE_NAME,
    ArchiveArm,
    ArchiveTest,
    headline_tests,
    read_archive,
    write_archive,
)
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.checks import option_faults, refusals
from autoresearch.adapters.marketing.replay_campaign import campaign_files
from autoresearch.adapters.marketing.wording import Copy

PAST = ArchiveTest(
    "t1",
    201405,
    (
        ArchiveArm("An ordinary headline", "", 4000, 80),
        ArchiveArm('50% more "quotes" & 2 < 3: it\'s FREE, #1!', "", 4000, 60),
        ArchiveArm("You'll never guess", "", 4000, 300),
    ),
)


def written(folder: Path, test: ArchiveTest, days: int = 14) -> Path:
    for path, text in campaign_files(test, days=days).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def faults(folder: Path) -> tuple[str, ...]:
    campaign, copy = Campaign.load(folder), Copy.load(folder)
    return (*refusals(campaign, copy), *option_faults(campaign, copy))


def test_the_loop_finds_the_headline_that_people_chose(tmp_path: Path) -> None:
    """A run over a past test keeps its clear winner, reverts the others, and ends when all were tried."""
    folder = written(tmp_path, PAST)
    write_archive([PAST], folder / ".autoresearch" / "marketing" / ARCHIVE_NAME)
    result = autoresearch.run(create_adapter({}), workspace=folder, proposer="search", experiments=4)
    assert result.status.kept == 1
    kept = ["git", "-C", str(folder), "show", f"{result.branch}:copy.toml"]
    copy = Copy.load(subprocess.run(kept, check=True, capture_output=True, text=True).stdout)
    assert copy.slots["headline"] == "You'll never guess"


def test_headlines_with_signs_are_let_through(tmp_path: Path) -> None:
    """What was printed may be shown again, as the archive has it."""
    folder = written(tmp_path, PAST)
    assert Copy.load(folder).options["headline"] == tuple(arm.headline for arm in PAST.arms)


def test_campaigns_of_upworthy_pass_their_own_checks(tmp_path: Path) -> None:
    """Every hundredth past test of headlines makes a campaign whose texts may all be shown."""
    path = os.environ.get("AUTORESEARCH_UPWORTHY")
    if not path:
        pytest.skip("AUTORESEARCH_UPWORTHY does not name a file with the Upworthy Research Archive")
    for test in headline_tests(read_archive(Path(path)))[::100]:
        assert faults(written(tmp_path, test)) == (), test.id
