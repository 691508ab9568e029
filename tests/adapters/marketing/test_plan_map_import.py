"""The commands plan, map and import."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from autoresearch.adapters.marketing.commands.import_ import import_
from autoresearch.adapters.marketing.commands.map import map_
from autoresearch.adapters.marketing.commands.plan import plan
from autoresearch.adapters.marketing.commands.totals import totals
from autoresearch.adapters.marketing.past_tests import PastArm, PastTest, remember
from autoresearch.adapters.marketing.starter import workspace_files
from autoresearch.core import EnvironmentNotReadyError, UsageError
from tests.json_docs import as_documented

app = typer.Typer()
app.command("plan")(plan)
app.command("map")(map_)
app.command("import")(import_)
app.command("totals")(totals)


def run(*arguments: object) -> str:
    """Return what a command prints; its errors come as they are."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """A campaign folder as `init` writes it, with known traffic."""
    folder = tmp_path / "campaign"
    for name, text in workspace_files("page").items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    settings = folder / "campaign.toml"
    text = re.sub(r"(?m)^#?\s*(weekly|baseline)\s*=.*\n", "", settings.read_text(encoding="utf-8"))
    settings.write_text(text.replace("[traffic]\n", "[traffic]\nweekly = 20000\nbaseline = 0.04\n"), encoding="utf-8")
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A file of 30 past tests in which a question halves the click rate."""
    rng, path = np.random.default_rng(4), tmp_path / "past.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["test_id", "test_week", "eyecatcher_id", "headline", "impressions", "clicks"])
        for number in range(30):
            for text, rate in ((f"A story {number}", 0.04), (f"A story {number}?", 0.02), (f"My tale {number}", 0.04)):
                writer.writerow([f"t{number}", 201401 + 10 * (number > 2), "e", text, 5000, rng.binomial(5000, rate)])
    return path


def test_what_cannot_be_written_is_said_in_a_sentence(campaign: Path, archive: Path) -> None:
    """Neither the archive's place nor the picture's can be made below a file."""
    run("import", archive, "-w", campaign)
    with pytest.raises(EnvironmentNotReadyError, match=r"map\.svg cannot be written: .*\nMake it writable"):
        run("map", "-w", campaign, "--svg", archive / "map.svg")
    shutil.rmtree(campaign / ".autoresearch")
    (campaign / ".autoresearch").write_text("in the way")
    with pytest.raises(EnvironmentNotReadyError, match=r"archive\.csv\.gz cannot be written: "):
        run("import", archive, "-w", campaign)
    with pytest.raises(EnvironmentNotReadyError, match=r"past\.csv cannot be written: "):
        run("import", archive, "--replay", "-w", archive)


def test_totals_before_any_run_make_no_ledger(campaign: Path) -> None:
    """They only read: where no run has begun that is said, and nothing is written."""
    with pytest.raises(UsageError, match=r"No run has begun in .*\nBegin one: "):
        run("totals", "-w", campaign)
    assert not (campaign / ".autoresearch" / "ledger.db").exists()


def test_a_plan_without_a_campaign(tmp_path: Path) -> None:
    """Volume, baseline and lift are all that a plan needs."""
    text = run("plan", "-w", tmp_path, "--weekly", 10000, "--baseline", 0.05, "--lift", 0.2)
    assert "7,663" in text
    assert "36,500 tests a year would take" in text
    words = ("plan", "-w", tmp_path, "--weekly", 10000, "--baseline", 0.05, "--weeks", 4, "--json")
    found = as_documented("marketing plan", run(*words))
    assert found["setting"]["max_weeks"] == 4
    assert found["setting"]["lift"] == 0.1


def test_a_plan_takes_the_campaigns_traffic(campaign: Path) -> None:
    """What is not given comes from campaign.toml, and what is given counts before it."""
    setting = json.loads(run("plan", "-w", campaign, "--json"))["setting"]
    assert (setting["weekly"], setting["baseline"]) == (20000, 0.04)
    setting = json.loads(run("plan", "-w", campaign, "--weekly", 500, "--surfaces", 2, "--json"))["setting"]
    assert (setting["weekly"], setting["baseline"], setting["surfaces"]) == (500, 0.04, 2)


def test_a_plan_of_nothing_says_what_it_needs(tmp_path: Path) -> None:
    """Without numbers or a campaign the message shows a command that works."""
    with pytest.raises(UsageError, match=r"needs --weekly and --baseline.\nFor example"):
        run("plan", "-w", tmp_path)


