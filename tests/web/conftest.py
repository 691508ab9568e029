"""Workspaces to report on, each filled once and read only."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.report import fill as fill_ledger
from tests.cli.filling import fill
from tests.core.fakes import make_workspace
from tests.core.test_live import Crowd, go

WORKSPACE = Path(".autoresearch") / "ledger.db"


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a keep, a revert, a crash, a refusal and hostile hypotheses."""
    return fill(tmp_path_factory.mktemp("measured") / "w")


@pytest.fixture(scope="session")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of live tests: one kept, one reverted, one inconclusive."""
    root = make_workspace(tmp_path_factory.mktemp("tested") / "w", "0.05")
    go(root, ["0.058", "0.052", "0.066"], Crowd(), experiments=3)
    return root


@pytest.fixture(scope="session")
def thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A made-up run of a thousand experiments with claims."""
    root = tmp_path_factory.mktemp("thousand") / "w"
    (root / ".autoresearch").mkdir(parents=True)
    fill_ledger(root / WORKSPACE, 1_000)
    return root
