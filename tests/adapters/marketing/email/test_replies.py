"""Answers through a real Dovecot: which mail they answer, what they say, and what follows."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage

import pytest

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.email import suppression
from autoresearch.adapters.marketing.email.classify import Rules
from autoresearch.adapters.marketing.email.inbox import opened
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.replies import Replies, Tally
from autoresearch.adapters.marketing.email.settings import IMAP_PASSWORD, MailServer
from autoresearch.core import EnvironmentNotReadyError
from tests.adapters.marketing.email.answers import bounce, complaint, quoted, reply, report
from tests.adapters.marketing.email.conftest import Office
from tests.adapters.marketing.email.post_office import SECRET, Dovecot

_users = itertools.count()


class Correspondence:
    """An office whose mails are out, and a mailbox of its own in the Dovecot."""

    def __init__(self, office: Office, box: Dovecot) -> None:
        self.office = office
        self.box = box
        self.user = f"mara{next(_users)}"
        self.server = MailServer("127.0.0.1", box.port, "none", self.user)
        office.write_recipients([f"person{i}@company{i}.example" for i in range(4)])
        office.start()
        office.send()

    def mail(self, number: int = 0) -> EmailMessage:
        return self.office.taker.mails[number][1]

    def address(self, number: int = 0) -> str:
        return self.office.taker.mails[number][0]

    def arrive(self, *raw: bytes) -> None:
        for each in raw:
            self.box.put(self.user, each)

    def read(self, judge: object = None) -> Tally:
        with Journal(self.office.settings.shared) as journal, opened(self.server, "INBOX") as inbox:
            return self.taker(journal, judge).fetch(inbox, self.user)

    def taker(self, journal: Journal, judge: object = None) -> Replies:
        return Replies(self.office.campaign, journal, judge or Rules())  # type: ignore[arg-type]

    def suppressed(self) -> list[int]:
        """Return the numbers of the recipients who are on the list."""
        shared = self.office.settings.shared
        no_more = suppression.suppressed(shared)
        return [n for n in range(4) if suppression.address_hash(shared, f"person{n}@company{n}.example") in no_more]

    def events(self, goal: str) -> int:
        """Return how many units the log has a conversion of, in or out of a test."""
        units = {
            int(row["unit"])
            for _, _, rows in events.read(self.office.live.events, {})
            for row in rows
            if row["kind"] == events.CONVERSION and row["subject"] == events.key(goal)
        }
        return len(units)


@pytest.fixture
def letters(office: Office, post_box: Dovecot, monkeypatch: pytest.MonkeyPatch) -> Correspondence:
    monkeypatch.setenv(IMAP_PASSWORD, SECRET)
    return Correspondence(office, post_box)


def test_answers_of_every_kind_become_the_right_events(letters: Correspondence) -> None:
    """A yes, a no, a question, an absence, a bounce, a complaint and a farewell, each counted as what it is."""
    letters.arrive(
        reply(letters.mail(0), quoted(letters.mail(0), "Yes please, call me on Thursday.")),
        reply(letters.mail(1), quoted(letters.mail(1), "No thanks, we are happy with what we have.")),
        reply(letters.mail(1), "Who is this?"),
        reply(letters.mail(2), "I am out of the office.", Auto_Submitted="auto-replied"),
        bounce(letters.mail(2)),
        complaint(letters.mail(3)),
        reply(letters.mail(1), "Nehmen Sie mich bitte aus Ihrem Verteiler.", sender=letters.address(1)),
    )
    tally = letters.read()
    assert dict(tally.kinds) == {
        "positive": 1, "negative": 1, "neutral": 1, "auto_reply": 1, "bounce": 1, "complaint": 1, "unsubscribe": 1,
    }  # fmt: skip
    assert [letters.events(goal) for goal in ("positive_reply", "bounce", "complaint", "unsubscribe")] == [1, 1, 1, 1]
    assert sorted(letters.suppressed()) == [1, 2, 3]


def test_a_positive_answer_counts_for_its_unit(letters: Correspondence) -> None:
    """The run sees it: the answering units have converted, in the arms that they are in."""
    letters.arrive(*(reply(letters.mail(n), "Sounds good, send me the price.") for n in range(4)))
    letters.read()
    assert letters.office.converted() == letters.office.exposed() > 0


def test_reading_twice_counts_once(letters: Correspondence) -> None:
    """A message is read once, whether it lies there still, comes again, or the server gives it a new number."""
    raw = reply(letters.mail(), "Yes please", message_id="<one@a.example>")
    letters.arrive(raw)
    assert letters.read().kinds["positive"] == 1
    assert sum(letters.read().kinds.values()) == 0
    letters.arrive(raw)
    assert letters.read().known == 1
    with Journal(letters.office.settings.shared) as journal:
        journal._db.execute("UPDATE folders SET validity = 1")
    assert letters.read().known == 2
    assert letters.events("positive_reply") == 1


def test_a_kill_between_log_and_journal_counts_once(letters: Correspondence, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is written again with the same id, and an id counts once."""
    letters.arrive(reply(letters.mail(), "Yes please"))

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "add_reply", killed)
        with pytest.raises(KeyboardInterrupt):
            letters.read()
    assert letters.read().kinds["positive"] == 1
    found = [row for _, _, rows in events.read(letters.office.live.events, {}) for row in rows]
    ids = [int(row["event"]) for row in found if row["kind"] == events.CONVERSION]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert 0 not in ids


