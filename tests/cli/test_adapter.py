"""`autoresearch adapter new` and `check`: what is written, what is refused, and what an exit code says."""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from pathlib import Path

import pytest

from tests.cli.conftest import invoke
from tests.cli.plugins import write_package
from tests.json_docs import as_documented

WORSE, BROKEN = "WIDTH = 90.0\nHEIGHT = 80.0\n", "WIDTH = 3.0\n"


@pytest.mark.parametrize("live", [False, True])
def test_a_new_package_is_complete(here: Path, live: bool) -> None:
    """It parses, declares its adapter, and leaves no word to fill in."""
    assert invoke("adapter", "new", "two_words", *(["--live"] if live else [])).exit_code == 0
    files = {path.relative_to(here / "two_words").as_posix(): path.read_text() for path in here.rglob("*.*")}
    assert set(files) == {
        "pyproject.toml",
        "README.md",
        "autoresearch_two_words/__init__.py",
        "tests/test_two_words.py",
    }
    for name, text in files.items():
        assert not any(word in text for word in ("NAME", "TITLE", "PACKAGE", "VERSION", "ABOUT")), name
        if name.endswith(".py"):
            ast.parse(text)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["entry-points"]["autoresearch.adapters"] == {"two_words": "autoresearch_two_words:create_adapter"}


@pytest.mark.parametrize("name", ["Two", "two-words", "class", "2two", ""])
def test_a_name_must_be_an_identifier(here: Path, name: str) -> None:
    """Names that no package could have are refused, and nothing is written."""
    said = invoke("adapter", "new", name)
    assert said.exit_code == 1 and "lower-case letters" in said.output
    assert list(here.iterdir()) == []


def test_nothing_is_overwritten(here: Path) -> None:
    """A folder with something in it stays as it is."""
    (here / "banner").mkdir()
    (here / "banner" / "notes.txt").write_text("mine")
    said = invoke("adapter", "new", "banner")
    assert said.exit_code == 1 and "not empty" in said.output
    assert [path.name for path in (here / "banner").iterdir()] == ["notes.txt"]


def test_a_check_says_what_holds_and_what_is_missing(hill: Path, here: Path) -> None:
    """With what is worse and what is broken all holds; without, the exit code is 1 and the option is named."""
    (here / "worse.py").write_text(WORSE)
    (here / "broken.py").write_text(BROKEN)
    said = invoke("adapter", "check", "hill", "--worse", "worse.py", "--broken", "broken.py")
    assert said.exit_code == 0, said.output
    assert "passed       the same seed repeats" in said.output and "The contract is kept" in said.output
    half = invoke("adapter", "check", "hill", "--json")
    assert half.exit_code == 1
    found = {item["name"]: item for item in as_documented("adapter check", half.stdout)}
    assert found["a worse artifact measures worse"]["outcome"] == "failed"
    assert "--worse PATH" in found["a worse artifact measures worse"]["detail"]
    assert found["measuring changes nothing"]["outcome"] == "passed"


def test_what_several_checks_lack_is_said_once(hill: Path, here: Path) -> None:
    """One missing file is one sentence below the checks that need it."""
    said = invoke("adapter", "check", "hill").output
    assert said.count("Say what is clearly worse: --worse PATH") == 1
    assert said.count("a worse artifact measures worse:") == 1


@pytest.mark.parametrize("name", ["ml", "hill"])
def test_a_name_that_a_package_has_is_refused(hill: Path, here: Path, name: str) -> None:
    """A second package of that name would stop both, so none is written; the message names the first."""
    before = sorted(here.iterdir())
    said = invoke("adapter", "new", name)
    assert said.exit_code == 1 and f"has an adapter {name} already" in said.output
    assert sorted(here.iterdir()) == before


def test_a_fault_is_shown_with_its_clause(hill: Path, here: Path) -> None:
    """What is called worse and measures better fails, with what the contract says."""
    (here / "worse.py").write_text("WIDTH = 4.0\nHEIGHT = 4.0\n")
    (here / "broken.py").write_text(BROKEN)
    said = invoke("adapter", "check", "hill", "--worse", "worse.py", "--broken", "broken.py")
    assert said.exit_code == 1
    assert "a worse artifact measures worse: The metric sees what you know" in said.output
    assert "is the direction minimize right?" in said.output and "1 of 20 checks do not hold" in said.output


def test_an_unknown_adapter_or_path_is_a_sentence(hill: Path, here: Path) -> None:
    """Both are answered without a traceback."""
    assert "No adapter named 'mkt'" in invoke("adapter", "check", "mkt").output
    assert "There is no nowhere.py" in invoke("adapter", "check", "hill", "--worse", "nowhere.py").output


def test_the_adapter_without_an_adapter_can_be_checked(here: Path) -> None:
    """A command is held to the contract with its options, in a checkout that is made for it."""
    (here / "beside").mkdir()
    (here / "beside" / "bench.py").write_text("import conf\nprint(f'METRIC loss={abs(conf.WIDTH - 3)}')\n")
    for name, text in {"good": "WIDTH = 4.0\n", "worse": "WIDTH = 9.0\n", "broken": "x\n"}.items():
        (here / f"{name}.py").write_text(text)
    texts = ["--artifact", "good.py", "--worse", "worse.py", "--broken", "broken.py", "--beside", "beside"]
    command = {"edit": "conf.py", "measure": f"{sys.executable} bench.py", "metric": "loss", "direction": "minimize"}
    settings = [word for item in command.items() for word in ("--set", "=".join(item))]
    said = invoke("adapter", "check", "command", *texts, *settings)
    assert said.exit_code == 0, said.output
    assert "The contract is kept" in said.output


def test_policies_and_proposers_of_packages_are_listed(packages: Path) -> None:
    """Beside the adapters, with their kind; one that takes a name of ours shows both owners."""
    source = "def create(*arguments, **named): ...\n"
    write_package(
        packages,
        "extra",
        source,
        {
            "autoresearch.policies": {"bold": "extra:create", "bayes": "extra:create"},
            "autoresearch.proposers": {"muse": "extra:gone"},
        },
    )
    found = {item["name"]: item for item in json.loads(invoke("adapters", "--json").stdout)}
    assert (found["bold"]["kind"], found["bold"]["state"]) == ("policy", "ok")
    assert "autoresearch itself and extra" in found["bayes"]["error"]
    assert found["muse"]["kind"] == "proposer" and "has no attribute 'gone'" in found["muse"]["error"]
    assert found["ml"]["kind"] == "adapter" and found["ml"]["state"] == "ok"
    assert "policy" in invoke("adapters").output
