"""What was sent and what came back: an SQLite file beside the suppression list, shared by all campaigns.

No address is in it. A person is the salted hash that the suppression list knows too; a mail is the token that its
Message-ID begins with.

A mail's row is committed as `sending` before its text goes out and becomes `sent` once the server has taken it. Nobody
can tell whether a mail whose row was left at `sending` arrived, so it is reported as unknown and never sent again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from autoresearch.core import EnvironmentNotReadyError

NOT_UNDERSTOOD = "rules, not understood"
"""Who judged an answer that no rule knows a word of."""

_NAME = "mail.db"
_VERSION = 1
_SCHEMA = """
CREATE TABLE mails (
    token TEXT PRIMARY KEY,       -- first part of the Message-ID
    campaign TEXT NOT NULL,       -- hash of the campaign's salt
    test TEXT NOT NULL,
    arm TEXT NOT NULL,
    unit TEXT NOT NULL,           -- as in the event log, 16 hexadecimal digits
    unit_name TEXT NOT NULL,      -- whom the mail was assigned as: salted hash of the address or of the domain
    address TEXT NOT NULL,        -- salted hash
    mailbox TEXT NOT NULL,        -- salted hash of the sending mailbox
    state TEXT NOT NULL,          -- sending, sent, refused (the address), rejected (the mail)
    at REAL NOT NULL,             -- seconds since 1970
    UNIQUE (campaign, test, address)
);
CREATE INDEX mails_by_address ON mails (address, at);
CREATE INDEX mails_by_time ON mails (at);
CREATE TABLE replies (
    id TEXT PRIMARY KEY,          -- hash of the Message-ID
    token TEXT,                   -- the mail that it answers
    kind TEXT NOT NULL,
    judge TEXT NOT NULL,          -- what said so: structure, words, rules (see NOT_UNDERSTOOD), or the model's name
    at REAL NOT NULL
);
CREATE TABLE clicks (            -- visits of links, see clicks.py
    token TEXT NOT NULL,
    link TEXT NOT NULL,
    at REAL NOT NULL,
    dropped INTEGER NOT NULL      -- number of the rule that says that no person made it
);
CREATE INDEX clicks_by_token ON clicks (token);
CREATE TABLE folders (
    name TEXT PRIMARY KEY,        -- hash of server, user and folder
    validity INTEGER NOT NULL,
    uid INTEGER NOT NULL          -- everything up to here was read
);
"""


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail. Fields as the columns above."""

    token: str
    campaign: str
    test: str
    arm: str
    unit: str
    unit_name: str
    address: str
    mailbox: str
    state: str
    at: float


