"""Measuring in real processes: what is laid out, what is refused, and what nobody notices in the checkout."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autoresearch.adapters.command import create_adapter
from autoresearch.core import (
    CandidateError,
    CheckFailedError,
    EnvironmentNotReadyError,
    InvalidCandidateError,
    Split,
    UsageError,
    Workspace,
)
from autoresearch.core.sandbox import Level, probe
from tests.adapters.command.conftest import BENCH, OPTIONS, PYTHON, Measured, git

Make = Callable[..., Measured]
CONFINED = [level.value for level in Level if level.confines]


def test_the_candidate_is_measured_and_not_the_checkout(measured: Make) -> None:
    """The changed file is in place beside the rest, and secondary numbers are recorded."""
    found = measured()({"conf.py": "STEPS = 100\nWIDTH = 7.0\n"}, seed=4)
    assert (found.value, found.seed, found.secondary["memory_mb"]) == (4.0, 4, 10.0)
    assert 0 < found.secondary["command_seconds"] <= found.seconds


def test_the_checkout_stays_as_it_is(measured: Make, checkout: Path) -> None:
    """Git sees nothing, and what a command writes is nowhere afterwards."""
    measure = measured({"measure": f"touch made.txt && {PYTHON} bench.py"})
    measure()
    assert git(checkout, "status", "--porcelain") == ""
    assert not list(measure.folder.glob("**/made.txt"))


def test_work_in_the_checkout_goes_on_undisturbed(measured: Make, checkout: Path) -> None:
    """What is edited there during a session changes no measurement, for the checkout was copied when it began."""
    measure = measured()
    before = measure.adapter.evaluator_fingerprint()
    (checkout / "bench.py").write_text("print('METRIC loss=0')")
    assert measure({"conf.py": "STEPS = 1\nWIDTH = 3.0\n"}).value == 4.0
    assert measure.adapter.evaluator_fingerprint() == before
    measure.adapter.prepare(Workspace(checkout))
    assert measure.adapter.evaluator_fingerprint() != before, "a new session sees the change"


def test_new_files_count_and_ignored_ones_do_not(measured: Make, checkout: Path) -> None:
    """The copy holds what git tracks and what it would add; a link brings in what is ignored."""
    (checkout / ".gitignore").write_text("data/\nsecret.txt\n")
    (checkout / "extra.txt").write_text("new")
    (checkout / "secret.txt").write_text("hidden")
    (checkout / "data").mkdir()
    (checkout / "data" / "x.txt").write_text("7")
    (checkout / "bench.py").write_text(
        "import os\nassert os.path.exists('extra.txt') and not os.path.exists('secret.txt')\n"
        "print('METRIC loss=' + open('data/x.txt').read())\n"
    )
    with pytest.raises(CandidateError, match="ended with exit code 1"):
        measured()()
    assert measured({"link": "data"})().value == 7.0


@pytest.mark.parametrize("level", CONFINED)
def test_a_link_is_shown_in_the_sandbox_and_read_only(measured: Make, checkout: Path, level: str) -> None:
    """Data is used where it lies, and no candidate can change it there."""
    if not probe(Level(level)).works:
        pytest.skip(f"{level} does not work on this machine")
    (checkout / ".gitignore").write_text("data/\n")
    (checkout / "data").mkdir()
    (checkout / "data" / "x.txt").write_text("7")
    write = "open('data/x.txt', 'w')"
    (checkout / "bench.py").write_text(
        f"try:\n    {write}\nexcept OSError:\n    print('METRIC loss=' + open('data/x.txt').read())\n"
    )
    assert measured({"link": "data"}, sandbox=level)().value == 7.0


@pytest.mark.parametrize("level", CONFINED)
def test_what_lies_below_the_home_is_found_there(
    measured: Make, checkout: Path, level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program that looks for its data below ~ finds it in the sandbox's empty home, too."""
    if not probe(Level(level)).works:
        pytest.skip(f"{level} does not work on this machine")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    data = tmp_path / "home" / ".cache" / "my data"
    data.mkdir(parents=True)
    (data / "x.txt").write_text("3")
    (checkout / "bench.py").write_text(
        "from pathlib import Path\nprint('METRIC loss=' + (Path.home() / '.cache/my data/x.txt').read_text())\n"
    )
    assert measured({"link": "~/.cache/my data"}, sandbox=level)().value == 3.0


