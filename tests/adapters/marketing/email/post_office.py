"""Real mail servers for tests: aiosmtpd takes mails, a Dovecot of its own keeps them; both on loopback ports."""

from __future__ import annotations

import grp
import imaplib
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from pathlib import Path
from typing import Any, cast

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

SECRET = "kv7-open-sesame"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return cast("int", probe.getsockname()[1])


class Taker:
    """Takes mails and keeps them; refuses what a test says.

    Attributes:
        mails: (recipient, message) in order.
        recipients: Answer to RCPT by address, where it is not 250.
        texts: Answers to the next DATA commands; a callable is called, and `drop` breaks the connection off.
        deliver: Called with every message that was taken.
    """

    def __init__(self) -> None:
        self.mails: list[tuple[str, EmailMessage]] = []
        self.raw: list[bytes] = []
        self.recipients: dict[str, str] = {}
        self.texts: list[str | Callable[[], str]] = []
        self.deliver: Callable[[str, bytes], None] = lambda recipient, raw: None

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        answer = self.recipients.get(address, "250 OK")
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
        return answer

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        answer = self.texts.pop(0) if self.texts else "250 OK"
        if callable(answer):
            answer = answer()
        if answer == "drop":
            assert server.transport is not None
            server.transport.abort()  # type: ignore[attr-defined]
        if answer.startswith("250"):
            raw = cast("bytes", envelope.content)
            self.raw.append(raw)
            for recipient in envelope.rcpt_tos:
                message = cast("EmailMessage", message_from_bytes(raw, policy=SMTP_POLICY))
                self.mails.append((recipient, message))
                self.deliver(recipient, raw)
        return answer


@contextmanager
def smtp_server(taker: Taker, **more: Any) -> Iterator[int]:
    """Run an SMTP server and give its port."""
    controller = Controller(taker, hostname="127.0.0.1", port=free_port(), server_hostname="localhost", **more)
    controller.start()
    try:
        yield cast("int", controller.port)
    finally:
        controller.stop()


def accepts(username: str, password: str) -> Callable[..., AuthResult]:
    """Return an authenticator of aiosmtpd that knows one person."""

    def authenticate(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        good = (data.login, data.password) == (username.encode(), password.encode())
        return AuthResult(success=good, handled=False)

    return authenticate


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost that signs itself; returns (certificate, key)."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def server_context(cert: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


DOVECOT = shutil.which("dovecot") or shutil.which("dovecot", path="/usr/sbin:/usr/local/sbin")

_CONFIG = """
protocols = imap
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/log
listen = 127.0.0.1
default_internal_user = {user}
default_internal_group = {group}
default_login_user = {user}
first_valid_uid = {uid}
first_valid_gid = {gid}
ssl = yes
ssl_cert = <{home}/cert.pem
ssl_key = <{home}/key.pem
disable_plaintext_auth = no
auth_failure_delay = 0
mail_location = maildir:{home}/mail/%u
passdb {{
  driver = static
  args = password={secret}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={home}/mail/%u
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = {tls_port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
service auth {{
  user = {user}
}}
service auth-worker {{
  user = {user}
}}
"""


class Dovecot:
    """A running server whose every user has the password `SECRET`; a mailbox is made when it is first used."""

    def __init__(self, port: int, tls_port: int, certificate: Path) -> None:
        self.port = port
        self.tls_port = tls_port
        self.certificate = certificate

    def put(self, user: str, raw: bytes, at: float | None = None) -> None:
        """Put a message into somebody's inbox, with the time of its arrival in seconds since 1970."""
        client = imaplib.IMAP4("127.0.0.1", self.port, timeout=20)
        client.login(user, SECRET)
        status, answer = client.append("INBOX", "", time.localtime(at) if at is not None else "", raw)
        assert status == "OK", answer
        client.logout()

    def flags(self, user: str) -> list[bytes]:
        """Return what the server knows of every message in somebody's inbox."""
        client = imaplib.IMAP4("127.0.0.1", self.port, timeout=20)
        client.login(user, SECRET)
        client.select(readonly=True)
        _, rows = client.fetch("1:*", "(FLAGS)")
        client.logout()
        return [row for row in rows if isinstance(row, bytes)]


@contextmanager
def dovecot(home: Path) -> Iterator[Dovecot]:
    """Run a Dovecot in a folder, as an ordinary user: as root it would want users of its own.

    The folder must lie where that user may go; pytest's own temporary folders are shut by every session that begins.
    """
    assert DOVECOT is not None
    entry = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    cert, _ = certificate(home)
    port, tls_port = free_port(), free_port()
    config = home / "dovecot.conf"
    config.write_text(
        _CONFIG.format(
            home=home, user=entry.pw_name, group=grp.getgrgid(entry.pw_gid).gr_name, uid=entry.pw_uid,
            gid=entry.pw_gid, secret=SECRET, port=port, tls_port=tls_port,
        )
    )  # fmt: skip
    more: dict[str, Any] = {}
    if os.geteuid() == 0:
        for path in (home, *home.iterdir()):
            shutil.chown(path, entry.pw_uid, entry.pw_gid)
        more = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    with (home / "out").open("wb") as out:
        process = subprocess.Popen([DOVECOT, "-F", "-c", str(config)], stdout=out, stderr=out, cwd=home, **more)
    try:
        _await(port, process, home)
        yield Dovecot(port, tls_port, cert)
    finally:
        process.terminate()
        process.wait(timeout=20)


def _await(port: int, process: subprocess.Popen[bytes], home: Path) -> None:
    for _ in range(400):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    told = (home / "out").read_text() + ((home / "log").read_text() if (home / "log").exists() else "")
    raise AssertionError(f"Dovecot does not start: {told}")
