"""Sending through a real SMTP server: who gets what, once, and what is written down."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autoresearch.adapters.marketing import assignment, events
from autoresearch.adapters.marketing.counting import holdout_counter
from autoresearch.adapters.marketing.email import suppression
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.message import tokens_in
from autoresearch.adapters.marketing.email.settings import SMTP_PASSWORD, EmailSettings
from autoresearch.core import EnvironmentNotReadyError, UsageError
from tests.adapters.marketing.campaigns import edit
from tests.adapters.marketing.email.conftest import Office
from tests.adapters.marketing.email.post_office import (
    SECRET,
    Taker,
    accepts,
    certificate,
    server_context,
    smtp_server,
)


def test_everybody_gets_one_mail_of_their_arm(office: Office) -> None:
    """Each recipient is mailed once with the text of their arm, and the exposure of each unit is in the log."""
    test = office.start()
    office.send()
    assert sorted(office.recipients()) == sorted(f"person{i}@company{i}.example" for i in range(12))
    subjects = Counter(mail["Subject"] for _, mail in office.taker.mails)
    count = office.count()
    held = sum(holdout_units(office).values()) - count.exposed["control"] - count.exposed["treatment"]
    assert subjects["Who plans your Saturdays?"] == count.exposed["treatment"] > 0
    assert subjects["Your rota in 25 minutes a week"] == count.exposed["control"] + held > 0
    assert test.ended is None


def holdout_units(office: Office) -> dict[str, int]:
    counter = holdout_counter(office.live.events, "email", ["x"])
    counter.update()
    return dict(counter.count("x", now=datetime.now(UTC), window=None).exposed)


def test_the_holdout_gets_the_original_and_is_in_no_test(office: Office) -> None:
    """The permanent holdout sees what was there first, for ever, and never counts in a test."""
    edit(office.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.5")
    office.write_recipients([f"p{i}@c{i}.example" for i in range(40)])
    office.start()
    office.send()
    units = holdout_units(office)
    assert 8 < units["holdout"] < 32
    assert office.exposed() == units["rest"] == 40 - units["holdout"]
    salt = office.live.salt
    for address, mail in office.taker.mails:
        hashed = suppression.address_hash(office.settings.shared, address)
        if assignment.held_out(salt, f"{office.live.unit_key(hashed):016x}", 0.5):
            assert mail["Subject"] == "Your rota in 25 minutes a week"


def test_nobody_is_mailed_twice_by_a_test(office: Office) -> None:
    """Sending again sends nothing; a later test does not write again either unless it is told when."""
    office.start()
    office.send()
    office.send()
    assert len(office.recipients()) == 12
    office.live.finish("run/0001")
    office.start("run/0002")
    office.send()
    assert len(office.recipients()) == 12


def test_a_later_test_may_write_again_after_the_days_that_are_set(office: Office) -> None:
    """again_after_days opens the list for the next test once they have passed, and not before."""
    office.set(again_after_days=10)
    office.start()
    office.send()
    office.live.finish("run/0001")
    office.start("run/0002")
    office.send(lambda: datetime.now(UTC) + timedelta(days=9))
    assert len(office.recipients()) == 12
    office.send(lambda: datetime.now(UTC) + timedelta(days=11))
    assert len(office.recipients()) == 24


def test_caps_hold_over_a_day(office: Office) -> None:
    """A day's cap is not exceeded by sending again, and opens after 24 hours."""
    edit(office.folder, "campaign.toml", "per_day = 1000", "per_day = 5")
    office.start()
    office.send()
    office.send()
    assert len(office.recipients()) == 5
    office.send(lambda: datetime.now(UTC) + timedelta(hours=25))
    assert len(office.recipients()) == 10


def test_the_cap_of_a_mailbox_counts_other_campaigns(office: Office, tmp_path: Path, taker: Taker) -> None:
    """Two campaigns that send from one mailbox share its cap."""
    port = office.settings.smtp.port  # type: ignore[union-attr]
    other = Office(tmp_path / "other", port, taker)
    other.write_recipients([f"someone{i}@firm{i}.example" for i in range(12)])
    for each in (office, other):
        edit(each.folder, "campaign.toml", "per_mailbox = 1000", "per_mailbox = 15")
        each.start()
    office.send()
    other.send()
    assert len(office.recipients()) == 15


