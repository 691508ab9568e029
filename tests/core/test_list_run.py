"""Runs whose traffic only one policy fits, and traffic that runs out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from autoresearch.core import GateReport, Look, UsageError, Workspace
from autoresearch.core.words import live_headline
from tests.core.fakes import make_workspace
from tests.core.test_live import Crowd, experiments, go


@dataclass
class Listed(Crowd):
    """A crowd that is a list: held until its third look, and spent by one test."""

    policy: str | None = "test_and_roll"

    def policy_for(self, workspace: Workspace) -> str | None:
        return self.policy

    def used_up(self) -> str | None:
        return "nobody is left" if self.finished else None

    def gates(self, experiment_id: str, crossed: Look | None) -> GateReport:
        return GateReport(hold="It waits for its people.")

    def ending(self, experiment_id: str) -> str | None:
        return "All have answered." if self.looks[experiment_id] >= 3 else None


def test_a_list_is_chosen_from_once_and_labelled(tmp_path: Path) -> None:
    """The adapter's policy is taken, waits for the adapter's word and chooses by sign; the run ends: nobody is left."""
    root, crowd = make_workspace(tmp_path / "w", "0.05"), Listed()
    result = go(root, ["0.07", "0.09"], crowd, experiments=5)
    rows = experiments(root)
    assert [row.outcome for row in rows] == ["kept", "kept"]
    assert result.reason == "nobody is left"
    assert next(iter(crowd.looks.values())) == 3
    assert "chosen by Test & Roll" in rows[1].reason
    assert "without an error rate" in rows[1].reason
    assert (rows[1].e_win, rows[1].effect_low, rows[1].p_better) == (None, None, None)
    assert "by Test & Roll, a bet without an error rate" in live_headline(result.status, crowd.metric)
    raced = replace(result.status, policy="race")
    assert "at the race's error rate" in live_headline(raced, crowd.metric)
    assert "error rate" not in live_headline(replace(raced, kept=0), crowd.metric), "nothing was kept at it"


@pytest.mark.parametrize(("policy", "asked"), [("test_and_roll", "race"), (None, "test_and_roll")])
def test_a_policy_that_does_not_fit_is_refused(tmp_path: Path, policy: str | None, asked: str) -> None:
    """A race of a list that ends, and Test & Roll of people who keep coming, which would peek at every look."""
    root = make_workspace(tmp_path / "w", "0.05")
    with pytest.raises(UsageError, match="does not fit this traffic"):
        go(root, ["0.07"], Listed(policy=policy), policy=asked, experiments=1)
