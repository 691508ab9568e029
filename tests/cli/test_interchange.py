"""`export` and `import`: files for other tools, logs of other tools, kept steps for reviewers."""

from __future__ import annotations

import builtins
import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from autoresearch.core import Direction, Metric, MetricKind
from autoresearch.core.ledger import Claim, FinishedExperiment, Ledger, Run, Session
from autoresearch.core.memory import metric_as_json
from autoresearch.core.workspace import Layout
from tests.cli.conftest import invoke
from tests.cli.filling import HOSTILE, make_workspace, work

DATA = Path(__file__).parents[1] / "data"
KARPATHY = DATA / "karpathy_shape_synthetic.tsv"
IMPORT_KEYS = {"run", "new", "shape", "experiments", "workspace", "notes"}


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Una", "-c", "user.email=una@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with the synthetic log of 126 rows; read only."""
    root = tmp_path_factory.mktemp("imported") / "w"
    assert invoke("import", KARPATHY, "-w", root).exit_code == 0
    return root


# ---- Import


def test_the_synthetic_log_has_its_totals_everywhere(imported: Path) -> None:
    """23 kept with the baseline, 102 reverted, 1 crashed, best 0.969686: in status, log, show, report and audit."""
    status = json.loads(invoke("status", "-w", imported, "--json").stdout)
    assert (status["experiments"], status["kept"], status["reverted"], status["crashed"]) == (125, 22, 102, 1)
    assert (status["baseline"], status["incumbent"], status["confirmed_gain"]) == (0.9979, 0.969686, None)
    text = invoke("status", "-w", imported).stdout
    assert "stopped: imported from karpathy_shape_synthetic.tsv" in text and "the log does not say" in text
    rows = json.loads(invoke("log", "-w", imported, "--json").stdout)
    outcomes = [row["outcome"] for row in rows]
    assert [outcomes.count(name) for name in ("kept", "reverted", "crashed")] == [23, 102, 1]
    assert min(row["value"] for row in rows if row["value"] is not None) == 0.969686
    assert "0.969686" in invoke("show", "best", "-w", imported).stdout
    report = invoke("report", "-w", imported, "-f", "md", "-o", "-").stdout
    assert "22 kept, 102 reverted, 1 crashed" in report
    assert "0.969686" in report and "luck included" in report
    audit = json.loads(invoke("audit", imported, "--json").stdout)
    assert audit["outcomes"] == {"kept": 23, "reverted": 102, "inconclusive": 0, "crashed": 1, "invalid": 0}
    assert audit["incumbent"] == 0.969686


def test_what_an_imported_log_does_not_say_is_not_made_up(imported: Path) -> None:
    """A table has no diff and no output: neither "no change" nor "printed nothing" would be true."""
    text = invoke("show", "1", "-w", imported, "--diff", "--log").stdout
    assert "does not say what it changed" in text and "does not say what it printed" in text
    assert "no change" not in text and "printed nothing" not in text


def test_the_log_comes_out_as_it_went_in(imported: Path) -> None:
    """The table of the original, byte by byte."""
    assert invoke("export", "-w", imported).stdout == KARPATHY.read_text(encoding="utf-8")


def test_a_second_import_writes_nothing(imported: Path) -> None:
    """It says so, and names the run that is there."""
    said = json.loads(invoke("import", KARPATHY, "-w", imported, "--json").stdout)
    assert set(said) == IMPORT_KEYS and said["new"] is False and said["experiments"] == 126
    assert "was imported before" in invoke("import", KARPATHY, "-w", imported).stdout
    with Ledger.open(imported / ".autoresearch" / "ledger.db") as ledger:
        assert [run.id for run in ledger.runs()] == [said["run"]]


@pytest.mark.parametrize(
    "command",
    [("confirm",), ("calibrate",), ("rollback", "3"), ("checkout", "best", "elsewhere"), ("note", "Try it."),
     ("stop",), ("export", "--branch", "tune"), ("export", "--pr")],
    ids=" ".join,
)  # fmt: skip
def test_what_needs_the_artifacts_says_that_they_are_not_here(imported: Path, command: tuple[str, ...]) -> None:
    """An imported run can only be looked at, and no repository is made for it."""
    result = invoke(*command, "-w", imported)
    assert result.exit_code == 1 and "its artifacts are not" in result.stderr
    assert not (imported / ".git").exists()


def test_a_run_of_ones_own_stays_the_one_that_is_meant(tmp_path: Path) -> None:
    """Beside one, an imported run is looked at when it is named; the message says how."""
    root = make_workspace(tmp_path / "w")
    own = work(root, [("Halve it.", "4")], experiments=1, confirm=False).status.run
    told = invoke("import", KARPATHY, "-w", root).stdout
    run = told.split(" as run ")[1].split(" ")[0]
    assert f"--run {run}" in told
    assert json.loads(invoke("status", "-w", root, "--json").stdout)["run"] == own
    assert json.loads(invoke("status", "-w", root, "--run", run, "--json").stdout)["kept"] == 22
    assert "import-" not in invoke("gc", "--dry-run", "--keep-last", "1", "-w", root).stdout


def test_a_bad_line_leaves_nothing_behind(tmp_path: Path) -> None:
    """Not even an empty workspace."""
    bad = tmp_path / "bad.tsv"
    bad.write_text(KARPATHY.read_text(encoding="utf-8").replace("\tdiscard\t", "\tmaybe\t", 1), encoding="utf-8")
    result = invoke("import", bad, "-w", tmp_path / "w")
    assert result.exit_code == 1 and "line 4: the status 'maybe' is unknown" in result.stderr
    assert not (tmp_path / "w").exists()


def test_where_to_import_is_never_guessed(here: Path) -> None:
    """Without a workspace one must be named."""
    result = invoke("import", KARPATHY)
    assert result.exit_code == 1 and "autoresearch import FILE -w DIR" in result.stderr
    assert list(here.iterdir()) == []


def test_folders_are_told_apart(tmp_path: Path, filled: Path) -> None:
    """A folder that was written for MLflow is read from the JSON lines in it; others are refused."""
    lines = invoke("export", "-w", filled, "-f", "jsonl").stdout
    folder = tmp_path / "runs"
    folder.mkdir()
    assert "a folder without experiments.jsonl" in invoke("import", folder, "-w", tmp_path / "w").stderr
    (folder / "experiments.jsonl").write_text(lines, encoding="utf-8")
    assert invoke("import", folder, "-f", "mlflow", "-w", tmp_path / "w").exit_code == 0
    assert invoke("export", "-f", "jsonl", "-w", tmp_path / "w").stdout == lines
    assert "is no folder" in invoke("import", KARPATHY, "-f", "mlflow", "-w", tmp_path / "w").stderr


# ---- Export


def test_pis_log_has_its_shape(filled: Path) -> None:
    """A configuration, then numbered entries; what crashed has no metric, and notes stand under asi."""
    lines = [json.loads(line) for line in invoke("export", "-w", filled, "-f", "pi").stdout.splitlines()]
    assert lines[0]["type"] == "config" and (lines[0]["metricName"], lines[0]["bestDirection"]) == ("size", "lower")
    assert [entry["run"] for entry in lines[1:]] == [1, 2, 3, 4]
    assert [entry["status"] for entry in lines[1:]] == ["keep", "keep", "crash", "discard"]
    assert "metric" not in lines[3] and lines[2]["metric"] == 4.0 and lines[2]["metrics"]["digits"] == 1.0
    assert lines[2]["asi"]["effect"] > 0


def test_json_lines_say_what_was_measured(filled: Path) -> None:
    """Each line names metric and rules, so that it can be read by itself."""
    line = json.loads(invoke("export", "-w", filled, "-f", "jsonl").stdout.splitlines()[-1])
    assert line["run"]["metric"]["direction"] == "minimize" and line["run"]["policy"] == "bayes"
    assert line["looks"] == []


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `checkout` is a copy of; a run takes a while."""
    root = make_workspace(tmp_path_factory.mktemp("worked") / "repository" / "part")
    top = root.parent
    git(top, "init", "--quiet", "--initial-branch", "main")
    git(top, "config", "user.name", "Una User")
    git(top, "config", "user.email", "una@example.org")
    (top / "other.txt").write_text("other\n", encoding="utf-8")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "Begin")
    steps = [("Halve it: less is less.", "4"), ("Go up.", "9"), (HOSTILE, "2")]
    work(root, steps, experiments=3, confirm=False)
    (top / "staged.txt").write_text("staged\n", encoding="utf-8")
    git(top, "add", "staged.txt")
    (top / "other.txt").write_text("changed\n", encoding="utf-8")
    return root


