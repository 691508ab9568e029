"""Five lines to whoever sleeps: a webhook, a mail or a command hears of a new best, a fault and the end of a run."""

from __future__ import annotations

import os
import shlex
import signal
import smtplib
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import SplitResult, urlsplit

from autoresearch.core.adapter import Outcome
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError
from autoresearch.core.words import clean, counts, duration, effect_in_words, headline, live_headline, money, number

if TYPE_CHECKING:
    from autoresearch.core.followers import Followed
    from autoresearch.core.ledger import Experiment
    from autoresearch.core.workspace import Settings

END, BEST, FAULT, TEST = "end", "best", "fault", "test"
"""What is told of."""

SECONDS = 10.0
"""Patience with a server."""

COMMAND_SECONDS = 60.0
"""Patience with a command."""

SECONDS_BETWEEN_BESTS = 600.0
"""A run that keeps much tells of a new best once in so many seconds; the end tells of the last one anyway."""

LOCAL_SERVER = "smtp://localhost:25"
"""Where mails go that nobody chose a server for."""

PASSWORD_VARIABLE = "AUTORESEARCH_SMTP_PASSWORD"
"""Environment variable with the password of the mail server; it stands in no file of a workspace."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What is told.

    Attributes:
        event: `end`, `best`, `fault` or `test`.
        lines: Five lines at most, for people; nothing in them is markup.
        facts: The same for programs.
    """

    event: str
    lines: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


class Target(Protocol):
    """Where a notice goes."""

    @property
    def name(self) -> str:
        """What it is called in sentences, without secrets."""
        ...

    def send(self, notice: Notice) -> None:
        """Deliver; raises EnvironmentNotReadyError with what to do."""
        ...


@dataclass(frozen=True, slots=True)
class MailServer:
    """How mails leave.

    Attributes:
        url: `smtp://[user@]host[:port]`, by STARTTLS where the server offers it, or `smtps://...`.
        sender: Address of the sender.
    """

    url: str = LOCAL_SERVER
    sender: str = ""


def target_of(text: str, mail: MailServer | None = None) -> Target:
    """Return the target that a text names: `https://...`, `mailto:name@host` or `cmd:program arguments`.

    Raises:
        UsageError: If it is none of these.
    """
    kind, _, rest = text.partition(":")
    if kind in ("http", "https"):
        parts = urlsplit(text)
        if parts.hostname:
            return Webhook(text, parts)
    elif kind == "mailto" and "@" in rest.strip("@") and not any(c.isspace() for c in rest):
        return Mail(rest, _server(mail or MailServer()))
    elif kind == "cmd":
        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise UsageError(f"The command to notify by cannot be read: {error}.\nMend its quotes.") from error
        if words:
            return Program(tuple(words))
    raise UsageError(
        "A notification goes to an address like https://example.com/hook or mailto:you@example.com, or to a program as "
        "in 'cmd:notify-send autoresearch'.\nWhat was given is none of these."
    )


