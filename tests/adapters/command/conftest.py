"""A git checkout with a program that is worth improving, and what measures in it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from autoresearch.adapters.command import create_adapter
from autoresearch.adapters.command.adapter import CommandAdapter
from autoresearch.core import Artifact, Measurement, RunContext, Split, Workspace
from autoresearch.core.workspace import Layout

PYTHON = sys.executable

BENCH = """\
import sys

import conf

print(f"METRIC loss={(conf.WIDTH - 5) ** 2}")
print(f"METRIC memory_mb={conf.STEPS / 10}")
"""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def make_checkout(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """Write files, commit them and return the folder."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    Artifact({"conf.py": "STEPS = 400\nWIDTH = 3.0\n", "bench.py": BENCH, **(files or {})}).write(folder)
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Begin")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return make_checkout(tmp_path / "checkout")


OPTIONS = {"edit": "conf.py", "measure": f"{PYTHON} bench.py", "metric": "loss", "direction": "minimize"}


class Measured:
    """A prepared adapter and where it measures."""

    def __init__(self, checkout: Path, folder: Path, options: Mapping[str, str], sandbox: str) -> None:
        self.checkout, self.folder, self.sandbox, self.count = checkout, folder, sandbox, 0
        self.adapter: CommandAdapter = create_adapter({**OPTIONS, **options})
        Layout(checkout).make_state()
        self.adapter.prepare(Workspace(checkout))

    @property
    def log(self) -> Path:
        return self.folder / "run.log"

    def __call__(
        self, files: Mapping[str, str] | None = None, *, seed: int = 0, split: Split = Split.SEARCH
    ) -> Measurement:
        """Measure the checkout's own artifact with `files` in place of some of its files."""
        self.count += 1
        artifact, scratch = self.folder / f"artifact-{self.count}", self.folder / f"scratch-{self.count}"
        scratch.mkdir(parents=True)
        found = Artifact.read(self.checkout, self.adapter.scope.editable).replace(files or {})
        artifact.mkdir()
        found.write(artifact)
        context = RunContext(log=self.log, scratch=scratch, sandbox=self.sandbox)
        return self.adapter.measure(artifact, seed=seed, split=split, run=context)


@pytest.fixture
def measured(checkout: Path) -> Callable[..., Measured]:
    """Return a function from options to what measures with them."""
    count = itertools.count()

    def make(options: Mapping[str, str] | None = None, *, sandbox: str = "limits") -> Measured:
        # Where the loop measures, too: below the checkout.
        folder = checkout / ".autoresearch" / "experiments" / str(next(count))
        return Measured(checkout, folder, options or {}, sandbox)

    return make