@pytest.fixture
def checkout(worked: Path, tmp_path: Path) -> Path:
    """A workspace in a folder of a git repository, with two kept steps, a staged file and a changed one."""
    return shutil.copytree(worked.parent, tmp_path / "repository") / "part"


def state(top: Path) -> dict[str, Any]:
    """Return everything of a checkout that a branch for reviewers must not touch."""
    files = {path: path.read_bytes() for path in top.rglob("*") if path.is_file() and ".git" not in path.parts}
    return {
        "files": {path: data for path, data in files.items() if ".autoresearch" not in path.parts},
        "index": (top / ".git" / "index").read_bytes(),
        "head": git(top, "symbolic-ref", "HEAD"),
        "main": git(top, "rev-parse", "main"),
        "run": git(top, "for-each-ref", "refs/heads/autoresearch", "refs/autoresearch"),
    }


def test_each_kept_change_is_a_commit_for_reviewers(checkout: Path) -> None:
    """On HEAD, by the user, with the change alone, its effect, interval and evidence; what is checked out stays."""
    top = checkout.parent
    before = state(top)
    result = invoke("export", "--branch", "tune/size", "-w", checkout)
    assert result.exit_code == 0 and "2 commits" in result.stderr and result.stdout == ""
    assert state(top) == before
    assert git(top, "merge-base", "main", "tune/size") == git(top, "rev-parse", "main")
    assert git(top, "log", "--format=%an %s", "main..tune/size").splitlines()[1] == "Una User Halve it: less is less."
    assert git(top, "diff", "--numstat", "main", "tune/size~1").split() == ["1", "1", "part/number.txt"]
    assert git(top, "show", "tune/size~1:part/number.txt") == "4\n"
    assert git(top, "show", "tune/size:part/number.txt") == "2\n"
    message = git(top, "log", "-1", "--format=%B", "tune/size~1")
    assert "expected effect +3." in message and "90 % interval" in message
    assert "Measurements: 1 of the candidate" in message and "kept as a bet" in message
    assert "Autoresearch-Experiment: 1" in message and "Artifact-Files" not in message
    assert "\x1b" not in git(top, "log", "-1", "--format=%B", "tune/size")