def test_a_campaign_without_traffic_says_where_to_state_it(campaign: Path) -> None:
    """A campaign that names neither volume nor baseline is told both places."""
    path = campaign / "campaign.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("baseline = 0.04\n", ""), encoding="utf-8")
    with pytest.raises(UsageError, match=r"does not say how much traffic.*\n.*\[traffic\], or give --weekly"):
        run("plan", "-w", campaign)


def test_a_list_that_ends_is_planned(campaign: Path) -> None:
    """A list of 100,000 with rates of 68 % ± 3 points is tested on 2,284 per arm; own tests say it where they can."""
    text = run("plan", "-w", campaign, "--list", 100_000, "--baseline", 0.68, "--spread", 0.03)
    assert "test on 2,284 per arm, then send the better-looking one to the other 95,432" in text
    for number, conversions in enumerate((50, 70, 90)):
        arms = tuple(PastArm({"headline": "x"}, 1000, conversions) for _ in range(2))
        remember(campaign / ".autoresearch" / "marketing", PastTest(f"run/{number}", "2026-03-01", arms))
    prior = as_documented("marketing plan --list", run("plan", "-w", campaign, "--list", 1000, "--json"))["prior"]
    assert prior["mean"] == pytest.approx(0.07)
    assert 0.01 < prior["sd"] < 0.02


def test_a_list_without_any_knowledge_says_what_to_give(campaign: Path) -> None:
    """Without earlier tests the spread must be given, and the message shows how."""
    with pytest.raises(UsageError, match=r"0 earlier arms say nothing(.|\n)*--list 100000 --baseline"):
        run("plan", "-w", campaign, "--list", 1000)


def test_past_tests_are_imported(campaign: Path, archive: Path) -> None:
    """What was taken is counted, and lies in the campaign's state."""
    found = as_documented("marketing import", run("import", archive, "-w", campaign, "--json"))
    assert (found["tests"], found["arms"], found["impressions"]) == (30, 90, 450_000)
    assert (found["suspect_weeks"], found["sound_headline_tests"]) == (3, 27)
    assert Path(found["path"]).is_relative_to(campaign / ".autoresearch")
    assert "27 compare headlines and can be believed" in run("import", archive, "-w", campaign)


def test_importing_needs_a_campaign(tmp_path: Path, archive: Path) -> None:
    """A folder that is no campaign is not made one."""
    with pytest.raises(UsageError, match="There is no campaign at"):
        run("import", archive, "-w", tmp_path)


def test_the_map_of_an_archive(campaign: Path, archive: Path, tmp_path: Path) -> None:
    """The effect that is in the file is on the map: in table, prompt, JSON and picture."""
    run("import", archive, "-w", campaign)
    picture = tmp_path / "map.svg"
    assert re.search(r"question +rule +-[45]\d", run("map", "-w", campaign, "--svg", picture))
    assert "question" in picture.read_text(encoding="utf-8")
    assert "rule (replicated): question" in run("map", "-w", campaign, "--prompt")
    assert as_documented("marketing map", run("map", "-w", campaign, "--json"))["tests"] == 27


def test_a_campaigns_own_tests_are_on_its_map(campaign: Path, archive: Path) -> None:
    """Own tests stand beside the archive's, or alone when asked for."""
    run("import", archive, "-w", campaign)
    for number in range(4):
        arms = tuple(PastArm({"headline": text}, 1000, 50) for text in ("One", "Two?"))
        remember(campaign / ".autoresearch" / "marketing", PastTest(f"run/{number}", "2026-03-01", arms))
    assert json.loads(run("map", "-w", campaign, "--json"))["tests"] == 31
    assert json.loads(run("map", "-w", campaign, "--own", "--json"))["tests"] == 4


def test_a_map_of_nothing_says_where_tests_come_from(campaign: Path) -> None:
    """A new campaign has no map, and is told how to get one."""
    with pytest.raises(UsageError, match="marketing import FILE"):
        run("map", "-w", campaign)


def test_a_campaign_of_a_past_test_is_made(tmp_path: Path, archive: Path) -> None:
    """`--replay` writes a campaign of one past test into a new folder, and never over one that is there."""
    folder = tmp_path / "rehearsal"
    run("import", archive, "-w", folder, "--replay", "--test", "t7", "--days", 5)
    assert 'test = "t7"' in (folder / "campaign.toml").read_text(encoding="utf-8")
    assert json.loads(run("map", "-w", folder, "--json"))["tests"] == 27
    with pytest.raises(UsageError, match=r"holds campaign.toml, copy.toml.*nothing is overwritten"):
        run("import", archive, "-w", folder, "--replay")
    with pytest.raises(UsageError, match="no test 'x'"):
        run("import", archive, "-w", tmp_path / "other", "--replay", "--test", "x")
