"""The files of a package with a new adapter, as `autoresearch adapter new` writes them."""

from __future__ import annotations

from collections.abc import Mapping

from autoresearch.version import __version__


def package_files(name: str, *, live: bool) -> Mapping[str, str]:
    """Return relative path -> text of a package that declares the adapter `name`.

    Args:
        name: A lower-case identifier.
        live: For a metric that arrives from people.
    """
    title = "".join(part.capitalize() for part in name.split("_"))
    words = {"NAME": name, "TITLE": title, "PACKAGE": f"autoresearch_{name}", "VERSION": __version__}
    adapter, test, about = (_LIVE_ADAPTER, _LIVE_TEST, _LIVE_ABOUT) if live else (_ADAPTER, _TEST, _ABOUT)
    texts = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README.replace("ABOUT", about),
        "PACKAGE/__init__.py": adapter,
        "tests/test_NAME.py": test,
    }
    return {_filled(path, words): _filled(text, words) for path, text in texts.items()}


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text


_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "autoresearch-NAME"
version = "0.1.0"
description = "An adapter for autoresearch: NAME."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["autoresearch>=VERSION"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points."autoresearch.adapters"]
NAME = "PACKAGE:create_adapter"

[tool.setuptools]
packages = ["PACKAGE"]
"""

_README = """\
# autoresearch-NAME

ABOUT

```bash
pip install -e '.[test]'
pytest
autoresearch run --adapter NAME --experiments 6
```

The contract that `PACKAGE/__init__.py` keeps is written down in the docstrings of `autoresearch.core`; the test
inherits every clause of it from `autoresearch.testing`.
"""

_ABOUT = """\
An adapter for autoresearch: `settings.py` may change, and what counts is the loss that its constants lead to. Put your
own artifact and your own measurement in their place."""

_ADAPTER = '''\
"""The adapter NAME: `settings.py` holds two constants, and what counts is the loss that they lead to."""

import random
import re
from collections.abc import Mapping
from pathlib import Path

from autoresearch import core


class TITLEAdapter:
    metric = core.Metric("loss", "", core.Direction.MINIMIZE, noise=0.01)
    scope = core.Scope(editable=("settings.py",))

    def workspace_files(self) -> Mapping[str, str]:
        return {"settings.py": "RATE = 1.0\\nDEPTH = 9.0\\n"}

    def prepare(self, workspace: core.Workspace) -> None: ...

    def measure(self, artifact: Path, *, seed: int, split: core.Split, run: core.RunContext) -> core.Measurement:
        found = dict(re.findall(r"^(RATE|DEPTH) = ([\\d.]+)$", (artifact / "settings.py").read_text(), re.MULTILINE))
        if len(found) < 2:
            raise core.CandidateError("settings.py must set RATE and DEPTH to numbers.")
        rate, depth, luck = float(found["RATE"]), float(found["DEPTH"]), random.Random(f"{split} {seed}").gauss(0, 0.01)
        return core.Measurement((rate - 4) ** 2 + abs(depth - 5) + luck, seed=seed, seconds=0.0)


def create_adapter(options: Mapping[str, str]) -> core.Adapter:
    return TITLEAdapter()
'''

_TEST = '''\
"""Every clause of the contract, inherited from the kit; what is worse and what is broken only the author knows."""

import pytest
from autoresearch.core import Adapter
from autoresearch.testing import AdapterConformance

from PACKAGE import create_adapter


class TestTITLE(AdapterConformance):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return create_adapter({})

    @pytest.fixture
    def worse_artifact(self) -> str:
        return "RATE = 0.0\\nDEPTH = 90.0\\n"

    @pytest.fixture
    def broken_artifact(self) -> str:
        return "RATE = 'fast'\\n"
'''

_LIVE_ABOUT = """\
A live adapter for autoresearch: two versions of `page.py` are shown at the same time, and what counts is the share of
people who accept. The people are made up and live in a file of the workspace; put your own traffic in their place."""

_LIVE_ADAPTER = '''\
"""The live adapter NAME: two versions of `page.py`, shown at once; what counts is the share of people who accept."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from autoresearch import core


