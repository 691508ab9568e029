"""Messages as mail programs and servers make them."""

from __future__ import annotations

from email.message import EmailMessage
from email.policy import SMTP
from email.utils import make_msgid


def reply(
    to: EmailMessage, text: str, *, sender: str = "Kim <kim@a.example>", subject: str = "", html: bool = False,
    message_id: str = "", thread: bool = True, **headers: str,
) -> bytes:  # fmt: skip
    """Return a person's answer to a mail."""
    answer = EmailMessage(policy=SMTP)
    answer["From"] = sender
    answer["To"] = to["From"]
    answer["Subject"] = subject or f"Re: {to['Subject']}"
    answer["Message-ID"] = message_id or make_msgid(domain="a.example")
    if thread:
        answer["In-Reply-To"] = str(to["Message-ID"]).strip()
        answer["References"] = str(to["Message-ID"]).strip()
    for name, value in headers.items():
        answer[name.replace("_", "-")] = value
    answer.set_content(text, subtype="html" if html else "plain", cte="quoted-printable")
    return answer.as_bytes()


def quoted(to: EmailMessage, text: str) -> str:
    """Return a text above the mail that it answers, as most programs put it."""
    part = to.get_body(("plain",))
    assert part is not None
    below = "\n".join(f"> {line}" for line in part.get_content().splitlines())
    return f"{text}\n\nOn Mon, 30 Nov 2026 at 10:00, Mara Lindqvist <mara@example.com> wrote:\n{below}\n"


def report(kind: str, fields: str, original: EmailMessage, *, sender: str, subject: str, whole: bool = True) -> bytes:
    """Return a multipart/report of three parts: words, fields, and the mail it is about."""
    head = str(original.as_bytes(policy=SMTP).decode("ascii", "replace"))
    if not whole:
        head = head.partition("\r\n\r\n")[0] + "\r\n"
    last = "message/rfc822" if whole else "text/rfc822-headers"
    return (
        f"From: {sender}\r\nTo: mara@example.com\r\nSubject: {subject}\r\n"
        f"Message-ID: {make_msgid(domain='mx.a.example')}\r\nMIME-Version: 1.0\r\n"
        f'Content-Type: multipart/report; report-type={kind}; boundary="=_b"\r\n\r\n'
        "--=_b\r\nContent-Type: text/plain\r\n\r\nThis is a report about a message.\r\n\r\n"
        f"--=_b\r\nContent-Type: message/{kind}\r\n\r\n{fields}\r\n"
        f"--=_b\r\nContent-Type: {last}\r\n\r\n{head}\r\n--=_b--\r\n"
    ).encode()


def bounce(original: EmailMessage, *, action: str = "failed", status: str = "5.1.1", whole: bool = True) -> bytes:
    """Return a delivery report as Postfix writes it."""
    fields = (
        "Reporting-MTA: dns; mx.a.example\r\n\r\n"
        f"Final-Recipient: rfc822; {original['To'].addresses[0].addr_spec}\r\nAction: {action}\r\nStatus: {status}\r\n"
        "Diagnostic-Code: smtp; 550 5.1.1 user unknown\r\n"
    )
    return report(
        "delivery-status", fields, original, sender="MAILER-DAEMON@mx.a.example (Mail Delivery System)",
        subject="Undelivered Mail Returned to Sender", whole=whole,
    )  # fmt: skip


def complaint(original: EmailMessage, kind: str = "abuse") -> bytes:
    """Return a provider's feedback report."""
    fields = f"Feedback-Type: {kind}\r\nUser-Agent: Feedback/1.0\r\nVersion: 1\r\n"
    return report("feedback-report", fields, original, sender="fbl@provider.example", subject="Complaint", whole=True)
