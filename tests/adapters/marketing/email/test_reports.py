"""What programs send, told by structure: as Postfix, Exim, qmail, Exchange and autoresponders write it."""

from __future__ import annotations

from email import message_from_bytes
from email.message import EmailMessage

import pytest

from autoresearch.adapters.marketing.email.reports import Report, report_in


def plain(subject: str, text: str, sender: str = "kim@a.example", **headers: str) -> Report | None:
    """Return what is found in a plain message."""
    message = EmailMessage()
    message["From"], message["Subject"] = sender, subject
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    return report_in(message_from_bytes(message.as_bytes()))


@pytest.mark.parametrize(
    "subject",
    [
        "Automatic reply: Your rota", "Auto: Your rota", "Out of office: holidays",
        "Out of Office Re: Your rota", "Automatische Antwort: Ihr Plan", "Abwesenheitsnotiz",
        "AW: Abwesend bis 12.1.", "Réponse automatique : votre planning", "Absence du bureau",
        "Respuesta automática: su horario", "Fuera de la oficina", "Risposta automatica: turni",
        "Fuori ufficio", "Resposta automática: escala", "Fora do escritório", "Automatisch antwoord: rooster",
        "Afwezig", "Automatyczna odpowiedź: grafik", "Autoodpowiedź", "Otomatik Yanıt: vardiya",
        "自動応答: シフト", "自動返信", "不在通知", "Automatiskt svar", "Autosvar", "자동 응답", "自动回复: x",
        "Автоответ",
    ],
)  # fmt: skip
def test_subjects_that_programs_write(subject: str) -> None:
    """In many languages, encoded as mail encodes them."""
    assert plain(subject, "x") == Report("auto_reply")


@pytest.mark.parametrize(
    "subject",
    ["Re: Your rota in 25 minutes a week", "Automation of our rota", "Re: Out of the ordinary", "Interested!", "",
     "Absolutely", "The office in Leeds", "Ausflug"],
)  # fmt: skip
def test_subjects_that_people_write(subject: str) -> None:
    """A word that only looks like a program's is a person's."""
    assert plain(subject, "Yes please") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Auto_Submitted": "auto-replied"},
        {"Auto_Submitted": "auto-generated; type=vacation"},
        {"X_Autoreply": "yes"},
        {"X_Autorespond": "1"},
        {"Precedence": "auto_reply"},
        {"Precedence": "bulk"},
        {"Precedence": "junk"},
    ],
)
def test_headers_that_programs_set(headers: dict[str, str]) -> None:
    """RFC 3834's field, and those that came before it."""
    assert plain("Re: Your rota", "x", **headers) == Report("auto_reply")


def test_a_person_may_say_that_no_program_wrote() -> None:
    """`Auto-Submitted: no` is what RFC 3834 has people's programs write, if anything."""
    assert plain("Re: Your rota", "Yes please", Auto_Submitted="no") is None


@pytest.mark.parametrize(
    ("sender", "subject", "text", "permanent"),
    [
        ("MAILER-DAEMON@mx.example", "failure notice", "Sorry, no mailbox here by that name. (#5.1.1)", True),
        (
            "mailer-daemon@googlemail.com",
            "Delivery Status Notification (Failure)",
            "550 5.1.1 The account does not exist",
            True,
        ),
        ("postmaster@a.example", "Unzustellbar: Ihr Plan", "Der Empfänger existiert nicht.", True),
        ("postmaster@a.example", "Non remis : planning", "Boîte pleine.", False),
        ("Mailer-Daemon@a.example", "Mancato recapito", "casella piena", False),
        ("postmaster@a.example", "Onbestelbaar: rooster", "De mailbox is vol.", False),
        ("mailer-daemon@a.example", "Returned mail: see transcript", "<x@y.example>... User unknown", True),
    ],
)
def test_bounces_of_servers_that_write_no_report(sender: str, subject: str, text: str, permanent: bool) -> None:
    """Sender and words together say so; whether it is for good is in the words."""
    assert plain(subject, text, sender) == Report("bounce", permanent)


def test_a_bounce_of_exim_names_the_recipient_in_a_header() -> None:
    """X-Failed-Recipients is enough."""
    found = plain(
        "Mail delivery failed",
        "unrouteable: Unknown user",
        "Mailer-Daemon@x.example",
        X_Failed_Recipients="k@a.example",
    )
    assert found == Report("bounce", True)


def test_a_server_that_goes_on_trying_has_not_failed() -> None:
    """A warning is a delay."""
    text = "A message that you sent has not yet been delivered. Delivery attempts will continue; it is delayed."
    assert plain("Warning: message 1abc delayed 24 hours", text, "mailer-daemon@x.example") == Report("delay")


def test_a_person_who_writes_of_bounces_is_a_person() -> None:
    """The words alone are no bounce."""
    assert plain("Re: Your rota", "Your last mail was undeliverable, user unknown it said. Yes please!") is None


def test_a_postmaster_is_a_person_too() -> None:
    """The sender alone is no bounce."""
    assert plain("Re: Your rota", "Yes please, we run 40 servers and 5 cafés.", "postmaster@a.example") is None


def test_a_report_without_its_parameter_is_known_by_its_part() -> None:
    """Some servers leave report-type out."""
    raw = (
        b'From: x@y.example\r\nContent-Type: multipart/report; boundary="b"\r\n\r\n--b\r\n'
        b"Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; x\r\n\r\n"
        b"Action: failed\r\nStatus: 5.2.1\r\n--b--\r\n"
    )
    assert report_in(message_from_bytes(raw)) == Report("bounce", True)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff\xfe\x00",
        b"Content-Type: multipart/report; report-type=delivery-status\r\n\r\n",
        b"From: =?x-unknown?q?=FF?= <a@b>\r\nSubject: =?utf-8?q?=FF?=\r\n\r\nx",
    ],
)
def test_broken_messages_raise_nothing(raw: bytes) -> None:
    """Whatever lies in a mailbox must not stop the reading of the rest."""
    assert report_in(message_from_bytes(raw)) in (None, Report("receipt"))
