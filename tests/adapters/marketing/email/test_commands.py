"""`autoresearch marketing send` and `replies`, as a person types them."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoresearch.adapters.marketing.adapter import create_adapter
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.commands import app
from autoresearch.adapters.marketing.email import suppression
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.settings import IMAP_PASSWORD, EmailSettings
from autoresearch.adapters.marketing.email.source import EmailSource
from autoresearch.adapters.marketing.email.volume import bound_of
from autoresearch.adapters.marketing.site.server import Server
from autoresearch.adapters.marketing.sources import create_source
from autoresearch.core import EnvironmentNotReadyError, LiveExperiment, Outcome, UsageError, Workspace
from tests.adapters.marketing.campaigns import edit, write_campaign
from tests.adapters.marketing.email.answers import complaint, quoted, reply
from tests.adapters.marketing.email.conftest import Office
from tests.adapters.marketing.email.post_office import SECRET, Dovecot, free_port
from tests.json_docs import as_documented


def run(*arguments: object, typed: str = "") -> str:
    """Return what a command prints; its errors come as they are."""
    done = CliRunner().invoke(app, [str(each) for each in arguments], input=typed, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def listed(office: Office) -> Iterator[Office]:
    """An office whose unsubscribe addresses are answered by a real server."""
    port = free_port()
    edit(office.folder, "campaign.toml", "https://list.example.com", f"http://127.0.0.1:{port}")
    office.start()
    with Server(office.folder, port=port, workers=1):
        yield office


def test_a_dry_run_is_the_default(office: Office) -> None:
    """Without --send it says who would get what by counts, shows a mail of each arm, and sends nothing."""
    office.start()
    suppression.suppress(
        office.settings.shared, suppression.address_hash(office.settings.shared, "person1@company1.example"), "bounce"
    )
    said = run("send", "-w", office.folder)
    assert "11 of 12 recipients are next" in said
    assert "1 on the suppression list" in said
    counts = [int(n) for n in re.findall(r"(?:control|treatment|holdout) (\d+)", said)]
    assert sum(counts) == 11
    assert "Subject: Your rota in 25 minutes a week" in said
    assert "Subject: Who plans your Saturdays?" in said
    assert "12 Example Street" in said
    assert "Nothing was sent" in said
    assert "company" not in said
    planned = as_documented("marketing send", run("send", "-w", office.folder, "--json"))
    assert (planned["next"], planned["recipients"], planned["result"]) == (11, 12, None)
    assert office.recipients() == []


def test_sending_through_the_command_and_leaving_by_one_click(listed: Office) -> None:
    """The typed number sends; a link of a mail unsubscribes by POST and not by GET, and the guardrail has it."""
    edit(listed.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    said = run("send", "-w", listed.folder, "--send", typed="12\n")
    assert "Sent 12 mails" in said
    address, mail = listed.taker.mails[0]
    url = mail["List-Unsubscribe"].split(">")[0][1:]
    hashed = suppression.address_hash(listed.settings.shared, address)
    with urllib.request.urlopen(url, timeout=10) as page:
        assert b"<form" in page.read()
    assert suppression.suppressed(listed.settings.shared) == frozenset()
    with urllib.request.urlopen(url, data=b"List-Unsubscribe=One-Click", timeout=10) as page:
        assert page.status == 200
    assert suppression.suppressed(listed.settings.shared) == {hashed}
    assert listed.converted("unsubscribe") == 1


def test_a_company_leaves_as_the_unit_that_it_was_assigned_as(listed: Office) -> None:
    """By domain the person is suppressed and the company's unit has the event."""
    listed.set(assign_by="domain")
    edit(listed.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    sent = as_documented("marketing send", run("send", "-w", listed.folder, "--send", "--yes", 12, "--json"))
    assert sent["result"]["sent"] == 12
    url = listed.taker.mails[0][1]["List-Unsubscribe"].split(">")[0][1:]
    urllib.request.urlopen(url, data=b"List-Unsubscribe=One-Click", timeout=10).close()
    assert listed.converted("unsubscribe") == 1


@pytest.mark.parametrize(("arguments", "typed"), [((), "11\n"), ((), "yes\n"), (("--yes", 11), "")])
def test_a_wrong_number_sends_nothing(listed: Office, arguments: tuple[object, ...], typed: str) -> None:
    """Only the number of recipients confirms, typed or given by a script."""
    with pytest.raises(UsageError, match="12 mails would go out"):
        run("send", "-w", listed.folder, "--send", *arguments, typed=typed)
    assert listed.recipients() == []


def test_nothing_is_sent_while_nobody_could_leave(office: Office) -> None:
    """The unsubscribe address is visited before the first mail; where it does not answer none goes out."""
    edit(office.folder, "campaign.toml", "https://list.example.com", f"http://127.0.0.1:{free_port()}")
    office.start()
    with pytest.raises(EnvironmentNotReadyError, match="Nobody could leave the list"):
        run("send", "-w", office.folder, "--send", "--yes", 12)
    assert office.recipients() == []


def test_an_unsubscribe_address_in_the_open_is_refused(office: Office) -> None:
    """RFC 8058 wants https."""
    edit(office.folder, "campaign.toml", "https://list.example.com", "http://list.example.com")
    office.start()
    with pytest.raises(UsageError, match="https://"):
        run("send", "-w", office.folder, "--send", "--yes", 12)


def test_a_shared_suppression_list_must_be_named(office: Office) -> None:
    """A campaign that forgot it would write to those who left another campaign's list."""
    edit(office.folder, "campaign.toml", 'suppression = "../suppression"', "")
    with pytest.raises(UsageError, match=r"\[site\] suppression is missing"):
        run("send", "-w", office.folder)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("per_day = 1000", "per_day = 0", "per_day must be above 0"),
        ('tls = "none"', 'tls = "maybe"', "tls must be one of"),
        ("per_day = 1000", "per_week = 5", "per_week is unknown"),
        ('kind = "email"', 'kind = "page"', "kind is page"),
        ("maturity_days = 7.0", "maturity_days = 0", "no answer to a mail comes at once"),
    ],
)
def test_settings_that_make_no_sense_are_named(office: Office, old: str, new: str, words: str) -> None:
    """File, table and key are in the message."""
    edit(office.folder, "campaign.toml", old, new)
    with pytest.raises(UsageError, match=words):
        _ = office.settings