def test_a_branch_is_never_written_over(checkout: Path) -> None:
    """One that is there, one that is checked out, one that git cannot name, and one in the way of another."""
    assert invoke("export", "--branch", "tune/size", "-w", checkout).exit_code == 0
    before = state(checkout.parent)
    for name, said in (
        ("tune/size", "There is a branch tune/size already"),
        ("main", "There is a branch main already"),
        ("a b", "no name that git takes"),
        ("-x", "no name that git takes"),
        ("tune", "cannot be made"),
    ):
        result = invoke("export", f"--branch={name}", "-w", checkout)
        assert result.exit_code == 1 and said in result.stderr, name
    assert state(checkout.parent) == before


def test_it_begins_where_the_run_began_when_the_files_have_changed_since(checkout: Path) -> None:
    """A commit of the user's own on the same file stands beside the branch; one on others stands below it."""
    top = checkout.parent
    began = git(top, "rev-parse", "main").strip()
    git(top, "commit", "--quiet", "-m", "Elsewhere")
    invoke("export", "--branch", "above", "-w", checkout)
    assert git(top, "rev-parse", "above~2") == git(top, "rev-parse", "main")
    (checkout / "number.txt").write_text("7\n", encoding="utf-8")
    git(top, "commit", "--quiet", "-am", "The same file")
    invoke("export", "--branch", "beside", "-w", checkout)
    assert git(top, "rev-parse", "beside~2").strip() == began


