"""The ledger: everything that is known of runs and experiments, in SQL; the one source of truth.

SQLite is the default and the only database that needs special care; that care is in `_prepare_sqlite` and nowhere else.
Tables are made and changed by the migrations beside this module, which run when a ledger is opened and skip themselves
when it is up to date.

Every method of `Ledger` is one transaction and returns rows that belong to no session: change them as you like, nothing
happens to the ledger until a method is told to write.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from sqlalchemy import (
    JSON,
    URL,
    Connection,
    DateTime,
    Dialect,
    Engine,
    TypeDecorator,
    UniqueConstraint,
    create_engine,
    event,
    func,
    insert,
    inspect,
    make_url,
    text,
    update,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError
from sqlalchemy.orm import registry
from sqlmodel import Field, SQLModel, col, select
from sqlmodel import Session as Transaction

from autoresearch.core.adapter import Outcome
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

__all__ = [
    "Claim",
    "ControlMessage",
    "Experiment",
    "FinishedExperiment",
    "FreshMeasurement",
    "Ledger",
    "LiveLook",
    "MeasurementRow",
    "ProposalRow",
    "Run",
    "Session",
    "Totals",
]

LEDGER_VERSION = "0006"
"""The newest migration; a test holds it against the folder of migrations. Versions are numbers and only rise."""

IMPORT_ADAPTER = "import"
"""Adapter of a run that was read from a file: finished, without git objects, and never gone on with."""

CONTROL_COMMANDS = ("pause", "resume", "stop", "approve", "reject", "note")

# A run and a dashboard may write at the same moment; a transaction takes about a millisecond, so half a minute of
# waiting means that somebody holds the ledger open on purpose.
_BUSY_SECONDS = 30


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC; SQLite stores no time zone, so it is converted on the way in and marked on the way out."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; a moment without a time zone could mean anything and is refused."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"The ledger stores moments with their time zone, and {value} has none.")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Mark as UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _now() -> datetime:
    return datetime.now(UTC)


def _json() -> Any:
    """Return a JSON object column that is empty by default; JSON is generic, so PostgreSQL gets its own type."""
    return Field(default_factory=dict, sa_type=JSON)


# A registry of its own: a program that imports the ledger may have tables of its own called `run` or `session`.
class _Table(SQLModel, registry=registry()):
    """Base of the ledger's tables."""


class Run(_Table, table=True):
    """A series of experiments on one artifact under one budget, with everything that was fixed when it began."""

    id: str = Field(primary_key=True)
    adapter: str
    adapter_distribution: str = ""
    adapter_version: str = ""
    metric: dict[str, Any] = _json()
    policy: str = ""
    policy_parameters: dict[str, Any] = _json()
    proposer: str = ""
    model: str = ""
    seed: int = 0
    options: dict[str, Any] = _json()
    budget_seconds: float | None = None
    device: str | None = None
    state: str = "running"  # running, paused, stopped
    stop_reason: str | None = None
    ref: str = ""
    baseline_commit: str = ""
    evaluator_fingerprint: str = ""
    noise_sd: float | None = None
    noise_dof: float | None = None
    created: datetime = Field(default_factory=_now, sa_type=UtcDateTime)
    ended: datetime | None = Field(default=None, sa_type=UtcDateTime)


class Session(_Table, table=True):
    """One process that worked on a run, from its start to its end; without an end it was killed."""

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    run_id: str = Field(foreign_key="run.id", index=True)
    started: datetime = Field(default_factory=_now, sa_type=UtcDateTime)
    ended: datetime | None = Field(default=None, sa_type=UtcDateTime)
    reason: str | None = None
    pid: int = 0
    host: str = ""
    limits: dict[str, Any] = _json()
    first_number: int = 0
    versions: dict[str, Any] = _json()


class Experiment(_Table, table=True):
    """One hypothesis, one candidate, one or more measurements, one outcome. Number 0 is the baseline.

    `outcome` is None while the experiment is in flight. `sequence` is given when it ends; it rises over the whole
    ledger, so that somebody who knows the last number they saw can ask for what came after. `effect` is positive where
    the candidate was better. `lane` is empty where the adapter offers none; `family` is the number of treatments that
    were begun together, and 0 in a lane until they are; `reach` is the share of all people who see what it brought,
    once it is kept.
    """

    __table_args__ = (UniqueConstraint("run_id", "number"), UniqueConstraint("sequence"))

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    run_id: str = Field(foreign_key="run.id")
    number: int
    session_id: int = Field(foreign_key="session.id")
    parent_number: int | None = None
    parent_commit: str = ""
    proposal_id: int | None = Field(default=None, foreign_key="proposal.id")
    hypothesis: str = ""
    category: str = ""
    origin: str = "local"
    proposer: str = ""
    fingerprint: str = ""
    candidate_commit: str | None = None
    kept_commit: str | None = None
    diff: str = ""
    outcome: str | None = None
    reason: str = ""
    value: float | None = None
    effect: float | None = None
    effect_low: float | None = None
    effect_high: float | None = None
    p_better: float | None = None
    e_win: float | None = None
    e_lose: float | None = None
    usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    timings: dict[str, Any] = _json()  # phase -> seconds
    changes: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON)
    details: dict[str, Any] = _json()
    evaluator_fingerprint: str = ""
    fingerprints: dict[str, Any] = _json()  # of what judged, before and after; core/fingerprints.py
    sandbox: str = ""
    repairs: int = 0
    log_tail: str = ""
    lane: str = ""
    family: int = 1
    reach: float = 1.0
    started: datetime = Field(default_factory=_now, sa_type=UtcDateTime)
    ended: datetime | None = Field(default=None, sa_type=UtcDateTime)
    sequence: int | None = None


