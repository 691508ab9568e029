"""`autoresearch run` and `init`, on an adapter that is measured in microseconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from autoresearch.core.ledger import Ledger
from tests.cli.conftest import invoke
from tests.json_docs import as_documented


def test_a_run_from_nothing(hill: Path, here: Path) -> None:
    """Naming an adapter makes a workspace, runs, and ends with what is believed and where to look."""
    result = invoke("run", "--adapter", "hill", "--experiments", "3")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    finished = [line.split() for line in lines if line[:3].strip().isdigit()]
    assert [words[0] for words in finished] == ["0", "1", "2", "3"]
    assert finished[0][1] == "baseline"
    summary = lines[lines.index("") + 1 :]
    assert summary[0].startswith("believed gain") and summary[0].endswith("| confirmed gain: not confirmed")
    assert "3 experiments: " in summary[1] and summary[2] == "Ended: experiments: 3 of 3 done."
    assert "autoresearch log" in result.stdout and "autoresearch-hill/results.tsv" in result.stdout
    assert (here / "autoresearch-hill" / "results.tsv").is_file()
    assert "\x1b" not in result.output


def test_the_next_run_goes_on(hill: Path, here: Path) -> None:
    """A second `run` says what it found and counts its own experiments."""
    invoke("run", "--adapter", "hill", "-n", "1", "-q")
    result = invoke("run", "-n", "1")
    assert "Going on with run hill-" in result.stdout and "2 experiments: " in result.stdout


def test_quiet_says_the_summary_only(hill: Path, here: Path) -> None:
    """With `--quiet` the first line is the headline."""
    result = invoke("run", "--adapter", "hill", "-n", "1", "--quiet")
    assert result.stdout.startswith("believed gain")


def test_kept_steps_can_be_taken_over_by_the_command_that_is_shown(hill: Path, here: Path) -> None:
    """The line `To take them over` works as it stands, in a repository without a commit and in one with."""
    for committed in (False, True):
        folder = here / str(committed)
        invoke("init", "--adapter", "hill", folder)
        if committed:
            git = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e"]
            for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "begin"]):
                subprocess.run([*git, *arguments], check=True)
        result = invoke("run", "-w", folder, "-n", "6")
        assert " 0 kept" not in result.stdout, result.stdout
        shown = next(line for line in result.stdout.splitlines() if line.startswith("To take them over"))
        command = shown.removeprefix("To take them over").split()
        assert ("merge" in command) == committed
        subprocess.run([*command[:1], "-c", "user.name=n", "-c", "user.email=e", *command[1:]], check=True)
        assert (folder / "hill.py").read_text() != "# Turn these.\nWIDTH = 3.0\nHEIGHT = 8.0\n"


def test_json_lines_are_one_object_each(hill: Path, here: Path) -> None:
    """Standard output holds one object per experiment and one for the end; words go to standard error."""
    result = invoke("run", "--adapter", "hill", "-n", "2", "--json")
    *lines, last = result.stdout.splitlines()
    events = [*(as_documented("run: experiment", line) for line in lines), as_documented("run: end", last)]
    assert [event["event"] for event in events] == ["experiment"] * 3 + ["end"]
    assert [event["number"] for event in events[:3]] == [0, 1, 2]
    assert events[3]["status"]["experiments"] == 2 and events[3]["interrupted"] is False
    assert events[3]["branch"] == f"autoresearch/{events[3]['run']}"
    assert "Proposer: search" in result.stderr


def test_options_reach_the_adapter(hill: Path, here: Path) -> None:
    """`--set` and its shorthands are the adapter's options, and a new workspace remembers them."""
    assert invoke("run", "--adapter", "hill", "--set", "pause=0.0", "--preset", "tiny", "-n", "0").exit_code == 0
    text = (here / "autoresearch-hill" / "autoresearch.toml").read_text(encoding="utf-8")
    assert 'pause = "0.0"' in text and 'preset = "tiny"' in text


def test_options_that_are_left_out_later_still_hold(hill: Path, here: Path) -> None:
    """A run goes on with the options that it was started with, and so does its adapter."""
    assert invoke("init", "--adapter", "hill", "mine").exit_code == 0
    assert invoke("run", "-w", "mine", "--set", "pause=0.001", "-n", "1").exit_code == 0
    assert invoke("run", "-w", "mine", "-n", "1").exit_code == 0
    assert "pause 0.001" in invoke("show", "2", "--log", "-w", "mine").stdout


def test_a_campaign_is_made_and_run_by_flags_of_its_own(here: Path) -> None:
    """`--kind`, `--anyway` and `--no-whole-weeks` are the marketing adapter's options by a shorter name."""
    assert invoke("init", "--adapter", "marketing", "--kind", "ad", "mine").exit_code == 0
    assert 'kind = "ad"' in (here / "mine" / "campaign.toml").read_text(encoding="utf-8")
    invoke("run", "-w", "mine", "-n", "0", "--anyway", "--no-whole-weeks")
    with Ledger.open(here / "mine" / ".autoresearch" / "ledger.db") as ledger:
        assert ledger.runs()[-1].options == {"kind": "ad", "anyway": "yes", "whole_weeks": "no"}


def test_policy_parameters_reach_the_policy(hill: Path, here: Path) -> None:
    """The rule is written into the run, which refuses another one afterwards and says how to begin anew."""
    assert invoke("run", "--adapter", "hill", "--keep-at", "0.9", "--drop-below", "0.4", "-n", "0").exit_code == 0
    result = invoke("run", "--keep-at", "0.95", "-n", "0")
    assert result.exit_code == 1 and "keep_at" in result.stderr and "--new" in result.stderr


def test_init_says_what_it_wrote(hill: Path, here: Path) -> None:
    """`init` writes the workspace into the folder named and says how to run it; files that are there stay."""
    (here / "mine").mkdir()
    (here / "mine" / "hill.py").write_text("WIDTH = 1.0\nHEIGHT = 1.0\n")
    result = invoke("init", "--adapter", "hill", "mine")
    assert result.stdout.splitlines()[-1] == "Next: autoresearch run -w mine"
    assert "wrote mine/program.md" in result.stdout and "mine/hill.py" not in result.stdout
    assert (here / "mine" / "hill.py").read_text() == "WIDTH = 1.0\nHEIGHT = 1.0\n"
    assert (here / "mine" / "autoresearch.toml").is_file()


def test_control_c_finishes_the_experiment_and_exits_with_130(hill: Path, here: Path) -> None:
    """One interrupt ends the run after the experiment in progress, with the summary."""
    command = [sys.executable, "-u", "-m", "autoresearch", "run", "--adapter", "hill", "--set", "pause=0.3"]
    environment = {**os.environ, "PYTHONPATH": str(hill)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("measuring experiment 1"):
                process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
    assert "press Ctrl-C again" in said
    assert "1 experiment: " in said and "Ended: interrupted" in said
