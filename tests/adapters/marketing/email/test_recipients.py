"""The recipients' file is found sound whole before anybody is written to."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.adapters.marketing.email.recipients import Recipient, address_fault, read_recipients
from autoresearch.core import UsageError


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "recipients.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """Order and case of the columns do not matter; others are told and left alone; empty lines are no recipients."""
    found = read_recipients(
        write(tmp_path, "City,First_Name,EMAIL\nBonn,Kim,kim@a.example\n\nRom, Ada ,ada@B.example\n")
    )
    assert found.rows == (Recipient("kim@a.example", "Kim"), Recipient("ada@b.example", "Ada"))
    assert found.unused == ("city",)


def test_a_spreadsheet_in_europe_writes_semicolons(tmp_path: Path) -> None:
    """A byte-order mark, semicolons and CRLF are what spreadsheets make of CSV."""
    found = read_recipients(write(tmp_path, "\ufeffemail;first_name\r\nkim@a.example;Kim\r\n".encode()))
    assert found.rows == (Recipient("kim@a.example", "Kim"),)


def test_a_domain_with_umlauts_gets_the_form_that_servers_know(tmp_path: Path) -> None:
    """Domains are written in IDNA."""
    assert read_recipients(write(tmp_path, "email\nk@bücher.example\n")).rows[0].domain == "xn--bcher-kva.example"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("secret.person.a.example,", "no @"),
        ("secret person@a.example,", "before the @"),
        ("secret..person@a.example,", "before the @"),
        (".secret@a.example,", "before the @"),
        ("sécret@a.example,", "letters that many"),
        (f"{'s' * 65}@a.example,", "before the @"),
        ("secret@localhost,", "no domain"),
        ("secret@-a.example,", "no domain"),
        ("secret@a..example,", "no domain"),
        ("secret@127.0.0.1,", "a number"),
        ('"secret@a.example\r\nBcc: all@a.example",', "before the @|no domain"),
        ("secret@a.example", "1 columns"),
        ("secret@a.example,Kim,Bonn", "3 columns"),
        ("secret@a.example,http://spam.example", "first name"),
        ("secret@a.example,Kim <b>", "first name"),
        ('secret@a.example,"Kim\nBcc: x"', "first name"),
        (f"secret@a.example,{'K' * 81}", "81 characters"),
        ('secret@a.example,"Kim', "no CSV"),
        ("FIRST@one.example,", "same address as line 2"),
        (",Kim", "no @"),
    ],
)
def test_a_broken_line_is_named_without_its_address(tmp_path: Path, line: str, reason: str) -> None:
    """The message has the number of the line and what is wrong with it, and no part of the address."""
    path = write(tmp_path, f"email,first_name\nfirst@one.example,Ada\n{line}\n")
    with pytest.raises(UsageError, match=rf"line [34]: .*({reason})") as caught:
        read_recipients(path)
    assert "secret" not in str(caught.value)
    assert "Nothing was sent" in str(caught.value)


def test_bytes_that_are_no_text_are_found_by_line(tmp_path: Path) -> None:
    """A file in another encoding is refused at its first such byte."""
    with pytest.raises(UsageError, match="line 3: it is not UTF-8"):
        read_recipients(write(tmp_path, b"email,first_name\na@a.example,Ada\nb@b.example,J\xfcrgen\n"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no column named email"),
        ("address\nkim@a.example\n", "no column named email"),
        ("email,email\nkim@a.example,x\n", "there twice"),
        ("email\n", "names no recipients"),
    ],
)
def test_a_file_without_recipients(tmp_path: Path, text: str, reason: str) -> None:
    """A file that names nobody says what it should hold."""
    with pytest.raises(UsageError, match=reason):
        read_recipients(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The message names the key that holds its path."""
    with pytest.raises(UsageError, match=r"\[email\] recipients"):
        read_recipients(tmp_path / "none.csv")


def test_companies_are_assigned_as_one_and_free_mail_is_not() -> None:
    """By domain, two colleagues are one unit, and two people at a free-mail provider are two."""
    kim, ada = Recipient("kim@a.example"), Recipient("ada@a.example")
    assert kim.unit_name("domain") == ada.unit_name("domain") == "@a.example"
    assert kim.unit_name("address") != ada.unit_name("address")
    assert Recipient("kim@gmail.com").unit_name("domain") == "kim@gmail.com"


@pytest.mark.parametrize("address", ["a@b.example", "o'neil+x@b-c.example", "a.b@sub.b.example", "1@1a.example"])
def test_ordinary_addresses_have_no_fault(address: str) -> None:
    """What occurs in real lists is taken."""
    assert address_fault(address) is None
