"""Packages that were never installed: a module and its metadata in a folder on Python's path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HILL = '''
"""An adapter whose artifact is a script with two constants and whose metric is how far they are from the best ones."""

import math
import random
import re
import time

from autoresearch.core import CandidateError, Direction, Measurement, Metric, Scope, UsageError

START = "# Turn these.\\nWIDTH = 3.0\\nHEIGHT = 8.0\\n"


class Hill:
    metric = Metric("distance", "steps", Direction.MINIMIZE, noise=0.01)
    scope = Scope(("hill.py",), ("README.md",))

    def __init__(self, options):
        unknown = set(options) - {"pause", "preset"}
        if unknown:
            raise UsageError(f"The adapter hill has no option {min(unknown)!r}; it has pause and preset.")
        self.pause = float(options.get("pause", "0"))

    def workspace_files(self):
        return {"hill.py": START, "README.md": "A hill.", "program.md": "Climb."}

    def prepare(self, workspace):
        for step in range(9):
            workspace.progress(step / 8, f"counting stones {step} of 8")

    def measure(self, artifact, *, seed, split, run):
        text = (artifact / "hill.py").read_text()
        with run.log.open("a") as log:
            log.write(f"seed {seed} \\x1b[31m[bold]red[/bold]\\x1b[0m\\n")
            log.write(f"pause {self.pause}\\n")
        time.sleep(self.pause)
        found = {name: float(value) for name, value in re.findall(r"^(WIDTH|HEIGHT) = ([-+.0-9e]+)$", text, re.M)}
        if len(found) < 2:
            raise CandidateError("The hill has lost a side.", log_tail="Traceback: no side")
        noise = random.Random(f"{text}{seed}").gauss(0, 0.001)
        value = math.dist((found["WIDTH"], found["HEIGHT"]), (4, 4)) + noise
        return Measurement(value, seed, 0.01, {"height": found["HEIGHT"]})


def create_adapter(options):
    return Hill(options)
'''


def write_package(
    folder: Path, name: str, source: str, entry_points: Mapping[str, Mapping[str, str]], version: str = "1.0"
) -> None:
    """Write a package with one module into `folder`, as pip would leave it; entry points by group and name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
        for group, entries in entry_points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")


def write_hill(folder: Path) -> None:
    """Write the package `hill`."""
    write_package(folder, "hill", HILL, {"autoresearch.adapters": {"hill": "hill:create_adapter"}})