class MeasurementRow(_Table, table=True):
    """One measurement of one arm. Attempts of the same look differ where a disturbed one was taken again."""

    __tablename__ = "measurement"
    __table_args__ = (UniqueConstraint("experiment_id", "arm", "repair", "look", "attempt"),)

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    experiment_id: int = Field(foreign_key="experiment.id")
    arm: str = "treatment"  # treatment, control
    repair: int = 0
    look: int = 0
    attempt: int = 0
    seed: int = 0
    split: str = "search"
    value: float
    secondary: dict[str, Any] = _json()
    curve: list[Any] = Field(default_factory=list, sa_type=JSON)  # [share of the budget, value]
    seconds: float = 0.0
    disturbed: str | None = None
    started: datetime = Field(default_factory=_now, sa_type=UtcDateTime)


class LiveLook(_Table, table=True):
    """Cumulative totals of one arm of a live test at one look: matured units only."""

    __tablename__ = "live_look"
    __table_args__ = (UniqueConstraint("experiment_id", "look", "arm"),)

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    experiment_id: int = Field(foreign_key="experiment.id")
    look: int
    arm: str  # control, treatment
    n: float
    total: float
    total_sq: float
    at: datetime = Field(default_factory=_now, sa_type=UtcDateTime)


class ProposalRow(_Table, table=True):
    """One call of the proposer, whatever came of it, with its cost."""

    __tablename__ = "proposal"
    __table_args__ = (UniqueConstraint("run_id", "number", "attempt"),)

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    run_id: str = Field(foreign_key="run.id")
    number: int
    attempt: int
    status: str = "open"  # open, accepted, refused, failed, crashed
    reason: str = ""
    log_tail: str = ""  # of a candidate that crashed
    hypothesis: str = ""
    category: str = ""
    files: dict[str, Any] = _json()  # changed path -> text, None where it was removed
    fingerprint: str = ""
    changes: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON)
    details: dict[str, Any] = _json()
    origin: str = "local"
    proposer: str = ""
    usd: float = 0.0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    model: str = ""
    lane: str = ""
    created: datetime = Field(default_factory=_now, sa_type=UtcDateTime)


class ControlMessage(_Table, table=True):
    """A word from a person or another program to a run, wherever it was sent from."""

    __tablename__ = "control"

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    run_id: str = Field(foreign_key="run.id", index=True)
    command: str
    argument: str = ""
    author: str = ""
    created: datetime = Field(default_factory=_now, sa_type=UtcDateTime)
    handled: datetime | None = Field(default=None, sa_type=UtcDateTime)


class FreshMeasurement(_Table, table=True):
    """One measurement outside every experiment, with a seed that no decision ever saw.

    It is inserted before anything is measured, so that a row on the split `holdout` is one opening of it, whatever came
    of the measurement: without a value, a failure and a disturbance it was cut off.
    """

    __tablename__ = "fresh_measurement"
    __table_args__ = (UniqueConstraint("run_id", "split", "commit", "seed", "attempt"),)

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    run_id: str = Field(foreign_key="run.id")
    split: str
    commit: str
    seed: int
    attempt: int = 0
    value: float | None = None
    seconds: float = 0.0
    disturbed: str | None = None
    failed: str | None = None
    at: datetime = Field(default_factory=_now, sa_type=UtcDateTime)


