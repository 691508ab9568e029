"""Answers: fetched, led back to the mail that they answer, told apart, and written into the log as events.

Everything may happen twice. A message is known by the hash of its Message-ID: it is taken in once, and where a kill
falls between the log and the journal, its event has the same id the second time and is counted once.

Who wants no more mail is on the suppression list before anything else happens with the answer.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.utils import parseaddr
from functools import cached_property

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.campaign import Campaign
from autoresearch.adapters.marketing.email import clicks, reports, suppression, words
from autoresearch.adapters.marketing.email.classify import Judge, redacted
from autoresearch.adapters.marketing.email.inbox import Arrived, Inbox, header
from autoresearch.adapters.marketing.email.journal import NOT_UNDERSTOOD, Journal, Mail
from autoresearch.adapters.marketing.email.message import Token, tokens_in
from autoresearch.adapters.marketing.email.send import campaign_id
from autoresearch.adapters.marketing.email.settings import EmailSettings
from autoresearch.adapters.marketing.live import LiveFolder
from autoresearch.adapters.marketing.wording import Copy
from autoresearch.core import CandidateError, EnvironmentNotReadyError

EVENTS = {
    "positive": "positive_reply",
    "unsubscribe": "unsubscribe",
    "complaint": "complaint",
    "bounce": "bounce",
    "click": "click",
}
"""Goal or guardrail by kind of answer; the other kinds are no events."""

_LEAVES = ("unsubscribe", "complaint")
_RAW = 200_000  # bytes of a message in which a token is looked for


@dataclass(slots=True)
class Tally:
    """What one reading found.

    Attributes:
        kinds: How many answers of each kind.
        unjoined: Messages that answer no mail of this campaign; nothing of them is kept.
        unsure: When answers arrived in which no rule recognised anything; they are neutral for want of better.
        known: Messages that were taken in before.
        suppressed: Addresses put on the list.
        clicks: Mails whose link a person clicked on, so far.
        loaded: Mails whose picture was loaded, by whomever, so far.
        opened: Of these, those that no rule takes for a program's; recorded, never decided on.
    """

    kinds: Counter[str] = field(default_factory=Counter)
    unjoined: int = 0
    unsure: list[float] = field(default_factory=list)
    known: int = 0
    suppressed: int = 0
    clicks: int = 0
    loaded: int = 0
    opened: int = 0


@dataclass(frozen=True, slots=True)
class _Joined:
    """Whom an answer is from.

    Attributes:
        unit: Key in the event log.
        mail: The mail that it answers; None where the journal does not have it any more.
        token: Its token.
    """

    unit: int
    mail: Mail | None
    token: str


class Replies:
    """Takes in the answers of one campaign.

    Args:
        campaign: The campaign.
        journal: What was sent.
        judge: Says what people's words mean.
        settings: Its table [email]; None reads it.
        now: The clock, in seconds since 1970.
    """

    def __init__(
        self,
        campaign: Campaign,
        journal: Journal,
        judge: Judge,
        settings: EmailSettings | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.campaign = campaign
        self.settings = settings or EmailSettings.of(campaign)
        self.live = LiveFolder.of(campaign.folder)
        self.journal = journal
        self.judge = judge
        self.now = now
        self.id = campaign_id(self.live)
        self._writer: events.EventWriter | None = None

    def fetch(self, inbox: Inbox, name: str, progress: Callable[[int], None] = lambda done: None) -> Tally:
        """Take in what has arrived since the last reading.

        Args:
            inbox: The open folder.
            name: What the folder is called in the journal; servers and users have folders of the same name.
            progress: Called with the number of messages looked at.
        """
        tally = Tally()
        try:
            self.take_clicks(tally)
            self.count_opens(tally)
            self._take_mails(inbox, name, tally, progress)
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        return tally

    def count_opens(self, tally: Tally) -> None:
        """Count opens; no event is written of them, so that nothing can decide by them."""
        settled = self.now() - clicks.SETTLED
        tally.loaded = self.journal.n_visited(self.id, clicks.OPEN)
        tally.opened = sum(1 for _ in clicks.people_in(self.journal, self.id, settled, clicks.OPEN))

    def take_clicks(self, tally: Tally) -> None:
        """Write the clicks of people; the same ones every time, and an event's id counts once."""
        for unit, token, at in clicks.people_in(self.journal, self.id, self.now() - clicks.SETTLED):
            tally.clicks += 1
            if not self.journal.knows_reply(f"click/{token}"):
                self._write(unit, "click", at, token)
                self.journal.add_reply(f"click/{token}", token, "click", "rules", at)

    def _take_mails(self, inbox: Inbox, name: str, tally: Tally, progress: Callable[[int], None]) -> None:
        first = self.journal.first_mail(self.id)
        if first is None:
            return
        key = hashlib.sha256(f"{self.id}\0{name}".encode()).hexdigest()[:32]
        validity, after = self.journal.read_to(key)
        if validity != inbox.validity:
            after = 0
        for done, arrived in enumerate(inbox.arrived(after, first), 1):
            self.take(arrived, tally)
            self.journal.set_read_to(key, inbox.validity, arrived.uid)
            progress(done)

    def take(self, arrived: Arrived, tally: Tally) -> None:
        """Take in one message. Idempotent."""
        message = arrived.message
        reply = _id_of(message)
        if self.journal.knows_reply(reply):
            tally.known += 1
            return
        report = reports.report_in(message)
        joined = self._joined(message, report, arrived.at)
        if joined is None:
            tally.unjoined += 1
            return
        if report is not None:
            kind, judge = report.kind, "structure"
        else:
            kind, judge = self._judged(message, arrived.at, tally)
        if kind in _LEAVES or (report is not None and report.permanent):
            self._suppress(message, joined, kind, report, tally)
        at = max(arrived.at, joined.mail.at + 1e-3 if joined.mail is not None else 0.0)
        self._write(joined.unit, kind, at, reply)
        self.journal.add_reply(reply, joined.token, kind, judge, at)
        tally.kinds[kind] += 1

    # Which mail it answers

    def _joined(self, message: Message, report: reports.Report | None, at: float) -> _Joined | None:
        """Return whom a message is from: by a token of ours in it, else by the address that we wrote to."""
        for token in self._tokens(message):
            return _Joined(token.unit, self.journal.find(token.text), token.text)
        address = _failed_recipient(message) if report is not None else ""
        address = address or parseaddr(header(message, "From"))[1]
        if not address:
            return None
        mail = self.journal.last_to(suppression.address_hash(self.settings.shared, address))
        # A day of grace, for clocks differ.
        if mail is None or mail.campaign != self.id or mail.at > at + 86_400.0:
            return None
        return _Joined(int(mail.unit, 16), mail, mail.token)

    def _tokens(self, message: Message) -> Iterator[Token]:
        """Yield tokens, the likeliest first: what it says it answers, then wherever programs quote a Message-ID."""
        secret = self.live.secret
        yield from tokens_in(secret, header(message, "In-Reply-To"))
        yield from reversed(tokens_in(secret, header(message, "References")))
        yield from tokens_in(secret, header(message, "Subject"))
        for part in message.walk():
            if part.get_content_maintype() == "text":
                yield from tokens_in(secret, words.decoded(part)[:_RAW])
        yield from tokens_in(secret, message.as_bytes()[:_RAW].decode("latin-1"))

    # What it says

    def _judged(self, message: Message, at: float, tally: Tally) -> tuple[str, str]:
        subject = header(message, "Subject")
        if tokens_in(self.live.secret, subject) and "unsubscribe" in subject.casefold():
            return "unsubscribe", "words"  # the second address of List-Unsubscribe
        text = redacted(message, self._our_lines)
        if not text and words.asks_to_leave(subject):
            return "unsubscribe", "words"
        said = words.judged(text)
        if said.kind == "unsubscribe":
            return "unsubscribe", "words"
        kind, judge = self.judge.judge(text) if text else ("neutral", "words")
        if judge.startswith("rules") and not said.sure:
            tally.unsure.append(at)
            judge = NOT_UNDERSTOOD
        return kind, judge

    @cached_property
    def _our_lines(self) -> frozenset[str]:
        """Lines of every arm and of the template: some programs quote without marking it."""
        texts: list[str] = []
        for path in (self.live.path / "arms").glob("*/copy.toml"):
            try:
                texts += Copy.load(path).slots.values()
            except CandidateError:
                continue  # an arm that cannot be read was never sent
        template = self.campaign.template / "email.txt.j2"
        if template.is_file():
            texts.append(template.read_text(encoding="utf-8"))
        lines = (words.line_key(line) for text in texts for line in text.splitlines() if "{" not in line)
        return frozenset(line for line in lines if line)

    # What follows

    def _suppress(
        self, message: Message, joined: _Joined, kind: str, report: reports.Report | None, tally: Tally
    ) -> None:
        shared = self.settings.shared
        hashes = {joined.mail.address} if joined.mail is not None else set()
        sender = parseaddr(header(message, "From"))[1]
        if report is None and sender:
            # People answer from another of their addresses and mean that one too.
            hashes.add(suppression.address_hash(shared, sender))
        for hashed in sorted(hashes - suppression.suppressed(shared)):
            suppression.suppress(shared, hashed, kind)
            tally.suppressed += 1

    def _write(self, unit: int, kind: str, at: float, reply: str) -> None:
        goal = EVENTS.get(kind)
        if goal is None or unit in events.forgotten(self.live.events):
            return
        record = events.pack(
            unit, round(at * 1e6), events.key(goal), kind=events.CONVERSION, event=events.key(reply, f"mail/{goal}")
        )
        if self._writer is None:
            self._writer = events.EventWriter(self.live.events)
        try:
            self._writer.write(record)
        except events.LogFullError as error:
            raise EnvironmentNotReadyError(
                f"The event log takes no more: {error}\nMake room in {self.live.events} and run the same command again."
            ) from error
        self._writer.sync()


def _id_of(message: Message) -> str:
    """Return what a message is known by: the hash of its Message-ID, or of all of it where it has none."""
    name = header(message, "Message-ID")
    data = name.encode("utf-8", "surrogateescape") if name else message.as_bytes()
    return hashlib.sha256(data).hexdigest()[:32]


def _failed_recipient(message: Message) -> str:
    """Return the address that a bounce is about; empty where it names none."""
    listed = header(message, "X-Failed-Recipients").split(",")[0].strip()
    if listed:
        return listed
    for part in message.walk():
        if part.get_content_type() == "message/delivery-status":
            for block in part.walk():
                for name in ("Original-Recipient", "Final-Recipient"):
                    if name in block:
                        return header(block, name).rpartition(";")[2].strip()
    return ""