def test_colleagues_get_the_same_arm_and_count_as_one(office: Office) -> None:
    """By domain, everybody of a company gets the same mail, and the company is one unit."""
    office.set(assign_by="domain")
    office.write_recipients([f"p{i}@c{i % 8}.example" for i in range(24)])
    office.start()
    office.send()
    by_company: dict[str, set[str]] = {}
    for address, mail in office.taker.mails:
        by_company.setdefault(address.partition("@")[2], set()).add(mail["Subject"])
    assert len(office.recipients()) == 24
    assert {len(subjects) for subjects in by_company.values()} == {1}
    assert sum(holdout_units(office).values()) == 8


def test_who_said_no_is_not_written_to(office: Office) -> None:
    """An address on the suppression list gets nothing, in capitals too; the list is looked at before each mail."""
    office.start()
    shared = office.settings.shared
    suppression.suppress(shared, suppression.address_hash(shared, "PERSON0@Company0.example"), "unsubscribe")

    def meanwhile() -> str:
        suppression.suppress(shared, suppression.address_hash(shared, "person7@company7.example"), "unsubscribe")
        return "250 OK"

    office.taker.texts = [meanwhile]
    office.send()
    assert "person0@company0.example" not in office.recipients()
    assert "person7@company7.example" not in office.recipients()
    assert len(office.recipients()) == 10


def test_who_was_forgotten_is_not_written_to(office: Office) -> None:
    """A unit that was erased stays erased."""
    office.start()
    hashed = suppression.address_hash(office.settings.shared, "person3@company3.example")
    events.forget(office.live.events, [office.live.unit_key(hashed)])
    office.send()
    assert "person3@company3.example" not in office.recipients()
    assert len(office.recipients()) == 11


def test_a_mail_that_the_server_refuses_is_no_exposure(office: Office) -> None:
    """Refused mailboxes are not tried again, those that do not exist are suppressed, a busy server is asked again."""
    office.start()
    office.taker.recipients = {
        "person1@company1.example": "550 5.1.1 no such user",
        "person5@company5.example": "451 4.7.1 try again later",
        "person9@company9.example": "550 5.7.1 not from you",
    }
    office.taker.texts = ["554 5.6.0 we do not like this text", "250 OK", "452 4.3.1 disk full"]
    sent = office.send()
    assert (sent.sent, sent.refused, sent.rejected, sent.deferred) == (7, 2, 1, 2)  # type: ignore[attr-defined]
    assert sum(holdout_units(office).values()) == 7
    office.taker.recipients = {}
    office.send()
    assert len(office.recipients()) == 9
    no_more = suppression.suppressed(office.settings.shared)
    assert no_more == {suppression.address_hash(office.settings.shared, "person1@company1.example")}


def test_a_server_that_refuses_everything_is_not_asked_on(office: Office) -> None:
    """After five refusals in a row sending stops; they say more of the server than of five people."""
    office.start()
    office.taker.texts = ["554 5.7.1 spam"] * 12
    with pytest.raises(EnvironmentNotReadyError, match="5 mails in a row"):
        office.send()
    assert len(office.taker.texts) == 7


_KILLED = """
import os, signal, sys
from pathlib import Path
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.send import Mailing
from autoresearch.adapters.marketing.email.settings import EmailSettings
campaign = Campaign.load(Path(sys.argv[1]))
with Journal(EmailSettings.of(campaign).shared) as journal:
    mailing = Mailing(campaign, journal)
    mailing.send(mailing.plan())
"""


