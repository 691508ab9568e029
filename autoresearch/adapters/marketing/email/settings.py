"""The table `[email]` of campaign.toml, and what `[site]` says that mail needs too."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from autoresearch.core import EnvironmentNotReadyError, MetricKind, UsageError

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign

SURFACE = "email"
"""Name of the surface that tests of mails run on."""

SMTP_PASSWORD = "AUTORESEARCH_SMTP_PASSWORD"
IMAP_PASSWORD = "AUTORESEARCH_IMAP_PASSWORD"
"""Environment variables; where the second is not set, the first is taken for both."""

RACE, TEST_AND_ROLL = "race", "test-and-roll"
"""How a list is spent: test after test, each judged by the race; or one test on a part, and its winner to the rest."""

_NUMBER = (int, float)
KEYS: Mapping[str, type | tuple[type, ...]] = {
    "recipients": str,
    "host": str,
    "port": int,
    "tls": str,
    "username": str,
    "imap_host": str,
    "imap_port": int,
    "imap_tls": str,
    "imap_username": str,
    "imap_folder": str,
    "ca_file": str,
    "assign_by": str,
    "per_day": int,
    "per_mailbox": int,
    "again_after_days": _NUMBER,
    "classifier": str,
    "model": str,
    "track_clicks": bool,
    "opens": bool,
    "list": str,
    "spread": _NUMBER,
}

_PORTS = {
    "smtp": {"starttls": 587, "implicit": 465, "none": 25},
    "imap": {"starttls": 143, "implicit": 993, "none": 143},
}


@dataclass(frozen=True, slots=True)
class MailServer:
    """A server to log in to.

    Attributes:
        host: Its name.
        port: Its port.
        tls: `starttls`, `implicit` (TLS from the first byte), or `none`, which only this machine itself may have.
        username: Empty where it asks for none.
        ca_file: Certificates to trust besides the system's; None: the system's.
    """

    host: str
    port: int
    tls: str
    username: str = ""
    ca_file: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return how TLS is done here: the server proves its name, always."""
        context = ssl.create_default_context()
        if self.ca_file is not None:
            try:
                context.load_verify_locations(self.ca_file)
            except OSError as error:  # an SSLError is one
                raise EnvironmentNotReadyError(
                    f"The certificates in {self.ca_file} cannot be read: {error.strerror or error}.\n"
                    "[email] ca_file names a file in PEM format."
                ) from error
        return context


@dataclass(frozen=True, slots=True)
class EmailSettings:
    """How a campaign sends, and reads what comes back.

    Attributes:
        recipients: CSV file, see `recipients.py`.
        smtp: Server that takes mail; None where none is named, which is fine until somebody sends.
        imap: Server that holds the answers; None where none is named.
        imap_folder: Folder in which answers arrive.
        assign_by: `address`, or `domain`: colleagues see the same arm and count as one.
        per_day: Most mails of this campaign in 24 hours.
        per_mailbox: Most mails from the sending mailbox in 24 hours, those of other campaigns included.
        again_after_days: Days after which a later test may write to somebody again; None: each person once.
        classifier: `auto` (Claude where there is a key, else rules), `claude` or `rules`.
        model: Model that reads answers; empty: the default.
        track_clicks: Whether the link of a mail leads through the site, which then counts clicks; see `clicks.py`.
        opens: Whether a mail holds a picture of one point that says when it was loaded; see `clicks.py`.
        test_and_roll: Whether the list is spent by one test on a part of it; see `list_test.py`.
        spread: Standard deviation of variants' true rates, for planning that part; None: that of earlier tests.
        base_url: Public address of the site that takes unsubscribe requests; from [site].
        shared: Folder of the suppression list and of the record of what was sent; all campaigns of an organisation
            name the same in [site] suppression.
    """

    recipients: Path
    smtp: MailServer | None
    imap: MailServer | None
    shared: Path
    imap_folder: str = "INBOX"
    assign_by: str = "address"
    per_day: int = 200
    per_mailbox: int = 200
    again_after_days: float | None = None
    classifier: str = "auto"
    model: str = ""
    track_clicks: bool = False
    opens: bool = False
    test_and_roll: bool = False
    spread: float | None = None
    base_url: str = ""

    @classmethod
    def of(cls, campaign: Campaign) -> EmailSettings:
        """Return the settings of a campaign.

        Raises:
            UsageError: If the campaign is no mail, a key is unknown or a value makes no sense.
        """
        from autoresearch.adapters.marketing.campaign import typed_table

        path = campaign.path
        if campaign.kind != "email":
            raise UsageError(f"{path}: the campaign's kind is {campaign.kind}, and mail needs kind = 'email'.")
        table = typed_table(path, "email", campaign.sources.get("email", {}), KEYS)
        if campaign.traffic.source == "email" and campaign.traffic.maturity_days <= 0:
            raise UsageError(
                f"{path}: [traffic] maturity_days is 0, and no answer to a mail comes at once, so none would count.\n"
                "Give people some days to answer, for example maturity_days = 7."
            )
        base_url, shared = _site(campaign)
        for key, allowed in _CHOICES.items():
            if key in table and table[key] not in allowed:
                raise UsageError(f"{path}: [email] {key} must be one of {', '.join(allowed)}, not {table[key]!r}.")
        for key in ("per_day", "per_mailbox", "again_after_days", "port", "imap_port"):
            if key in table and not 0 < table[key] <= 65535:
                raise UsageError(f"{path}: [email] {key} must be above 0 and at most 65535, not {table[key]!r}.")
        if table.get("list") == TEST_AND_ROLL:
            _refuse_no_list(campaign, table)
        again = table.get("again_after_days")
        return cls(
            recipients=campaign.folder / table.get("recipients", "recipients.csv"),
            smtp=_server(path, table, campaign.folder, "", "smtp", "starttls"),
            imap=_server(path, table, campaign.folder, "imap_", "imap", "implicit"),
            shared=shared,
            imap_folder=table.get("imap_folder", "INBOX"),
            assign_by=table.get("assign_by", "address"),
            per_day=table.get("per_day", 200),
            per_mailbox=table.get("per_mailbox", 200),
            again_after_days=None if again is None else float(again),
            classifier=table.get("classifier", "auto"),
            model=table.get("model", ""),
            track_clicks=table.get("track_clicks", False),
            opens=table.get("opens", False),
            test_and_roll=table.get("list") == TEST_AND_ROLL,
            spread=_spread(path, table),
            base_url=base_url,
        )

    def ready_to_send(self, path: Path) -> MailServer:
        """Return the SMTP server, once everything is there that sending needs.

        Raises:
            UsageError: If something is missing in campaign.toml.
        """
        if self.smtp is None:
            raise UsageError(f"{path}: [email] host is missing.\nName the server that takes your mail.")
        parts = urlsplit(self.base_url)
        if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
            raise UsageError(
                f"{path}: [site] base_url must be an address that begins with https://, not {self.base_url!r}.\n"
                "Every mail has a link for leaving the list, and autoresearch marketing serve answers it there."
            )
        return self.smtp


