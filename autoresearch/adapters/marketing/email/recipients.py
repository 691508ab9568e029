"""Who may be written to: a CSV file that is read whole, and found sound whole, before the first mail.

Columns: `email`, and `first_name` if you like; others are left alone. A broken line stops everything and is named by
its number and what is wrong with it, never by the address in it: messages end up in logs.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autoresearch.adapters.marketing.email.free_mail import FREE_MAIL
from autoresearch.core import UsageError

LONGEST_NAME = 80
"""Characters of a first name; what is longer is a column in the wrong place."""

_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Recipient:
    """A line of the file.

    Attributes:
        address: With its domain in lower case and, where that is not ASCII, in the form that mail servers know.
        first_name: Empty where it is not known.
    """

    address: str
    first_name: str = ""

    @property
    def domain(self) -> str:
        """What stands after the @."""
        return self.address.rpartition("@")[2]

    def unit_name(self, assign_by: str) -> str:
        """Return what is assigned to an arm: the address, or `@` and its company's domain.

        Colleagues talk, so a company can be assigned, and then counts, as one. Who has an address at a free-mail
        provider stands for nobody else.
        """
        by_domain = assign_by == "domain" and self.domain not in FREE_MAIL
        return f"@{self.domain}" if by_domain else self.address


@dataclass(frozen=True, slots=True)
class Recipients:
    """A file that was found sound.

    Attributes:
        rows: In the order of the file.
        unused: Columns that nothing reads.
    """

    rows: tuple[Recipient, ...]
    unused: tuple[str, ...] = ()


def read_recipients(path: Path) -> Recipients:
    """Return the recipients in a CSV file, with `,` or `;` between the columns.

    Raises:
        UsageError: If anything in it is wrong; names the line.
    """
    rows = _rows(path, _text(path))
    _, header = next(rows, (1, []))
    names = [name.strip().casefold() for name in header]
    for name in ("email", "first_name"):
        if names.count(name) > 1:
            raise _broken(path, 1, f"the column {name} is there twice")
    if "email" not in names:
        raise _broken(path, 1, "there is no column named email, and the first line must name the columns")
    column = {name: index for index, name in enumerate(names)}
    found = []
    seen: dict[str, int] = {}
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(names):
            raise _broken(path, line, f"it has {len(row)} columns and the first line has {len(names)}")
        recipient = _recipient(path, line, row, column)
        first = seen.setdefault(recipient.address.casefold(), line)
        if first != line:
            raise _broken(path, line, f"it has the same address as line {first}, and nobody gets two mails")
        found.append(recipient)
    if not found:
        raise UsageError(f"{path} names no recipients.\nWrite one address a line below the header email.")
    return Recipients(tuple(found), tuple(name for name in names if name not in ("email", "first_name")))


def address_fault(address: str) -> str | None:
    """Return what is wrong with an address, without repeating it; None where it can be written to."""
    local, at, domain = address.rpartition("@")
    if not at:
        return "the address has no @"
    if not local.isascii():
        return "the part before the @ has letters that many mail servers do not know"
    if len(local) > 64 or not _LOCAL.fullmatch(local):
        return "the part before the @ is no mailbox name"
    labels = domain.split(".")
    if len(labels) < 2 or len(domain) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return "the part after the @ is no domain"
    if labels[-1].isdecimal():
        return "the part after the @ is a number and no domain"
    return None


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"The recipients in {path} cannot be read: {error.strerror}.\n"
            "Name the file in campaign.toml: [email] recipients, as a path from the campaign's folder."
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _broken(path, line, "it is not UTF-8 text; save the file as UTF-8") from error


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells); a quoted cell that spans lines has the number of its last."""
    head = text.partition("\n")[0]
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=";" if ";" in head and "," not in head else ",", strict=True
    )
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _broken(path, reader.line_num, f"it is no CSV ({error})") from error
        yield reader.line_num, row


def _recipient(path: Path, line: int, row: Sequence[str], column: dict[str, int]) -> Recipient:
    local, at, domain = row[column["email"]].strip().rpartition("@")
    try:
        domain = domain.encode("idna").decode("ascii").casefold()
    except UnicodeError as error:
        raise _broken(path, line, "the part after the @ is no domain") from error
    address = f"{local}{at}{domain}"
    fault = address_fault(address)
    if fault is not None:
        raise _broken(path, line, fault)
    name = row[column["first_name"]].strip() if "first_name" in column else ""
    if len(name) > LONGEST_NAME:
        raise _broken(path, line, f"the first name has {len(name)} characters, and {LONGEST_NAME} are allowed")
    if any(unicodedata.category(c).startswith("C") for c in name) or re.search(r"[<>@]|://", name):
        raise _broken(path, line, "the first name holds signs that no name has")
    return Recipient(address, name)


def _broken(path: Path, line: int, reason: str) -> UsageError:
    return UsageError(f"{path} line {line}: {reason}.\nCorrect that line. Nothing was sent to anybody.")