@pytest.mark.parametrize("level", CONFINED)
def test_the_original_of_an_edited_file_cannot_be_measured_by_accident(
    measured: Make, checkout: Path, level: str
) -> None:
    """A command that leads to the checkout's own file fails instead of measuring every candidate the same."""
    if not probe(Level(level)).works:
        pytest.skip(f"{level} does not work on this machine")
    (checkout / "bench.py").write_text(
        f"print('METRIC loss=1' if open({str(checkout / 'conf.py')!r}).read() else '')\n"
    )
    with pytest.raises(CandidateError, match="ended with exit code 1"):
        measured({"link": str(checkout.parent)}, sandbox=level)()


def test_an_installed_package_of_the_checkout_does_not_win(
    measured: Make, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONPATH into the checkout is moved to the copy: otherwise every candidate would measure the same."""
    (checkout / "sub").mkdir()
    (checkout / "sub" / "bench.py").write_text(BENCH)
    monkeypatch.setenv("PYTHONPATH", str(checkout))
    measure = measured({"measure": f"{PYTHON} sub/bench.py"})
    assert measure({"conf.py": "STEPS = 1\nWIDTH = 5.0\n"}).value == 0.0


def test_seed_and_split_are_filled_in(measured: Make, checkout: Path) -> None:
    """The command is told which seed and which data, wherever it says so."""
    measure = measured({"measure": "echo METRIC loss={seed} && test {split} = holdout"})
    assert measure(seed=12, split=Split.HOLDOUT).value == 12.0
    with pytest.raises(CandidateError, match="exit code 1"):
        measure(seed=12, split=Split.SEARCH)


def test_without_a_split_the_holdout_is_refused(measured: Make) -> None:
    """A claim on the same data would not be one."""
    with pytest.raises(UsageError, match=r"does not say \{split\}"):
        measured()(split=Split.HOLDOUT)


def test_repetitions_have_seeds_of_their_own_and_a_median(measured: Make) -> None:
    """Three runs at seed 1 are runs 3, 4 and 5; the middle one counts, and their spread is recorded."""
    found = measured({"measure": "echo METRIC loss={seed}", "repeat": "3"})(seed=1)
    assert (found.value, found.secondary["repeat_sd"]) == (4.0, 1.0)


@pytest.mark.parametrize(
    ("measure", "kind", "sentence"),
    [
        ("sleep 60", CandidateError, "was stopped: It ran longer than its limit of 0.5 s"),
        ("echo METRIC loss=1; exit 3", CandidateError, "ended with exit code 3"),
        ("echo hello", CandidateError, "ended well and printed no loss"),
        ("echo METRIC loss=nan", CandidateError, "loss is nan"),
        ("echo METRIC loss=1; echo METRIC loss=2", InvalidCandidateError, "printed loss 2 times"),
        ("echo METRIC loss=1; echo 1 > bench.py", InvalidCandidateError, "bench.py changed while the command ran"),
        ("echo METRIC loss=1; rm bench.py", InvalidCandidateError, "bench.py changed while the command ran"),
    ],
)
def test_each_fault_of_an_evaluator_has_its_own_sentence(
    measured: Make, measure: str, kind: type[CandidateError], sentence: str
) -> None:
    """One that hangs, fails, prints none, nan or two, or is tampered with."""
    with pytest.raises(CandidateError, match=sentence) as caught:
        measured({"measure": measure, "timeout": "0.5"})()
    assert type(caught.value) is kind
    assert measure in caught.value.log_tail or kind is InvalidCandidateError


def test_what_the_commands_may_write_is_said(measured: Make) -> None:
    """An evaluator that rewrites a tracked file of its own is no tampering where that was said."""
    assert measured({"measure": "echo METRIC loss=1; echo >> bench.py", "writes": "*.py"})().value == 1.0


def test_a_broken_check_is_no_crash_and_nothing_is_measured(measured: Make) -> None:
    """A candidate that fails its check is refused before the command runs; one that passed is not checked again."""
    check = f"{PYTHON} -c 'import conf; assert conf.WIDTH < 9'"
    measure = measured({"check": check})
    with pytest.raises(CheckFailedError, match="ended with exit code 1") as caught:
        measure({"conf.py": "STEPS = 1\nWIDTH = 10.0\n"})
    assert "AssertionError" in caught.value.log_tail
    assert "bench.py" not in measure.log.read_text()
    measure()
    measure()
    assert measure.log.read_text().count("assert conf.WIDTH < 9'\n") == 2, "once for each candidate"


def test_a_check_cannot_prepare_the_ground(measured: Make, checkout: Path) -> None:
    """What the check's run of the candidate leaves behind is not there when the command runs."""
    (checkout / ".gitignore").write_text("*.cached\n")
    measure = measured({"check": "touch answer.cached", "measure": "test ! -e answer.cached && echo METRIC loss=1"})
    assert measure().value == 1.0


def test_executable_files_and_links_stay_what_they_are(measured: Make, checkout: Path) -> None:
    """Scripts can still be run, that which the candidate may change included, and a link leads where it did."""
    for name, text in {"go.sh": "echo METRIC loss=$(./read.sh)", "read.sh": "cat link.txt"}.items():
        (checkout / name).write_text(f"#!/bin/sh\n{text}\n")
        (checkout / name).chmod(0o755)
    (checkout / "value.txt").write_text("6")
    (checkout / "link.txt").symlink_to("value.txt")
    assert measured({"edit": "go.sh", "measure": "./go.sh"})().value == 6.0


def test_a_submodule_is_a_part_of_the_checkout(measured: Make, checkout: Path, tmp_path: Path) -> None:
    """A checkout inside the checkout is copied, too."""
    inner = checkout / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / "x.txt").write_text("8")
    git(inner, "add", ".")
    git(inner, "commit", "--quiet", "-m", "Inner")
    assert measured({"measure": "echo METRIC loss=$(cat inner/x.txt)"})().value == 8.0


