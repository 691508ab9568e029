"""Daily totals from databases: SQLite, and a real PostgreSQL server that the tests start."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoresearch.adapters.marketing.counts_sql import PASSWORD_VARIABLE, read_sql
from autoresearch.core import EnvironmentNotReadyError, UsageError

QUERY = "SELECT date, variant, exposures, conversions FROM totals WHERE test = :test ORDER BY date"
SECRET = "kv7-open-sesame"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """The address of a small SQLite database."""
    path = tmp_path / "totals.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE totals (date TEXT, variant TEXT, exposures INT, conversions INT, test TEXT)")
        connection.execute("INSERT INTO totals VALUES ('2026-03-01', 'old', 100, 5, 'hero')")
        connection.execute("INSERT INTO totals VALUES ('2026-03-01', 'new', 100, 9, 'hero')")
    connection.close()
    return f"sqlite:///{path}"


def rows(counts: object) -> list[tuple[str, str, int, float]]:
    return [(row.day.isoformat(), row.variant, row.n, row.total) for row in counts.rows]  # type: ignore[attr-defined]


def test_a_query_gives_rows(sqlite: str) -> None:
    """What the query returns are the daily totals; texts serve as dates."""
    counts = read_sql(sqlite, QUERY, parameters={"test": "hero"}, environment={})
    assert rows(counts) == [("2026-03-01", "new", 100, 9), ("2026-03-01", "old", 100, 5)]


def test_values_are_bound_and_never_pasted(sqlite: str) -> None:
    """A value that looks like SQL is a value."""
    nasty = "hero'; DELETE FROM totals; --"
    assert read_sql(sqlite, QUERY, parameters={"test": nasty}, environment={}).rows == ()
    assert len(read_sql(sqlite, QUERY, parameters={"test": "hero"}, environment={}).rows) == 2


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT a FROM nowhere", "failed: no such table"),
        (QUERY, "failed: .*parameter 'test'"),
        ("SELECT 1 AS one", "lacks the columns date, variant, exposures, conversions; it has one"),
        ("UPDATE totals SET exposures = 1", "returns no rows at all"),
        ("SELECT date, variant, 1 AS exposures, conversions FROM totals", "row 1: 5 conversions of 1 exposures"),
    ],
)
def test_queries_that_do_not_do(sqlite: str, query: str, words: str) -> None:
    """A query that fails or gives something else is refused with the reason."""
    with pytest.raises(UsageError, match=words):
        read_sql(sqlite, query, environment={})


def test_writing_leaves_no_trace(sqlite: str) -> None:
    """Whatever a query does is rolled back."""
    with pytest.raises(UsageError):
        read_sql(sqlite, "UPDATE totals SET exposures = 1", environment={})
    assert read_sql(sqlite, QUERY, parameters={"test": "hero"}, environment={}).rows[0].n == 100


def test_a_missing_sqlite_file_is_not_made(tmp_path: Path) -> None:
    """SQLite makes an empty database of any name; we do not let it."""
    with pytest.raises(UsageError, match="is missing"):
        read_sql(f"sqlite:///{tmp_path / 'none.db'}", QUERY, environment={})
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("url", [f"postgresql://me:{SECRET}@db/shop", f"postgresql://me@db/shop?password={SECRET}"])
def test_a_password_in_the_address_is_refused_and_not_repeated(url: str) -> None:
    """Passwords come from the environment; the message names the variable and not the password."""
    with pytest.raises(UsageError) as caught:
        read_sql(url, QUERY, environment={})
    assert PASSWORD_VARIABLE in str(caught.value)
    assert SECRET not in str(caught.value)


def test_what_is_no_address_is_not_repeated() -> None:
    """A text that is no URL may be a password in the wrong place."""
    with pytest.raises(UsageError, match="no SQLAlchemy URL") as caught:
        read_sql(SECRET, QUERY, environment={})
    assert SECRET not in str(caught.value)


def test_an_unknown_database_is_a_missing_driver() -> None:
    """A dialect that nobody installed says so."""
    with pytest.raises(EnvironmentNotReadyError, match="No driver for nosuchdb"):
        read_sql("nosuchdb://me@db/shop", QUERY, environment={})


# PostgreSQL itself.


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs; Debian keeps them off the path."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(shutil.which("initdb") or "/none")]
    return found[-1].parent if found[-1].is_file() else None


@pytest.fixture(scope="module")
def postgres() -> Iterator[int]:
    """The port of a running server with one table, whose user `postgres` has the password `SECRET`."""
    folder = programs()
    if folder is None:
        pytest.skip("PostgreSQL is not installed (Debian package postgresql)")
    # Not in pytest's own folder: every session that begins beside this one closes that to other users.
    with tempfile.TemporaryDirectory(prefix="postgres-") as name:
        yield from served(folder, Path(name))


def served(folder: Path, home: Path) -> Iterator[int]:
    """Run a server of the programs in `folder` in `home`, and yield its port."""
    # It refuses to run as root; then the unprivileged user that its package made runs it, in a folder that is theirs.
    user = None
    if os.geteuid() == 0:
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = "postgres" if "postgres" in names else "nobody"
        shutil.chown(home, user)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run(*command: str, text: str = "") -> None:
        subprocess.run(
            [str(folder / command[0]), *command[1:]],
            check=True, capture_output=True, user=user, cwd=home, input=text, text=True,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C", "PGPASSWORD": SECRET, "HOME": str(home)},
        )  # fmt: skip

    (home / "password").write_text(SECRET)
    if user:
        shutil.chown(home / "password", user)
    run("initdb", "-D", "data", "-U", "postgres", "--auth=scram-sha-256", "--pwfile=password", "--no-sync")
    options = f"-h 127.0.0.1 -p {port} -k {home} -c fsync=off -c shared_buffers=16MB"
    run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")
    try:
        connect = ("-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "-v", "ON_ERROR_STOP=1")
        run(
            "psql",
            *connect,
            text="""
            CREATE TABLE events (at timestamptz, variant text, exposures bigint, conversions numeric);
            INSERT INTO events VALUES
                ('2026-03-01 10:00Z', 'old', 100, 5), ('2026-03-01 11:00Z', 'old', 50, 2),
                ('2026-03-01 10:00Z', 'new', 160, 9), ('2026-03-02 10:00Z', 'new', 10, 1);
            """,
        )
        yield port
    finally:
        run("pg_ctl", "-D", "data", "-w", "-m", "immediate", "stop")


BY_DAY = """
    SELECT (at AT TIME ZONE 'UTC')::date AS date, variant, sum(exposures) AS exposures, sum(conversions) AS conversions
    FROM events WHERE at >= :since GROUP BY 1, 2