@pytest.mark.parametrize("taken", [True, False])
def test_a_kill_in_mid_send_never_mails_anybody_twice(office: Office, taken: bool) -> None:
    """Killed while the server has the text and has not answered, or just before it takes it: that mail is unknown."""
    office.start()
    process: list[subprocess.Popen[bytes]] = []

    def kill() -> str:
        process[0].send_signal(signal.SIGKILL)
        process[0].wait()
        return "250 OK" if taken else "451 4.0.0 lost"

    office.taker.texts = ["250 OK", "250 OK", kill]
    process.append(subprocess.Popen([sys.executable, "-c", _KILLED, str(office.folder)], env={**os.environ}))
    process[0].wait(timeout=60)
    assert process[0].returncode == -signal.SIGKILL
    with Journal(office.settings.shared) as journal:
        assert journal.states(office.mailing(journal).id, "run/0001") == {"sending": 1, "sent": 2}
    office.send()
    assert len(office.recipients()) == (12 if taken else 11)
    assert max(Counter(office.recipients()).values()) == 1
    assert sum(holdout_units(office).values()) == 11


def test_a_connection_that_breaks_stops_and_goes_on_next_time(office: Office) -> None:
    """A server that closes in the middle is the machine's fault; the next send goes on with the others."""
    office.start()
    office.taker.texts = ["250 OK", "421 4.3.0 shutting down"]
    sent = office.send()
    assert sent.deferred == 1  # type: ignore[attr-defined]
    office.send()
    assert max(Counter(office.recipients()).values()) == 1
    assert len(office.recipients()) == 12


def test_a_connection_that_breaks_with_the_text_on_its_way(office: Office) -> None:
    """Whether that mail arrived nobody knows: it is not sent again, and everybody else gets theirs."""
    office.start()
    office.taker.texts = ["250 OK", "drop"]
    with pytest.raises(EnvironmentNotReadyError, match="not sent again"):
        office.send()
    office.send()
    assert len(office.recipients()) == 11
    assert max(Counter(office.recipients()).values()) == 1
    with Journal(office.settings.shared) as journal:
        assert journal.states(office.mailing(journal).id, "run/0001") == {"sending": 1, "sent": 11}


def test_a_plan_that_others_overtook_is_not_sent(office: Office) -> None:
    """Two plans made at once do not share the room that each saw."""
    edit(office.folder, "campaign.toml", "per_mailbox = 1000", "per_mailbox = 15")
    office.start()
    with Journal(office.settings.shared) as journal:
        mailing = office.mailing(journal)
        plan = mailing.plan()
        mailing.send(plan)
        with pytest.raises(UsageError, match="caps allow 3 mails now"):
            mailing.send(plan)
    assert len(office.recipients()) == 12


@pytest.mark.parametrize("email", ["", "mara", "mara@localhost"])
def test_a_sender_that_nobody_can_answer_is_refused(office: Office, email: str) -> None:
    """It is said before anybody is written to."""
    edit(office.folder, "campaign.toml", 'email = "mara@example.com"', f'email = "{email}"')
    office.start()
    with pytest.raises(UsageError, match=r"\[sender\] email cannot be written to"):
        office.send()
    assert office.recipients() == []


def test_no_server_is_said_without_an_address_of_anybody(office: Office) -> None:
    """A server that is not there is named; the people are not."""
    office.start()
    edit(office.folder, "campaign.toml", f"port = {office.settings.smtp.port}", "port = 1")  # type: ignore[union-attr]
    with pytest.raises(EnvironmentNotReadyError, match=r"127\.0\.0\.1:1 stopped") as caught:
        office.send()
    assert "company" not in str(caught.value)


def test_without_a_test_nothing_is_sent(office: Office) -> None:
    """Mails go out as part of a test only, and never under the kill switch."""
    with pytest.raises(UsageError, match="No test of mails is live"):
        office.send()
    office.start()
    office.live.kill(True)
    with pytest.raises(UsageError, match="kill switch"):
        office.send()
    assert office.recipients() == []


def test_a_broken_line_stops_before_the_first_mail(office: Office) -> None:
    """The whole file is read before anybody is written to."""
    office.start()
    office.write_recipients([*(f"p{i}@c{i}.example" for i in range(50)), "broken line"])
    with pytest.raises(UsageError, match="line 52"):
        office.send()
    assert office.recipients() == []


