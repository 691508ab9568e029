"""A machine to attack: a small corpus, a file worth stealing, a socket to send it to, and an adapter that measures."""

from __future__ import annotations

import collections
import json
import math
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

import autoresearch.adapters.ml_training as package
from autoresearch.adapters.ml_training.adapter import MlAdapter, Options
from autoresearch.core import CandidateError, InvalidCandidateError, RunContext, Split, Workspace
from autoresearch.core.sandbox import Level, best_level, probe

WORDS = ("the", "a", "cat", "dog", "sees", "runs", "over", "under", "house", "tree", "and", "then", "it", "was", "old")


def _sentence(randomness: random.Random) -> str:
    """Return 60 words, each one of the three that may follow the word before: there is something to be learned."""
    at, words = randomness.randrange(len(WORDS)), []
    for _ in range(60):
        at = (4 * at + randomness.randrange(3)) % len(WORDS)
        words.append(WORDS[at])
    return " ".join(words)


@pytest.fixture(scope="session")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> MlAdapter:
    """The adapter on 300 short documents, with 0.3 s of processor time for a training."""
    root = tmp_path_factory.mktemp("attacked")
    texts = [f"{number} {_sentence(random.Random(number))}." for number in range(300)]
    (root / "text.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts), encoding="utf-8")
    options = {"data": str(root / "text.jsonl"), "cache": str(root / "cache"), "budget_seconds": "0.3"}
    adapter = MlAdapter(Options.parse({"preset": "cpu", "min_cpu_share": "0", **options}))
    adapter.prepare(Workspace(root))
    return adapter


@pytest.fixture(
    params=[
        "strongest",
        pytest.param("landlock", marks=pytest.mark.slow),
        pytest.param("limits", marks=pytest.mark.slow),
    ]
)
def level(request: pytest.FixtureRequest) -> Level:
    """The level to attack at; skipped with the reason where it does not work."""
    if request.param == "strongest":
        if not best_level().confines:
            pytest.skip(f"no sandbox works here: {probe(Level.BUBBLEWRAP).reason} {probe(Level.LANDLOCK).reason}")
        return best_level()
    tried = probe(Level(request.param))
    if not tried.works:
        pytest.skip(f"{request.param} does not work here: {tried.reason}")
    return tried.level


@dataclass
class Scene:
    """What an attack meets.

    Attributes:
        adapter: Measures.
        level: How candidates are kept apart.
        root: Folder of this attack alone.
    """

    adapter: MlAdapter
    level: Level
    root: Path
    listener: socket.socket

    def __post_init__(self) -> None:
        for folder in ("artifact", "scratch", "home"):
            (self.root / folder).mkdir()
        self.bait.write_text("precious")
        self._data, self._code = self._data_files(), self._package_files()

    @property
    def bait(self) -> Path:
        return self.root / "home" / "notes.txt"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def prepared(self) -> Path:
        return self.adapter.plan(0, Split.SEARCH, None).prepared.path

    def measure(self, script: str) -> tuple[str, str]:
        """Measure a script; return how its experiment ends (`honest` for a value that is one) and why."""
        (self.root / "artifact" / "train.py").write_text(self._filled(script), encoding="utf-8")
        run = RunContext(log=self.log, scratch=self.scratch, sandbox=self.level.value)
        try:
            value = self.adapter.measure(self.root / "artifact", seed=1, split=Split.SEARCH, run=run).value
        except InvalidCandidateError as error:
            return "invalid", str(error)
        except CandidateError as error:
            return "reverted" if error.early else "crashed", str(error)
        # One word in three, of 4.4 bytes with its space: no honest model gets below 0.36; this one is not far above.
        return ("honest" if 0.36 < value < 4.0 else "fooled"), f"val_bpb {value:.4f}"

    def _filled(self, script: str) -> str:
        words = {
            "@BAIT@": str(self.bait),
            "@SCORED@": str(self.prepared / "scored"),
            "@PORT@": str(self.listener.getsockname()[1]),
            "@PACKAGE@": str(Path(str(package.__file__)).parent),
        }
        for word, text in words.items():
            script = script.replace(word, text)
        return script.replace("@BIGRAMS@", self._bigrams()) if "@BIGRAMS@" in script else script

    def _bigrams(self) -> str:
        """Return what follows each token in the training text, as a Python literal of logits."""
        tokens = self.adapter.plan(0, Split.SEARCH, None).prepared.train_documents().tokens.tolist()
        pairs = collections.Counter(pairwise(tokens))
        known: dict[int, dict[int, float]] = {}
        for (before, after), count in pairs.items():
            known.setdefault(before, {})[after] = round(9.0 + math.log(count), 1)
        return repr(known)

    # What must not have happened

    def received(self) -> bytes:
        """Return what was sent to the socket."""
        self.listener.settimeout(0.2)
        try:
            connection, _ = self.listener.accept()
        except TimeoutError:
            return b""
        with connection:
            connection.settimeout(2.0)
            return connection.recv(1 << 16) or b"a connection"

    def processes_with(self, word: str) -> list[int]:
        """Return the processes that have a word in their command line."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            if any(word in part for part in process.info["cmdline"] or ()):
                found.append(process.pid)
        return found

    def assert_data_unchanged(self) -> None:
        assert self._data_files() == self._data

    def assert_package_unchanged(self) -> None:
        assert self._package_files() == self._code

    def _data_files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.prepared.rglob("*") if path.is_file()}

    def _package_files(self) -> dict[Path, bytes]:
        folder = Path(str(package.__file__)).parent
        return {path: path.read_bytes() for path in folder.rglob("*.py")}


@pytest.fixture
def scene(attacked: MlAdapter, level: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-attacked")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Scene(attacked, level, tmp_path, listener)
