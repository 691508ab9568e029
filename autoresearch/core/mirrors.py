"""Runs in the tools that people know already, as they go: MLflow and Weights & Biases.

A mirror is a copy for looking at. Each finished experiment becomes a run of its own there; the ledger stays the truth.
What is there already, from an earlier session, is not written twice. Both packages are optional.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.core.adapter import Outcome
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.mlflow_export import LONGEST, Mirror, client_class, quiet
from autoresearch.core.words import clean

if TYPE_CHECKING:
    from autoresearch.core.followers import Followed
    from autoresearch.core.ledger import Experiment


class MlflowMirror:
    """A follower that writes to an MLflow tracking server, or to a database in a folder.

    Args:
        where: A tracking address (`http://...`, `sqlite:///...`), or a folder that gets a database.

    Raises:
        EnvironmentNotReadyError: If MLflow is not installed.
    """

    name = "MLflow"

    def __init__(self, where: str) -> None:
        self._client_class = client_class()
        self._uri, self._artifacts = _address(where)
        self._session: Followed | None = None
        self._mirror: Mirror | None = None

    def begun(self, session: Followed) -> None:
        """Open the experiment that bears the run's id, and write what an earlier session could not."""
        self._session = session
        for row in session.finished():
            self.experiment_ended(row)

    def experiment_ended(self, experiment: Experiment) -> None:
        """Write one experiment."""
        session = self._session
        if session is None:
            return
        try:
            with quiet():
                if self._mirror is None:
                    client = self._client_class(tracking_uri=self._uri)
                    self._mirror = Mirror(client, session.run, self._artifacts)
                self._mirror.write(
                    experiment, session.ledger.measurements(experiment.id), session.ledger.live_looks(experiment.id)
                )
        except Exception as error:
            raise EnvironmentNotReadyError(f"it fails with {type(error).__name__}.") from error

    def ended(self, reason: str, *, fault: bool) -> None:
        """Catch up with what was missed while it did not answer."""
        if self._session is not None:
            self.begun(self._session)


def _address(where: str) -> tuple[str, str | None]:
    """Return the tracking address, and where a folder of ours keeps artifacts."""
    if "://" in where:
        return where, None
    folder = Path(where).expanduser().resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made: {error.strerror}.\nName another folder: --mlflow DIR") from error
    return f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()


class WandbMirror:
    """A follower that writes Weights & Biases runs, offline unless WANDB_MODE says otherwise.

    Args:
        project: Name of the project.

    Raises:
        EnvironmentNotReadyError: If the package is not installed.
    """

    name = "Weights & Biases"

    def __init__(self, project: str) -> None:
        self._wandb = _wandb()
        self._project = project
        self._session: Followed | None = None
        self._written: Path | None = None

    def begun(self, session: Followed) -> None:
        """Write what an earlier session could not."""
        self._session = session
        self._written = session.layout.state / "wandb" / f"{session.run.id}.written"
        for row in session.finished():
            self.experiment_ended(row)

    def experiment_ended(self, experiment: Experiment) -> None:
        """Write one experiment as a run of the group that bears the run's id."""
        session, written = self._session, self._written
        if session is None or written is None or experiment.number in _numbers(written):
            return
        try:
            self._write(session, experiment)
            written.parent.mkdir(parents=True, exist_ok=True)
            with written.open("a", encoding="ascii") as file:
                file.write(f"{experiment.number}\n")
        except Exception as error:
            raise EnvironmentNotReadyError(f"it fails with {type(error).__name__}.") from error

    def ended(self, reason: str, *, fault: bool) -> None:
        """Catch up with what was missed."""
        if self._session is not None:
            self.begun(self._session)

    def _write(self, session: Followed, row: Experiment) -> None:
        folder = session.layout.state / "wandb"
        folder.mkdir(parents=True, exist_ok=True)
        # A fixed id: a run that a kill left half written is the same run when it is written again.
        made = self._wandb.init(
            project=self._project,
            group=session.run.id,
            id=f"{session.run.id}-{row.number:04d}",
            name=f"{row.number:04d} {clean(row.hypothesis)[:80]}".strip(),
            config=_config(session, row),
            tags=[row.outcome or ""],
            notes=f"{clean(row.hypothesis)}\n\n{clean(row.reason)}"[:LONGEST],
            dir=str(folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            settings=self._wandb.Settings(
                silent=True,
                console="off",
                disable_git=True,
                disable_code=True,
                x_disable_stats=True,
                x_disable_meta=True,
                x_disable_machine_info=True,
            ),
        )
        for step, taken in enumerate(session.ledger.measurements(row.id)):
            # Curves have a scale of their own: the share of the budget.
            for share, value in taken.curve:
                made.log({f"curve/{taken.arm}-{step}": value, "share": share})
            made.log({f"measured/{taken.arm}": taken.value, "measurement": step})
        made.summary.update(_summary(session, row))
        failed = row.outcome in (Outcome.CRASHED.value, Outcome.INVALID.value)
        made.finish(exit_code=1 if failed else 0)


def _config(session: Followed, row: Experiment) -> Mapping[str, Any]:
    knobs = {f"knob/{change['knob']}": change["new"] for change in row.changes}
    about = {"adapter": session.run.adapter, "policy": session.run.policy, "proposer": row.proposer}
    return {**about, "number": row.number, "category": row.category, "parent": row.parent_number, **knobs}


def _summary(session: Followed, row: Experiment) -> Mapping[str, Any]:
    figures = {
        str(session.run.metric["name"]): row.value,
        **{key: getattr(row, key) for key in ("effect", "effect_low", "effect_high", "p_better", "e_win", "e_lose")},
        "usd": row.usd,
        "tokens": row.tokens,
        "seconds": row.seconds,
    }
    words = {"outcome": row.outcome, "reason": clean(row.reason), "diff": clean(row.diff, lines=True)[:LONGEST]}
    return {**{key: value for key, value in figures.items() if value is not None}, **words}


def _numbers(written: Path) -> set[int]:
    try:
        return {int(line) for line in written.read_text(encoding="ascii").split()}
    except FileNotFoundError:
        return set()


def _wandb() -> Any:
    # It would report its own errors to its makers over the network.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    try:
        import wandb
    except ImportError as error:
        raise EnvironmentNotReadyError(
            f"Weights & Biases cannot be imported: {error}.\nInstall it: pip install 'autoresearch[wandb]'"
        ) from error
    return wandb
