"""A workspace with a run of every outcome, filled once, and packages that were never installed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autoresearch.cli import app
from tests.cli.filling import fill
from tests.cli.plugins import write_hill


def invoke(*arguments: str | Path) -> Result:
    """Run the command line in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose run has a keep, a revert, a crash and a refusal; read only."""
    return fill(tmp_path_factory.mktemp("filled") / "w")


@pytest.fixture
def packages(tmp_path: Path) -> Iterator[Path]:
    """A folder on Python's path; what it brings in is forgotten afterwards."""
    folder = tmp_path / "packages"
    folder.mkdir()
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None)
        if origin is not None and Path(origin).is_relative_to(folder):
            del sys.modules[name]


@pytest.fixture
def hill(packages: Path) -> Path:
    """The package `hill`, which declares an adapter, on Python's path; returns its folder."""
    write_hill(packages)
    return packages


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def in_filled(filled: Path) -> Iterator[Path]:
    """The filled workspace as current folder's neighbour: commands need `-w`."""
    with contextlib.chdir(filled.parent):
        yield filled
