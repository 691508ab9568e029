"""Traffic of our own server as the loop sees it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.commands.serve import untested
from autoresearch.adapters.marketing.live import LiveFolder
from autoresearch.adapters.marketing.served import ServedSource, last_change
from autoresearch.adapters.marketing.simulated import SimulatedSource
from autoresearch.adapters.marketing.surfaces import PAGE
from autoresearch.adapters.marketing.wording import Copy, set_slots
from autoresearch.core import Artifact, EnvironmentNotReadyError, LiveExperiment
from tests.adapters.marketing.campaigns import campaign, edit, write_campaign
from tests.adapters.marketing.filling import exposure, write

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)


class Stage:
    """A campaign whose arms are told by what stands on the button."""

    def __init__(self, folder: Path) -> None:
        self.campaign = campaign(folder)
        self.source = ServedSource(self.campaign, now=lambda: MONDAY)
        self.source.show_original()

    def arm(self, cta: str) -> Path:
        text = set_slots(self.campaign.copy_path.read_text(encoding="utf-8"), {"cta": cta})
        folder = self.campaign.folder / "made" / cta
        Artifact({"copy.toml": text}).write(folder)
        return folder

    def test(self, name: str, control: str, treatment: str) -> None:
        split = {"control": 0.5, "treatment": 0.5}
        self.source.start(LiveExperiment(name, self.arm(control), self.arm(treatment), split, MONDAY))

    def shown(self) -> tuple[str, str]:
        surface = LiveFolder.of(self.campaign.folder).read().surfaces[PAGE]
        return Copy.load(surface.original).slots["cta"], Copy.load(surface.incumbent).slots["cta"]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "campaign")


def test_a_kept_treatment_is_what_everybody_sees(stage: Stage) -> None:
    """The original stays for the holdout, and the next test begins from what is shown."""
    original = stage.shown()[0]
    stage.test("a", original, "Try it with my team")
    stage.source.finish("a", kept=True)
    changed = last_change(stage.source.folder)
    write(stage.source.folder.events, exposure("a", 1, MONDAY, 0))
    stage.test("b", "Try it with my team", "Show me my rota")
    assert stage.shown() == (original, "Try it with my team")
    assert last_change(stage.source.folder) == changed, "nothing that people see has changed"


def test_a_new_run_from_another_copy_shows_its_incumbent(stage: Stage) -> None:
    """Or those outside the test would see what no arm shows, and a revert would bring back a stranger."""
    original = stage.shown()[0]
    stage.test("a", original, "Try it with my team")
    stage.source.finish("a", kept=True)
    stage.test("new-1", "Plan my first week", "Show me my rota")
    assert stage.shown() == (original, "Plan my first week")
    stage.source.finish("new-1", kept=False)
    assert stage.shown() == (original, "Plan my first week")


def test_no_run_waits_for_people_behind_a_kill_switch(stage: Stage) -> None:
    """Nobody is counted while it is on, so a run would wait for weeks; without a server it would too."""
    LiveFolder.of(stage.campaign.folder).kill(True)
    with pytest.raises(EnvironmentNotReadyError, match=r"kill switch .* is on"):
        stage.source.prepare()
    LiveFolder.of(stage.campaign.folder).kill(False)
    with pytest.raises(EnvironmentNotReadyError, match="No server shows the campaign"):
        stage.source.prepare()


@pytest.mark.parametrize(
    ("source", "warned"), [("simulated", True), ("counts", True), ("site", False), ("email", False)]
)
def test_serving_a_campaign_that_tests_others_says_so(tmp_path: Path, source: str, warned: bool) -> None:
    """Whoever serves the page of a fresh campaign would wait for a test that made-up people are in."""
    folder = write_campaign(tmp_path)
    edit(folder, "campaign.toml", 'source = "simulated"', f'source = "{source}"')
    note = untested(Campaign.load(folder))
    assert (note is not None) == warned and (note is None or f'source = "{source}"' in note)


def test_the_same_seed_repeats_a_simulation_whenever_its_run_began(tmp_path: Path) -> None:
    """Two runs begun at different moments: the same people come, and the same arms are drawn for them."""
    found = []
    for moment in ("20260101-080000", "20260202-091500"):
        folder = campaign(tmp_path / moment).folder
        source = SimulatedSource(Campaign.load(folder), seed=3)
        source.prepare()
        text = (folder / "copy.toml").read_text(encoding="utf-8")
        for arm, copy in (("c", text), ("t", set_slots(text, {"cta": "Plan my first week"}))):
            Artifact({"copy.toml": copy}).write(folder / "made" / arm)
        name, split = f"marketing-{moment}-0001", {"control": 0.5, "treatment": 0.5}
        try:
            source.start(LiveExperiment(name, folder / "made" / "c", folder / "made" / "t", split, MONDAY))
            found.append([source.look(name).arms, source.look(name).arms])
        finally:
            source.close()
    assert found[0] == found[1] and found[0][1][0].n > 0
