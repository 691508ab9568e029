"""Every command that lists something has --json, and docs/json.md says what is in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoresearch.cli.lazy import BUILT_IN, load
from tests.cli.conftest import invoke
from tests.json_docs import as_documented, schemas

TESTS = Path(__file__).parents[1]

LISTS_NOTHING = {
    "init": "writes files and names them",
    "report": "writes a page",
    "export": "writes a table of a format that is asked for",
    "pause": "sends a word", "resume": "sends a word", "stop": "sends a word", "approve": "sends a word",
    "reject": "sends a word", "note": "sends a word",
    "mcp": "speaks a protocol of its own",
    "adapter new": "writes a package",
    "marketing serve": "serves until it is ended", "marketing kill": "turns a switch",
    "marketing export": "writes a page or a table of a format that is asked for",
    "marketing suppress": "puts somebody on a list", "marketing forget": "erases somebody",
    "ml sample": "writes text",
    "dashboard": "serves until it is ended",
}  # fmt: skip
"""Commands without --json, and why; a new command stands here or has a section in docs/json.md."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with the words that name it."""
    for name in (*BUILT_IN, "marketing", "ml"):
        command = load(name)
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {word}", found) for word, found in inner.items())


def takes_json(command: Any) -> bool:
    return any("--json" in parameter.opts for parameter in command.params)


def test_every_command_lists_as_json_or_lists_nothing() -> None:
    """A command has --json, or a reason here why it needs none; never both."""
    found = dict(commands())
    without = {name for name, command in found.items() if not takes_json(command)}
    assert without == set(LISTS_NOTHING) & set(found)


def test_every_json_is_documented() -> None:
    """Each command with --json has a section in docs/json.md, and each section has a command."""
    documented = {re.sub(r":.*| --.*", "", command) for command in schemas()}
    assert documented == {name for name, command in commands() if takes_json(command)}


def test_every_schema_is_held_against_what_is_printed() -> None:
    """Somewhere a test runs the command and compares, for each table of docs/json.md."""
    calls = "\n".join(path.read_text(encoding="utf-8") for path in TESTS.glob("**/test_*.py"))
    missing = [command for command in schemas() if f'as_documented("{command}"' not in calls]
    assert not missing


def test_listings_have_the_documented_keys(filled: Path, tmp_path: Path) -> None:
    """What is listed of a run with every kind of experiment is as documented."""
    as_documented("status", invoke("status", "-w", filled, "--json").stdout)
    assert len(as_documented("log", invoke("log", "-w", filled, "--json").stdout)) == 4
    assert as_documented("log --failed", invoke("log", "-w", filled, "--failed", "--json").stdout)
    for which in ("0", "1", "2", "3"):
        as_documented("show", invoke("show", which, "-w", filled, "--json").stdout)
    as_documented("checkout", invoke("checkout", "1", tmp_path / "there", "-w", filled, "--json").stdout)
    assert as_documented("adapters", invoke("adapters", "--json").stdout)
    assert as_documented("doctor", invoke("doctor", "--json").stdout)


def test_what_changes_a_run_has_the_documented_keys(hill: Path, here: Path) -> None:
    """Taking a kept step back is said as documented."""
    assert invoke("run", "--adapter", "hill", "-n", "4", "--policy", "greedy", "--proposer", "search").exit_code == 0
    assert as_documented("rollback", invoke("rollback", "--json").stdout)["numbers"]


def test_logs_of_others_have_the_documented_keys(tmp_path: Path) -> None:
    """What is said of a finished log, and of two arms, is as documented."""
    log = TESTS / "data" / "karpathy_shape_synthetic.tsv"
    assert as_documented("audit", invoke("audit", log, "--json").stdout)["keeps"]
    as_documented("import", invoke("import", log, "-w", tmp_path / "w", "--json").stdout)
    table = tmp_path / "looks.csv"
    table.write_text("date,variant,exposures,conversions\n2026-03-01,a,300,20\n2026-03-01,b,300,30\n")
    as_documented("decide", invoke("decide", table, "--json").stdout)
    with table.open("a") as more:
        more.write("2026-03-01,c,300,40\n")
    several = as_documented("decide: several treatments", invoke("decide", table, "--control", "a", "--json").stdout)
    assert [one["treatment"] for one in several["treatments"]] == ["b", "c"]


def test_the_judge_of_answers_has_the_documented_keys() -> None:
    """How often it is right is told for other programs, too."""
    found = as_documented("marketing replies --accuracy", invoke("marketing", "replies", "--accuracy", "--json").stdout)
    assert [part["part"] for part in found["parts"]] == ["test", "hard"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": 1}, r"not documented \['more'\]"),
        ({"run": None}, "run is None, and docs/json.md says string"),
        ({"kept": True}, "kept is True, and docs/json.md says integer"),
    ],
)
def test_a_difference_is_noticed(filled: Path, change: dict[str, object], words: str) -> None:
    """A key that nobody documented, or of another type, fails the comparison."""
    found = json.loads(invoke("status", "-w", filled, "--json").stdout)
    with pytest.raises(AssertionError, match=words):
        as_documented("status", json.dumps({**found, **change}))
    del found["usd"]
    with pytest.raises(AssertionError, match=r"missing \['usd'\]"):
        as_documented("status", json.dumps(found))
