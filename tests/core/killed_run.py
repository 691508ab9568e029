"""A run that kills itself at a chosen step; run in a process of its own by test_kill.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from autoresearch.core import Artifact, CandidateError, Lane, LiveExperiment, Outcome, driver, graph
from autoresearch.core.errors import InvalidCandidateError
from autoresearch.core.ledger import Ledger
from autoresearch.core.store import Store
from tests.core.fakes import ControlPolicy, HalvingProposer, SquareAdapter
from tests.core.town import COPY, Planner, Town, rates_of

STEPS: list[tuple[type, str]] = [
    (Ledger, "add_run"),
    (Ledger, "update_run"),
    (Ledger, "add_session"),
    (Ledger, "update_session"),
    (Ledger, "add_proposal"),
    (Ledger, "update_proposal"),
    (Ledger, "begin_experiment"),
    (Ledger, "update_experiment"),
    (Ledger, "add_measurement"),
    (Ledger, "begin_test"),
    (Ledger, "add_live_look"),
    (Ledger, "finish_experiment"),
    (Store, "baseline"),
    (Store, "commit"),
    (Store, "keep"),
    (Store, "reject"),
    (SqliteSaver, "put"),
    (SqliteSaver, "put_writes"),
    (SqliteSaver, "delete_thread"),
    (SquareAdapter, "measure"),
    (SquareAdapter, "keep_outputs"),
    (Artifact, "write"),
    (Town, "start_together"),
    (Town, "observe"),
    (Town, "finish"),
    (Town, "show_to_everybody"),
]
"""Every step that leaves something behind; the run is killed before and after each call."""


class Countdown:
    """Counts steps and kills the process when its number comes up."""

    def __init__(self, kill_at: int | None) -> None:
        self.kill_at = kill_at
        self.count = 0

    def tick(self) -> None:
        if self.count == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += 1

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            result = function(*args, **kwargs)
            self.tick()
            return result

        return wrapped


def texts(experiments: int) -> dict[int, str]:
    """Return what is special: of every ten, the third crashes for good, the fourth is cut early, the fifth invalid."""
    words = {3: "oops", 4: "early", 5: "invalid"}
    special = {number: f"{words[number % 10]}{number}" for number in range(experiments + 1) if number % 10 in words}
    return {**special, 6: "0.1"}


def counting(kill_at: int | None) -> Countdown:
    """Let every step count, and return what counts them."""
    countdown = Countdown(kill_at)
    for owner, name in STEPS:
        setattr(owner, name, countdown.around(getattr(owner, name)))
    graph.write_by_rename = countdown.around(graph.write_by_rename)  # type: ignore[attr-defined]
    return countdown


def killed_run(root: str, kill_at: int | None, experiments: int) -> None:
    """Run with greedy decisions after one look at each arm; writes how many steps there were to `steps.txt`."""
    countdown = counting(kill_at)
    folder = Path(root)

    def note(text: str) -> None:
        with (folder / "measured.txt").open("a", encoding="utf-8") as file:
            file.write(text + "\n")
        if text.startswith("early"):
            raise CandidateError("Hopeless.", early=True)
        if text.startswith("invalid"):
            raise InvalidCandidateError("A gate failed.")

    driver.run(
        SquareAdapter(noise=None, fault=note),
        workspace=folder,
        proposer=HalvingProposer(texts=texts(experiments)),
        policy=ControlPolicy((("control",),)),
        confirm=False,
        baseline_runs=2,
        experiments=experiments,
    )
    (folder / "steps.txt").write_text(str(countdown.count), encoding="utf-8")


LANES = (Lane("a", arms=2), Lane("b", arms=2), Lane("c", alone=True))


class Noting(Town):
    """Writes down what it is told, so that it can be read after a kill."""

    def start_together(self, experiments: Sequence[LiveExperiment]) -> None:
        super().start_together(experiments)
        self._note("together", " ".join(row.id[-4:] for row in experiments))

    def finish(self, experiment_id: str, outcome: Outcome) -> None:
        super().finish(experiment_id, outcome)
        self._note("finished", f"{experiment_id[-4:]} {outcome.value}")

    def show_to_everybody(self, artifact: Path) -> None:
        super().show_to_everybody(artifact)
        self._note("everybody", str(rates_of(Artifact.read(artifact, (COPY,)))))

    def _note(self, what: str, text: str) -> None:
        with (self.root / f"{what}.txt").open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")


def killed_lanes(root: str, kill_at: int | None) -> None:
    """Run three lanes in which three treatments win at once: one is kept, one is tried again, one is put on top."""
    countdown = counting(kill_at)
    folder = Path(root)
    plan = {"a": [0.2, 0.06], "b": [0.3, 0.052], "c": [0.2]}
    driver.run(Noting(folder, LANES), workspace=folder, proposer=Planner(plan))
    (folder / "steps.txt").write_text(str(countdown.count), encoding="utf-8")
