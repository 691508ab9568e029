"""The mailbox that answers arrive in, read over IMAP and left exactly as it is: no flag, no move, no deletion."""

from __future__ import annotations

import imaplib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.header import decode_header, make_header
from email.message import Message
from typing import TYPE_CHECKING, Any

from autoresearch.adapters.marketing.email.settings import IMAP_PASSWORD, SMTP_PASSWORD, MailServer, password
from autoresearch.core import EnvironmentNotReadyError

if TYPE_CHECKING:
    from imap_tools import BaseMailBox

_CHUNK = 50
_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message in the mailbox.

    Attributes:
        uid: Its number there.
        at: When the mailbox's server took it, in seconds since 1970.
        message: The message.
    """

    uid: int
    at: float
    message: Message


class Inbox:
    """An open folder; see `opened`.

    Attributes:
        validity: Changes when the server gives its messages new numbers.
    """

    def __init__(self, box: BaseMailBox, folder: str) -> None:
        self._box = box
        self.validity = int(box.folder.status(folder)["UIDVALIDITY"])

    def arrived(self, after: int, since: float) -> Iterator[Arrived]:
        """Yield the messages with numbers above `after` that came on the day of `since` or later, in order."""
        # A day earlier, since servers compare dates in their own time zone.
        day = datetime.fromtimestamp(since, UTC) - timedelta(days=1)
        months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905
        found = self._box.uids(f"UID {after + 1}:* SINCE {day.day}-{months[day.month - 1]}-{day.year}")
        # `n:*` includes the last message even where its number is below n.
        uids = sorted(uid for uid in map(int, found) if uid > after)
        for start in range(0, len(uids), _CHUNK):
            yield from self._fetch(uids[start : start + _CHUNK])

    def _fetch(self, uids: Sequence[int]) -> Iterator[Arrived]:
        numbers = ",".join(map(str, uids))
        times = self._times(numbers)
        for mail in self._box.fetch(f"UID {numbers}", mark_seen=False):
            if mail.uid is not None:
                yield Arrived(int(mail.uid), times[int(mail.uid)], mail.obj)

    def _times(self, numbers: str) -> dict[int, float]:
        _, rows = self._box.client.uid("FETCH", numbers, "(UID INTERNALDATE)")
        times = {}
        for row in rows:
            text = row if isinstance(row, bytes) else b""
            _, found, rest = text.partition(b"UID ")
            moment = imaplib.Internaldate2tuple(text)
            if found and moment is not None:
                times[int(rest.split(maxsplit=1)[0].rstrip(b")"))] = time.mktime(moment)
        return times


@contextmanager
def opened(server: MailServer, folder: str) -> Iterator[Inbox]:
    """Log in and open a folder for reading only.

    Raises:
        EnvironmentNotReadyError: If the server cannot be reached or used; no message holds password or mail.
    """
    try:
        from imap_tools import ImapToolsError, MailboxFolderSelectError, MailboxLoginError
    except ImportError as error:
        raise EnvironmentNotReadyError(
            "Reading answers needs the package imap-tools, which is not installed.\n"
            "Install it: pip install 'autoresearch[marketing]'"
        ) from error
    secret = password(server, IMAP_PASSWORD, SMTP_PASSWORD)
    box: Any = None
    try:
        box = _connected(server)
        # LOGIN sends what IMAP cannot quote as it is; with PLAIN any sign can be in a password.
        box.login_utf8(server.username, secret, initial_folder=None)
        box.folder.set(folder, readonly=True)
        yield Inbox(box, folder)
    except (MailboxLoginError, imaplib.IMAP4.error) as error:
        if box is not None and box.client.state == "NONAUTH":
            raise EnvironmentNotReadyError(
                f"{server.host} does not accept the password of {server.username}.\n"
                f"Correct the environment variable {IMAP_PASSWORD} or [email] imap_username."
            ) from None  # a server may repeat what it was sent
        raise _broken(server, type(error).__name__) from error
    except MailboxFolderSelectError as error:
        raise EnvironmentNotReadyError(
            f"{server.host} has no folder {folder!r} for {server.username}.\nCorrect [email] imap_folder."
        ) from error
    except (ImapToolsError, OSError) as error:
        raise _broken(server, type(error).__name__) from error
    finally:
        if box is not None:
            _leave(box)


def header(message: Message, name: str) -> str:
    """Return a header as text, on one line; empty where it is missing, and as it stands where it is broken."""
    value = message.get(name)
    if value is None:
        return ""
    try:
        text = str(make_header(decode_header(value)))
    except (LookupError, UnicodeError, ValueError):
        text = str(value)
    return " ".join(text.split())


def _connected(server: MailServer) -> BaseMailBox:
    from imap_tools import MailBox, MailBoxStartTls, MailBoxUnencrypted

    if server.tls == "none":
        return MailBoxUnencrypted(server.host, server.port, _TIMEOUT)
    kind = MailBox if server.tls == "implicit" else MailBoxStartTls
    return kind(server.host, server.port, _TIMEOUT, ssl_context=server.context())


def _leave(box: Any) -> None:
    from imap_tools import ImapToolsError

    try:
        box.logout()
    except (ImapToolsError, OSError, imaplib.IMAP4.error):
        # The connection is broken already; what broke it has been raised, or everything was read.
        box.client.shutdown()


def _broken(server: MailServer, what: str) -> EnvironmentNotReadyError:
    return EnvironmentNotReadyError(
        f"Reading answers at {server.host}:{server.port} stopped: {what}.\n"
        "Run the same command again; what was read is written down and is not read twice."
    )
