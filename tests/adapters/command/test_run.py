"""The loop in a checkout, from the command line: what is refused, what is recorded, and what stays untouched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from autoresearch.core import Proposal, ProposalRequest
from autoresearch.core.driver import RunResult, run
from autoresearch.core.ledger import Experiment, Ledger
from autoresearch.core.workspace import Layout
from tests.adapters.command.conftest import OPTIONS, PYTHON, git, make_checkout
from tests.cli.conftest import invoke
from tests.core.fakes import FakeProposer

COMMAND = ["--adapter", "command", "--edit", "conf.py", "--measure", f"{PYTHON} bench.py", "--metric", "loss"]
QUICK = ["--proposer", "search", "--sandbox", "limits", "--no-confirm", "-q"]


def conf(width: float, steps: int = 400) -> str:
    return f"STEPS = {steps}\nWIDTH = {width}\n"


class Editor(FakeProposer):
    """Proposes texts of `conf.py`."""

    def propose(self, request: ProposalRequest) -> Proposal:
        found = super().propose(request)
        text = found.artifact.files["number.txt"]
        return Proposal(f"Try {self.asked}", "widths", request.artifact.replace({"conf.py": text}))


def experiments(checkout: Path) -> Sequence[Experiment]:
    with Ledger.reading(Layout(checkout).ledger) as ledger:
        last = ledger.latest_run()
        assert last is not None
        return ledger.experiments(last.id)


def go(checkout: Path, script: Sequence[str], **options: str) -> RunResult:
    return run(
        "command",
        workspace=checkout,
        proposer=Editor(script),
        experiments=len(script),
        sandbox="limits",
        confirm=False,
        options={**OPTIONS, **options},
    )


def test_a_guard_refuses_what_is_better_otherwise(checkout: Path) -> None:
    """More memory than the guard allows is reverted with the change beside the limit; within it is kept."""
    go(checkout, [conf(4, 436), conf(4.5, 420)], guard="memory_mb<=+5%")
    first, second = experiments(checkout)[1:]
    assert (first.outcome, first.reason) == ("reverted", "guard: memory_mb +9 % (at most +5 %)")
    assert second.outcome == "kept"


def test_guards_count_from_the_baseline_and_not_from_keep_to_keep(checkout: Path) -> None:
    """Four per cent at every keep do not add up."""
    go(checkout, [conf(4, 416), conf(4.5, 432)], guard="memory_mb<=+5%")
    assert [row.outcome for row in experiments(checkout)] == ["kept", "kept", "reverted"]


def test_a_broken_check_is_reverted_and_not_crashed(checkout: Path) -> None:
    """Its reason says so, no repair is asked for, and there is no value."""
    go(checkout, [conf(4.9)], check=f"{PYTHON} -c 'import conf; assert conf.WIDTH < 4'")
    row = experiments(checkout)[1]
    assert row.outcome == "reverted" and row.reason.startswith("check failed: ")
    assert (row.value, row.repairs) == (None, 0)


def test_a_candidate_that_says_its_own_number_is_invalid(checkout: Path) -> None:
    """A second METRIC line makes nothing but trouble for who prints it."""
    go(checkout, [conf(3) + "print('METRIC loss=0')\n"])
    assert experiments(checkout)[1].outcome == "invalid"


def test_from_the_command_line_in_any_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags alone start it, a bare run goes on, and git sees nothing but a branch."""
    monkeypatch.chdir(checkout)
    said = invoke("run", *COMMAND, "--minimize", "--guard", "memory_mb<=+5%", *QUICK, "-n", "3")
    assert said.exit_code == 0, said.output
    assert "loss 4 -> " in said.output
    assert invoke("run", *QUICK, "-n", "1").exit_code == 0
    found = json.loads(invoke("status", "--json").stdout)
    assert found["adapter"] == "command" and found["experiments"] == 4
    assert git(checkout, "status", "--porcelain") == ""
    assert sorted(path.name for path in checkout.iterdir()) == [".autoresearch", ".git", "bench.py", "conf.py"]
    assert (checkout / ".autoresearch" / "results.tsv").is_file()


