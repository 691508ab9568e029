"""`confirm` and `calibrate` from the command line: what they print, and their sentences for wrong use."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from autoresearch.cli.confirm import MOST_SEEDS
from autoresearch.core import lock
from autoresearch.core.fresh import CALIBRATE_SEED, CONFIRM_SEED, Bench
from autoresearch.core.ledger import Ledger
from autoresearch.core.workspace import Layout
from tests.cli.conftest import invoke
from tests.cli.filling import make_workspace, work
from tests.json_docs import as_documented

CONFIRM_KEYS = [
    "run", "seeds", "arms", "measured", "openings", "sd", "spread", "believed_gain", "confirmed_gain",
    "share_confirmed", "complete", "split", "claims",
]  # fmt: skip
CLAIM_KEYS = [
    "subject", "number", "commit", "against", "outcome", "reason", "seeds", "raw", "shrunk", "low", "high", "e_value",
    "e_needed", "level", "share", "alternative", "seeds_needed",
]  # fmt: skip
CALIBRATE_KEYS = ["run", "number", "values", "measured", "noise_sd", "noise_dof", "false_keep_rate", "smallest_effect"]


@pytest.fixture
def climbed(hill: Path, tmp_path: Path) -> Path:
    """A workspace of the adapter `hill` whose run kept something."""
    root = tmp_path / "w"
    done = invoke(
        "run", "--adapter", "hill", "-w", root, "--proposer", "search", "-n", 6, "--seed", 1, "--quiet", "--no-confirm"
    )
    assert done.exit_code == 0 and f"autoresearch confirm -w {root}" in done.stdout
    return root


def test_confirm_says_what_is_proven(climbed: Path) -> None:
    """The first line is believed beside confirmed; a sentence and a row per claim; openings are counted; keys hold."""
    done = invoke("confirm", "-w", climbed, "--seeds", 3, "--quiet")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("believed gain +") and " of what is believed)" in lines[0]
    assert lines[2].startswith("Confirmed: the incumbent (experiment ")
    assert any(line.startswith("incumbent / baseline ") and line.endswith(" confirmed") for line in lines)
    found = as_documented("confirm", invoke("confirm", "-w", climbed, "--seeds", 3, "--json").stdout)
    assert list(found) == CONFIRM_KEYS and list(found["claims"][0]) == CLAIM_KEYS
    assert found["measured"] == 0 and found["openings"] == 3 * found["arms"]
    assert f"has opened {found['openings']} times" in done.stdout.replace("\n", " ")
    status = json.loads(invoke("status", "-w", climbed, "--json").stdout)
    assert status["confirmed_gain"] == found["confirmed_gain"] > 0
    assert invoke("status", "-w", climbed).stdout.splitlines()[0] == lines[0]


def test_calibrate_says_what_noise_hides(climbed: Path) -> None:
    """Spread, false keeps and the smallest visible effect, for people and as JSON."""
    done = invoke("calibrate", "-w", climbed, "--runs", 2, "--quiet")
    assert done.exit_code == 0, done.output
    assert "with 2 fresh seeds" in done.stdout and "standard deviation" in done.stdout
    assert "keeps a change that changes nothing" in done.stdout and "80 % of the time" in done.stdout
    found = as_documented("calibrate", invoke("calibrate", "-w", climbed, "--runs", 2, "--json").stdout)
    assert list(found) == CALIBRATE_KEYS and len(found["values"]) == 2 and found["measured"] == 0
    with Ledger.open(Layout(climbed).ledger) as ledger:
        assert ledger.runs()[-1].noise_sd == found["noise_sd"]


def test_a_run_told_to_confirm_ends_confirmed(hill: Path, tmp_path: Path) -> None:
    """`run --confirm` closes with a confirmed gain and no advice to get one."""
    root = tmp_path / "w"
    done = invoke("run", "--adapter", "hill", "-w", root, "--proposer", "search", "-n", 6, "--seed", 1, "--confirm")
    assert "Confirming: " in done.stdout
    assert " of what is believed)" in done.stdout and "autoresearch confirm" not in done.stdout


@pytest.mark.parametrize("command", ["confirm", "calibrate"])
def test_no_run_yet_gets_a_sentence(here: Path, command: str) -> None:
    """Without a run there is nothing to measure again."""
    (here / "autoresearch.toml").write_text('[run]\nformat = 1\nadapter = "hill"\n', encoding="utf-8")
    done = invoke(command)
    assert done.exit_code == 1 and "No run has begun in" in done.stderr


def test_nothing_kept_gets_a_sentence(tmp_path: Path) -> None:
    """A run without a keep has nothing to confirm, and nothing is prepared to find that out."""
    work(make_workspace(tmp_path / "w"), [("Double it.", "16")], experiments=1)
    done = invoke("confirm", "-w", tmp_path / "w")
    assert done.exit_code == 1 and "Nothing was kept in run" in done.stderr


@pytest.mark.parametrize("command", ["confirm", "calibrate"])
def test_a_run_at_work_gets_a_sentence(filled: Path, tmp_path: Path, command: str) -> None:
    """While a process holds the workspace nothing is measured beside it."""
    root = shutil.copytree(filled, tmp_path / "copy")
    with lock.held(Layout(root)):
        done = invoke(command, "-w", root)
    assert done.exit_code == 1 and "Another run is at work" in done.stderr


@pytest.mark.parametrize("command", ["confirm", "calibrate"])
def test_an_adapter_that_is_not_installed_gets_a_sentence(filled: Path, tmp_path: Path, command: str) -> None:
    """A run of the Python API with an adapter of its own cannot be measured from here."""
    root = shutil.copytree(filled, tmp_path / "copy")
    done = invoke(command, "-w", root)
    assert done.exit_code == 1 and "Numbers" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["confirm", "--seeds", "1"],
        ["confirm", "--seeds", str(MOST_SEEDS + 1)],
        ["confirm", "--claims", "1"],
        ["calibrate", "--runs", "1"],
        ["calibrate", "--runs", str(10**11)],
    ],
)
def test_senseless_numbers_are_wrong_usage(words: list[str]) -> None:
    """Too few to show a spread, or so many that nobody could wait for them."""
    assert invoke(*words).exit_code == 2


def test_confirmations_and_calibrations_share_no_seed() -> None:
    """The most seeds that a confirmation takes end where those of calibrations begin."""
    assert CONFIRM_SEED + MOST_SEEDS == CALIBRATE_SEED


def test_an_earlier_incumbent_is_told_from_the_present_one(hill: Path, tmp_path: Path) -> None:
    """After another keep, the old claim names its experiment, and one line alone speaks of the incumbent."""
    root, kept = tmp_path / "w", []
    for experiments in ("2", "4"):
        run = ["run", "--adapter", "hill", "-w", str(root), "--proposer", "search", "-n", experiments, "--seed", "1"]
        assert invoke(*run, "--quiet", "--no-confirm").exit_code == 0
        said = invoke("confirm", "-w", root, "--seeds", "3", "--quiet").stdout
        kept.append(json.loads(invoke("status", "-w", root, "--json").stdout)["kept"])
    assert 0 < kept[0] < kept[1]
    assert said.count("the incumbent (experiment ") == 1 and said.count("\nincumbent / baseline ") == 1
    assert ", once the incumbent, is better than the baseline" in said.replace("\n", " ")


@pytest.mark.parametrize("command", ["confirm", "calibrate"])
def test_an_interrupted_command_says_how_to_go_on(climbed: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C, or a request to terminate, a person knows that nothing is lost and what to type."""

    def interrupted(self: Bench, *arguments: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "value", interrupted)
    done = invoke(command, "-w", climbed)
    assert done.exit_code == 130
    assert f"Interrupted. What was measured stays; the rest: autoresearch {command}" in done.output