def test_the_run_sees_what_came_back(office: Office, post_box: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    """From live test to totals: start, send, answer by mail, `replies`, look; a list that is used up ends it."""
    monkeypatch.setenv(IMAP_PASSWORD, SECRET)
    office.set(
        imap_host="127.0.0.1", imap_port=post_box.port, imap_tls="none", imap_username="boss", classifier="rules"
    )
    edit(office.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    source = create_source(office.campaign, {})
    assert isinstance(source, EmailSource)
    source.prepare()
    arms = office.folder / "a", office.folder / "b"
    office.write_arms()
    source.start(LiveExperiment("run/0001", *arms, {"control": 0.5, "treatment": 0.5}, datetime.now(UTC)))
    office.send()
    for number in range(5):
        mail = office.taker.mails[number][1]
        post_box.put("boss", reply(mail, quoted(mail, "Yes please, send me a price.")))
    said = run("replies", "-w", office.folder)
    assert "5 new answers, judged by rules" in said
    assert "5 positive" in said
    assert "company" not in said
    later = datetime.now(UTC) + timedelta(days=8)
    seen = EmailSource(office.campaign, now=lambda: later).look("run/0001")
    assert sum(arm.total for arm in seen.arms) == 5
    assert sum(arm.n for arm in seen.arms) == sum(seen.exposed.values()) == 12
    assert seen.crossed == 0
    assert seen.over is not None
    assert "used up" in seen.over
    soon = EmailSource(office.campaign).look("run/0001")
    assert soon.over is None
    assert sum(arm.n for arm in soon.arms) == 0
    again = as_documented("marketing replies", run("replies", "-w", office.folder, "--json"))
    assert (again["new"], again["in_all"]) == ({}, {"positive": 5})


def test_complaints_stop_the_sending(office: Office, post_box: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    """An arm above the ceiling of a guardrail is not sent on, days before its units are mature."""
    monkeypatch.setenv(IMAP_PASSWORD, SECRET)
    office.set(imap_host="127.0.0.1", imap_port=post_box.port, imap_tls="none", imap_username="harmed")
    edit(office.folder, "campaign.toml", "per_day = 1000", "per_day = 10")
    edit(office.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    office.start()
    office.send()
    for _, mail in office.taker.mails:
        post_box.put("harmed", complaint(mail))
    run("replies", "-w", office.folder)
    with pytest.raises(UsageError, match="nothing more is sent"):
        office.send(lambda: datetime.now(UTC) + timedelta(days=2))
    assert len(office.recipients()) == 10


def test_a_source_without_a_list_is_not_ready(office: Office) -> None:
    """The recipients are read when a run begins, not when somebody wants to send."""
    (office.folder / "recipients.csv").unlink()
    with pytest.raises(UsageError, match=r"recipients\.csv"):
        EmailSource(office.campaign).prepare()


def test_replies_without_a_mailbox(office: Office) -> None:
    """The key that is missing is named."""
    with pytest.raises(UsageError, match="imap_host is missing"):
        run("replies", "-w", office.folder)


def test_accuracy_is_printed_without_a_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says on how many answers, how sure, and that common phrases are easier than people."""
    monkeypatch.chdir(tmp_path)
    said = run("replies", "--accuracy")
    assert re.search(r"test: \d+ of \d+ right, \d+ % ?\(|test: \d+ of \d+ right, \d+%", said)
    assert "hard:" in said
    assert "expect less" in said


def test_forgetting_an_address(office: Office) -> None:
    """Rows and events of the person are erased, and the next mail does not go out either."""
    edit(office.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    office.start()
    office.send()
    before = office.exposed()
    hashed = suppression.address_hash(office.settings.shared, "person3@company3.example")
    assert hashed.encode() in (office.settings.shared / "mail.db").read_bytes()
    said = run("forget", "Person3@Company3.example", "-w", office.folder)
    assert "Erased 1 row about" in said
    assert "company" not in said.lower()
    assert office.exposed() == before - 1 == 11
    with Journal(office.settings.shared) as journal:
        assert journal.last_to(hashed) is None
    assert hashed.encode() not in (office.settings.shared / "mail.db").read_bytes()
    office.live.finish("run/0001")
    office.start("run/0002")
    office.send()
    assert office.recipients().count("person3@company3.example") == 1


def test_the_settings_in_a_new_campaign_are_right_once_uncommented(tmp_path: Path) -> None:
    """What `init` writes as an example is a configuration that loads."""
    folder = write_campaign(tmp_path / "new", "email")
    text = (folder / "campaign.toml").read_text()
    head, mark, example = text.partition("# [email]")
    (folder / "campaign.toml").write_text(head + re.sub(r"^# ?", "", mark + example, flags=re.MULTILINE))
    settings = EmailSettings.of(Campaign.load(folder))
    server = settings.ready_to_send(folder)
    assert (server.host, server.port, server.tls) == ("smtp.example.com", 587, "starttls")
    assert settings.imap is not None
    assert (settings.imap.port, settings.imap.tls, settings.imap.username) == (993, "implicit", "mara@example.com")
    assert settings.shared == folder / "../suppression"


def test_putting_somebody_on_the_list_by_hand(office: Office) -> None:
    """Who said no by telephone is not written to; what is no address is refused, not taken for one."""
    office.start()
    run("suppress", "PERSON4@company4.example", "-w", office.folder)
    with pytest.raises(UsageError, match="no @"):
        run("suppress", "person5", "-w", office.folder)
    office.send()
    assert len(office.recipients()) == 11
    assert "person4@company4.example" not in office.recipients()


def test_what_no_rule_understood_is_shown_by_its_arrival(
    office: Office, post_box: Dovecot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person can find such answers in the mailbox, and nobody's address is printed."""
    monkeypatch.setenv(IMAP_PASSWORD, SECRET)
    office.set(imap_host="127.0.0.1", imap_port=post_box.port, imap_tls="none", imap_username="riddle")
    office.start()
    office.send()
    post_box.put("riddle", reply(office.taker.mails[0][1], "The heron stands in the reeds on Tuesdays."))
    said = run("replies", "-w", office.folder)
    assert "1 of the neutral ones no rule understood" in said
    assert f"{datetime.now().astimezone():%d %b}" in said
    assert "@" not in said


def test_a_list_too_short_for_its_traffic_is_hopeless(office: Office) -> None:
    """Twelve people in eight weeks are one a week, whatever [traffic] says; plan and run say so alike."""
    with pytest.raises(UsageError, match=r"recipients\.csv has 12 to assign(.|\n)*With 1 units a week(.|\n)*--anyway"):
        create_adapter({}).prepare(Workspace(office.folder))
    said = run("plan", "-w", office.folder)
    assert "recipients.csv has 12 to assign" in said and "1 units a week" in said
    assert "2,000 units a week" in run("plan", "-w", office.folder, "--weekly", 2000)


def test_caps_bound_the_traffic(office: Office) -> None:
    """Two mails a day are fourteen a week."""
    edit(office.folder, "campaign.toml", "per_day = 1000", "per_day = 2")
    office.write_recipients([f"person{i}@company{i}.example" for i in range(200)])
    said = run("plan", "-w", office.folder)
    assert "let out 14 mails a week, and not the 2,000" in said and "14 units a week" in said
    found = bound_of(office.campaign, 10, 8)
    assert found is None, "the list has 25 a week"
    (office.folder / "recipients.csv").unlink()
    assert bound_of(office.campaign, 10, 8) is None, "a list that is not there yet bounds nothing"


def test_the_adapter_runs_a_test_of_mails(office: Office, post_box: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the loop calls, in its order: prepare, start, observe, gates, finish; a kept copy is the incumbent."""
    monkeypatch.setenv(IMAP_PASSWORD, SECRET)
    office.set(imap_host="127.0.0.1", imap_port=post_box.port, imap_tls="none", imap_username="loop")
    edit(office.folder, "campaign.toml", "holdout = 0.05", "holdout = 0.0")
    office.write_arms()
    adapter = create_adapter({"anyway": "yes"})
    adapter.prepare(Workspace(office.folder))
    test = LiveExperiment(
        "run/0001", office.folder / "a", office.folder / "b", {"control": 0.5, "treatment": 0.5}, datetime.now(UTC)
    )
    adapter.start(test)
    assert office.recipients() == [], "a run writes to nobody"
    office.send()
    assert isinstance(adapter.source, EmailSource)
    adapter.source.now = lambda: datetime.now(UTC) + timedelta(days=7.1)
    arms = adapter.observe("run/0001")
    assert sum(arm.n for arm in arms) == 12
    assert adapter.gates("run/0001", None).invalid is None
    assert adapter.ending("run/0001") is not None
    adapter.finish("run/0001", Outcome.KEPT)
    assert "Who plans your Saturdays?" in (office.live.read().surfaces["email"].incumbent / "copy.toml").read_text()


def test_who_declined_is_not_asked_again(office: Office, post_box: Dovecot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is who answered in words that nobody understood; the others are, once the days that are set have passed."""
    monkeypatch.setenv(IMAP_PASSWORD, SECRET)
    office.set(
        imap_host="127.0.0.1", imap_port=post_box.port, imap_tls="none", imap_username="decliner", again_after_days=1
    )
    office.write_recipients([f"person{i}@company{i}.example" for i in range(4)])
    office.start()
    office.send()
    for number, text in enumerate(("No thanks.", "Enough.", "Yes please.")):
        post_box.put("decliner", reply(office.taker.mails[number][1], text))
    run("replies", "-w", office.folder)
    office.live.finish("run/0001")
    office.start("run/0002")
    office.send(lambda: datetime.now(UTC) + timedelta(days=2))
    assert office.recipients()[4:] == ["person2@company2.example", "person3@company3.example"]