class Journal:
    """The file, open.

    Args:
        folder: Folder of the suppression list.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
            # Autocommit: a transaction is what `_writing` says it is.
            self._db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode = WAL")
            # With FULL a committed row outlives a power cut, and with it the promise that nobody is mailed twice.
            self._db.execute("PRAGMA synchronous = FULL")
            self._make()
        except (OSError, sqlite3.Error) as error:
            raise self._fault(error) from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # Sending

    def begin(self, mail: Mail) -> bool:
        """Commit that a mail is about to go out; False where this test has a row for the address already."""
        with self._writing():
            done = self._db.execute(
                "INSERT INTO mails VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (
                    mail.token, mail.campaign, mail.test, mail.arm, mail.unit, mail.unit_name, mail.address,
                    mail.mailbox, mail.state, mail.at,
                ),
            )  # fmt: skip
        return done.rowcount == 1

    def settle(self, token: str, state: str) -> None:
        """Commit what became of a mail."""
        with self._writing():
            self._db.execute("UPDATE mails SET state = ? WHERE token = ?", (state, token))

    def withdraw(self, token: str) -> None:
        """Take a row back whose mail the server did not take and may take later."""
        with self._writing():
            self._db.execute("DELETE FROM mails WHERE token = ? AND state = 'sending'", (token,))

    def last_mails(self, campaign: str) -> Mapping[str, float]:
        """Return when each address was last written to by a campaign, whatever came of it."""
        rows = self._db.execute("SELECT address, max(at) FROM mails WHERE campaign = ? GROUP BY address", (campaign,))
        return dict(rows)

    def addressed(self, campaign: str, test: str) -> frozenset[str]:
        """Return the addresses that have a row in a test."""
        rows = self._db.execute("SELECT address FROM mails WHERE campaign = ? AND test = ?", (campaign, test))
        return frozenset(row[0] for row in rows)

    def taken(self, campaign: str, test: str) -> Mapping[str, int]:
        """Return how many people of each arm of a test have had their mail, or may have had it."""
        rows = self._db.execute(
            "SELECT arm, count(*) FROM mails WHERE campaign = ? AND test = ? AND state IN ('sending', 'sent') "
            "GROUP BY arm",
            (campaign, test),
        )
        return dict(rows)

    def n_since(self, at: float, *, campaign: str | None = None, mailbox: str | None = None) -> int:
        """Return how many mails went out since a moment, from a campaign or from a mailbox; unknown ones included."""
        column, value = ("campaign", campaign) if campaign is not None else ("mailbox", mailbox)
        row = self._db.execute(
            f"SELECT count(*) FROM mails WHERE at > ? AND {column} = ? AND state IN ('sending', 'sent', 'rejected')",
            (at, value),
        ).fetchone()
        return int(row[0])

    def states(self, campaign: str, test: str) -> Mapping[str, int]:
        """Return how many mails of a test are in which state."""
        rows = self._db.execute(
            "SELECT state, count(*) FROM mails WHERE campaign = ? AND test = ? GROUP BY state", (campaign, test)
        )
        return dict(rows)

    # Replies

    def first_mail(self, campaign: str) -> float | None:
        """Return when a campaign's first mail went out; None before."""
        row = self._db.execute("SELECT min(at) FROM mails WHERE campaign = ?", (campaign,)).fetchone()
        return None if row[0] is None else float(row[0])

    def find(self, token: str) -> Mail | None:
        """Return the mail of a token."""
        row = self._db.execute("SELECT * FROM mails WHERE token = ?", (token,)).fetchone()
        return None if row is None else Mail(*row)

    def last_to(self, address: str) -> Mail | None:
        """Return the latest mail to an address, of any campaign."""
        row = self._db.execute(
            "SELECT * FROM mails WHERE address = ? ORDER BY at DESC, token LIMIT 1", (address,)
        ).fetchone()
        return None if row is None else Mail(*row)

    def knows_reply(self, reply: str) -> bool:
        """Say whether a reply was taken in before."""
        return self._db.execute("SELECT 1 FROM replies WHERE id = ?", (reply,)).fetchone() is not None

    def add_reply(self, reply: str, token: str | None, kind: str, judge: str, at: float) -> None:
        """Commit what a reply was. Idempotent."""
        with self._writing():
            self._db.execute(
                "INSERT INTO replies VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", (reply, token, kind, judge, at)
            )

    def reply_kinds(self, campaign: str) -> Mapping[str, int]:
        """Return how many replies of each kind a campaign has had."""
        rows = self._db.execute(
            "SELECT kind, count(*) FROM replies JOIN mails USING (token) WHERE campaign = ? GROUP BY kind", (campaign,)
        )
        return dict(rows)

    def add_click(self, token: str, link: str, at: float, dropped: int, *, most: int) -> None:
        """Commit a visit of a mail's link, unless that has `most` already."""
        with self._writing():
            self._db.execute(
                "INSERT INTO clicks SELECT ?, ?, ?, ? "
                "WHERE (SELECT count(*) FROM clicks WHERE token = ? AND link = ?) < ?",
                (token, link, at, dropped, token, link, most),
            )

    def clicks(
        self, campaign: str, before: float, links: tuple[str, str]
    ) -> list[tuple[str, str, float, str, float, int]]:
        """Return (token, unit, sent, link, at, dropped) of the visits of two links.

        Left out are mails of which one of the two was visited after `before`.
        """
        return self._db.execute(
            "SELECT token, unit, mails.at, link, clicks.at, dropped FROM clicks JOIN mails USING (token) "
            "WHERE campaign = ? AND link IN (?, ?) "
            "AND token NOT IN (SELECT token FROM clicks WHERE at > ? AND link IN (?, ?)) ORDER BY token, clicks.at",
            (campaign, *links, before, *links),
        ).fetchall()

    def n_visited(self, campaign: str, link: str) -> int:
        """Return of how many mails a link was visited, by whomever."""
        query = "SELECT count(DISTINCT token) FROM clicks JOIN mails USING (token) WHERE campaign = ? AND link = ?"
        return int(self._db.execute(query, (campaign, link)).fetchone()[0])

    def declined(self, campaign: str) -> frozenset[str]:
        """Return the addresses that are left alone for what they answered.

        Those who said no to this campaign, and those whose answer to any campaign nobody understood: some of them asked
        to be left alone.
        """
        rows = self._db.execute(
            "SELECT address FROM replies JOIN mails USING (token) "
            "WHERE judge = ? OR (campaign = ? AND kind = 'negative')",
            (NOT_UNDERSTOOD, campaign),
        )
        return frozenset(row[0] for row in rows)

    def read_to(self, folder: str) -> tuple[int, int]:
        """Return (validity, last message read) of an IMAP folder; (0, 0) before the first reading."""
        row = self._db.execute("SELECT validity, uid FROM folders WHERE name = ?", (folder,)).fetchone()
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def set_read_to(self, folder: str, validity: int, uid: int) -> None:
        """Commit how far an IMAP folder was read."""
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO folders VALUES (?, ?, ?)", (folder, validity, uid))

    def forget(self, address: str) -> int:
        """Erase everything about an address, in every campaign, and return how many rows that were.

        The address must be on the suppression list: without a row here only that keeps it from being written to again.
        """
        with self._writing():
            mine = "SELECT token FROM mails WHERE address = ?"
            n = self._db.execute(f"DELETE FROM replies WHERE token IN ({mine})", (address,)).rowcount
            n += self._db.execute(f"DELETE FROM clicks WHERE token IN ({mine})", (address,)).rowcount
            n += self._db.execute("DELETE FROM mails WHERE address = ?", (address,)).rowcount
        # What is deleted stays in the pages of the file until they are written again.
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return n

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction, on the disk when it ends."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._fault(error) from error

    def _make(self) -> None:
        with self._writing():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {_VERSION}")
        if version not in (0, _VERSION):
            raise EnvironmentNotReadyError(
                f"{self.path} was written by another version of autoresearch (format {version}).\n"
                "Use the version that wrote it: without this record somebody could be mailed twice."
            )

    def _fault(self, error: Exception) -> EnvironmentNotReadyError:
        return EnvironmentNotReadyError(
            f"The record of what was sent, {self.path}, cannot be used: {error}.\n"
            "Nothing may be sent without it. Free some space, or make the file writable."
        )
