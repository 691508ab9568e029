"""A run that kills itself at a chosen step; run in a process of its own by test_kill.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from autoresearch.core import Artifact, CandidateError, driver, graph
from autoresearch.core.errors import InvalidCandidateError
from autoresearch.core.ledger import Ledger
from autoresearch.core.store import Store
from tests.core.fakes import ControlPolicy, HalvingProposer, SquareAdapter

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


def killed_run(root: str, kill_at: int | None, experiments: int) -> None:
    """Run with greedy decisions after one look at each arm; writes how many steps there were to `steps.txt`."""
    countdown = Countdown(kill_at)
    for owner, name in STEPS:
        setattr(owner, name, countdown.around(getattr(owner, name)))
    graph.write_by_rename = countdown.around(graph.write_by_rename)  # type: ignore[attr-defined]
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