class TITLEAdapter:
    metric = core.Metric("accepted", "", core.Direction.MAXIMIZE, core.MetricKind.PROPORTION, min_effect=0.2)
    scope = core.Scope(editable=("page.py",))

    def workspace_files(self) -> Mapping[str, str]:
        return {"page.py": "WORDS = 40\\n"}

    def prepare(self, workspace: core.Workspace) -> None:
        self.folder = workspace.path / ".autoresearch" / "people"

    def start(self, experiment: core.LiveExperiment) -> None:
        if not self._path(experiment.id).exists():  # after a kill it comes again with the same experiment
            folders = {"control": experiment.control, "treatment": experiment.treatment}
            words = {arm: float((folder / "page.py").read_text().split("=")[1]) for arm, folder in folders.items()}
            rates = {arm: 1.0 / (4.0 + abs(number - 25.0) / 5.0) for arm, number in words.items()}
            self._write(experiment.id, {arm: [rate, 0, 0] for arm, rate in rates.items()})

    def observe(self, experiment_id: str) -> Sequence[core.ArmTotals]:
        return [core.ArmTotals(arm, int(n), yes, yes) for arm, (_, n, yes) in self._read(experiment_id).items()]

    def finish(self, experiment_id: str, outcome: core.Outcome) -> None: ...

    def wait_seconds(self, experiment_id: str) -> float:
        self.visit(experiment_id, 400)  # made-up people need not be waited for
        return 0.0

    def ending(self, experiment_id: str) -> str | None:
        units = sum(n for _, n, _ in self._read(experiment_id).values())
        return "8,000 people came" if units >= 8000 else None

    def visit(self, experiment_id: str, count: int) -> None:
        arms = self._read(experiment_id)
        for arm, (rate, n, yes) in arms.items():
            rng = random.Random(f"{experiment_id} {arm} {n}")
            arms[arm] = [rate, n + count, yes + sum(rng.random() < rate for _ in range(count))]
        self._write(experiment_id, arms)

    def _path(self, experiment_id: str) -> Path:
        return self.folder / f"{experiment_id.replace('/', '-')}.json"

    def _read(self, experiment_id: str) -> dict[str, list[float]]:
        arms: dict[str, list[float]] = json.loads(self._path(experiment_id).read_text())
        return arms

    def _write(self, experiment_id: str, arms: Mapping[str, list[float]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self._path(experiment_id).with_suffix(".new")
        beside.write_text(json.dumps(arms))
        beside.replace(self._path(experiment_id))  # whole, or not at all


def create_adapter(options: Mapping[str, str]) -> core.LiveAdapter:
    return TITLEAdapter()
'''

_LIVE_TEST = '''\
"""Every clause of the contract, inherited from the kit; how people come and what a restart is the author knows."""

from collections.abc import Callable
from pathlib import Path

import pytest
from autoresearch.core import LiveAdapter, LiveExperiment, Workspace
from autoresearch.testing import LiveAdapterConformance

from PACKAGE import TITLEAdapter, create_adapter


class TestTITLE(LiveAdapterConformance):
    @pytest.fixture
    def adapter(self) -> LiveAdapter:
        return create_adapter({})

    @pytest.fixture
    def treatment(self) -> str:
        return "WORDS = 20\\n"

    @pytest.fixture
    def visit(self) -> Callable[[TITLEAdapter, LiveExperiment], None]:
        return lambda adapter, experiment: adapter.visit(experiment.id, 300)

    @pytest.fixture
    def again(self, workspace: Path) -> Callable[[], LiveAdapter]:
        def restarted() -> TITLEAdapter:
            adapter = TITLEAdapter()
            adapter.prepare(Workspace(workspace))
            return adapter

        return restarted
'''