def test_the_mailbox_is_left_as_it_was(letters: Correspondence) -> None:
    """Nothing is marked as read, moved or deleted: a person reads there too."""
    letters.arrive(reply(letters.mail(), "Yes please"))
    letters.read()
    assert b"Seen" not in b"".join(letters.box.flags(letters.user))
    assert b"Recent" in b"".join(letters.box.flags(letters.user))
    assert len(letters.box.flags(letters.user)) == 1


def test_an_answer_without_a_thread_is_known_by_its_sender(letters: Correspondence) -> None:
    """Somebody who writes anew is led back by the address that we wrote to."""
    letters.arrive(reply(letters.mail(), "Yes please", thread=False, sender=letters.address(), subject="Your letter"))
    assert letters.read().kinds["positive"] == 1


def test_a_mail_from_a_stranger_leaves_no_trace(letters: Correspondence) -> None:
    """Other people's mail in the same mailbox is counted as such, and nothing of it is kept."""
    letters.arrive(reply(letters.mail(), "Yes please, unsubscribe me", thread=False, sender="eve@evil.example"))
    tally = letters.read()
    assert (tally.unjoined, sum(tally.kinds.values()), tally.suppressed) == (1, 0, 0)


def test_a_forged_message_id_leads_nowhere(letters: Correspondence) -> None:
    """A token that we did not sign is no token: nobody can make answers of others up."""
    token = str(letters.mail()["Message-ID"]).strip(" <>").partition("@")[0]
    forged = ("a" if token[0] != "a" else "b") + token[1:]
    raw = reply(
        letters.mail(), "Yes please", sender="eve@evil.example", thread=False, In_Reply_To=f"<{forged}@example.com>"
    )
    letters.arrive(raw)
    assert letters.read().unjoined == 1


def test_a_token_survives_programs_that_change_its_case(letters: Correspondence) -> None:
    """Message-IDs come back in capitals from some; a unit is found all the same."""
    shouted = str(letters.mail()["Message-ID"]).strip().upper()
    letters.arrive(reply(letters.mail(), "Yes please", thread=False, In_Reply_To=shouted))
    assert letters.read().kinds["positive"] == 1


@pytest.mark.parametrize("whole", [True, False])
def test_a_permanent_bounce_suppresses(letters: Correspondence, whole: bool) -> None:
    """A mailbox that does not exist is not written to again, whether the report has all of our mail or its head."""
    letters.arrive(bounce(letters.mail(2), whole=whole))
    letters.read()
    assert (letters.events("bounce"), letters.suppressed()) == (1, [2])


def test_a_full_mailbox_counts_and_may_be_written_to_again(letters: Correspondence) -> None:
    """A mail that was given up for a passing reason is a bounce; the address stays."""
    letters.arrive(bounce(letters.mail(), status="4.2.2"))
    letters.read()
    assert (letters.events("bounce"), letters.suppressed()) == (1, [])