def _server(mail: MailServer) -> MailServer:
    parts = urlsplit(mail.url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname or port == -1 or parts.password:
        raise UsageError(
            f"[notify] smtp must be smtp://[user@]host[:port] or smtps://[user@]host[:port], with the password in the "
            f"environment as {PASSWORD_VARIABLE}."
        )
    return mail


@dataclass(frozen=True, slots=True)
class Webhook:
    """A POST of JSON; `text` is what Slack and its kin show. The address is a secret and is never shown whole."""

    url: str = field(repr=False)
    parts: SplitResult = field(repr=False)

    @property
    def name(self) -> str:
        """The host."""
        return f"The webhook at {self.parts.hostname}"

    def send(self, notice: Notice) -> None:
        """Post once; a redirection is not followed, since nobody asked for the place that it leads to."""
        import httpx2

        try:
            answer = httpx2.post(
                self.url, json={"text": notice.text, "event": notice.event, **notice.facts}, timeout=SECONDS
            )
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise EnvironmentNotReadyError(f"it does not answer ({type(error).__name__}).") from error
        if answer.status_code >= 300:
            raise EnvironmentNotReadyError(f"it answers with status {answer.status_code}.")


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail."""

    to: str
    server: MailServer

    @property
    def name(self) -> str:
        """The address."""
        return f"Mail to {clean(self.to)}"

    def send(self, notice: Notice) -> None:
        """Hand the mail to the server, once."""
        parts = urlsplit(self.server.url)
        message = EmailMessage()
        message["Subject"] = notice.lines[0]
        message["From"] = self.server.sender or f"autoresearch@{socket.getfqdn()}"
        message["To"] = self.to
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(notice.text + "\n")
        try:
            with _connection(parts) as smtp:
                smtp.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            # Their texts may quote what was sent; the kind of failure is enough.
            raise EnvironmentNotReadyError(
                f"{parts.hostname} does not take it ({type(error).__name__}). See [notify] smtp."
            ) from error


def _connection(parts: SplitResult) -> smtplib.SMTP:
    """Return an open connection, encrypted where the server can, and always before a password is sent."""
    host, secure = parts.hostname or "", ssl.create_default_context()
    if parts.scheme == "smtps":
        smtp: smtplib.SMTP = smtplib.SMTP_SSL(host, parts.port or 465, timeout=SECONDS, context=secure)
    else:
        smtp = smtplib.SMTP(host, parts.port or 25, timeout=SECONDS)
    try:
        smtp.ehlo()
        encrypted = parts.scheme == "smtps"
        if not encrypted and smtp.has_extn("starttls"):
            smtp.starttls(context=secure)
            smtp.ehlo()
            encrypted = True
        if parts.username:
            if not encrypted:
                raise EnvironmentNotReadyError(f"{host} offers no encryption, and no password is sent without it.")
            smtp.login(parts.username, os.environ.get(PASSWORD_VARIABLE, ""))
    except BaseException:
        smtp.close()
        raise
    return smtp


@dataclass(frozen=True, slots=True)
class Program:
    """A program that gets the text on its standard input and the event in its environment."""

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The program, without its arguments: these may hold a key."""
        return f"The command {clean(self.words[0])}"

    def send(self, notice: Notice) -> None:
        """Run it once, without a shell."""
        about = {"AUTORESEARCH_EVENT": notice.event, "AUTORESEARCH_RUN": str(notice.facts.get("run", ""))}
        try:
            # A session of its own: Ctrl-C is meant for the run, whose end this command is to tell of.
            process = subprocess.Popen(
                self.words,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **about},
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise EnvironmentNotReadyError(f"it cannot be started: {error.strerror}.") from error
        try:
            process.communicate(notice.text + "\n", timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise EnvironmentNotReadyError(f"it did not end within {COMMAND_SECONDS:.0f} seconds.") from error
        if process.returncode:
            raise EnvironmentNotReadyError(f"it ended with status {process.returncode}.")


def test_notice() -> Notice:
    """Return what is sent to see whether a target can be reached."""
    return Notice(TEST, ("autoresearch: a test", "This target can be reached."))


test_notice.__test__ = False  # type: ignore[attr-defined]  # no test, though its name begins like one


class Notifier:
    """A follower that tells one target.

    Args:
        target: Where notices go.
        clock: Seconds that only rise.
    """

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        self._target = target
        self._clock = clock
        self._session: Followed | None = None
        self._told = float("-inf")

    @property
    def name(self) -> str:
        """The target's."""
        return self._target.name

    def begun(self, session: Followed) -> None:
        """Remember what is followed; nobody is woken by a beginning."""
        self._session = session

    def experiment_ended(self, experiment: Experiment) -> None:
        """Tell of a new best, not too often."""
        if experiment.number == 0 or experiment.outcome != Outcome.KEPT.value or self._session is None:
            return
        if self._clock() - self._told >= SECONDS_BETWEEN_BESTS:
            self._told = self._clock()
            self._target.send(best_notice(self._session, experiment))

    def ended(self, reason: str, *, fault: bool) -> None:
        """Tell of the end."""
        if self._session is not None:
            self._target.send(end_notice(self._session, reason, fault=fault))


def best_notice(session: Followed, experiment: Experiment) -> Notice:
    """Return five lines about a kept experiment."""
    status = session.status()
    gain = "" if experiment.effect is None else f", {effect_in_words(experiment.effect)}"
    lines = (
        f"autoresearch: experiment {experiment.number} is kept in {_place(session)}",
        f"{session.metric.name} {number(experiment.value)}{gain}: {clean(experiment.hypothesis)[:200]}",
        live_headline(status, session.metric) if session.live else headline(status, session.metric),
        f"{counts(status)}; {money(status.usd)}, {duration(status.seconds)}",
        f"See it: autoresearch show {experiment.number} --diff",
    )
    facts = {"experiment": experiment.number, "hypothesis": clean(experiment.hypothesis), **_facts(session, status)}
    return Notice(BEST, lines, facts)


def end_notice(session: Followed, reason: str, *, fault: bool) -> Notice:
    """Return five lines about the end of a session."""
    status = session.status()
    confirm = status.kept > 0 and status.confirmed_gain is None and not session.live
    following = "autoresearch confirm proves the gain" if confirm else "autoresearch report shows all of it"
    lines = (
        f"autoresearch: {'look into the run' if fault else 'the run ended'} in {_place(session)}",
        live_headline(status, session.metric) if session.live else headline(status, session.metric),
        f"{counts(status)}; {money(status.usd)}, {duration(status.seconds)}",
        f"Ended: {clean(reason).rstrip('.')}.",
        f"Next: {'autoresearch status says where it stands' if fault else following}",
    )
    return Notice(FAULT if fault else END, lines, {"reason": clean(reason), **_facts(session, status)})


def _place(session: Followed) -> str:
    return clean(session.layout.root.name) or "the workspace"


def _facts(session: Followed, status: Any) -> dict[str, Any]:
    return {"run": session.run.id, "workspace": session.layout.root.name, "status": status.as_json()}


def mail_server(settings: Settings) -> MailServer:
    """Return the mail server of a workspace; the one of this machine where none is named."""
    return MailServer(settings.smtp or LOCAL_SERVER, settings.mail_from or "")


def notifiers(targets: Sequence[str], mail: MailServer) -> list[Notifier]:
    """Return a follower for every target, each named once.

    Raises:
        UsageError: If one of them cannot be understood.
    """
    return [Notifier(target_of(text, mail)) for text in dict.fromkeys(targets)]