def test_a_test_that_ends_meanwhile_ends_the_sending(office: Office) -> None:
    """What is decided is not sent on."""
    office.start()

    def meanwhile() -> str:
        office.live.finish("run/0001")
        return "250 OK"

    office.taker.texts = [meanwhile]
    with pytest.raises(UsageError, match="No test of mails is live"):
        office.send()
    assert len(office.recipients()) == 1


def test_one_process_sends_at_a_time(office: Office) -> None:
    """Two who send at once would share a cap and exceed it."""
    from filelock import FileLock

    office.start()
    office.settings.shared.mkdir(parents=True)
    with FileLock(office.settings.shared / "send.lock"), pytest.raises(UsageError, match="Another process"):
        office.send()


def test_the_headers_of_a_mail(office: Office) -> None:
    """Sender, recipient, a Message-ID of our own, and two ways to leave: a click by POST, and a mail."""
    office.write_recipients(["kim@a.example"], names=True)
    test = office.start()
    office.send()
    _, mail = office.taker.mails[0]
    assert mail["From"] == "Mara Lindqvist <mara@example.com>"
    assert mail["To"] == "Kim <kim@a.example>"
    assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    [token] = tokens_in(office.live.secret, mail["Message-ID"])
    assert mail["Message-ID"] == f"<{token.text}@example.com>"
    assert token.test == events.key(test.id)
    hashed = suppression.address_hash(office.settings.shared, "kim@a.example")
    assert token.unit == office.live.unit_key(hashed)
    web, by_mail = mail["List-Unsubscribe"].split(",")
    prefix = "<https://list.example.com/unsubscribe/"
    assert web.startswith(prefix)
    assert suppression.hash_in_token(office.live.secret, web.removeprefix(prefix)[:-1]) == hashed
    assert by_mail.strip() == f"<mailto:mara@example.com?subject=unsubscribe%20{token.text}>"
    assert b"kim" not in (mail["Message-ID"] + web).encode().lower()


def test_the_raw_headers_survive_programs_that_decode_nothing(office: Office) -> None:
    """List-Unsubscribe is readable as it stands on the wire, and no line is longer than 998 bytes."""
    office.start()
    office.send()
    for raw in office.taker.raw:
        head = raw.partition(b"\r\n\r\n")[0]
        assert b"\r\nList-Unsubscribe: <https://list.example.com/unsubscribe/" in head
        assert b"\r\n <mailto:mara@example.com?subject=unsubscribe%20" in head
        assert b"\r\nMessage-ID: <" in head
        assert b"=?" not in head
        assert max(map(len, raw.split(b"\r\n"))) <= 998


def test_both_parts_say_the_same_and_the_styles_are_inlined(office: Office) -> None:
    """Text comes first, HTML has style attributes, and both show the postal address and this person's link."""
    office.start()
    office.send()
    _, mail = office.taker.mails[0]
    text, html = mail.iter_parts()
    assert (text.get_content_type(), html.get_content_type()) == ("text/plain", "text/html")  # type: ignore[attr-defined]
    url = mail["List-Unsubscribe"].split(">")[0][1:]
    for part in (text.get_content(), html.get_content()):  # type: ignore[attr-defined]
        assert url in part
        assert "12 Example Street" in part
    assert '<p style="' in html.get_content()  # type: ignore[attr-defined]
    assert "@media (prefers-color-scheme: dark)" in html.get_content()  # type: ignore[attr-defined]


def test_a_mail_without_a_postal_address_never_leaves(office: Office) -> None:
    """The check is made for each mail as it is rendered."""
    office.start()
    edit(office.folder, "template/email.txt.j2", "{{ sender.postal_address }}", "")
    with pytest.raises(UsageError, match="postal address"):
        office.send()
    assert office.recipients() == []


def test_no_address_is_written_anywhere(office: Office) -> None:
    """Neither the campaign's state nor the shared record holds an address, a name or a company."""
    office.write_recipients([f"person{i}@company{i}.example" for i in range(12)], names=True)
    office.start()
    office.send()
    suppression.suppress(
        office.settings.shared, suppression.address_hash(office.settings.shared, "person1@company1.example"), "bounce"
    )
    found = [*(office.folder / ".autoresearch").rglob("*"), *office.settings.shared.rglob("*")]
    files = [path for path in found if path.is_file()]
    assert any(path.name == "mail.db" for path in files)
    for path in files:
        data = path.read_bytes().lower()
        assert b"company" not in data.replace(b"companies", b""), path
        assert b"person1" not in data, path
        assert b"kim" not in data, path


