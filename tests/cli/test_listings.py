"""What `status`, `log`, `show`, `export` and `adapters` say of a run that had every kind of experiment."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch.cli.log import log_table
from autoresearch.cli.render import display_width
from autoresearch.core.ledger import Ledger
from tests.cli.conftest import invoke
from tests.cli.filling import fill, work
from tests.cli.plugins import write_hill, write_package
from tests.json_docs import as_documented

STATUS_KEYS = [
    "run", "adapter", "policy", "state", "stop_reason", "experiments", "kept", "reverted", "inconclusive", "crashed",
    "invalid", "baseline", "incumbent", "believed_gain", "confirmed_gain", "confirmed_on", "usd", "seconds",
]  # fmt: skip
LOG_KEYS = ["number", "outcome", "category", "hypothesis", "value", "commit", "seconds"]
DANGEROUS = "\x1b\x07\x9b\u202e"
ROOT = Path(__file__).parents[2]


def test_status_has_exactly_its_keys(filled: Path) -> None:
    """`status --json` has the documented keys in their order, and the counts add up."""
    found = json.loads(invoke("status", "-w", filled, "--json").stdout)
    assert list(found) == STATUS_KEYS
    assert (found["experiments"], found["kept"], found["reverted"], found["crashed"]) == (3, 1, 1, 1)
    assert found["state"] == "stopped" and found["stop_reason"] == "experiments: 3 of 3 done"
    assert found["baseline"] == 8.0 and found["confirmed_gain"] is None
    assert found["usd"] == pytest.approx(6 * 0.25 + 0.125), "refused, failed and crashed proposals cost too"


def test_status_begins_with_believed_beside_confirmed(filled: Path) -> None:
    """The first line sets what is believed beside what is confirmed."""
    lines = invoke("status", "-w", filled).stdout.splitlines()
    assert lines[0].startswith("believed gain +3.") and " units (size 8 -> 4." in lines[0]
    assert lines[0].endswith("| confirmed gain: not confirmed")
    assert "size (units, lower is better)" in "\n".join(lines)


def test_log_has_exactly_its_keys(filled: Path) -> None:
    """`log --json` is a list with the documented keys, the baseline first; a crash has no value."""
    rows = json.loads(invoke("log", "-w", filled, "--json").stdout)
    assert [list(row) for row in rows] == [LOG_KEYS] * 4
    assert [row["outcome"] for row in rows] == ["kept", "kept", "crashed", "reverted"]
    assert rows[2]["value"] is None and rows[1]["value"] == 4.0
    assert len(rows[1]["commit"]) == 40


def test_log_is_readable_at_eighty_columns(filled: Path) -> None:
    """On a narrow terminal no line is longer than it, and outcome, value and effect are all there."""
    with Ledger.open(filled / ".autoresearch" / "ledger.db") as ledger:
        rows = ledger.experiments(ledger.runs()[0].id)
    lines = log_table("size", rows, 80).splitlines()
    assert max(map(display_width, lines)) <= 80
    assert lines[0].split() == ["#", "outcome", "size", "effect", "p", "hypothesis"]
    assert lines[1].split()[:3] == ["0", "baseline", "8"]
    assert lines[2].split()[:3] == ["1", "kept", "4"] and lines[2].split()[3].startswith("+3.")
    assert lines[3].split()[:5] == ["2", "crashed", "-", "-", "-"]
    assert "category" in log_table("size", rows, 120).splitlines()[0]


def test_log_failed_lists_what_came_to_nothing(filled: Path) -> None:
    """Failed, refused and crashed proposals stand there with reason and cost."""
    rows = json.loads(invoke("log", "-w", filled, "--failed", "--json").stdout)
    assert [(row["number"], row["status"]) for row in rows] == [
        (2, "failed"), (2, "refused"), (2, "crashed"), (2, "crashed"), (2, "crashed"),
    ]  # fmt: skip
    assert rows[0]["reason"] == "The answer was cut off." and rows[0]["usd"] == 0.125
    text = invoke("log", "-w", filled, "--failed").stdout
    assert "The answer was cut off." in text and "$0.12" in text


def test_show_tells_everything(filled: Path) -> None:
    """Hypothesis, change, reason, value, effect with interval, cost, commits and every measurement are there."""
    text = invoke("show", "1", "-w", filled).stdout
    parts = (
        "Halve it.", "NUMBER 8 -> 4", "kept", "4 size (units, lower is better)", " better; ", "90 % interval",
        "probability of being better >.99", "experiment 0 (", "candidate ", "kept ", "$0.25, 120 tokens", "observe ",
        "script, origin local", "sandbox ", "treatment", "search", "digits", "512",
    )  # fmt: skip
    for part in parts:
        assert part in text, part


def test_show_json_has_its_keys(filled: Path) -> None:
    """`show --json` has the documented keys, its measurements have seed and look, its proposals their cost."""
    found = as_documented("show", invoke("show", "2", "-w", filled, "--json").stdout)
    assert found["measurements"] == [] and found["repairs"] == 2
    assert [row["status"] for row in found["proposals"]] == ["failed", "refused", "crashed", "crashed", "crashed"]
    baseline = json.loads(invoke("show", "baseline", "-w", filled, "--json").stdout)
    assert [(row["look"], row["seed"], row["value"]) for row in baseline["measurements"]] == [(0, 0, 8.0), (1, 1, 8.0)]


def test_best_is_the_incumbent(filled: Path) -> None:
    """`show` alone and `show best` show the last kept experiment."""
    assert invoke("show", "-w", filled).stdout == invoke("show", "best", "-w", filled).stdout
    assert invoke("show", "best", "-w", filled).stdout.startswith("experiment 1 of run ")


def test_show_diff_and_log(filled: Path) -> None:
    """`--diff` adds what was changed, `--log` what was printed, without the colours that it was printed with."""
    text = invoke("show", "1", "-w", filled, "--diff", "--log").stdout
    assert "-8\n+4\n" in text and "+++ b/number.txt" in text
    assert "read 4 with seed 0\nred\n" in text
    assert "artifact as found" in invoke("show", "baseline", "-w", filled, "--diff").stdout


@pytest.mark.parametrize(
    "arguments",
    [("log",), ("log", "--failed"), ("log", "--json"), ("show", "3", "--diff", "--log"), ("show", "3", "--json"),
     ("log", "--failed", "--json")],
    ids=" ".join,
)  # fmt: skip
def test_hostile_text_reaches_no_terminal(filled: Path, arguments: tuple[str, ...]) -> None:
    """A hypothesis full of escape sequences is shown without them by every listing, and its markup stays text."""
    text = invoke(*arguments, "-w", filled).stdout
    assert not any(char in text for char in DANGEROUS)
    assert "[bold red]Halve" in text


def test_export_writes_the_originals_columns(filled: Path) -> None:
    """The default is results.tsv, equal to the file that the run keeps up to date."""
    text = invoke("export", "-w", filled).stdout
    assert text == (filled / "results.tsv").read_text(encoding="utf-8")
    assert text.splitlines()[0] == "commit\tsize\tmemory_gb\tstatus\tdescription"
    assert [line.split("\t")[3] for line in text.splitlines()[1:]] == ["keep", "keep", "crash", "discard"]


def test_export_writes_json_lines_and_csv(filled: Path, tmp_path: Path) -> None:
    """JSON lines hold the measurements, CSV has one line an experiment, and `-o` writes a file."""
    lines = [json.loads(line) for line in invoke("export", "-w", filled, "--format", "jsonl").stdout.splitlines()]
    assert [len(line["measurements"]) for line in lines[:2]] == [2, 1]
    result = invoke("export", "-w", filled, "-f", "csv", "-o", tmp_path / "table.csv")
    assert result.stdout == "" and result.exit_code == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table.csv").read_text(encoding="utf-8"))))
    assert [row["outcome"] for row in rows] == ["kept", "kept", "crashed", "reverted"]


def test_an_earlier_run_is_shown_when_named(tmp_path: Path) -> None:
    """The latest run is meant unless `--run` names another, and `status` says that there are more."""
    root = fill(tmp_path / "w")
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        first = ledger.runs()[0].id
        ledger.update_run(first, created=ledger.runs()[0].created.replace(year=2020))
        # Two runs may not begin within one second: they are named by it.
        while work(root, [], experiments=0, new=True).status.run == first:
            pass
    assert json.loads(invoke("log", "-w", root, "--json").stdout)[0]["outcome"] == "kept"
    assert len(json.loads(invoke("log", "-w", root, "--json").stdout)) == 1
    assert len(json.loads(invoke("log", "-w", root, "--run", first, "--json").stdout)) == 4
    assert json.loads(invoke("status", "-w", root, "--run", first, "--json").stdout)["run"] == first
    assert "1 more in this ledger" in invoke("status", "-w", root).stdout


def test_a_killed_run_is_called_killed(tmp_path: Path) -> None:
    """A run whose process ended without a word is not shown as running."""
    root = fill(tmp_path / "w")
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        ledger.update_run(ledger.runs()[0].id, state="running", stop_reason=None)
    assert json.loads(invoke("status", "-w", root, "--json").stdout)["state"] == "killed"
    assert f"go on with autoresearch run -w {root}" in invoke("status", "-w", root).stdout
    assert "ended without a word" in invoke("doctor", "-w", root).stdout


def test_a_reader_that_leaves_is_no_fault(filled: Path) -> None:
    """`log | head` is quiet and exits with 0, however much was left to say."""
    writer = (
        f"from autoresearch.cli import main; import sys; sys.argv = ['a', 'show', '1', '-w', {str(filled)!r}]; main()"
    )
    # The pipe is closed before anything is written, so that the failure does not depend on the size of its buffer.
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", writer], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_output_is_no_fault(filled: Path) -> None:
    """With every standard stream closed a command does its work and says nothing."""
    command = f"{sys.executable} -m autoresearch export -w '{filled}' -o '{filled}/out.csv' <&- >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], cwd=ROOT).returncode == 0
    assert subprocess.run(["sh", "-c", command.partition(" -o ")[0] + " >&-"], cwd=ROOT).returncode == 0
    assert (filled / "out.csv").is_file()


def test_commands_find_the_workspace(hill: Path, filled: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder is meant where it is a workspace, else the only `autoresearch-*` folder that is one."""
    assert invoke("init", "--adapter", "hill").exit_code == 0
    found = invoke("status").stderr
    assert "autoresearch-hill" in found and "No run has begun" in found
    monkeypatch.chdir(here / "autoresearch-hill")
    assert invoke("status").stderr.splitlines()[1] == "Begin one: autoresearch run"