"""


def test_postgres_answers_with_its_own_types(postgres: int) -> None:
    """Dates, bigints and numerics of a real server become daily totals; `::date` is no parameter."""
    url, environment = f"postgresql://postgres@127.0.0.1:{postgres}/postgres", {PASSWORD_VARIABLE: SECRET}
    counts = read_sql(url, BY_DAY, parameters={"since": "2026-01-01"}, environment=environment)
    assert rows(counts) == [("2026-03-01", "new", 160, 9), ("2026-03-01", "old", 150, 7), ("2026-03-02", "new", 10, 1)]
    assert SECRET not in counts.source
    assert "127.0.0.1" in counts.source


def test_postgres_is_only_read(postgres: int) -> None:
    """The server itself refuses a query that writes, and the row stays."""
    url, environment = f"postgresql://postgres@127.0.0.1:{postgres}/postgres", {PASSWORD_VARIABLE: SECRET}
    with pytest.raises(UsageError, match="read-only transaction"):
        read_sql(url, "DELETE FROM events RETURNING variant", environment=environment)
    assert len(read_sql(url, BY_DAY, parameters={"since": "2026-01-01"}, environment=environment).rows) == 3


def test_an_error_that_repeats_the_password_is_shown_without_it(postgres: int) -> None:
    """Even where the server's own words hold the password, ours do not."""
    url, environment = f"postgresql://postgres@127.0.0.1:{postgres}/postgres", {PASSWORD_VARIABLE: SECRET}
    with pytest.raises(UsageError, match=r"invalid input syntax.*\*\*\*") as caught:
        read_sql(url, "SELECT CAST(CAST(:x AS text) AS integer)", parameters={"x": SECRET}, environment=environment)
    assert SECRET not in str(caught.value)


def test_postgres_refuses_a_wrong_password_without_showing_it(postgres: int) -> None:
    """A wrong password is the machine's fault, named without the password; so is a server that is not there."""
    wrong = "swordfish-41"
    with pytest.raises(EnvironmentNotReadyError, match="password authentication failed") as caught:
        read_sql(f"postgresql://postgres@127.0.0.1:{postgres}/postgres", BY_DAY, environment={PASSWORD_VARIABLE: wrong})
    assert wrong not in str(caught.value)
    assert caught.value.__cause__ is None
    with pytest.raises(EnvironmentNotReadyError, match="cannot be reached"):
        read_sql("postgresql://postgres@127.0.0.1:1/postgres", BY_DAY, environment={PASSWORD_VARIABLE: SECRET})