# TLS and passwords


def test_a_password_never_travels_in_the_open(office: Office) -> None:
    """Without TLS only this machine itself is spoken to."""
    edit(office.folder, "campaign.toml", 'host = "127.0.0.1"', 'host = "smtp.example.com"')
    with pytest.raises(UsageError, match="is not this machine"):
        EmailSettings.of(office.campaign)


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
def test_tls_and_a_password(
    tmp_path: Path, taker: Taker, tls: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mails go out over TLS, and the password from the environment opens the server."""
    monkeypatch.setenv(SMTP_PASSWORD, SECRET)
    office = tls_office(tmp_path, taker, tls)
    with server_of(tmp_path, taker, tls) as port:
        office.set(port=port)
        office.start()
        office.send()
    assert len(office.recipients()) == 12
    assert SECRET not in caplog.text


def test_a_certificate_that_nobody_vouches_for_is_refused(
    tmp_path: Path, taker: Taker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no switch that turns verification off."""
    monkeypatch.setenv(SMTP_PASSWORD, SECRET)
    office = tls_office(tmp_path, taker, "starttls")
    edit(office.folder, "campaign.toml", 'ca_file = "../cert.pem"', "")
    with server_of(tmp_path, taker, "starttls") as port:
        office.set(port=port)
        office.start()
        with pytest.raises(EnvironmentNotReadyError, match="stopped") as caught:
            office.send()
    assert office.recipients() == []
    assert SECRET not in str(caught.value)


def test_a_server_that_offers_no_tls_gets_no_password(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STARTTLS that is missing, as somebody in between can make it, stops the sending."""
    monkeypatch.setenv(SMTP_PASSWORD, SECRET)
    edit(office.folder, "campaign.toml", 'tls = "none"', 'tls = "starttls"')
    office.set(username="mara")
    office.start()
    with pytest.raises(EnvironmentNotReadyError, match="stopped"):
        office.send()
    assert office.recipients() == []


def test_a_wrong_password_is_said_and_not_shown(tmp_path: Path, taker: Taker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable and the user; it has no cause, which could repeat what was sent."""
    monkeypatch.setenv(SMTP_PASSWORD, "swordfish-41")
    office = tls_office(tmp_path, taker, "starttls")
    with server_of(tmp_path, taker, "starttls") as port:
        office.set(port=port)
        office.start()
        with pytest.raises(EnvironmentNotReadyError, match=SMTP_PASSWORD) as caught:
            office.send()
    assert "swordfish" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert office.recipients() == []


def test_a_missing_password_is_named_by_its_variable(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes from the environment and from nowhere else."""
    monkeypatch.delenv(SMTP_PASSWORD, raising=False)
    office.set(username="mara")
    office.start()
    with pytest.raises(EnvironmentNotReadyError, match=SMTP_PASSWORD):
        office.send()


def tls_office(tmp_path: Path, taker: Taker, tls: str) -> Office:
    certificate(tmp_path)
    office = Office(tmp_path / "campaign", 0, taker)
    edit(
        office.folder,
        "campaign.toml",
        'host = "127.0.0.1"\nport = 0\ntls = "none"',
        f'host = "localhost"\ntls = "{tls}"',
    )
    office.set(username="mara", ca_file="../cert.pem")
    edit(office.folder, "campaign.toml", "ca_file = '../cert.pem'", 'ca_file = "../cert.pem"')
    return office


def server_of(tmp_path: Path, taker: Taker, tls: str):  # type: ignore[no-untyped-def]
    context = server_context(tmp_path / "cert.pem", tmp_path / "key.pem")
    knows = accepts("mara", SECRET)
    if tls == "implicit":
        return smtp_server(taker, ssl_context=context, authenticator=knows, auth_require_tls=False)
    return smtp_server(taker, tls_context=context, authenticator=knows, require_starttls=True, auth_required=True)