def test_files_that_were_not_committed_get_a_commit_of_their_own(tmp_path: Path) -> None:
    """So that each change is reviewed by itself, also in a workspace that has no commit of the user's."""
    root = make_workspace(tmp_path / "w")
    work(root, [("Halve it.", "4")], experiments=1, confirm=False)
    result = invoke("export", "--branch", "tune", "-w", root)
    assert "Before them stands one with your files" in result.stderr
    subjects = git(root, "log", "--format=%s", "tune").splitlines()
    assert subjects == ["Halve it.", "The files as autoresearch found them"]
    head = git(root, "symbolic-ref", "--short", "HEAD").strip()
    assert "already" in invoke("export", "--branch", head, "-w", root).stderr  # unborn, and yet checked out


def test_a_pull_request_is_honest(checkout: Path) -> None:
    """Believed beside confirmed first; what is a bet is called one; what did not work and how to do it again follow."""
    text = invoke("export", "--pr", "--branch", "tune", "-w", checkout).stdout
    lines = text.splitlines()
    assert lines[0].startswith("**believed gain") and "not confirmed" in lines[0]
    assert "Nothing of it is confirmed yet" in text
    table = [line for line in lines if line.startswith(("| 1 |", "| 3 |"))]
    assert len(table) == 2 and all(line.count(" | ") == 6 for line in table)
    assert git(checkout.parent, "rev-parse", "tune~1")[:10] in table[0] and "+3." in table[0]
    assert "Go up" in text.partition("## What was tried and did not work")[2]
    assert "autoresearch confirm --run" in text and "\x1b" not in text
    assert "tune" not in invoke("export", "--pr", "-w", checkout).stdout.partition("## How to reproduce")[2]


def test_a_pull_request_says_what_was_confirmed(checkout: Path) -> None:
    """A step that stands its test says so with its size; one that failed it says that."""
    with Ledger.open(checkout / ".autoresearch" / "ledger.db") as ledger:
        run = ledger.runs()[0].id
        for number, outcome in ((1, "confirmed"), (3, "unconfirmed")):
            row = ledger.experiment(run, number)
            assert row is not None and row.kept_commit is not None
            ledger.add_claim(
                Claim(run_id=run, subject=str(number), number=number, commit=row.kept_commit, against="", share=0.1,
                      alternative=1.0, outcome=outcome, shrunk=3.5)
            )  # fmt: skip
    text = invoke("export", "--pr", "-w", checkout).stdout
    assert "Re-measured with fresh seeds on the same data: +3.5 against the step before." in text
    assert "Not confirmed: fresh measurements" in text and "is not confirmed**" in text