def spends_a_list(campaign: Campaign) -> bool:
    """Say whether a campaign's people are a list that one test spends."""
    return campaign.traffic.source == "email" and campaign.sources.get("email", {}).get("list") == TEST_AND_ROLL


_TLS = ("starttls", "implicit", "none")
_CHOICES = {
    "tls": _TLS,
    "imap_tls": _TLS,
    "assign_by": ("address", "domain"),
    "classifier": ("auto", "claude", "rules"),
    "list": (RACE, TEST_AND_ROLL),
}


def is_loopback(host: str) -> bool:
    """Say whether a host name is this machine itself."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def password(server: MailServer, *variables: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the password for a server from the first of the environment variables that is set.

    Raises:
        EnvironmentNotReadyError: If none is; no message ever holds a password.
    """
    environ = os.environ if environ is None else environ
    for name in variables:
        if environ.get(name):
            return environ[name]
    raise EnvironmentNotReadyError(
        f"There is no password for {server.username} at {server.host}.\n"
        f"Put it into the environment variable {variables[0]}; it is stored nowhere else."
    )


def _server(
    path: Path, table: Mapping[str, Any], folder: Path, prefix: str, kind: str, default_tls: str
) -> MailServer | None:
    host = table.get(f"{prefix}host", "").strip()
    if not host:
        return None
    tls = table.get(f"{prefix}tls", default_tls)
    if tls == "none" and not is_loopback(host):
        raise UsageError(
            f"{path}: [email] {prefix}tls is none, and {host} is not this machine: password and mails would travel in "
            "the open.\nUse starttls or implicit."
        )
    username = table.get(f"{prefix}username", table.get("username", ""))
    ca_file = folder / table["ca_file"] if "ca_file" in table else None
    return MailServer(host, table.get(f"{prefix}port", _PORTS[kind][tls]), tls, username, ca_file)


def _refuse_no_list(campaign: Campaign, table: Mapping[str, Any]) -> None:
    """Raise UsageError where Test & Roll has no formula: it is for shares of single people."""
    if campaign.metric.kind is not MetricKind.PROPORTION:
        raise UsageError(
            f"{campaign.path}: [email] list = '{TEST_AND_ROLL}' compares rates, and {campaign.metric.name} is a mean.\n"
            "Take a share of the recipients as the metric, or leave list out."
        )
    if table.get("assign_by") == "domain":
        raise UsageError(
            f"{campaign.path}: [email] list = '{TEST_AND_ROLL}' plans by the person, and assign_by = 'domain' counts "
            "companies.\nLeave one of the two out."
        )


def _spread(path: Path, table: Mapping[str, Any]) -> float | None:
    spread = table.get("spread")
    if spread is None:
        return None
    if table.get("list") != TEST_AND_ROLL:
        raise UsageError(f"{path}: [email] spread plans a list, and nothing reads it without list = '{TEST_AND_ROLL}'.")
    if not 0.0 < spread < 1.0:
        raise UsageError(
            f"{path}: [email] spread must be above 0 and below 1, not {spread!r}: a share, like the rates themselves."
        )
    return float(spread)


def _site(campaign: Campaign) -> tuple[str, Path]:
    """Return base_url and the folder of the suppression list: the server that takes requests reads the same keys."""
    from autoresearch.adapters.marketing.campaign import typed_table
    from autoresearch.adapters.marketing.site.settings import KEYS as SITE_KEYS
    from autoresearch.adapters.marketing.site.settings import SiteSettings

    path = campaign.path
    table = typed_table(path, "site", campaign.sources.get("site", {}), SITE_KEYS)
    site = SiteSettings.parse(path, table, goal=campaign.goal.event, holdout=campaign.traffic.holdout)
    if site.suppression is None:
        raise UsageError(
            f"{path}: [site] suppression is missing: the folder with the list of those who want no more mail.\n"
            'All campaigns of an organisation name the same one, for example suppression = "../suppression".'
        )
    return site.base_url, site.suppression
