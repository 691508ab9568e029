"""A run in a process of its own, which lives on when the server ends."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

_TAIL = 4_000


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is begun with; None leaves a choice to the workspace."""

    adapter: str | None = None
    proposer: str | None = None
    model: str | None = None
    policy: str | None = None
    experiments: int | None = None
    hours: float | None = None
    max_usd: float | None = None
    max_tokens: int | None = None
    max_samples: int | None = None
    target: float | None = None
    patience: int | None = None
    seed: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    approve: bool | None = None
    new: bool = False

    def arguments(self, workspace: Path | None) -> list[str]:
        """Return the words after `autoresearch`; values are joined to their options, so that none is read as one."""
        named = {
            "workspace": None if workspace is None else str(workspace),
            "adapter": self.adapter,
            "proposer": self.proposer,
            "model": self.model,
            "policy": self.policy,
            "experiments": self.experiments,
            "hours": self.hours,
            "max-usd": self.max_usd,
            "max-tokens": self.max_tokens,
            "max-samples": self.max_samples,
            "target": self.target,
            "patience": self.patience,
            "seed": self.seed,
        }
        words = [f"--{name}={value}" for name, value in named.items() if value is not None]
        words += [f"--set={name}={value}" for name, value in self.options.items()]
        words += [] if self.approve is None else ["--approve" if self.approve else "--no-approve"]
        return ["run", "--quiet", *words, *(["--new"] if self.new else [])]


@dataclass(slots=True)
class Child:
    """A run that this server began."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]

    @property
    def pid(self) -> int:
        """Its process, as the ledger names it."""
        return self.process.pid

    def ended(self) -> int | None:
        """Return its exit code; None while it lives."""
        return self.process.poll()

    def terminate(self) -> None:
        """Ask it to end at once; it tidies up first."""
        self.process.terminate()

    def forget(self) -> None:
        """Let go of what it said."""
        self.errors.close()

    def complaint(self) -> str:
        """Return the end of what it said on standard error."""
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace").strip()[-_TAIL:]


def launch(order: Order, *, workspace: Path | None, cwd: Path) -> Child:
    """Begin or take up a run.

    It is a session of its own and holds none of the server's streams: what ends the agent, its server or their terminal
    does not end an experiment.

    Raises:
        UsageError: If an argument cannot be given to a program.
        EnvironmentNotReadyError: If no process can be begun.
    """
    # -P: without it a file json.py in the workspace would be imported in place of Python's own.
    command = [sys.executable, "-P", "-m", "autoresearch", *order.arguments(workspace)]
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child is remembered
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    except ValueError as error:
        raise UsageError(f"The run cannot be begun with these arguments: {error}. Leave the odd one out.") from error
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"No process could be begun for the run: {error.strerror}.\nFree memory or processes and start it again."
        ) from error
    return Child(process, errors)