def test_adapters_are_listed_and_a_broken_one_shows_its_error(packages: Path) -> None:
    """A package that cannot be imported hurts nobody else and is listed with the reason."""
    write_hill(packages)
    write_package(packages, "ruin", "import no_such_module", {"autoresearch.adapters": {"ruin": "ruin:create_adapter"}})
    write_package(
        packages, "loud", "print('noise')\ndef create(options): ...", {"autoresearch.adapters": {"loud": "loud:create"}}
    )
    result = invoke("adapters", "--json")
    found = {item["name"]: item for item in json.loads(result.stdout)}
    assert result.exit_code == 0
    about = {"name": "hill", "distribution": "hill", "version": "1.0", "kind": "adapter"}
    assert found["hill"] == about | {"state": "ok", "error": None}
    assert found["ruin"]["state"] == "broken" and "no_such_module" in found["ruin"]["error"]
    assert found["loud"]["state"] == "ok"
    text = invoke("adapters").stdout
    assert "ruin" in text and "no_such_module" in text and "noise" not in text


def test_a_name_claimed_twice_is_broken(packages: Path) -> None:
    """Two packages that claim one name are both listed, and both are named."""
    for name in ("first", "second"):
        write_package(packages, name, "def create(options): ...", {"autoresearch.adapters": {"same": f"{name}:create"}})
    found = [item for item in json.loads(invoke("adapters", "--json").stdout) if item["name"] == "same"]
    assert [item["error"] for item in found] == ["name claimed by first and second"] * 2
