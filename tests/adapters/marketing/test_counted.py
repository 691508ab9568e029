"""Tests that another tool runs: arms handed over by folder, totals read by day, the verdict handed back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.counted import CountsSource
from autoresearch.adapters.marketing.wording import set_slots
from autoresearch.core import Artifact, LiveExperiment, UsageError
from tests.adapters.marketing.campaigns import edit, write_campaign

BEGAN = datetime(2026, 3, 2, 15, tzinfo=UTC)
HEAD = "date,variant,exposures,conversions\n"


class Tool:
    """A campaign whose totals come from `totals.csv`, and a clock."""

    def __init__(self, folder: Path, settings: str = 'path = "totals.csv"') -> None:
        self.folder = write_campaign(folder)
        edit(self.folder, "campaign.toml", 'source = "simulated"', 'source = "counts"')
        config = self.folder / "campaign.toml"
        config.write_text(config.read_text(encoding="utf-8") + f"\n[counts]\n{settings}\n", encoding="utf-8")
        self.now = BEGAN
        self.source = CountsSource(Campaign.load(self.folder), now=lambda: self.now)

    def report(self, text: str) -> None:
        (self.folder / "totals.csv").write_text(text, encoding="utf-8")

    def start(self, name: str = "run-0001") -> Path:
        text = (self.folder / "copy.toml").read_text(encoding="utf-8")
        for arm, copy in (("c", text), ("t", set_slots(text, {"cta": "Plan my first week"}))):
            Artifact({"copy.toml": copy}).write(self.folder / "arms" / arm)
        control, treatment = self.folder / "arms" / "c", self.folder / "arms" / "t"
        self.source.start(LiveExperiment(name, control, treatment, {"control": 0.5, "treatment": 0.5}, self.now))
        return next(path.parent for path in self.folder.rglob("test.json") if path.parent.name == name)

    def seen(self, name: str = "run-0001") -> list[tuple[int, float]]:
        return [(arm.n, arm.total) for arm in self.source.look(name).arms]


def days(*rows: tuple[str, int, int]) -> str:
    """A report in which both arms show the same on each of these days of March 2026."""
    lines = [f"2026-03-{day},{arm},{n},{x}\n" for day, n, x in rows for arm in ("control", "treatment")]
    return HEAD + "".join(lines)


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path / "campaign")


def test_both_arms_are_handed_over_with_what_they_must_be_called(tool: Tool) -> None:
    """A folder a test: two copies, a note, and at the end the verdict in words."""
    folder = tool.start()
    assert "Plan my first week" in (folder / "treatment" / "copy.toml").read_text(encoding="utf-8")
    assert '"experiment_id": "run-0001"' in (folder / "test.json").read_text(encoding="utf-8")
    tool.source.finish("run-0001", kept=True)
    assert (folder / "verdict.txt").read_text(encoding="utf-8") == "Show the treatment to everybody.\n"


def test_only_whole_matured_days_after_the_start_are_counted(tool: Tool) -> None:
    """Rows without a test's name are known by their day: the first one began with people of before."""
    tool.start()
    tool.report(days(("01", 900, 90), ("02", 700, 70), ("03", 100, 5), ("04", 110, 6), ("05", 120, 7)))
    tool.now = BEGAN + timedelta(days=3)
    assert tool.seen() == [(100, 5.0)] * 2, "on the 5th the people of the 4th may still convert"
    tool.now = BEGAN + timedelta(days=5)
    assert tool.seen() == [(330, 18.0)] * 2


def test_the_next_test_does_not_inherit_the_people_of_the_day_it_began_on(tool: Tool) -> None:
    """Both tests call their arms the same, and on that day the tool showed both."""
    tool.start()
    tool.report(days(("03", 100, 5), ("04", 100, 50)))
    tool.now = BEGAN + timedelta(days=2)
    tool.source.finish("run-0001", kept=False)
    tool.start("run-0002")
    tool.now = BEGAN + timedelta(days=9)
    assert tool.seen("run-0002") == [(0, 0.0)] * 2


def test_rows_that_name_the_test_count_from_their_first_day(tool: Tool) -> None:
    """A name cannot mean another test."""
    tool.start()
    rows = "".join(f"2026-03-02,{arm},50,5,run-0001\n" for arm in ("control", "treatment"))
    tool.report(HEAD.replace("conversions", "conversions,experiment_id") + rows)
    tool.now = BEGAN + timedelta(days=3)
    assert tool.seen() == [(50, 5.0)] * 2


def test_a_tool_that_has_not_begun_to_report_has_shown_nobody(tool: Tool) -> None:
    """No file, an empty one, or one arm only: nothing yet, and no error."""
    tool.start()
    tool.now = BEGAN + timedelta(days=3)
    assert tool.seen() == [(0, 0.0)] * 2
    tool.report(HEAD)
    assert tool.seen() == [(0, 0.0)] * 2
    tool.report(HEAD + "2026-03-03,control,10,1\n")
    assert tool.seen() == [(0, 0.0)] * 2


def test_a_platform_that_chose_its_people_is_marked(tmp_path: Path) -> None:
    """Its split says nothing, so no gate hears of it; the label and the verdict say why."""
    tool = Tool(tmp_path / "campaign", 'path = "totals.csv"\ncontrol = "11"\ntreatment = "12"')
    folder = tool.start()
    rows = "".join(f"2026-03-03,C,{ad},1000,{clicks},5.00%,1\n" for ad, clicks in ((11, 50), (12, 60)))
    tool.report(f"Day,Campaign,Ad ID,Impr.,Clicks,CTR,Conversions\n{rows}")
    tool.now = BEGAN + timedelta(days=3)
    seen = tool.source.look("run-0001")
    assert [arm.total for arm in seen.arms] == [50.0, 60.0] and seen.exposed == {}
    assert tool.source.label == "not randomised"
    tool.source.finish("run-0001", kept=True)
    assert "Not randomised" in (folder / "verdict.txt").read_text(encoding="utf-8")


def test_a_source_without_a_place_to_read_is_refused(tmp_path: Path) -> None:
    """The message shows the line that is missing."""
    tool = Tool(tmp_path / "campaign", "randomised = true")
    with pytest.raises(UsageError, match="must name a path, or a url and a query"):
        tool.source.prepare()


def test_a_test_lasts_its_weeks_and_no_longer(tool: Tool) -> None:
    """After `max_weeks` the source says that it is over."""
    tool.start()
    tool.now = BEGAN + timedelta(weeks=8)
    over = tool.source.look("run-0001").over
    assert over is not None and "8 weeks" in over
