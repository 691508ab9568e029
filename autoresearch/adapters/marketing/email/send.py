"""Sending: the next recipients of the live test, each once, under caps, and never one who said no.

A plan says who would get what; nothing is sent without one. Assignment is a salted hash, as on pages, so that a plan
made twice is the same plan. While mails go out, every one is looked at again: the test must still run, the kill switch
be off, the address not be on the suppression list. The exposure is written when the server has taken the mail.

Where a list is spent by Test & Roll (`list_test.py`) only the planned part of it is in the test. Once that has chosen,
a plan holds everybody else, who get what was chosen.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from autoresearch.adapters.marketing import assignment, events
from autoresearch.adapters.marketing.counting import counter_of, holdout_counter, holdout_key
from autoresearch.adapters.marketing.email import list_test, message, suppression
from autoresearch.adapters.marketing.email.journal import Journal, Mail
from autoresearch.adapters.marketing.email.recipients import Recipient, address_fault, read_recipients
from autoresearch.adapters.marketing.email.settings import SMTP_PASSWORD, SURFACE, EmailSettings, MailServer, password
from autoresearch.adapters.marketing.live import LiveFolder, LiveTest, Surface
from autoresearch.adapters.marketing.served import last_change
from autoresearch.adapters.marketing.site.links import signed_link
from autoresearch.adapters.marketing.wording import Copy
from autoresearch.core import EnvironmentNotReadyError, UsageError
from autoresearch.core.decision.gates import ceiling_gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.email.list_test import ListTest
    from autoresearch.adapters.marketing.render import Rendered

HOLDOUT, REST = "holdout", "rest"
"""Arms of those who get the original for ever, and of those whom another surface's tests may have."""

_DAY = 24 * 3600.0
_MANY = 5
"""Refusals in a row after which sending stops: by then it is the server that says no, not one mailbox."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A recipient who may be written to; fields as in `Planned`."""

    recipient: Recipient
    address: str
    unit_name: str
    unit: int


