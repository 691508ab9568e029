"""The examples do what their pages say: the command of each is run, shortened, in a checkout of its own."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.command.conftest import git
from tests.cli.conftest import invoke

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = sorted(page.parent.name for page in EXAMPLES.glob("*/README.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def block(name: str, language: str) -> str:
    """Return the only block of that language on an example's page."""
    (text,) = [
        found[2] for found in _BLOCK.finditer((EXAMPLES / name / "README.md").read_text()) if found[1] == language
    ]
    return text


def run_command(name: str) -> list[str]:
    """Return the words of the run that a page shows."""
    lines = block(name, "bash").replace("\\\n", " ").splitlines()
    (found,) = [words for line in lines if (words := shlex.split(line))[:2] == ["autoresearch", "run"]]
    return found


class Example:
    """An example in a checkout of its own."""

    def __init__(self, name: str, checkout: Path) -> None:
        self.name, self.folder = name, checkout / "examples" / name
        shutil.copytree(EXAMPLES / name, self.folder, ignore=shutil.ignore_patterns("__pycache__", ".autoresearch"))
        git(checkout, "init", "--quiet")
        git(checkout, "add", ".")
        git(checkout, "commit", "--quiet", "-m", "Begin")

    def run(self, experiments: int, *, seeds: int) -> list[dict[str, Any]]:
        """Run it as its page says, for fewer experiments, confirm with so many seeds, and return the claims."""
        shorter = ["--experiments", str(experiments), "--no-confirm", "--quiet", "-w", str(self.folder)]
        said = invoke(*run_command(self.name)[1:], *shorter)
        assert said.exit_code == 0, said.output
        assert git(self.folder, "status", "--porcelain") == ""
        claims: list[dict[str, Any]] = self.json("confirm", "--seeds", str(seeds), "--quiet")["claims"]
        return claims

    def json(self, *words: str) -> Any:
        said = invoke(*words, "--json", "-w", str(self.folder))
        assert said.exit_code == 0, said.output
        return json.loads(said.stdout)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Example:
    """The example that the test names; `python` means the interpreter of these tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return Example(request.param, tmp_path / "checkout")


@pytest.mark.parametrize("example", ["close-pairs"], indirect=True)
def test_a_function_gets_faster_and_keeps_its_answers(example: Example) -> None:
    """Five steps take a third off its time, measured anew; nothing but points of the same kind was seen."""
    claim = example.run(5, seeds=3)[0]
    status = example.json("status")
    assert (claim["outcome"], status["confirmed_on"]) == ("confirmed", "search")
    assert status["confirmed_gain"] > status["baseline"] / 3


def test_what_is_fast_and_wrong_is_not_measured(tmp_path: Path) -> None:
    """Cells so narrow that pairs are overlooked fail the check that the command names."""
    text = (EXAMPLES / "close-pairs" / "pairs.py").read_text()
    (tmp_path / "pairs.py").write_text(re.sub(r"^CELL = \S+", "CELL = 0.38", text, flags=re.MULTILINE))
    shutil.copyfile(EXAMPLES / "close-pairs" / "check.py", tmp_path / "check.py")
    words = run_command("close-pairs")
    check = shlex.split(words[words.index("--check") + 1])
    done = subprocess.run([sys.executable, *check[1:]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "pairs instead of" in done.stderr


@pytest.mark.parametrize("example", ["bot-rules"], indirect=True)
def test_rules_improve_on_lines_that_no_decision_saw(example: Example) -> None:
    """Eight changes make the labels less surprising, on the half of the list that was for claims alone as well."""
    claim = example.run(8, seeds=3)[0]
    assert (claim["outcome"], example.json("status")["confirmed_on"]) == ("confirmed", "holdout")
    assert claim["raw"] > 0.03


def test_no_line_of_the_list_is_in_both_halves() -> None:
    """Each user agent is listed once, and every second line is holdout."""
    lines = (EXAMPLES / "bot-rules" / "agents.tsv").read_text().splitlines()
    assert len({line.partition("\t")[2] for line in lines}) == len(lines) == 500
    assert {line.partition("\t")[0] for line in lines} == {"program", "person"}


@pytest.mark.parametrize("example", ["digits"], indirect=True)
def test_a_network_reads_digits_better(example: Example) -> None:
    """The first larger learning rate is kept, and is better on digits that no decision saw."""
    pytest.importorskip("sklearn", reason="needs scikit-learn")
    claim = example.run(4, seeds=2)[0]
    assert claim["raw"] > 0.1 and example.json("confirm", "--seeds", "2", "--quiet")["split"] == "holdout"


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_the_end_of_the_run_that_it_names(name: str) -> None:
    """The result on a page has as many experiments as the command above it, and says what was confirmed."""
    words, result = run_command(name), block(name, "text")
    assert f"{words[words.index('--experiments') + 1]} experiments:" in result
    assert "--confirm" in words and re.search(r"(confirmed|re-measured) gain: \+", result)
    assert f"](examples/{name}/README.md)" in (EXAMPLES / "README.md").read_text().replace("](", "](examples/")