class Claim(_Table, table=True):
    """A statement to other people: one artifact is better than another, with what the holdout says of it.

    It is written down, with its share of the error rate and the effect to look for, before the holdout is opened.
    Effects are in the metric's unit and positive where better.
    """

    __table_args__ = (UniqueConstraint("run_id", "subject", "commit"),)

    id: int = Field(default=None, primary_key=True)  # None until the row is inserted
    run_id: str = Field(foreign_key="run.id")
    subject: str  # `incumbent` (against the baseline), or the number of a kept experiment (against its parent)
    number: int  # the experiment that brought `commit`
    commit: str
    against: str
    share: float  # of the error rate; all shares of a run sum to 1 at most
    alternative: float  # effect that the e-value looks for, in standard deviations of one measurement
    e_value: float | None = None
    level: float | None = None
    seeds: int = 0
    raw: float | None = None
    shrunk: float | None = None
    low: float | None = None
    high: float | None = None
    outcome: str = "open"  # open, confirmed, unconfirmed, failed
    reason: str = ""
    created: datetime = Field(default_factory=_now, sa_type=UtcDateTime)
    judged: datetime | None = Field(default=None, sa_type=UtcDateTime)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a run has done and spent.

    Attributes:
        experiments: Finished experiments without the baseline; the sum of the five outcomes.
        kept: How many were kept; and so on for the other outcomes.
        usd: Dollars of every call of the proposer, refused and failed ones included.
        tokens: Tokens of the same calls, cached ones included.
        seconds: Wall-clock seconds of all experiments, the baseline included.
        measurements: Measurements taken, disturbed ones and those of the baseline included.
    """

    experiments: int
    kept: int
    reverted: int
    inconclusive: int
    crashed: int
    invalid: int
    usd: float
    tokens: int
    seconds: float
    measurements: int


Columns = Mapping[str, Any]
"""Columns of one row by name."""


@dataclass(frozen=True, slots=True)
class FinishedExperiment:
    """An experiment that ended elsewhere, with what belongs to it: column -> value, what is left out has its default.

    Ids, and the number in the order of ending, are given when it is inserted. These are no rows, because making one
    takes most of a millisecond and a log may have tens of thousands.

    Attributes:
        experiment: It, with its outcome.
        measurements: Its measurements, in order.
        looks: What a live test showed, look by look.
        proposal: What was spent on its proposal; None where nothing was.
    """

    experiment: Columns
    measurements: Sequence[Columns] = ()
    looks: Sequence[Columns] = ()
    proposal: Columns | None = None


Row = TypeVar("Row", bound=_Table)


class Ledger:
    """An open ledger. Safe to use from several threads and processes at once.

    Every method may raise `EnvironmentNotReadyError` when the database cannot be used: disk full, file locked.
    """

    def __init__(self, engine: Engine) -> None:
        """Wrap an engine whose tables are up to date; use `open` or `connect` instead."""
        self._engine = engine
        self._reading = engine.execution_options(ledger_reads=True)
        self.is_copy = False

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open the ledger in a file; make it where there is none.

        Raises:
            UsageError: If the file is no ledger, is damaged, or was written by a newer version.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"The folder {path.parent} for the ledger cannot be made: {error.strerror}.") from error
        return cls._opened(URL.create("sqlite", database=str(path)))

    @classmethod
    @contextmanager
    def reading(cls, path: Path) -> Iterator[Ledger]:
        """Open the ledger in a file to read it, also where nothing may be written: then a copy of it is read.

        SQLite needs to write beside a ledger even to read it, and an older ledger is brought up to date first; on a
        copy both are harmless. It is made of what is there now, which suits a workspace that nobody is at work in.

        Raises:
            UsageError: If the file is no ledger, is damaged, or was written by a newer version.
            EnvironmentNotReadyError: If it cannot be read.
        """
        if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
            with cls.open(path) as ledger:
                yield ledger
            return
        with cls._copied(path) as ledger:
            yield ledger

    @classmethod
    @contextmanager
    def watching(cls, path: Path) -> Iterator[Ledger]:
        """Open the ledger in a file to read it for long while others write: nothing in or beside it is ever changed.

        What cannot be read as it is (an older format, a folder where SQLite may not write) is read in a copy as of now;
        then the ledger's `is_copy` is true, and who wants news opens it again.

        Raises:
            UsageError: If the file is no ledger, is damaged, or was written by a newer version.
            EnvironmentNotReadyError: If it cannot be read.
        """
        engine = create_engine(
            URL.create("sqlite", database=f"file:{quote(str(path))}", query={"mode": "ro", "uri": "true"})
        )
        _prepare_sqlite(engine)
        try:
            if _as_it_is(engine):
                yield cls(engine)
                return
        finally:
            engine.dispose()
        with cls._copied(path) as ledger:
            ledger.is_copy = True
            yield ledger

    @classmethod
    @contextmanager
    def _copied(cls, path: Path) -> Iterator[Ledger]:
        """Copy a ledger as it is now and open the copy."""
        with tempfile.TemporaryDirectory(prefix="autoresearch-") as folder:
            try:
                for suffix in ("", "-wal"):  # the second holds what was written last
                    source = path.with_name(path.name + suffix)
                    if source.exists():
                        shutil.copyfile(source, Path(folder) / source.name)
            except OSError as error:
                raise EnvironmentNotReadyError(
                    f"The ledger {path} cannot be read: {error.strerror}.\nIt must be a file that you may read."
                ) from error
            with cls.open(Path(folder) / path.name) as ledger:
                yield ledger

    @classmethod
    def connect(cls, url: str) -> Ledger:
        """Open the ledger in a database, named as SQLAlchemy does: `postgresql+psycopg://user@host/name`.

        Raises:
            UsageError: If the URL or its driver is unknown, or the database was written by a newer version.
        """
        try:
            return cls._opened(make_url(url))
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise UsageError(
                f"The database driver that the ledger's URL names is not installed: {error}.\n"
                "Install it (for PostgreSQL: pip install psycopg) or correct the URL."
            ) from error
        except ArgumentError as error:
            raise UsageError(f"{url!r} is no database URL.\nWrite it like postgresql+psycopg://host/name.") from error

    @classmethod
    def _opened(cls, url: URL) -> Ledger:
        engine = create_engine(url)
        if engine.dialect.name == "sqlite":
            _prepare_sqlite(engine)
        try:
            _migrate(engine)
        except (DBAPIError, sqlite3.Error) as error:
            engine.dispose()
            raise _unusable(engine, error) from error
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    def close(self) -> None:
        """Close the connections. A ledger that was closed opens them again when it is used."""
        self._engine.dispose()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Runs and sessions

    def add_run(self, row: Run) -> Run:
        """Insert a run once; a second call with the same id returns what is there."""
        return self._insert_once(row, id=row.id)

    def run(self, run_id: str) -> Run:
        """Return a run.

        Raises:
            UsageError: If there is none of that id; the message names those there are.
        """
        with self._read() as transaction:
            row = transaction.get(Run, run_id)
            if row is None:
                known = transaction.exec(select(Run.id).order_by(col(Run.created))).all()
                raise UsageError(f"There is no run {run_id!r} in this ledger; found {', '.join(known) or 'none'}.")
            return row

    def runs(self) -> list[Run]:
        """Return every run, oldest first."""
        with self._read() as transaction:
            return list(transaction.exec(_runs_in_order()))

    def latest_run(self, adapter: str | None = None) -> Run | None:
        """Return the run that began last, of one adapter where it is named; None where there is none.

        Imported runs are looked at when they are named; without a name they are meant where there is nothing else.
        """
        runs = self.runs()
        wanted = {adapter} if adapter is not None else {run.adapter for run in runs} - {IMPORT_ADAPTER}
        found = [run for run in runs if run.adapter in wanted] if wanted else runs
        return found[-1] if found else None

    def add_finished_run(self, run: Run, session: Session, finished: Sequence[FinishedExperiment]) -> bool:
        """Insert a run that ended elsewhere, whole or not at all; False, and nothing is written, where it is there.

        Ids and sequence numbers are given here.
        """
        with self._write() as transaction:
            if transaction.get(Run, run.id) is not None:
                return False
            transaction.add(run)
            transaction.flush()
            session_id = _added(transaction, session).id
            _insert(transaction, ProposalRow, [one.proposal for one in finished if one.proposal is not None])
            proposals = _ids_by_number(transaction, ProposalRow, run.id)
            last = transaction.exec(select(func.max(Experiment.sequence))).one() or 0
            experiments = []
            for place, one in enumerate(finished, start=1):
                given = {"session_id": session_id, "sequence": last + place}
                experiments.append({**one.experiment, **given, "proposal_id": proposals.get(one.experiment["number"])})
            _insert(transaction, Experiment, experiments)
            ids = _ids_by_number(transaction, Experiment, run.id)
            owned = [(one, {"experiment_id": ids[one.experiment["number"]]}) for one in finished]
            _insert(transaction, MeasurementRow, [{**row, **owner} for one, owner in owned for row in one.measurements])
            _insert(transaction, LiveLook, [{**row, **owner} for one, owner in owned for row in one.looks])
            return True

    def update_run(self, run_id: str, **fields: Any) -> Run:
        """Change columns of a run and return it."""
        return self._update(Run, run_id, fields)

    def add_session(self, row: Session) -> Session:
        """Insert a session."""
        with self._write() as transaction:
            return _added(transaction, row)

    def update_session(self, session_id: int, **fields: Any) -> Session:
        """Change columns of a session and return it."""
        return self._update(Session, session_id, fields)

    def sessions(self, run_id: str) -> list[Session]:
        """Return the sessions of a run, oldest first."""
        with self._read() as transaction:
            return list(transaction.exec(select(Session).where(Session.run_id == run_id).order_by(col(Session.id))))

    def latest_moment(self) -> datetime | None:
        """Return the latest moment that is written down of any run; None in an empty ledger."""
        columns = (Session.started, Session.ended, ProposalRow.created, MeasurementRow.started, Experiment.ended)
        with self._read() as transaction:
            found = [transaction.exec(select(func.max(col(column)))).one() for column in columns]
        return max((moment for moment in found if moment is not None), default=None)

    # Experiments

    def begin_experiment(self, row: Experiment) -> Experiment:
        """Insert an experiment once by run and number; a second call returns what is there, finished or not."""
        return self._insert_once(row, run_id=row.run_id, number=row.number)

    def experiment(self, run_id: str, number: int) -> Experiment | None:
        """Return one experiment, None where it has not begun."""
        query = select(Experiment).where(Experiment.run_id == run_id, Experiment.number == number)
        with self._read() as transaction:
            return transaction.exec(query).first()

    def experiments(self, run_id: str) -> list[Experiment]:
        """Return the experiments of a run by number, the baseline first and one in flight included."""
        query = select(Experiment).where(Experiment.run_id == run_id).order_by(col(Experiment.number))
        with self._read() as transaction:
            return list(transaction.exec(query))

    def in_flight(self, run_id: str) -> Experiment | None:
        """Return the experiment of a run that has begun and not ended, None where there is none."""
        query = select(Experiment).where(Experiment.run_id == run_id, col(Experiment.outcome).is_(None))
        with self._read() as transaction:
            return transaction.exec(query.order_by(col(Experiment.number).desc())).first()

    def unfinished(self, run_id: str) -> list[Experiment]:
        """Return the experiments of a run that have begun and not ended, by number; with lanes there are several."""
        query = select(Experiment).where(Experiment.run_id == run_id, col(Experiment.outcome).is_(None))
        with self._read() as transaction:
            return list(transaction.exec(query.order_by(col(Experiment.number))))

    def begin_test(self, experiment_ids: Sequence[int]) -> None:
        """Write down, in one UPDATE, that these treatments begin together; a second call changes nothing."""
        mine = (col(Experiment.id).in_(experiment_ids), col(Experiment.family) == 0)
        with self._write() as transaction:
            transaction.execute(update(Experiment).where(*mine).values(family=len(experiment_ids)))

    def finished_after(self, run_id: str, sequence: int) -> list[tuple[Experiment, list[MeasurementRow]]]:
        """Return the experiments of a run that finished after a sequence number, in order, with their measurements.

        A finished experiment never changes, so a reader that remembers the last sequence number needs to ask for news
        only.
        """
        query = (
            select(Experiment)
            .where(Experiment.run_id == run_id, col(Experiment.sequence) > sequence)
            .order_by(col(Experiment.sequence))
        )
        with self._read() as transaction:
            found = list(transaction.exec(query))
            measured = select(MeasurementRow).where(col(MeasurementRow.experiment_id).in_([row.id for row in found]))
            grouped: dict[int, list[MeasurementRow]] = {row.id: [] for row in found}
            for row in transaction.exec(measured.order_by(col(MeasurementRow.id))) if found else ():
                grouped[row.experiment_id].append(row)
        return [(row, grouped[row.id]) for row in found]

    def update_experiment(self, experiment_id: int, **fields: Any) -> Experiment:
        """Change columns of an experiment and return it. Its outcome is written by `finish_experiment` alone."""
        refused = {"outcome", "sequence"}.intersection(fields)
        if refused:
            raise TypeError(f"{', '.join(sorted(refused))} of an experiment is written by finish_experiment.")
        return self._update(Experiment, experiment_id, fields)

    def finish_experiment(self, experiment_id: int, **fields: Any) -> Experiment:
        """Write how an experiment ended, and its sequence number, in one UPDATE; a second call changes nothing.

        Args:
            experiment_id: Which one.
            fields: Columns to set; `outcome` must be among them, `ended` is now unless given.
        """
        outcome = Outcome(fields.pop("outcome"))
        _refuse_unknown(Experiment, {*fields, "outcome"}, never={"id", "sequence"})
        next_sequence = select(func.coalesce(func.max(Experiment.sequence), 0) + 1).scalar_subquery()
        statement = (
            update(Experiment)
            .where(col(Experiment.id) == experiment_id, col(Experiment.outcome).is_(None))
            .values(**{"ended": _now(), **fields}, outcome=outcome.value, sequence=next_sequence)
        )
        with self._write() as transaction:
            transaction.execute(statement)
            return _found(transaction, Experiment, experiment_id)

    def take_back(self, experiment_id: int, reason: str) -> Experiment:
        """Say of a kept experiment that it is kept no longer; the only change that a finished one ever sees."""
        statement = (
            update(Experiment)
            .where(col(Experiment.id) == experiment_id, col(Experiment.outcome) == Outcome.KEPT.value)
            .values(outcome=Outcome.REVERTED.value, reason=reason, kept_commit=None)
        )
        with self._write() as transaction:
            transaction.execute(statement)
            return _found(transaction, Experiment, experiment_id)

    def tried_fingerprints(self, run_id: str) -> set[str]:
        """Return the fingerprints of finished experiments, the baseline included, and of candidates that crashed."""
        finished = select(Experiment.fingerprint).where(
            Experiment.run_id == run_id, col(Experiment.outcome).is_not(None)
        )
        crashed = select(ProposalRow.fingerprint).where(ProposalRow.run_id == run_id, ProposalRow.status == "crashed")
        with self._read() as transaction:
            return {*transaction.exec(finished), *transaction.exec(crashed)} - {""}

    # Proposals

    def add_proposal(self, row: ProposalRow) -> ProposalRow:
        """Insert a proposal once by run, number and attempt; a second call returns what is there."""
        return self._insert_once(row, run_id=row.run_id, number=row.number, attempt=row.attempt)

    def proposals(self, run_id: str, number: int | None = None) -> list[ProposalRow]:
        """Return the proposals of a run, or of one experiment, in the order of number and attempt."""
        query = select(ProposalRow).where(ProposalRow.run_id == run_id)
        if number is not None:
            query = query.where(ProposalRow.number == number)
        with self._read() as transaction:
            return list(transaction.exec(query.order_by(col(ProposalRow.number), col(ProposalRow.attempt))))

    def recent_proposals(self, run_id: str, count: int) -> list[ProposalRow]:
        """Return the last `count` proposals of a run, oldest first."""
        query = select(ProposalRow).where(ProposalRow.run_id == run_id).order_by(col(ProposalRow.id).desc())
        with self._read() as transaction:
            return list(transaction.exec(query.limit(count)))[::-1]

    def update_proposal(self, proposal_id: int, **fields: Any) -> ProposalRow:
        """Change columns of a proposal and return it."""
        return self._update(ProposalRow, proposal_id, fields)

    # Measurements

    def add_measurement(self, row: MeasurementRow) -> MeasurementRow:
        """Insert a measurement once by its key; a second call returns what is there."""
        key = ("experiment_id", "arm", "repair", "look", "attempt")
        return self._insert_once(row, **{name: getattr(row, name) for name in key})

    def measurements(self, experiment_id: int) -> list[MeasurementRow]:
        """Return the measurements of an experiment in the order they were written."""
        query = select(MeasurementRow).where(MeasurementRow.experiment_id == experiment_id)
        with self._read() as transaction:
            return list(transaction.exec(query.order_by(col(MeasurementRow.id))))

    def add_live_look(self, rows: Sequence[LiveLook]) -> list[LiveLook]:
        """Insert the arms of one look together, once; ask again and the rows that are there come back."""
        with self._write() as transaction:
            key = (LiveLook.experiment_id == rows[0].experiment_id) & (LiveLook.look == rows[0].look)
            known = list(transaction.exec(select(LiveLook).where(key).order_by(col(LiveLook.id))))
            return known or [_added(transaction, row) for row in rows]

    def live_looks(self, experiment_id: int) -> list[LiveLook]:
        """Return what a live test showed, look by look."""
        query = select(LiveLook).where(LiveLook.experiment_id == experiment_id)
        with self._read() as transaction:
            return list(transaction.exec(query.order_by(col(LiveLook.look), col(LiveLook.id))))

    def live_looks_of(self, experiment_ids: Sequence[int]) -> dict[int, list[LiveLook]]:
        """Return experiment id -> what its live test showed, for those that have looks, in one question."""
        query = select(LiveLook).where(col(LiveLook.experiment_id).in_(experiment_ids))
        grouped: dict[int, list[LiveLook]] = {}
        with self._read() as transaction:
            for row in transaction.exec(query.order_by(col(LiveLook.look), col(LiveLook.id))):
                grouped.setdefault(row.experiment_id, []).append(row)
        return grouped

    def run_measurements(self, run_id: str) -> dict[int, list[MeasurementRow]]:
        """Return experiment id -> its measurements in the order they were written, for a whole run at once."""
        query = (
            select(MeasurementRow)
            .join(Experiment, col(Experiment.id) == col(MeasurementRow.experiment_id))
            .where(Experiment.run_id == run_id)
            .order_by(col(MeasurementRow.id))
        )
        grouped: dict[int, list[MeasurementRow]] = {}
        with self._read() as transaction:
            for row in transaction.exec(query):
                grouped.setdefault(row.experiment_id, []).append(row)
        return grouped

    # Fresh measurements and claims

    def add_fresh(self, row: FreshMeasurement) -> FreshMeasurement:
        """Insert a fresh measurement once by its key; a second call returns what is there."""
        key = ("run_id", "split", "commit", "seed", "attempt")
        return self._insert_once(row, **{name: getattr(row, name) for name in key})

    def update_fresh(self, row_id: int, **fields: Any) -> FreshMeasurement:
        """Change columns of a fresh measurement and return it."""
        return self._update(FreshMeasurement, row_id, fields)

    def fresh(self, run_id: str, split: str) -> list[FreshMeasurement]:
        """Return the fresh measurements of a run on one split, in the order they were begun."""
        query = select(FreshMeasurement).where(FreshMeasurement.run_id == run_id, FreshMeasurement.split == split)
        with self._read() as transaction:
            return list(transaction.exec(query.order_by(col(FreshMeasurement.id))))

    def add_claim(self, row: Claim) -> Claim:
        """Insert a claim once by run, subject and commit; a second call returns what is there."""
        return self._insert_once(row, run_id=row.run_id, subject=row.subject, commit=row.commit)

    def update_claim(self, claim_id: int, **fields: Any) -> Claim:
        """Change columns of a claim and return it."""
        return self._update(Claim, claim_id, fields)

    def claims(self, run_id: str) -> list[Claim]:
        """Return the claims of a run in the order they were written down, which is the order they are tested in."""
        with self._read() as transaction:
            return list(transaction.exec(select(Claim).where(Claim.run_id == run_id).order_by(col(Claim.id))))

    # Control

    def send(self, run_id: str, command: str, argument: str = "", author: str = "") -> ControlMessage:
        """Leave a message for a run.

        Raises:
            UsageError: If there is no such command or run.
        """
        if command not in CONTROL_COMMANDS:
            raise UsageError(f"There is no control command {command!r}; found {', '.join(CONTROL_COMMANDS)}.")
        self.run(run_id)
        with self._write() as transaction:
            row = ControlMessage(run_id=run_id, command=command, argument=argument, author=author)
            return _added(transaction, row)

    def pending(self, run_id: str) -> list[ControlMessage]:
        """Return the messages that were not handled yet, oldest first."""
        query = select(ControlMessage).where(ControlMessage.run_id == run_id, col(ControlMessage.handled).is_(None))
        with self._read() as transaction:
            return list(transaction.exec(query.order_by(col(ControlMessage.id))))

    def mark_handled(self, message_id: int) -> ControlMessage:
        """Write down that a message was obeyed."""
        return self._update(ControlMessage, message_id, {"handled": _now()})

    def notes(self, run_id: str) -> list[str]:
        """Return every note to the proposer, handled or not, oldest first."""
        query = select(ControlMessage.argument).where(ControlMessage.run_id == run_id, ControlMessage.command == "note")
        with self._read() as transaction:
            return list(transaction.exec(query.order_by(col(ControlMessage.id))))

    # Sums

    def totals(self, run_id: str, since_number: int = 0) -> Totals:
        """Return what a run has done and spent, from the experiment `since_number` on."""
        mine = (col(Experiment.run_id) == run_id, col(Experiment.number) >= since_number)
        outcomes = select(Experiment.outcome, func.count()).where(*mine, Experiment.number > 0)
        seconds = select(func.sum(Experiment.seconds)).where(*mine)
        measured = select(func.count()).select_from(MeasurementRow).join(Experiment).where(*mine)
        tokens = col(ProposalRow.tokens_in) + col(ProposalRow.tokens_cached) + col(ProposalRow.tokens_out)
        spent = select(func.sum(ProposalRow.usd), func.sum(tokens)).where(
            ProposalRow.run_id == run_id, ProposalRow.number >= since_number
        )
        with self._read() as transaction:
            rows = transaction.exec(outcomes.group_by(col(Experiment.outcome))).all()
            counts = {outcome: count for outcome, count in rows if outcome is not None}
            usd, used = transaction.exec(spent).one()
            return Totals(
                experiments=sum(counts.values()),
                **{outcome.value: counts.get(outcome.value, 0) for outcome in Outcome},
                usd=float(usd or 0),
                tokens=int(used or 0),
                seconds=float(transaction.exec(seconds).one() or 0),
                measurements=transaction.exec(measured).one(),
            )

    # Inside

    @contextmanager
    def _read(self) -> Iterator[Transaction]:
        with _translated(self._engine), Transaction(self._reading) as transaction:
            yield transaction

    @contextmanager
    def _write(self) -> Iterator[Transaction]:
        with (
            _translated(self._engine),
            Transaction(self._engine, expire_on_commit=False) as transaction,
            transaction.begin(),
        ):
            yield transaction

    def _insert_once(self, row: Row, **key: Any) -> Row:
        query = select(type(row)).filter_by(**key)
        try:
            with self._write() as transaction:
                found = transaction.exec(query).first()
                return found if found is not None else _added(transaction, row)
        except IntegrityError:
            # Somebody else inserted it between the question and the insertion, which SQLite's lock rules out but other
            # databases do not.
            with self._read() as transaction:
                found = transaction.exec(query).first()
            if found is None:
                raise
            return found

    def _update(self, table: type[Row], key: Any, fields: Mapping[str, Any]) -> Row:
        _refuse_unknown(table, fields, never={"id"})
        with self._write() as transaction:
            if fields:
                transaction.execute(update(table).where(inspect(table).primary_key[0] == key).values(**fields))
            return _found(transaction, table, key)


def _runs_in_order() -> Any:
    """Return the query for runs in the order they began: by first session, because clocks are set back at times."""
    first = func.min(Session.id)
    joined = select(Run).outerjoin(Session, col(Session.run_id) == col(Run.id)).group_by(col(Run.id))
    # A run that was killed before its first session began is the newest.
    return joined.order_by(first.asc().nulls_last(), col(Run.created), col(Run.id))


def _added(transaction: Transaction, row: Row) -> Row:
    """Insert a row and read it back, so that it holds what the database holds."""
    transaction.add(row)
    transaction.flush()
    transaction.refresh(row)
    return row


def _insert(transaction: Transaction, table: type[_Table], rows: Sequence[Columns]) -> None:
    """Insert many rows of one table at once; columns that a row leaves out have their defaults."""
    if not rows:
        return
    _refuse_unknown(table, {name for row in rows for name in row}, never={"id"})
    fields = {name: known for name, known in table.model_fields.items() if name != "id" and not known.is_required()}
    plain = {name: known.default for name, known in fields.items() if known.default_factory is None}
    made = {name: known.default_factory for name, known in fields.items() if known.default_factory is not None}
    values = [
        {**plain, **{name: factory() for name, factory in made.items() if name not in row}, **row}  # type: ignore[call-arg]
        for row in rows
    ]
    transaction.execute(insert(table), values)


def _ids_by_number(
    transaction: Transaction, table: type[Experiment] | type[ProposalRow], run_id: str
) -> dict[int, int]:
    return dict(transaction.exec(select(table.number, table.id).where(table.run_id == run_id)).all())


def _found(transaction: Transaction, table: type[Row], key: Any) -> Row:
    row = transaction.get(table, key, populate_existing=True)
    if row is None:
        raise LookupError(f"The ledger has no {inspect(table).local_table.name} with the id {key!r}.")
    return row


def _refuse_unknown(table: type[_Table], names: Sequence[str] | Mapping[str, Any] | set[str], never: set[str]) -> None:
    unknown = sorted(set(names) - (set(table.model_fields) - never))
    if unknown:
        raise TypeError(f"{table.__name__} has no field {', '.join(unknown)} that may be set.")


# ---- The database


def _prepare_sqlite(engine: Engine) -> None:
    """Make SQLite behave: readers beside one writer, waiting instead of failing, transactions that begin as writers.

    A transaction that begins by reading and then writes fails at once when another one wrote in between; beginning with
    the write lock waits instead.
    """

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver's own BEGIN comes too late: after the first SELECT
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_SECONDS * 1000}")
        if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            connection.execute("PRAGMA journal_mode = WAL")
        # With WAL, NORMAL loses at most the last commits when the power fails and never damages the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get("ledger_reads", False)
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _migrate(engine: Engine) -> None:
    """Bring the tables up to date; costs one small query when they are."""
    with engine.execution_options(ledger_reads=True).connect() as connection:
        found = _version(connection)
    if found == LEDGER_VERSION:
        return
    with engine.begin() as connection:
        # Another process may have migrated while this one waited for the lock; migrating again then does nothing.
        _upgrade(connection)


def _as_it_is(engine: Engine) -> bool:
    """Say whether a ledger can be read without a change of anything."""
    try:
        with engine.execution_options(ledger_reads=True).connect() as connection:
            return _version(connection) == LEDGER_VERSION
    except (DBAPIError, sqlite3.Error) as error:
        # SQLite wants to write beside a ledger even to read it.
        if "unable to open" in str(error) or "readonly" in str(error):
            return False
        raise _unusable(engine, error) from error


def _version(connection: Connection) -> str | None:
    """Return the version of the ledger, None for an empty database.

    Raises:
        UsageError: If the database holds something else, or a ledger that is newer than this program.
    """
    tables = inspect(connection).get_table_names()
    where = _named(connection.engine)
    if not tables:
        return None
    if "alembic_version" not in tables or "experiment" not in tables:
        raise UsageError(f"{where} is no ledger: it holds other tables ({', '.join(tables[:5])}).\nName another file.")
    version = str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())
    if version > LEDGER_VERSION:
        raise UsageError(
            f"The ledger {where} has format {version}, and this version of autoresearch knows formats up to "
            f"{LEDGER_VERSION}.\nUpdate it: pip install --upgrade autoresearch"
        )
    return version


_ALEMBIC = threading.Lock()
"""Alembic keeps what it is doing in globals: two ledgers that are opened at once would mix theirs."""


def _upgrade(connection: Connection) -> None:
    # Alembic takes 60 ms to import and is needed only when something is to be done.
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).with_name("migrations")
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ALEMBIC:
        command.upgrade(config, "head")


@contextmanager
def _translated(engine: Engine) -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise  # a broken rule of the tables is our bug or a race that the caller settles
    except DBAPIError as error:
        raise _unusable(engine, error) from error


def _named(engine: Engine) -> str:
    """Return the file of a ledger, or the database without its password."""
    url = engine.url
    if engine.dialect.name != "sqlite":
        return url.render_as_string(hide_password=True)
    name = url.database or ""
    return unquote(name.removeprefix("file:")) if url.query else name


def _unusable(engine: Engine, error: DBAPIError | sqlite3.Error) -> EnvironmentNotReadyError | UsageError:
    cause = str(error.orig if isinstance(error, DBAPIError) else error)
    where = f"The ledger {_named(engine)}"
    if "not a database" in cause or "malformed" in cause:
        return UsageError(
            f"{where} is damaged or no ledger at all: {cause}.\n"
            "Put back a copy, or move the file away to begin with an empty ledger; kept steps are in git."
        )
    if "is full" in cause:
        return EnvironmentNotReadyError(
            f"{where} cannot be written: the disk is full.\n"
            "Free some space and run the same command again; it goes on where it stopped."
        )
    if "locked" in cause:
        return EnvironmentNotReadyError(
            f"{where} has been locked by another program for {_BUSY_SECONDS} s.\n"
            "Close the program that holds it open and run the same command again."
        )
    return EnvironmentNotReadyError(f"{where} cannot be used: {cause}.\nCheck that it exists and may be written.")