@dataclass(frozen=True, slots=True)
class Planned:
    """One mail that is to go out.

    Attributes:
        recipient: To whom.
        address: Salted hash of the address.
        unit_name: Salted hash of what is assigned, the address or its company's domain.
        unit: Its key in the event log.
        arm: An arm of the test, `holdout` or `rest`.
    """

    recipient: Recipient
    address: str
    unit_name: str
    unit: int
    arm: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Who would be written to now.

    Attributes:
        test: The live test, or the ended one whose choice goes to the rest of its list.
        mails: In the order in which they go out.
        n_recipients: Lines of the file.
        left_out: How many are not written to, by reason.
        unused: Columns of the file that nothing reads.
        spent: How the list is spent; None where test follows test.
        taken_back: Whether what a list's test chose is no longer what everybody gets.
    """

    test: LiveTest
    mails: tuple[Planned, ...]
    n_recipients: int
    left_out: Mapping[str, int]
    unused: tuple[str, ...] = ()
    spent: ListTest | None = None
    taken_back: bool = False

    @property
    def by_arm(self) -> dict[str, int]:
        """How many mails each arm would get, those of a running test first."""
        counts = Counter(mail.arm for mail in self.mails)
        always = () if self.test.ended is not None else self.test.arms
        return {arm: counts[arm] for arm in (*self.test.arms, HOLDOUT, REST) if arm in always or counts[arm]}


@dataclass(slots=True)
class Sent:
    """What became of a plan.

    Attributes:
        sent: The server took them.
        refused: The server does not know the mailbox, or may not write to it.
        rejected: The server did not take the mail's text.
        deferred: The server asks to try again later; the next send does.
        suppressed: On the suppression list since the plan was made.
    """

    sent: int = 0
    refused: int = 0
    rejected: int = 0
    deferred: int = 0
    suppressed: int = 0
    in_a_row: int = field(default=0, repr=False)


class Mailing:
    """Plans and sends for one campaign.

    Args:
        campaign: The campaign.
        journal: What was sent before.
        settings: Its table [email]; None reads it.
        now: The clock.
    """

    def __init__(
        self,
        campaign: Campaign,
        journal: Journal,
        settings: EmailSettings | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.campaign = campaign
        self.settings = settings or EmailSettings.of(campaign)
        self.live = LiveFolder.of(campaign.folder)
        self.journal = journal
        self.now = now
        self.id = campaign_id(self.live)
        self._mailbox = suppression.address_hash(self.settings.shared, campaign.sender.email)
        self._copies: dict[Path, Copy] = {}

    def plan(self) -> Plan:
        """Return who would be written to now.

        Raises:
            UsageError: If no test is live, the kill switch is on, the recipients' file is broken, or an arm does harm.
        """
        test, surface = self._test()
        self._refuse_harm(test)
        recipients = read_recipients(self.settings.recipients)
        left_out: Counter[str] = Counter()
        mails = list(self._open_mails(test, recipients.rows, left_out))
        spent = list_test.of_test(self.live, test.id)
        if spent is not None and test.ended is None:
            asked = self._asked(spent, test, mails)
            left_out["for the mail that the test will choose"] = len(mails) - len(asked)
            mails = asked
        chosen = None if spent is None or spent.chosen is None else test.folder(spent.chosen)
        room = self.room()
        left_out["over today's cap"] = max(0, len(mails) - room)
        return Plan(
            test,
            tuple(mails[:room]),
            len(recipients.rows),
            +left_out,
            recipients.unused,
            spent,
            taken_back=test.ended is not None and chosen != surface.incumbent,
        )

    def n_open(self, test: LiveTest) -> int:
        """Return how many recipients a test could still write to, caps aside.

        Of a running test that spends a list only those of its planned part; of an ended one all who get its choice.
        """
        mails = list(self._open_mails(test, read_recipients(self.settings.recipients).rows, Counter()))
        spent = list_test.of_test(self.live, test.id)
        return len(mails if spent is None or test.ended is not None else self._asked(spent, test, mails))

    def n_for_a_test(self, test_id: str) -> int:
        """Return how many people a test that has not begun could write to, the permanent holdout excepted."""
        recipients = read_recipients(self.settings.recipients).rows
        return sum(1 for unit in self._open_units(test_id, recipients, Counter()) if not self._held_out(unit))

    def _asked(self, spent: ListTest, test: LiveTest, mails: Sequence[Planned]) -> list[Planned]:
        return list_test.in_test(spent, test, mails, self.journal.taken(self.id, test.id))

    def room(self) -> int:
        """Return how many mails the caps allow now."""
        since = self.now().timestamp() - _DAY
        by_campaign = self.settings.per_day - self.journal.n_since(since, campaign=self.id)
        by_mailbox = self.settings.per_mailbox - self.journal.n_since(since, mailbox=self._mailbox)
        return max(0, min(by_campaign, by_mailbox))

    def preview(self, test: LiveTest) -> dict[str, Rendered]:
        """Return a mail of each arm of a running test, or the one that was chosen, as somebody called Alex gets it."""
        somebody = Recipient("alex@example.com", "Alex")
        url = self._unsubscribe_url("0" * 32, "0" * 32)
        folders = {arm: test.folder(arm) for arm in test.arms}
        if test.ended is not None:
            folders = {REST: self.live.read().surfaces[SURFACE].incumbent}
        return {
            arm: message.rendered_for(self.campaign, self._copy(folder), somebody, url)
            for arm, folder in folders.items()
        }

    def ready(self) -> MailServer:
        """Return the server that takes mail, once everything is there that sending needs.

        Raises:
            UsageError: If something is missing in campaign.toml.
        """
        sender = self.campaign.sender
        for key, address in (("email", sender.email), ("reply_to", sender.reply_to or sender.email)):
            fault = address_fault(address)
            if fault is not None:
                raise UsageError(
                    f"{self.campaign.path}: [sender] {key} cannot be written to: {fault}.\nMail needs a sender that "
                    "people can answer."
                )
        return self.settings.ready_to_send(self.campaign.path)

    def check_unsubscribing(self) -> None:
        """Visit an unsubscribe address as the mails will have it, and raise unless it is answered.

        Raises:
            EnvironmentNotReadyError: If nobody could leave the list.
        """
        url = self._unsubscribe_url("0" * 32, "0" * 32)
        try:
            with urllib.request.urlopen(url, timeout=10.0) as reply:
                good = reply.status == 200 and b"<form" in reply.read(10_000)
            why = "the answer has no form for leaving"
        except (OSError, urllib.error.URLError) as error:
            good, why = False, str(getattr(error, "reason", error))
        if not good:
            raise EnvironmentNotReadyError(
                f"Nobody could leave the list: {self.settings.base_url}/unsubscribe/... does not answer as it should "
                f"({why}).\nStart the server that does, autoresearch marketing serve, or correct [site] base_url."
            )

    def send(self, plan: Plan, progress: Callable[[int], None] = lambda done: None) -> Sent:
        """Send the mails of a plan over one connection and return what became of them.

        Args:
            plan: What `plan` returned.
            progress: Called with the number of mails dealt with.

        Raises:
            UsageError: If campaign.toml lacks something, or another process sends.
            EnvironmentNotReadyError: If the server cannot be used, or refuses one mail after another.
        """
        from filelock import FileLock, Timeout

        server = self.ready()
        try:
            with FileLock(self.settings.shared / "send.lock", timeout=0):
                self._refuse_stale(plan)
                return asyncio.run(self._send(server, plan, progress))
        except Timeout as error:
            raise UsageError(
                f"Another process is sending under the caps of {self.settings.shared}.\nWait for it to end."
            ) from error

    # Who

    def _test(self) -> tuple[LiveTest, Surface]:
        """Return the running test, or the ended one whose choice goes to the rest of its list.

        Raises:
            UsageError: If there is neither, or the kill switch is on.
        """
        if self.live.killed:
            raise UsageError(
                "The kill switch is on, so nobody is written to.\nTurn it off: autoresearch marketing kill --off"
            )
        state = self.live.read()
        if SURFACE in state.tests:
            return state.tests[SURFACE], state.surfaces[SURFACE]
        spent = list_test.read(self.live)
        if spent is not None and spent.chosen is not None:
            ended = self.live.find(spent.test)
            if ended is not None and ended.ended is not None:
                return ended, state.surfaces[SURFACE]
        raise UsageError(
            f"No test of mails is live in {self.campaign.folder}, so there is nothing to send.\n"
            "autoresearch run makes one; leave it running, and send in another terminal."
        )

    def _refuse_stale(self, plan: Plan) -> None:
        """Raise where somebody else has sent since the plan was made, and the caps no longer allow it."""
        room = self.room()
        if len(plan.mails) > room:
            raise UsageError(
                f"The caps allow {room} mails now and the plan has {len(plan.mails)}: others were sent meanwhile.\n"
                "Plan again: autoresearch marketing send"
            )

    def _refuse_harm(self, test: LiveTest) -> None:
        """Raise where an arm is above a guardrail's ceiling by what is known now; the run waits until units matured."""
        rails = [rail for rail in self.campaign.guardrails if rail.ceiling is not None]
        names = [rail.name for rail in rails]
        if test.ended is None:
            counter = counter_of(self.live.events, test, names)
        else:
            # The arm that lost is no reason to keep the other one back: what everybody is sent now must do no harm.
            counter = holdout_counter(self.live.events, SURFACE, names, last_change(self.live))
        counter.update()
        for rail in rails:
            assert rail.ceiling is not None
            for arm in counter.count(rail.name, now=self.now(), window=None).arms:
                gate = ceiling_gate(arm.n, arm.total, rail.ceiling, name=rail.name)
                if not gate.passed:
                    raise UsageError(
                        f"{gate.reason} That is arm {arm.arm} of {test.id}, and nothing more is sent for it.\n"
                        "Find out why before anybody else is written to; autoresearch stop ends the test."
                    )

    def _open_mails(
        self, test: LiveTest, recipients: tuple[Recipient, ...], left_out: Counter[str]
    ) -> Iterator[Planned]:
        for unit in self._open_units(test.id, recipients, left_out):
            yield Planned(unit.recipient, unit.address, unit.unit_name, unit.unit, self._arm(test, unit))

    def _arm(self, test: LiveTest, unit: _Unit) -> str:
        if self._held_out(unit):
            return HOLDOUT
        if test.ended is not None:
            return REST
        return test.arm_of(self.live.salt, f"{unit.unit:016x}") or REST

    def _held_out(self, unit: _Unit) -> bool:
        return assignment.held_out(self.live.salt, f"{unit.unit:016x}", self.campaign.traffic.holdout)

    def _open_units(self, test_id: str, recipients: tuple[Recipient, ...], left_out: Counter[str]) -> Iterator[_Unit]:
        no_more = suppression.suppressed(self.settings.shared)
        forgotten = events.forgotten(self.live.events)
        in_test, last = self.journal.addressed(self.id, test_id), self.journal.last_mails(self.id)
        declined = self.journal.declined(self.id)
        again = self.settings.again_after_days
        before = -float("inf") if again is None else self.now().timestamp() - again * _DAY
        for recipient in recipients:
            planned = self._unit(recipient)
            if planned.address in no_more:
                left_out["on the suppression list"] += 1
            elif planned.unit in forgotten:
                left_out["forgotten"] += 1
            elif planned.address in declined:
                left_out["said no, or something that nobody understood"] += 1
            elif planned.address in in_test or last.get(planned.address, -float("inf")) > before:
                left_out["written to before"] += 1
            else:
                yield planned

    def _unit(self, recipient: Recipient) -> _Unit:
        shared = self.settings.shared
        unit_name = suppression.address_hash(shared, recipient.unit_name(self.settings.assign_by))
        address = suppression.address_hash(shared, recipient.address)
        return _Unit(recipient, address, unit_name, self.live.unit_key(unit_name))

    # One mail

    async def _send(self, server: MailServer, plan: Plan, progress: Callable[[int], None]) -> Sent:
        sent = Sent()
        writer: events.EventWriter | None = None
        try:
            async with _connected(server, self.campaign.sender.email.rpartition("@")[2]) as client:
                for done, planned in enumerate(plan.mails, 1):
                    test, surface = self._test()
                    if (test.id, test.ended) != (plan.test.id, plan.test.ended):
                        raise UsageError("The test has ended while mails went out.\nPlan again for the next one.")
                    if planned.address in suppression.suppressed(self.settings.shared):
                        sent.suppressed += 1
                        continue
                    writer = writer or events.EventWriter(self.live.events)
                    await self._send_one(client, test, surface, planned, writer, sent)
                    progress(done)
        finally:
            if writer is not None:
                writer.close()
        return sent

    async def _send_one(
        self,
        client: Any,
        test: LiveTest,
        surface: Surface,
        planned: Planned,
        writer: events.EventWriter,
        sent: Sent,
    ) -> None:
        import aiosmtplib

        token = message.new_token(self.live.secret, planned.unit, events.key(test.id))
        text = self._text(test, surface, planned, token)
        row = Mail(
            token.text, self.id, test.id, planned.arm, f"{planned.unit:016x}", planned.unit_name, planned.address,
            self._mailbox, "sending", self.now().timestamp(),
        )  # fmt: skip
        try:
            await client.mail(self.campaign.sender.email)
            await client.rcpt(planned.recipient.address)
        except aiosmtplib.SMTPRecipientRefused as error:
            await client.rset()
            self._refused(row, error, sent)
            return
        if not self.journal.begin(row):
            await client.rset()
            return
        try:
            await client.data(text)
        except aiosmtplib.SMTPDataError as error:
            self._rejected(token.text, error, sent)
            return
        self._expose(writer, test, planned, row.at)
        self.journal.settle(token.text, "sent")
        sent.sent += 1
        sent.in_a_row = 0

    def _text(self, test: LiveTest, surface: Surface, planned: Planned, token: message.Token) -> bytes:
        url = self._unsubscribe_url(planned.address, planned.unit_name)
        if planned.arm == HOLDOUT:
            folder = surface.original
        else:
            folder = surface.incumbent if planned.arm == REST else test.folder(planned.arm)
        landing = self._landing_url(token)
        rendered = message.rendered_for(self.campaign, self._copy(folder), planned.recipient, url, landing)
        if self.settings.opens:
            rendered = message.with_picture(rendered, f"{self.settings.base_url}/open/{token.text}")
        return message.build(self.campaign, rendered, planned.recipient, token, url, self.now()).as_bytes()

    def _refused(self, row: Mail, error: Any, sent: Sent) -> None:
        """Book a mailbox that the server does not take; one that does not exist is never tried again."""
        if error.code < 500:
            sent.deferred += 1
        else:
            self.journal.begin(replace(row, state="refused"))
            sent.refused += 1
            if says_unknown(error.message):
                suppression.suppress(self.settings.shared, row.address, "bounce")
        self._count_refusal(sent, error)

    def _rejected(self, token: str, error: Any, sent: Sent) -> None:
        """Book a mail whose text the server did not take."""
        if error.code < 500:
            self.journal.withdraw(token)
            sent.deferred += 1
        else:
            self.journal.settle(token, "rejected")
            sent.rejected += 1
        self._count_refusal(sent, error)

    def _count_refusal(self, sent: Sent, error: Any) -> None:
        sent.in_a_row += 1
        if sent.in_a_row >= _MANY:
            raise EnvironmentNotReadyError(
                f"The mail server refused {_MANY} mails in a row, the last with {error.code}; {sent.sent} had gone "
                "out before, and none is sent twice.\nAsk the server's operator before you send again."
            )

    def _expose(self, writer: events.EventWriter, test: LiveTest, planned: Planned, when: float) -> None:
        """Write what the unit met, in the same two records as a page view; on the disk when this returns."""
        at = round(when * 1e6)
        held = 0 if planned.arm == HOLDOUT else 1
        records = events.pack(planned.unit, at, holdout_key(SURFACE), kind=events.EXPOSURE, arm=held)
        if planned.arm in test.arms and test.ended is None:
            number = test.arms.index(planned.arm)
            records += events.pack(planned.unit, at, events.key(test.id), kind=events.EXPOSURE, arm=number)
        try:
            writer.write(records)
        except events.LogFullError as error:
            raise EnvironmentNotReadyError(
                f"The event log takes no more: {error}\nMake room in {self.live.events}; the mail that went out "
                "meanwhile is not counted and not sent again."
            ) from error
        writer.sync()

    def _unsubscribe_url(self, address: str, unit_name: str) -> str:
        token = suppression.unsubscribe_token(self.live.secret, address, unit_name)
        return f"{self.settings.base_url}/unsubscribe/{token}"

    def _landing_url(self, token: message.Token) -> str:
        target = self.campaign.goal.landing_url
        if not self.settings.track_clicks or not target:
            return target
        return f"{signed_link(self.live.secret, target, 'click', base_url=self.settings.base_url)}&m={token.text}"

    def _copy(self, folder: Path) -> Copy:
        if folder not in self._copies:
            self._copies[folder] = Copy.load(folder)
        return self._copies[folder]


