"""The ledger: rows that come back as they went in, written once, by any number of writers."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import StatementError
from sqlalchemy.schema import CreateTable

from autoresearch.core import ledger as module
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.ledger import (
    LEDGER_VERSION,
    ControlMessage,
    Experiment,
    Ledger,
    MeasurementRow,
    ProposalRow,
    Run,
    Session,
    Totals,
)

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty ledger to copy; migrating one for every test would take most of their time."""
    path = tmp_path_factory.mktemp("empty") / "ledger.db"
    Ledger.open(path).close()
    return path


@pytest.fixture
def ledger(tmp_path: Path, empty: Path) -> Iterator[Ledger]:
    shutil.copy(empty, tmp_path / "ledger.db")
    with Ledger.open(tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
def session(ledger: Ledger) -> Session:
    ledger.add_run(Run(id="r1", adapter="ml", created=AT))
    return ledger.add_session(Session(run_id="r1", started=AT, pid=7, host="here"))


def begin(ledger: Ledger, session: Session, number: int, **fields) -> Experiment:
    return ledger.begin_experiment(Experiment(run_id="r1", number=number, session_id=session.id, **fields))


def test_run_comes_back_as_it_went_in(tmp_path: Path):
    """Every column of a run survives closing and opening, JSON and moments included."""
    values = {
        "id": "r1",
        "adapter": "ml",
        "metric": {"name": "val_bpb", "noise": None, "direction": "minimize"},
        "policy_parameters": {"keep": 0.8},
        "options": {"preset": "cpu"},
        "budget_seconds": 20.0,
        "noise_sd": 0.01,
        "created": AT,
    }
    with Ledger.open(tmp_path / "a" / "ledger.db") as ledger:
        ledger.add_run(Run(**values))
    with Ledger.open(tmp_path / "a" / "ledger.db") as ledger:
        run = ledger.run("r1")
    assert {name: getattr(run, name) for name in values} == values
    assert (run.device, run.ended, run.state, run.stop_reason) == (None, None, "running", None)


def test_moments_are_utc(ledger: Ledger, session: Session):
    """A moment given in another zone comes back as the same moment in UTC; one without a zone is refused."""
    there = timezone(timedelta(hours=5, minutes=30))
    updated = ledger.update_session(session.id, ended=AT.astimezone(there))
    assert updated.ended == AT
    assert updated.ended is not None
    assert updated.ended.tzinfo == UTC
    with pytest.raises(StatementError, match="has none"):
        ledger.update_session(session.id, ended=datetime(2026, 1, 1))


def test_rows_belong_to_nobody(ledger: Ledger, session: Session):
    """Changing a returned row changes nothing in the ledger."""
    run = ledger.run("r1")
    run.state = "paused"
    assert ledger.run("r1").state == "running"


def test_unknown_run_names_the_known_ones(ledger: Ledger, session: Session):
    """Asking for a run that is not there says which are."""
    with pytest.raises(UsageError, match="no run 'r9' in this ledger; found r1"):
        ledger.run("r9")


def test_latest_run(ledger: Ledger, session: Session):
    """The latest run is the one whose first session began last, whatever the clock said; of one adapter where asked."""
    ledger.add_run(Run(id="a", adapter="marketing", created=AT - timedelta(hours=1)))
    ledger.add_session(Session(run_id="a"))
    ledger.add_session(Session(run_id="r1"))
    latest = [ledger.latest_run(), ledger.latest_run("ml"), ledger.latest_run("none")]
    assert [row and row.id for row in latest] == ["a", "r1", None]
    assert [row.id for row in ledger.runs()] == ["r1", "a"]


def test_adding_a_run_twice_changes_nothing(ledger: Ledger, session: Session):
    """The second insertion of a run returns the first."""
    assert ledger.add_run(Run(id="r1", adapter="other")).adapter == "ml"


@pytest.mark.parametrize("fields", [{"stat": "paused"}, {"id": "r2"}])
def test_unknown_field_is_refused(ledger: Ledger, session: Session, fields: dict[str, str]):
    """A misspelt column, or the key, cannot be updated."""
    with pytest.raises(TypeError, match="Run has no field"):
        ledger.update_run("r1", **fields)


def test_updating_what_is_not_there_is_an_error(ledger: Ledger, session: Session):
    """An update of a missing row does not pass in silence."""
    with pytest.raises(LookupError, match="no session with the id 99"):
        ledger.update_session(99, reason="done")


def test_experiment_begins_once(ledger: Ledger, session: Session):
    """Beginning an experiment again reads back the first row, with the same id."""
    first = begin(ledger, session, 1, hypothesis="deeper")
    again = begin(ledger, session, 1, hypothesis="wider")
    assert (again.id, again.hypothesis, again.outcome) == (first.id, "deeper", None)
    assert [row.number for row in ledger.experiments("r1")] == [1]
    assert ledger.experiment("r1", 2) is None


def test_finishing_twice_changes_nothing(ledger: Ledger, session: Session):
    """The first ending stands: outcome, value, time and sequence."""
    row = begin(ledger, session, 0)
    first = ledger.finish_experiment(row.id, outcome="kept", value=2.0)
    again = ledger.finish_experiment(row.id, outcome="crashed", value=3.0)
    assert (first.outcome, first.value, first.sequence) == ("kept", 2.0, 1)
    assert again.model_dump() == first.model_dump()
    assert first.ended is not None


def test_sequence_rises_in_the_order_of_endings(ledger: Ledger, session: Session):
    """Sequence numbers follow the endings over all runs, not the beginnings."""
    rows = [begin(ledger, session, number) for number in range(3)]
    ledger.add_run(Run(id="r2", adapter="ml"))
    other = ledger.add_session(Session(run_id="r2"))
    rows.append(ledger.begin_experiment(Experiment(run_id="r2", number=0, session_id=other.id)))
    order = [rows[2], rows[3], rows[0], rows[1]]
    assert [ledger.finish_experiment(row.id, outcome="reverted").sequence for row in order] == [1, 2, 3, 4]


def test_outcome_must_be_one(ledger: Ledger, session: Session):
    """An outcome that does not exist is refused, and so is one written past `finish_experiment`."""
    row = begin(ledger, session, 1)
    with pytest.raises(ValueError, match="'won' is not a valid Outcome"):
        ledger.finish_experiment(row.id, outcome="won")
    with pytest.raises(TypeError, match="written by finish_experiment"):
        ledger.update_experiment(row.id, outcome="kept")
    with pytest.raises(TypeError, match="no field sequence"):
        ledger.finish_experiment(row.id, outcome="kept", sequence=7)


def test_measurement_is_written_once(ledger: Ledger, session: Session):
    """The same arm, repair, look and attempt is one measurement; any of them different is another."""
    experiment = begin(ledger, session, 1)
    row = MeasurementRow(experiment_id=experiment.id, value=1.5, seed=3, secondary={"mfu": 0.4}, curve=[(0.5, 2.0)])
    first = ledger.add_measurement(row)
    again = ledger.add_measurement(MeasurementRow(experiment_id=experiment.id, value=9.0))
    ledger.add_measurement(MeasurementRow(experiment_id=experiment.id, value=1.6, look=1))
    ledger.add_measurement(MeasurementRow(experiment_id=experiment.id, value=1.7, arm="control", disturbed="busy"))
    assert (again.id, again.value, again.seed) == (first.id, 1.5, 3)
    assert (first.secondary, first.curve) == ({"mfu": 0.4}, [[0.5, 2.0]])
    assert [row.value for row in ledger.measurements(experiment.id)] == [1.5, 1.6, 1.7]


def test_measurements_of_a_run_by_experiment(ledger: Ledger, session: Session):
    """All measurements of a run come grouped, and those of other runs stay out."""
    first, second = begin(ledger, session, 0), begin(ledger, session, 1)
    for experiment, value in ((first, 1.0), (second, 2.0), (first, 3.0)):
        look = len(ledger.measurements(experiment.id))
        ledger.add_measurement(MeasurementRow(experiment_id=experiment.id, value=value, look=look))
    grouped = ledger.run_measurements("r1")
    assert {key: [row.value for row in rows] for key, rows in grouped.items()} == {
        first.id: [1.0, 3.0],
        second.id: [2.0],
    }
    assert ledger.run_measurements("r2") == {}


def test_proposal_is_written_once(ledger: Ledger, session: Session):
    """A proposal is inserted once by number and attempt; a removed file is a null."""
    first = ledger.add_proposal(ProposalRow(run_id="r1", number=1, attempt=0, files={"a.py": "x", "b.py": None}))
    again = ledger.add_proposal(ProposalRow(run_id="r1", number=1, attempt=0, files={}))
    ledger.add_proposal(ProposalRow(run_id="r1", number=2, attempt=0))
    ledger.add_proposal(ProposalRow(run_id="r1", number=1, attempt=1))
    assert (again.id, again.files) == (first.id, {"a.py": "x", "b.py": None})
    assert ledger.update_proposal(first.id, status="refused", reason="no change").status == "refused"
    assert [(row.number, row.attempt) for row in ledger.proposals("r1")] == [(1, 0), (1, 1), (2, 0)]
    assert [(row.number, row.attempt) for row in ledger.proposals("r1", 2)] == [(2, 0)]


def test_tried_fingerprints(ledger: Ledger, session: Session):
    """Tried is what was finished or crashed; what is in flight or was refused is not."""
    ledger.finish_experiment(begin(ledger, session, 1, fingerprint="done").id, outcome="reverted")
    begin(ledger, session, 2, fingerprint="in flight")
    for attempt, status in enumerate(("crashed", "refused", "open")):
        ledger.add_proposal(ProposalRow(run_id="r1", number=2, attempt=attempt, status=status, fingerprint=status))
    assert ledger.tried_fingerprints("r1") == {"done", "crashed"}


def test_control_messages(ledger: Ledger, session: Session):
    """Messages wait in order until they are handled; notes stay readable afterwards."""
    sent = [
        ledger.send("r1", "note", "try depth", "me"),
        ledger.send("r1", "pause"),
        ledger.send("r1", "note", "or not"),
    ]
    assert [row.command for row in ledger.pending("r1")] == ["note", "pause", "note"]
    assert ledger.mark_handled(sent[0].id).handled is not None
    assert [row.id for row in ledger.pending("r1")] == [sent[1].id, sent[2].id]
    assert ledger.notes("r1") == ["try depth", "or not"]
    assert isinstance(sent[0], ControlMessage)


def test_wrong_control_messages_are_refused(ledger: Ledger, session: Session):
    """An unknown command or run is an error for the sender, not a message that nobody reads."""
    with pytest.raises(UsageError, match="no control command 'halt'; found pause"):
        ledger.send("r1", "halt")
    with pytest.raises(UsageError, match="no run 'r9'"):
        ledger.send("r9", "pause")
    assert ledger.pending("r1") == []


def test_totals(ledger: Ledger, session: Session):
    """Totals count outcomes without the baseline, and every call that cost something."""
    for number, outcome in enumerate(("kept", "kept", "reverted", "crashed")):
        row = begin(ledger, session, number)
        ledger.add_measurement(MeasurementRow(experiment_id=row.id, value=1.0))
        ledger.finish_experiment(row.id, outcome=outcome, seconds=10.0)
        for attempt in range(2):
            ledger.add_proposal(
                ProposalRow(
                    run_id="r1", number=number, attempt=attempt, usd=0.25, tokens_in=5, tokens_cached=2, tokens_out=1
                )
            )
    begin(ledger, session, 4)
    assert ledger.totals("r1") == Totals(3, 1, 1, 0, 1, 0, usd=2.0, tokens=64, seconds=40.0, measurements=4)
    assert ledger.totals("r1", since_number=3) == Totals(
        1, 0, 0, 0, 1, 0, usd=0.5, tokens=16, seconds=10.0, measurements=1
    )
    assert ledger.totals("r9") == Totals(0, 0, 0, 0, 0, 0, usd=0.0, tokens=0, seconds=0.0, measurements=0)


def test_concurrent_endings_get_distinct_numbers(tmp_path: Path, ledger: Ledger, session: Session):
    """Writers in several threads with connections of their own wait for one another."""
    rows = [begin(ledger, session, number) for number in range(12)]

    def finish(part: list[Experiment]) -> None:
        with Ledger.open(tmp_path / "ledger.db") as other:
            for row in part:
                other.finish_experiment(row.id, outcome="reverted")

    threads = [threading.Thread(target=finish, args=(rows[n::3],)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row.sequence or 0 for row in ledger.experiments("r1")) == list(range(1, 13))


def test_concurrent_beginnings_are_one_row(tmp_path: Path, ledger: Ledger, session: Session):
    """Writers that ask first and write then, at the same moment, wait instead of failing, and agree on one row."""
    ids: list[list[int]] = []

    def work() -> None:
        with Ledger.open(tmp_path / "ledger.db") as other:
            ids.append([begin(other, session, number).id for number in range(30)])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 3
    assert ids[0] == ids[1] == ids[2]


def test_ledger_is_made_once_by_concurrent_openers(tmp_path: Path):
    """Several processes that open a new ledger at once make one set of tables."""
    path = tmp_path / "ledger.db"
    code = f"""
from pathlib import Path
from autoresearch.core.ledger import Ledger
Ledger.open(Path({str(path)!r})).runs()
"""
    openers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [opener.wait(60) for opener in openers] == [0, 0]


def test_killed_writer_leaves_a_whole_ledger(tmp_path: Path, ledger: Ledger, session: Session):
    """SIGKILL in the middle of writing loses nothing that was committed and breaks nothing."""
    code = f"""
from pathlib import Path
from autoresearch.core.ledger import Experiment, Ledger
ledger = Ledger.open(Path({str(tmp_path / "ledger.db")!r}))
for number in range(100_000):
    ledger.begin_experiment(Experiment(run_id="r1", number=number, session_id={session.id}))
    print(number, flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer.stdout:
        told = [int(writer.stdout.readline()) for _ in range(20)]
        writer.kill()
        told += [int(line) for line in writer.stdout if line.endswith("\n")]
    writer.wait()
    numbers = [row.number for row in ledger.experiments("r1")]
    assert numbers == list(range(len(numbers)))
    assert set(told) <= set(numbers)
    check = sqlite3.connect(tmp_path / "ledger.db")
    assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    check.close()


def test_sqlite_is_set_up(tmp_path: Path, ledger: Ledger):
    """Readers and one writer at a time: write-ahead log, normal synchronisation, waiting, foreign keys."""
    with ledger._engine.connect() as connection:
        names = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        found = [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names]
    assert found == ["wal", 1, 30_000, 1]


def test_reader_does_not_wait_for_a_writer(tmp_path: Path, ledger: Ledger, session: Session):
    """While another program holds the write lock the ledger can be read."""
    writer = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    assert ledger.run("r1").id == "r1"
    writer.execute("ROLLBACK")
    writer.close()


def test_locked_ledger_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A ledger that somebody holds for too long stops the run with a sentence."""
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        holder = sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(EnvironmentNotReadyError, match="locked by another program"):
            ledger.add_run(Run(id="r1", adapter="ml"))
        holder.close()


def test_full_disk_is_the_machines_fault(ledger: Ledger, session: Session):
    """A ledger that cannot grow stops the run with a sentence, and what was written stays."""
    with ledger._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(EnvironmentNotReadyError, match="the disk is full"):
        ledger.send("r1", "note", "x" * 100_000)
    assert ledger.run("r1").id == "r1"


def test_tables_can_be_made_on_postgresql():
    """Every table has a form that PostgreSQL understands."""
    made = [str(CreateTable(table).compile(dialect=postgresql.dialect())) for table in Run.metadata.sorted_tables]
    assert len(made) == 9
    assert sum("TIMESTAMP WITH TIME ZONE" in statement for statement in made) == 9


# Versions


def folder_of_migrations() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(Path(module.__file__).with_name("migrations")))
    return ScriptDirectory.from_config(config)


def test_version_is_the_newest_migration():
    """The constant that makes opening fast names the head of the migrations."""
    assert folder_of_migrations().get_current_head() == LEDGER_VERSION


def test_migrations_make_the_declared_tables(ledger: Ledger):
    """The tables after all migrations are those of the classes, column for column."""
    with ledger._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Run.metadata) == []