def test_a_delay_is_no_bounce(letters: Correspondence) -> None:
    """A server that is still trying has not failed."""
    letters.arrive(bounce(letters.mail(), action="delayed", status="4.4.1"))
    assert letters.read().kinds == {"delay": 1}
    assert letters.events("bounce") == 0


def test_a_bounce_that_quotes_nothing_is_known_by_its_recipient(letters: Correspondence) -> None:
    """Some reports name the address and nothing else."""
    nothing = EmailMessage()
    nothing["To"] = letters.address(3)
    letters.arrive(bounce(nothing))
    letters.read()
    assert letters.suppressed() == [3]


def test_a_provider_can_pass_on_a_farewell_or_take_a_complaint_back(letters: Correspondence) -> None:
    """Feedback of the type opt-out unsubscribes, not-spam does nothing."""
    letters.arrive(complaint(letters.mail(0), "opt-out"), complaint(letters.mail(1), "not-spam"))
    assert letters.read().kinds == {"unsubscribe": 1, "receipt": 1}
    assert letters.suppressed() == [0]
    assert letters.events("complaint") == 0


def test_the_mail_that_list_unsubscribe_asks_for(letters: Correspondence) -> None:
    """A program that takes the mailto address sends an empty mail whose subject names the token."""
    subject = letters.mail(2)["List-Unsubscribe"].partition("subject=")[2].rstrip(">").replace("%20", " ")
    letters.arrive(reply(letters.mail(2), "", thread=False, subject=subject, sender="other@elsewhere.example"))
    letters.read()
    shared = letters.office.settings.shared
    assert letters.suppressed() == [2]
    assert suppression.address_hash(shared, "other@elsewhere.example") in suppression.suppressed(shared)


def test_our_own_unsubscribe_line_is_nobodys_wish(letters: Correspondence) -> None:
    """A yes above our quoted mail is a yes, though the quotation says unsubscribe, marked as one or not."""
    part = letters.mail().get_body(("plain",))
    assert part is not None
    html = letters.mail().get_body(("html",))
    assert html is not None
    letters.arrive(
        reply(letters.mail(0), quoted(letters.mail(0), "Yes please")),
        reply(letters.mail(1), f"Yes please\n\n{part.get_content()}"),
        reply(letters.mail(2), f"<p>Yes please</p><div class='gmail_quote'>{html.get_content()}</div>", html=True),
        reply(letters.mail(3), f"<p>Yes please</p><blockquote>{html.get_content()}</blockquote>", html=True),
    )
    assert letters.read().kinds == {"positive": 4}
    assert letters.suppressed() == []


def test_who_was_forgotten_is_not_counted(letters: Correspondence) -> None:
    """An answer of somebody who was erased writes no event, but still a wish to be left alone is kept."""
    hashed = suppression.address_hash(letters.office.settings.shared, letters.address(0))
    events.forget(letters.office.live.events, [letters.office.live.unit_key(hashed)])
    letters.arrive(reply(letters.mail(0), "Please stop emailing me", sender=letters.address(0)))
    letters.read()
    assert letters.events("unsubscribe") == 0
    assert letters.suppressed() == [0]


def test_an_answer_in_the_second_of_sending_counts(letters: Correspondence) -> None:
    """Mailboxes keep whole seconds; an answer is never older than its mail."""
    letters.box.put(
        letters.user, reply(letters.mail(0), "Yes please"), at=(datetime.now(UTC) - timedelta(seconds=90)).timestamp()
    )
    letters.read()
    assert letters.events("positive_reply") == 1
    assert letters.office.converted() + holdout_of(letters) == 1


def holdout_of(letters: Correspondence) -> int:
    """Return 1 where the first recipient is in the holdout, whose answers are in no test."""
    with Journal(letters.office.settings.shared) as journal:
        mail = journal.last_to(suppression.address_hash(letters.office.settings.shared, letters.address(0)))
    assert mail is not None
    return int(mail.arm == "holdout")


