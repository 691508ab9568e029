"""Every wrong use gets its sentence, what to do next, and its exit code; none gets a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import invoke


def fault(*arguments: str | Path, code: int = 1) -> str:
    """Run a command that must fail with `code` and return what it says on standard error."""
    result = invoke(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return result.stderr


def test_an_unknown_adapter_names_those_there_are(hill: Path, here: Path) -> None:
    """A name that nobody declares is answered with the names that are declared, and no workspace is made."""
    said = fault("run", "--adapter", "mkt", "-q")
    assert "No adapter named 'mkt' is installed; found command, hill, marketing, ml." in said
    assert "autoresearch adapters" in said
    assert list(here.iterdir()) == []


def test_a_machine_without_the_device_gets_no_workspace(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace with a large GPU's settings would only stand in the way of the preset that fits."""
    pytest.importorskip("torch")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = fault("run", "--adapter", "ml", "--preset", "h100", "-q")
    assert "No CUDA device is visible" in said and "--preset cpu" in said
    assert list(here.iterdir()) == []


def test_no_workspace_and_no_adapter(here: Path) -> None:
    """Every command says how to come by a workspace."""
    assert "--adapter NAME" in fault("run")
    for command in ("status", "log", "show", "export", "pause", "stop"):
        assert "-w DIR" in fault(command), command


def test_a_folder_that_is_no_workspace(here: Path) -> None:
    """A folder named with `-w` that holds neither settings nor ledger is named, and nothing is made in it."""
    assert "is no workspace" in fault("status", "-w", here / "nowhere")
    assert not (here / "nowhere").exists()


def test_several_workspaces_are_not_guessed_between(hill: Path, here: Path) -> None:
    """With two workspaces here every command asks which."""
    for name in ("one", "two"):
        assert invoke("init", "--adapter", "hill", f"autoresearch-{name}").exit_code == 0
    for command in ("status", "log", "run"):
        said = fault(command)
        assert "autoresearch-one, autoresearch-two" in said and "-w DIR" in said


def test_broken_toml_names_the_line(hill: Path, here: Path) -> None:
    """The line of the mistake is named."""
    invoke("init", "--adapter", "hill", ".")
    (here / "autoresearch.toml").write_text('[run]\nformat = 1\nadapter = "hill\n', encoding="utf-8")
    said = fault("run", "-q")
    assert "line 3" in said and "autoresearch.toml" in said


def test_a_key_that_nobody_reads(hill: Path, here: Path) -> None:
    """A mistyped key in autoresearch.toml is named with those that are known."""
    invoke("init", "--adapter", "hill", ".")
    (here / "autoresearch.toml").write_text('[run]\nadapter = "hill"\nsead = 1\n', encoding="utf-8")
    said = fault("run", "-q")
    assert "'sead'" in said and "seed" in said


def test_a_workspace_of_another_format(hill: Path, here: Path) -> None:
    """Both formats are named."""
    invoke("init", "--adapter", "hill", ".")
    (here / "autoresearch.toml").write_text('[run]\nformat = 99\nadapter = "hill"\n', encoding="utf-8")
    said = fault("run", "-q")
    assert "99" in said and "format 1" in said


def test_a_second_init(hill: Path, here: Path) -> None:
    """A workspace is never written twice."""
    invoke("init", "--adapter", "hill", ".")
    assert "is a workspace already" in fault("init", "--adapter", "hill", ".")