def test_a_live_run_is_reviewed_with_its_people(tmp_path: Path) -> None:
    """Lifts in percent, bounds at their levels, conversions of exposures; nothing is to be measured again."""
    layout = Layout(tmp_path / "w")
    layout.root.mkdir()
    layout.make_state()
    metric = Metric("signup_rate", "share of visitors", Direction.MAXIMIZE, MetricKind.PROPORTION, min_effect=0.1)
    arms = [{"look": 1, "arm": arm, "n": 9000, "total": total, "total_sq": total}
            for arm, total in (("control", 450), ("treatment", 540))]  # fmt: skip
    kept = {"number": 1, "parent_number": 0, "outcome": "kept", "hypothesis": "Say it shorter.", "effect": 0.2,
            "effect_low": 0.05, "e_win": 30.0}  # fmt: skip
    rows = [{"number": 0, "outcome": "kept", "hypothesis": "As found."}, kept]
    run = Run(id="live", adapter="shop", metric=metric_as_json(metric), policy="race", state="stopped")
    with Ledger.open(layout.ledger) as ledger:
        finished = [FinishedExperiment({**row, "run_id": "live"}, looks=arms if row is kept else ()) for row in rows]
        ledger.add_finished_run(run, Session(run_id="live"), finished)
    text = invoke("export", "--pr", "-w", layout.root).stdout
    assert "Each kept change passed a test of its own" in text and "autoresearch confirm" not in text
    assert "| +20.0% | above +5.0% at alpha |" in text and "Effects relative to the incumbent" in text
    assert "540 of 9,000 in the treatment, 450 of 9,000 in the control" in text


def test_nothing_kept_is_nothing_to_review(tmp_path: Path) -> None:
    """It is said, and no branch is made."""
    root = make_workspace(tmp_path / "w")
    work(root, [("Double it.", "16")], experiments=1, confirm=False)
    result = invoke("export", "--branch", "tune", "-w", root)
    assert result.exit_code == 1 and "kept nothing" in result.stderr
    assert git(root, "branch", "--list", "tune") == ""


def test_a_format_and_a_branch_are_two_requests(filled: Path) -> None:
    """Formats are of experiments, a branch is of kept steps."""
    assert invoke("export", "-f", "csv", "--branch", "tune", "-w", filled).exit_code == 2


# ---- MLflow

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="mlflow-skinny is not installed: pip install mlflow-skinny"
)


def test_without_mlflow_its_package_is_named(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left behind, and the package to install is said."""
    real = builtins.__import__

    def missing(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "mlflow":
            raise ModuleNotFoundError("No module named 'mlflow'")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    result = invoke("export", "-w", filled, "-f", "mlflow", "-o", tmp_path / "ml")
    assert result.exit_code == 1 and "pip install mlflow-skinny" in result.stderr
    assert not (tmp_path / "ml").exists()


def test_mlflow_needs_a_new_folder(filled: Path, tmp_path: Path) -> None:
    """Neither a stream nor a folder with something in it will do."""
    assert "-o DIR" in invoke("export", "-w", filled, "-f", "mlflow").stderr
    (tmp_path / "there").write_text("x", encoding="utf-8")
    assert "is not empty" in invoke("export", "-w", filled, "-f", "mlflow", "-o", tmp_path).stderr


@needs_mlflow
@pytest.mark.filterwarnings("ignore")  # of MLflow's own dependencies
def test_mlflow_opens_what_was_written(filled: Path, tmp_path: Path) -> None:
    """Its client finds every experiment: the crash as failed and without the metric, each measurement as a step."""
    from mlflow import MlflowClient

    result = invoke("export", "-w", filled, "-f", "mlflow", "-o", tmp_path / "ml")
    assert result.exit_code == 0, result.stderr
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'ml' / 'mlflow.db'}")
    place = next(one for one in client.search_experiments() if one.name != "Default")
    runs = {run.data.tags["autoresearch.number"]: run for run in client.search_runs([place.experiment_id])}
    assert [runs[number].info.status for number in "0123"] == ["FINISHED", "FINISHED", "FAILED", "FINISHED"]
    assert [runs[number].data.metrics.get("size") for number in "0123"] == [8.0, 4.0, None, 5.0]
    steps = client.get_metric_history(runs["0"].info.run_id, "size.treatment")
    assert [step.value for step in steps] == [8.0, 8.0]
    assert runs["1"].data.params == {"NUMBER": "4"} and runs["1"].data.tags["autoresearch.outcome"] == "kept"
    assert invoke("import", tmp_path / "ml", "-w", tmp_path / "w").exit_code == 0
