"""Runs as other tools show them: each experiment once, whatever was killed in between."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoresearch.core import EnvironmentNotReadyError
from autoresearch.core.driver import run
from autoresearch.core.ledger import Ledger
from tests.core.fakes import HalvingProposer, Listening, SquareAdapter, make_workspace

go = partial(run, proposer=HalvingProposer(), policy="greedy", confirm=False)

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="mlflow-skinny is not installed: pip install mlflow-skinny"
)
needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed: pip install 'autoresearch[wandb]'"
)


def mirrored(folder: Path) -> list[tuple[str, float | None]]:
    """Return number and value of every run in the database of a folder, in order."""
    from mlflow import MlflowClient

    client: Any = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    places = [place for place in client.search_experiments() if place.name != "Default"]
    runs = [row for place in places for row in client.search_runs([place.experiment_id])]
    return sorted((row.data.tags["autoresearch.number"], row.data.metrics.get("square")) for row in runs)


@needs_mlflow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_every_experiment_once(tmp_path: Path) -> None:
    """A second session adds what is new; one that was run without the mirror is caught up with."""
    root, folder = make_workspace(tmp_path / "work"), tmp_path / "mlflow"
    for mirror in (str(folder), None, str(folder)):
        go(
            SquareAdapter(),
            workspace=root,
            proposer=HalvingProposer(),
            policy="greedy",
            confirm=False,
            experiments=2,
            mlflow=mirror,
        )
    with Ledger.open(root / ".autoresearch" / "ledger.db") as ledger:
        rows = ledger.experiments(ledger.runs()[-1].id)
    assert mirrored(folder) == [(str(row.number), pytest.approx(row.value)) for row in rows]
    assert len(rows) == 7


@needs_mlflow
@pytest.mark.filterwarnings("ignore")
def test_a_mirror_that_does_not_answer_is_said_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server listens at the address; the run keeps what it would keep."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    heard = Listening()
    result = go(
        SquareAdapter(),
        workspace=make_workspace(tmp_path),
        experiments=2,
        mlflow="http://127.0.0.1:9",
        reporter=heard,
    )
    assert result.status.experiments == 2
    assert any(text.startswith("MLflow could not be told: it fails with") for text in heard.said)


@needs_wandb
@pytest.mark.filterwarnings("ignore")
def test_wandb_runs_are_written_offline_and_once(tmp_path: Path) -> None:
    """A folder for each experiment, none of them twice after a second session."""
    root = make_workspace(tmp_path)
    for _ in range(2):
        go(
            SquareAdapter(),
            workspace=root,
            proposer=HalvingProposer(),
            policy="greedy",
            confirm=False,
            experiments=1,
            wandb="square",
        )
    found = sorted(path.name[-4:] for path in (root / ".autoresearch" / "wandb" / "wandb").glob("offline-run-*"))
    assert found == ["0000", "0001", "0002"]


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence says what to install, before anything is measured."""
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    adapter = SquareAdapter()
    with pytest.raises(EnvironmentNotReadyError, match=r"autoresearch\[wandb\]"):
        go(
            adapter,
            workspace=make_workspace(tmp_path),
            proposer=HalvingProposer(),
            policy="greedy",
            confirm=False,
            experiments=1,
            wandb="square",
        )
    assert not adapter.measured