def campaign_id(live: LiveFolder) -> str:
    """Return the name of a campaign in the shared record; it stays when the folder moves."""
    return f"{events.key(live.salt, 'journal'):016x}"


def says_unknown(reply: str) -> bool:
    """Say whether a server's refusal means that the mailbox does not exist: enhanced status code 5.1.x (RFC 3463)."""
    return "5.1." in reply


@asynccontextmanager
async def _connected(server: MailServer, name: str) -> AsyncIterator[Any]:
    """Log in, and translate what goes wrong on the way or later into errors that say what to do.

    Args:
        server: Where to.
        name: How we introduce ourselves: the sender's domain, not the name of this machine.
    """
    try:
        import aiosmtplib
    except ImportError as error:
        raise EnvironmentNotReadyError(
            "Sending needs the package aiosmtplib, which is not installed.\n"
            "Install it: pip install 'autoresearch[marketing]'"
        ) from error
    secret = password(server, SMTP_PASSWORD) if server.username else ""
    client = aiosmtplib.SMTP(
        hostname=server.host,
        port=server.port,
        local_hostname=name,
        use_tls=server.tls == "implicit",
        start_tls=server.tls == "starttls",
        tls_context=None if server.tls == "none" else server.context(),
        timeout=60.0,
    )
    try:
        await client.connect()
        if secret:
            await client.login(server.username, secret)
        yield client
        await client.quit()
    except aiosmtplib.SMTPAuthenticationError as error:
        # Without the cause: a server may repeat what it was sent.
        raise EnvironmentNotReadyError(
            f"{server.host} does not accept the password of {server.username} (code {error.code}).\n"
            f"Correct the environment variable {SMTP_PASSWORD} or [email] username."
        ) from None
    except (aiosmtplib.SMTPException, OSError) as error:
        raise EnvironmentNotReadyError(
            f"Sending by {server.host}:{server.port} stopped: {_said(error)}.\n"
            "Everything that went out is written down; a mail that was on its way is reported as unknown and not sent "
            "again. Send again when the server answers."
        ) from error
    finally:
        client.close()


def _said(error: Exception) -> str:
    """Return an error's kind and code; a server's own words may hold an address."""
    code = getattr(error, "code", None)
    return f"{type(error).__name__}{f' {code}' if code else ''}"