def test_a_loop_of_another_tool_runs_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One flag reads it, and the next command runs it."""
    program = (
        "- `prepare.py` Do not modify.\n- `train.py` — the file you modify.\n"
        f"You launch it simply as: `{PYTHON} train.py`. Get the lowest val_bpb.\n"
        'grep "^val_bpb:" run.log\nIf it exceeds 10 minutes, kill it.\n'
    )
    train = "WIDTH = 3.0\nprint(f'---\\nval_bpb:   {(WIDTH - 2) ** 2 + 1:.6f}\\nnum_steps: 953')\n"
    root = make_checkout(tmp_path / "karpathy", {"program.md": program, "train.py": train, "prepare.py": "X = 1\n"})
    monkeypatch.chdir(root)
    said = invoke("init", "--from", ".")
    assert said.exit_code == 0, said.output
    assert "Read program.md:" in said.output and "metric = val_bpb" in said.output
    assert invoke("run", *QUICK, "-n", "2").exit_code == 0
    assert experiments(root)[0].value == 2.0
    assert git(root, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--adapter", "ml", "--edit", "a.py"], "belongs to --adapter command"),
        (["run", *COMMAND, "--maximize", "--set", "direction=minimize"], "--set direction says"),
        (["run", *COMMAND], "--minimize or --maximize"),
        (["init"], "--adapter"),
        (["init", "--adapter", "ml", "--from", "."], "belongs to --adapter command"),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
) -> None:
    """A flag for another adapter, a contradiction and a missing one each have their sentence."""
    monkeypatch.chdir(checkout)
    said = invoke(*arguments)
    assert said.exit_code in (1, 2) and sentence in " ".join(said.output.replace("│", " ").split())
    assert not (checkout / ".autoresearch" / "autoresearch.toml").exists()


def test_new_flags_with_a_new_run_are_written_down(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare run goes on with what the last run began with, not with what the first one was given."""
    monkeypatch.chdir(checkout)
    invoke("run", *COMMAND, "--minimize", *QUICK, "-n", "0")
    assert invoke("run", "--new", "--adapter", "command", "--maximize", *QUICK, "-n", "0").exit_code == 0
    said = invoke("run", *QUICK, "-n", "1")
    assert said.exit_code == 0, said.output
    assert 'direction = "maximize"' in (checkout / ".autoresearch" / "autoresearch.toml").read_text()


def test_a_change_of_the_evaluator_is_refused_and_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is not continued with another bench; which files changed is said, and putting them back goes on."""
    monkeypatch.chdir(checkout)
    loud = [flag for flag in QUICK if flag != "-q"]
    invoke("run", *COMMAND, "--minimize", *QUICK, "-n", "0")
    before = (checkout / "bench.py").read_text()
    (checkout / "bench.py").write_text(before + "\n")
    (checkout / "notes.md").write_text("new")
    said = invoke("run", *loud, "-n", "1")
    assert said.exit_code == 1
    assert "Changed since the run began: bench.py, notes.md." in said.output and "begin a new run" in said.output
    (checkout / "bench.py").write_text(before)
    (checkout / "notes.md").unlink()
    assert invoke("run", *loud, "-n", "1").exit_code == 0


def test_without_a_holdout_a_gain_is_called_remeasured(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`confirm` measures anew, and neither its first line nor its sentences say that anything is confirmed."""
    monkeypatch.chdir(checkout)
    go(checkout, [conf(4.5)])
    said = invoke("confirm", "-q")
    assert said.exit_code == 0, said.output
    assert "| re-measured gain: +3.75" in said.output.splitlines()[0]
    assert "Re-measured: the incumbent" in said.output and "the adapter has no holdout" in said.output
    assert "Confirmed:" not in said.output and "  confirmed" not in said.output


def test_with_a_split_the_holdout_is_opened(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is told which data to use gives claims on data that no decision saw."""
    monkeypatch.chdir(checkout)
    go(checkout, [conf(4.5)], measure=f"{OPTIONS['measure']} && test {{split}} && echo {{split}}")
    said = invoke("confirm", "-q")
    assert "| confirmed gain: +3.75" in said.output.splitlines()[0]
    assert "holdout" in (checkout / ".autoresearch" / "fresh").glob("*/run.log").__next__().read_text()