def test_up_to_date_ledger_needs_no_alembic(tmp_path: Path):
    """Opening a ledger that is up to date does not import the migration machinery."""
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    code = f"""
import sys
from pathlib import Path
from autoresearch.core.ledger import Ledger
Ledger.open(Path({str(path)!r})).close()
sys.exit("alembic" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_newer_ledger_is_refused(tmp_path: Path):
    """A ledger of a later version is refused, and the message names both versions."""
    path = tmp_path / "ledger.db"
    Ledger.open(path).close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
    connection.close()
    with pytest.raises(UsageError, match=f"format 0099, and this version .* up to {LEDGER_VERSION}"):
        Ledger.open(path)


def test_half_a_migration_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A migration that fails leaves an empty file, and the next opening makes all tables."""
    from alembic import op

    path = tmp_path / "ledger.db"
    make = op.create_index

    def fail(name: str, *arguments: object) -> None:
        raise KeyError(name)

    monkeypatch.setattr(op, "create_index", fail)
    with pytest.raises(KeyError, match="ix_session_run_id"):
        Ledger.open(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    connection.close()
    monkeypatch.setattr(op, "create_index", make)
    with Ledger.open(path) as ledger:
        assert ledger.runs() == []


# Files that are no ledgers


def test_broken_file_is_named(tmp_path: Path):
    """A file that is no database is reported with its path, without a trace of SQL."""
    path = tmp_path / "ledger.db"
    path.write_bytes(b"this is no database, but it is long enough to look at" * 100)
    with pytest.raises(UsageError, match=r"ledger\.db is damaged or no ledger at all: file is not a database"):
        Ledger.open(path)


def test_damaged_file_is_named(tmp_path: Path):
    """A ledger with overwritten pages is reported as damaged."""
    path = tmp_path / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.add_run(Run(id="r1", adapter="ml"))
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 20_000)
    with pytest.raises(UsageError, match="damaged"), Ledger.open(path) as ledger:
        ledger.runs()