def test_no_git_on_path(hill: Path, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without git the run does not begin, and the sentence says what to install."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "git" in fault("run", "--adapter", "hill", "-q").lower()


@pytest.mark.parametrize("which", ["999", "4"])
def test_an_experiment_that_is_not_there(filled: Path, which: str) -> None:
    """`show` says which there are."""
    said = fault("show", which, "-w", filled)
    assert f"no experiment {which}" in said and "0 to 3" in said and "autoresearch log" in said


def test_a_run_that_is_not_there(filled: Path) -> None:
    """`--run` with an unknown id names those there are."""
    assert "Numbers-" in fault("log", "-w", filled, "--run", "nope")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "--experiments", "-1"], "--experiments"),
        (["run", "--experiments", "many"], "--experiments"),
        (["run", "--hours", "-2"], "--hours"),
        (["run", "--keep-at", "1.5"], "--keep-at"),
        (["run", "--baseline-runs", "0"], "--baseline-runs"),
        (["run", "--budget-seconds", "0"], "--budget-seconds"),
        (["run", "--set", "pause"], "NAME=VALUE"),
        (["run", "--set", "preset=a", "--preset", "b"], "preset is given twice"),
        (["run", "--no-such-option"], "--no-such-option"),
        (["show", "last"], "'last'"),
        (["show", "-1"], "-1"),
        (["export", "--format", "xml"], "xml"),
        (["approve"], "N"),
        (["approve", "x"], "valid integer"),
        (["note", "  "], "empty"),
        (["init"], "--adapter"),
        (["init", "a", "--adapter", "ml", "-w", "b"], "give one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_exits_with_2(in_filled: Path, arguments: list[str], named: str) -> None:
    """A mistyped option or value is named."""
    place = [] if arguments[0] in ("run", "init") else ["-w", str(in_filled)]
    assert named in fault(*arguments, *place, code=2)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_limit_that_is_no_number(hill: Path, here: Path, value: str) -> None:
    """Not a number and infinity are no limits."""
    said = fault("run", "--adapter", "hill", "--target", value, "-q")
    assert "target" in said


def test_an_option_that_the_adapter_does_not_have(hill: Path, here: Path) -> None:
    """An unknown `--set` key is refused by the adapter, which names those it has."""
    said = fault("run", "--adapter", "hill", "--set", "paus=1", "-q")
    assert "'paus'" in said and "pause" in said


def test_unknown_names_of_policy_and_proposer(hill: Path, here: Path) -> None:
    """Both are answered with the names there are."""
    assert "bayes, greedy" in fault("run", "--adapter", "hill", "--policy", "luck", "-q")
    assert "search" in fault("run", "--adapter", "hill", "--proposer", "luck", "-q")


def test_another_adapter_than_the_workspaces(hill: Path, here: Path) -> None:
    """A workspace belongs to one adapter."""
    invoke("init", "--adapter", "hill", ".")
    said = fault("run", "--adapter", "ml", "-q")
    assert "'hill'" in said and "'ml'" in said


def test_a_file_that_cannot_be_written(filled: Path, tmp_path: Path) -> None:
    """`export -o` into nowhere says why."""
    said = fault("export", "-w", filled, "-o", tmp_path / "no" / "such" / "folder.tsv")
    assert "cannot be written: No such file or directory" in said


def test_a_damaged_ledger(tmp_path: Path) -> None:
    """A file that is no ledger is named, with what to do."""
    (tmp_path / ".autoresearch").mkdir()
    (tmp_path / ".autoresearch" / "ledger.db").write_bytes(b"not a database, but long enough to be one" * 40)
    said = fault("status", "-w", tmp_path)
    assert "ledger.db" in said and "copy" in said


def test_a_workspace_without_a_run(hill: Path, here: Path) -> None:
    """A listing of nothing says how to begin."""
    invoke("init", "--adapter", "hill", ".")
    for command in ("status", "log", "show", "export", "pause"):
        said = fault(command)
        assert "No run has begun" in said and "autoresearch run" in said


def test_a_folder_that_cannot_be_made(hill: Path, here: Path) -> None:
    """A workspace below something that is no folder is refused with a sentence."""
    (here / "file").write_text("in the way")
    assert "cannot be written" in fault("init", "--adapter", "hill", "file/new")


def test_a_state_folder_that_cannot_be_written(hill: Path, here: Path) -> None:
    """A lock that cannot be taken is told in a sentence, and so is a disk too full for the note beside it."""
    invoke("init", "--adapter", "hill", ".")
    (here / ".autoresearch/lock").mkdir()
    said = fault("run", "-q")
    assert ".autoresearch cannot be written" in said and "run the same command again" in said
    (here / ".autoresearch/lock").rmdir()
    if Path("/dev/full").exists():  # Linux has a device that is always full
        (here / ".autoresearch/owner.partial").symlink_to("/dev/full")
        assert ".autoresearch cannot be written: No space left on device" in fault("run", "-q")


def test_a_ledger_that_cannot_be_opened_is_not_called_damaged(hill: Path, here: Path) -> None:
    """Doctor keeps a missing permission apart from damage, whose advice would cost a ledger that is well."""
    invoke("run", "--adapter", "hill", "-w", ".", "-n", "1", "-q")
    (here / ".autoresearch/ledger.db-wal").mkdir()  # what a read-only folder is to SQLite, for root too
    said = invoke("doctor")
    assert said.exit_code == 1
    assert "Check that it exists and may be written" in said.output and "damaged" not in said.output
