"""Daily totals by a query to any database that SQLAlchemy speaks to; PostgreSQL's driver is in the extra."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autoresearch.adapters.marketing.counts import Counts, numbered_counts
from autoresearch.core import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine import Connection, Engine

PASSWORD_VARIABLE = "AUTORESEARCH_COUNTS_PASSWORD"
"""Environment variable with the database's password, where a campaign names no other."""

Hide = Callable[[object], str]
"""Writes an error down in one line, without the password."""


def read_sql(
    url: str,
    query: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    password_variable: str = PASSWORD_VARIABLE,
    randomised: bool | None = None,
    environment: Mapping[str, str] | None = None,
) -> Counts:
    """Read daily totals by a query to a database.

    The query is sent as it stands and values travel as bound parameters; nothing is ever pasted into it. The
    transaction is read-only where the database can do that, and rolled back everywhere.

    Args:
        url: Of SQLAlchemy, e.g. `postgresql://reader@db.example/shop`, without a password.
        query: Returns the columns of a daily total.
        parameters: Values of `:name` in the query.
        password_variable: Environment variable with the password; need not be set where none is needed.
        randomised: Whether chance decided who sees what; None: yes.
        environment: In place of the process's own.

    Raises:
        UsageError: If the URL is none or has a password in it, the query fails, lacks columns or gives impossible rows.
        EnvironmentNotReadyError: If the driver is not installed, or the database cannot be reached.
    """
    address = _address(url, password_variable, os.environ if environment is None else environment)
    source = address.set(password=None).render_as_string()
    hide = _hiding(address.password)
    with _connection(address, source, hide) as connection:
        header, raw = _query(connection, query, dict(parameters or {}), source, hide)
    return numbered_counts(header, raw, source, randomised=randomised)


def _address(url: str, variable: str, environment: Mapping[str, str]) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        address = make_url(url)
    except ArgumentError as error:
        # The text is not repeated: it may hold a password in an unexpected place.
        raise UsageError(
            "The database's address is no SQLAlchemy URL.\nWrite it like postgresql://reader@db.example/shop"
        ) from error
    if address.password is not None or any("pass" in name.casefold() or name == "pwd" for name in address.query):
        raise UsageError(
            "The database's address has a password in it, and files are copied and shared.\n"
            f"Take it out and set the environment variable {variable}."
        )
    if address.drivername in ("postgresql", "postgres"):
        address = address.set(drivername="postgresql+psycopg")
    password = environment.get(variable)
    return address.set(password=password) if password else address


def _hiding(password: object) -> Hide:
    """Return a function that writes an error down in one line, without the password wherever a driver repeats it."""
    secret = str(password) if password else ""

    def hide(error: object) -> str:
        text = " ".join(str(error).split())
        return text.replace(secret, "***") if secret else text

    return hide


@contextmanager
def _connection(address: URL, source: str, hide: Hide) -> Iterator[Connection]:
    """Open a connection whose transaction is rolled back at the end."""
    from sqlalchemy.exc import DBAPIError

    engine = _engine(address)
    options = {"postgresql_readonly": True} if engine.dialect.name == "postgresql" else {}
    try:
        connection = engine.connect().execution_options(**options)
    except DBAPIError as error:
        # Not from the error: its text may show what the driver connected with.
        raise EnvironmentNotReadyError(
            f"{source} cannot be reached: {hide(error.orig)}.\n"
            "Start the database, or correct address, user or password, then go on."
        ) from None
    try:
        yield connection
    finally:
        connection.rollback()
        connection.close()


def _engine(address: URL) -> Engine:
    from sqlalchemy import create_engine
    from sqlalchemy.exc import NoSuchModuleError
    from sqlalchemy.pool import NullPool

    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        # SQLite would make an empty database of that name.
        raise UsageError(f"{address.database or 'The SQLite database'} is missing.\nName the file with the totals.")
    try:
        # A server whose own encoding is none (SQL_ASCII) would otherwise send bytes instead of text.
        arguments = {"client_encoding": "utf8"} if address.drivername == "postgresql+psycopg" else {}
        return create_engine(address, poolclass=NullPool, connect_args=arguments)
    except (ImportError, NoSuchModuleError) as error:
        raise EnvironmentNotReadyError(
            f"No driver for {address.drivername} is installed.\n"
            "PostgreSQL's comes with pip install 'autoresearch[marketing]'; for others install theirs beside it."
        ) from error


def _query(
    connection: Connection, query: str, parameters: dict[str, Any], source: str, hide: Hide
) -> tuple[list[str], list[Sequence[Any]]]:
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    try:
        result = connection.execute(text(query), parameters)
        if not result.returns_rows:
            raise UsageError(f"The query to {source} returns no rows at all.\nIt must be a SELECT of daily totals.")
        return list(result.keys()), [tuple(row) for row in result]
    except SQLAlchemyError as error:
        reason = hide(getattr(error, "orig", None) or error)
        raise UsageError(f"The query to {source} failed: {reason}.\nCorrect the query.") from None