def test_git_does_not_take_the_copy_for_the_checkout(measured: Make) -> None:
    """A command that asks git for its version gets no answer instead of that of the checkout around."""
    assert measured({"measure": "git rev-parse HEAD || echo METRIC loss=1"})().value == 1.0


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    """The message says how to make one."""
    (tmp_path / "conf.py").write_text("WIDTH = 1\n")
    adapter = create_adapter(OPTIONS)
    with pytest.raises(UsageError, match=r"no git checkout(?s:.*)git init"):
        adapter.prepare(Workspace(tmp_path))


def test_globs_must_match_and_leave_out_what_git_ignores(measured: Make, checkout: Path) -> None:
    """Nothing to improve is refused, and so is a virtual environment caught by a wide glob."""
    with pytest.raises(UsageError, match=r"Nothing in .* matches lib/"):
        measured({"edit": "lib/*.py"})
    (checkout / ".gitignore").write_text(".venv/\n")
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "site.py").write_text("")
    with pytest.raises(UsageError, match=r"also matches 1 files that git ignores, \.venv/site\.py"):
        measured({"edit": "**/*.py"})


def test_what_may_change_is_not_linked(measured: Make) -> None:
    """A linked file would be the same for every candidate."""
    with pytest.raises(UsageError, match=r"link names \., and conf\.py lies there and may change"):
        measured({"link": "."})


def test_a_missing_link_is_the_machines_fault(measured: Make) -> None:
    """Data that is not there is nobody's bad idea."""
    with pytest.raises(EnvironmentNotReadyError, match="names data, and there is no"):
        measured({"link": "data"})


def test_the_commands_see_no_key(measured: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets of the loop's environment do not reach a candidate."""
    monkeypatch.setitem(os.environ, "ANTHROPIC_API_KEY", "secret")
    assert measured({"measure": 'test -z "$ANTHROPIC_API_KEY" && echo METRIC loss=1'})().value == 1.0


def test_the_brief_names_what_counts(measured: Make) -> None:
    """The language model is told the command, the check and the guards."""
    brief = measured({"check": "pytest -q", "guard": "memory_mb<=+5%"}).adapter.brief()
    assert "bench.py" in brief and "pytest -q" in brief and "memory_mb <= +5 %" in brief


@pytest.mark.parametrize("linked", [False, True])
def test_a_candidate_cannot_write_through_a_link(measured: Make, checkout: Path, tmp_path: Path, linked: bool) -> None:
    """A new file behind a link of the checkout, or in what is linked, is invalid and lands nowhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    if linked:
        (checkout / ".gitignore").write_text("lib/\n")
        (checkout / "lib").mkdir()
    else:
        (checkout / "lib").symlink_to(outside)
    measure = measured({"edit": "conf.py,lib/*.py", **({"link": "lib"} if linked else {})})
    with pytest.raises(InvalidCandidateError, match=r"lib/new\.py lies behind a link"):
        measure({"lib/new.py": "X = 1\n"})
    assert not list(outside.iterdir())


def test_a_number_behind_too_much_output_is_not_read(measured: Make) -> None:
    """Output beyond the bound is dropped, and the sentence says so."""
    flood = f"{PYTHON} -c \"print('x' * 17_000_000)\"; echo METRIC loss=1"
    with pytest.raises(CandidateError, match="more than the 16 MiB that are read"):
        measured({"measure": flood})()