class Listener:
    """A judge that remembers what it was shown."""

    name = "listener"

    def __init__(self) -> None:
        self.heard: list[str] = []

    def judge(self, text: str) -> tuple[str, str]:
        self.heard.append(text)
        return "positive", self.name


def test_the_judge_is_blind(letters: Correspondence) -> None:
    """It sees the person's words, and neither subject nor quotation, which differ by arm, nor names and addresses."""
    judge = Listener()
    text = "Sure. I'm Kim, write to kim@a.example or call +44 117 496 0123, see https://a.example/menu\n-- \nKim Doe"
    letters.arrive(reply(letters.mail(), quoted(letters.mail(), text), sender="Kim Doe <kim@a.example>"))
    letters.read(judge)
    assert judge.heard == ["Sure. I'm [name], write to [address] or call [number], see [link]"]


def test_a_wish_to_leave_does_not_wait_for_a_judge(letters: Correspondence) -> None:
    """Words that ask for no more mail suppress at once, whoever judges the rest."""
    judge = Listener()
    letters.arrive(reply(letters.mail(0), "Please remove me from your list", sender=letters.address(0)))
    letters.read(judge)
    assert judge.heard == []
    assert letters.suppressed() == [0]


def test_mail_older_than_the_first_sending_is_not_read(letters: Correspondence) -> None:
    """What lay in the mailbox before the campaign wrote to anybody is nobody's answer."""
    letters.box.put(letters.user, reply(letters.mail(), "Yes please"), at=datetime(2020, 1, 1, tzinfo=UTC).timestamp())
    assert letters.read() == Tally()


def test_no_text_and_no_address_is_kept(letters: Correspondence) -> None:
    """Neither the journal nor the log holds a word of an answer or who wrote it."""
    letters.arrive(reply(letters.mail(), "Yes please, xylophone", sender="Kim Doe <kim@a.example>"))
    letters.read()
    shared = letters.office.settings.shared
    for path in [*shared.rglob("*"), *(letters.office.folder / ".autoresearch").rglob("*")]:
        if path.is_file():
            data = path.read_bytes().lower()
            assert b"xylophone" not in data
            assert b"a.example" not in data


def test_a_wrong_password_is_said_and_not_shown(letters: Correspondence, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the variable; the password is nowhere in it, and there is no cause that could hold it."""
    monkeypatch.setenv(IMAP_PASSWORD, "swordfish-41")
    with pytest.raises(EnvironmentNotReadyError, match=IMAP_PASSWORD) as caught:
        letters.read()
    assert "swordfish" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_missing_folder_is_named(letters: Correspondence) -> None:
    """A folder that is not there is the configuration's fault."""
    with pytest.raises(EnvironmentNotReadyError, match=r"imap_folder"), opened(letters.server, "Answers"):
        pass


def test_no_server_is_said(letters: Correspondence) -> None:
    """A port that nobody listens on is named."""
    with (
        pytest.raises(EnvironmentNotReadyError, match=r"127\.0\.0\.1:1 stopped"),
        opened(MailServer("127.0.0.1", 1, "none", "x"), "INBOX"),
    ):
        pass


@pytest.mark.parametrize("tls", ["implicit", "starttls"])
def test_tls_is_verified(letters: Correspondence, tls: str) -> None:
    """Over TLS the mailbox opens with the right authority, and not without."""
    port = letters.box.tls_port if tls == "implicit" else letters.box.port
    good = MailServer("localhost", port, tls, letters.user, letters.box.certificate)
    with opened(good, "INBOX") as inbox:
        assert inbox.validity > 0
    with (
        pytest.raises(EnvironmentNotReadyError, match="stopped"),
        opened(MailServer("localhost", port, tls, "x"), "INBOX"),
    ):
        pass


def test_a_read_receipt_says_nothing(letters: Correspondence) -> None:
    """Receipts, like opens, decide nothing."""
    fields = "Reporting-UA: mail; x\r\nDisposition: manual-action/MDN-sent-manually; displayed\r\n"
    raw = report("disposition-notification", fields, letters.mail(), sender=letters.address(), subject="Read: yes")
    letters.arrive(raw)
    assert letters.read().kinds == {"receipt": 1}
