"""Comparing on a checkout: every run begins with a copy of it, and the checkout itself stays as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.adapters.command.conftest import PYTHON, git, make_checkout
from tests.cli.conftest import invoke

MEASURE = f"{PYTHON} bench.py {{split}}"
ASKED = ["compare", "--adapter", "command", "--edit", "*.py", "--metric", "loss", "--minimize", "--proposers", "search"]
SHORT = ["--policies", "bayes,greedy", "--seeds", "1", "-n", "1", "--fresh", "1", "--quiet"]
LINKED = """\
import pathlib

import conf

print(f"METRIC loss={(conf.WIDTH - float(pathlib.Path('data/goal.txt').read_text())) ** 2}")
"""


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose bench reads a folder that git ignores; it is where the test works."""
    root = make_checkout(tmp_path / "checkout", {"tool/bench.py": LINKED, ".gitignore": "data\n"})
    git(root, "rm", "--quiet", "bench.py")
    git(root, "commit", "--quiet", "-m", "Move")
    (root / "data").mkdir()
    (root / "data" / "goal.txt").write_text("5")
    monkeypatch.chdir(root)
    return root


def ask(*more: str) -> list[str]:
    measure = f"PYTHONPATH=. {PYTHON} tool/bench.py {{split}}"
    return [*ASKED, "--measure", measure, "--link", "data", *SHORT, *more]


def test_policies_compete_on_a_checkout(linked: Path) -> None:
    """Both run from copies that have what is linked; the checkout holds nothing but its ignored folder afterwards."""
    said = invoke(*ask("--json"))
    assert said.exit_code == 0, said.output
    found = json.loads(said.stdout)
    assert found["complete"] and [item["policy"] for item in found["contestants"]] == ["bayes", "greedy"]
    workspaces = [Path(run["workspace"]) for item in found["contestants"] for run in item["runs"]]
    assert [path.parent for path in workspaces] == [linked / ".autoresearch" / "compare"] * 2
    assert all((path / "data").resolve() == linked / "data" for path in workspaces)
    assert all(item["measurements"] > 3 for item in found["contestants"])
    assert git(linked, "status", "--porcelain") == "" and git(linked, "branch", "--list", "autoresearch/*") == ""


def test_a_comparison_goes_on_and_refuses_another_checkout(linked: Path) -> None:
    """What is done is done; a file that changed since is named, and nothing is measured."""
    assert invoke(*ask()).exit_code == 0
    again = invoke(*(word for word in ask() if word != "--quiet"))
    assert again.exit_code == 0 and again.output.count("It is done already.") == 2
    (linked / "tool" / "bench.py").write_text(LINKED + "print('more')\n")
    refused = invoke(*ask("-n", "2"))
    assert refused.exit_code == 1
    assert "tool/bench.py in" in refused.output and "changed since it was copied" in refused.output


def test_a_command_without_a_holdout_is_refused(checkout: Path) -> None:
    """Nothing could be called a true gain; what to do is said, and no folder is made."""
    said = invoke(*ASKED, "--measure", f"{PYTHON} bench.py", *SHORT, "--from", checkout)
    assert said.exit_code == 1 and "a command takes {split}" in said.output
    assert not (checkout / ".autoresearch").exists()


def test_the_settings_of_a_checkout_serve(checkout: Path) -> None:
    """Where a run has begun, its options need not be said again."""
    flags = ["--edit", "conf.py", "--measure", MEASURE, "--metric", "loss", "--minimize"]
    assert invoke("init", "--adapter", "command", *flags, "-w", checkout).exit_code == 0
    said = invoke("compare", "--from", checkout, "--proposers", "search", *SHORT)
    assert said.exit_code == 0, said.output
    assert (checkout / ".autoresearch" / "compare" / "search-bayes-0").is_dir()


def test_flags_of_the_command_belong_to_it() -> None:
    """With another adapter they are refused as they are by run."""
    said = invoke("compare", "--adapter", "ml", "--edit", "a.py")
    assert said.exit_code == 2 and "belongs to --adapter command" in " ".join(said.output.replace("│", " ").split())
