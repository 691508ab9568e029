"""What the listings say of live tests in lanes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoresearch.core import GateReport, Lane
from autoresearch.core.driver import run
from tests.cli.conftest import invoke
from tests.core.town import Planner, Town, make_town


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two lanes; the second treatment of the first crosses a line early and is held to the end."""
    root = make_town(tmp_path_factory.mktemp("town") / "w", {"a": 0.05, "b": 0.05})
    town = Town(root, [Lane("a", arms=2), Lane("b")], most=3)
    town.reports = {number: GateReport(hold="The week is not over.") for number in (1, 2)}
    run(town, workspace=root, proposer=Planner({"a": [0.052, 0.3], "b": [0.052]}))
    return root


def test_log_has_a_column_of_lanes(shown: Path) -> None:
    """Beside the number, and empty for the baseline; a run without lanes has no such column."""
    lines = invoke("log", "-w", shown).stdout.splitlines()
    assert lines[0].split()[:3] == ["#", "lane", "outcome"]
    assert [line.split()[:3] for line in lines[2:4]] == [["1", "a", "inconclusive"], ["2", "a", "kept"]]


def test_show_says_of_which_look_the_effect_is(shown: Path) -> None:
    """The line was crossed at the first of three looks; the table has all of them and marks that one."""
    text = invoke("show", "2", "-w", shown).stdout
    assert "lane        a, one of 2 treatments that were begun together" in text
    assert " better, at look 1 of 3; above " in text and "(at beta); relative to the control\n" in text
    table = [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()]
    assert [row[0] for row in table] == ["1", "2", "3"] and table[0][-3:] == ["effect", "and", "e-values"]
    assert table[2][3] == "1,200", "people of the treatment so far"
    other = invoke("show", "3", "-w", shown).stdout
    effect = next(line for line in other.splitlines() if line.startswith("effect"))
    assert "lane        b\n" in other and "at look" not in effect, "nobody came after it"


def test_show_leaves_out_what_a_live_test_has_not(shown: Path) -> None:
    """Neither sandbox nor evaluator judged it."""
    text = invoke("show", "2", "-w", shown).stdout
    assert "judged by" not in text and "sandbox" not in text and "fingerprint" in text


def test_show_json_names_lane_and_family(shown: Path) -> None:
    """As the ledger has them."""
    found = json.loads(invoke("show", "2", "-w", shown, "--json").stdout)
    assert (found["lane"], found["family"], found["reach"]) == ("a", 2, 1.0)