def test_foreign_database_is_refused(tmp_path: Path):
    """Another program's database is not migrated."""
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (id INTEGER)")
    connection.close()
    with pytest.raises(UsageError, match=r"other\.db is no ledger: it holds other tables \(recipes\)"):
        Ledger.open(path)


def test_folder_instead_of_a_file(tmp_path: Path):
    """A folder at the ledger's place gives a sentence."""
    with pytest.raises(EnvironmentNotReadyError, match="cannot be used: unable to open database file"):
        Ledger.open(tmp_path)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [("nonsense", "is no database URL"), ("nosuch://host/name", "driver that the ledger's URL names is not installed")],
)
def test_wrong_url_is_named(url: str, sentence: str):
    """A URL that cannot be used says why."""
    with pytest.raises(UsageError, match=sentence):
        Ledger.connect(url)


def test_connect_by_url(tmp_path: Path):
    """A ledger can be named by URL."""
    with Ledger.connect(f"sqlite:///{tmp_path / 'by url.db'}") as ledger:
        assert ledger.runs() == []


def test_odd_path(tmp_path: Path):
    """Spaces, umlauts, percent and question marks in a path are only letters."""
    path = tmp_path / "100 % ü?mode=ro" / "ledger.db"
    with Ledger.open(path) as ledger:
        ledger.add_run(Run(id="r1", adapter="ml"))
    assert path.is_file()


def test_other_tables_of_the_same_name_do_not_collide():
    """A program with a table called `run` of its own may import the ledger."""
    from sqlmodel import SQLModel

    assert "run" not in SQLModel.metadata.tables


def test_ledgers_may_be_made_at_once(tmp_path: Path) -> None:
    """Threads that open ledgers of their own at the same moment do not meet in what brings them up to date."""
    paths = [tmp_path / f"{number}.db" for number in range(8)]
    together = threading.Barrier(len(paths))

    def make(path: Path) -> int:
        together.wait(30.0)
        with Ledger.open(path) as ledger:
            return len(ledger.runs())

    with ThreadPoolExecutor(len(paths)) as pool:
        assert list(pool.map(make, paths)) == [0] * len(paths)
