"""A list that ends: a planned part is tested, the better-looking mail goes to the rest, and nobody gets two."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autoresearch.adapters.marketing import events
from autoresearch.adapters.marketing.adapter import MarketingAdapter, create_adapter
from autoresearch.adapters.marketing.email import list_test, suppression
from autoresearch.adapters.marketing.email.journal import Journal
from autoresearch.adapters.marketing.email.source import EmailSource
from autoresearch.adapters.marketing.past_tests import PastArm, PastTest, remember
from autoresearch.core import Evidence, LiveExperiment, Look, Outcome, UsageError, Workspace
from autoresearch.core.decision import Decision, Verdict
from autoresearch.core.decision.arms import RatePrior, plan_finite_list
from autoresearch.core.decision.finite_list import FiniteListPolicy
from tests.adapters.marketing.campaigns import edit
from tests.adapters.marketing.email.conftest import Office
from tests.adapters.marketing.email.test_commands import run

PRIOR = RatePrior(0.1, 0.05)
OLD, NEW = "Your rota in 25 minutes a week", "Who plans your Saturdays?"
EVEN = {"control": 0.5, "treatment": 0.5}


@dataclass
class ListOffice:
    """An office that spends a list, with the adapter that runs its test."""

    office: Office
    answers: dict[str, dict[str, bool]]
    adapter: MarketingAdapter = field(init=False)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    answered: int = 0

    def begin(self) -> None:
        self.office.write_arms()
        self.adapter = MarketingAdapter({}, now=lambda: self.now)
        self.adapter.prepare(Workspace(self.office.folder))
        assert isinstance(self.adapter.source, EmailSource)
        self.adapter.source.now = lambda: self.now
        folder = self.office.folder
        self.adapter.start(LiveExperiment("run/0001", folder / "a", folder / "b", EVEN, self.now))

    def send(self) -> int:
        """Send what is next; everybody answers as they would. Returns how many mails that were."""
        before = len(self.office.taker.mails)
        self.office.send(lambda: self.now)
        mails = self.office.taker.mails[before:]
        good = [address for address, mail in mails if self.answers[address][mail["Subject"]]]
        self.answered += len(good)
        live, shared = self.office.live, self.office.settings.shared
        with_goal = events.key("positive_reply")
        writer = events.EventWriter(live.events)
        for address in good:
            unit = live.unit_key(suppression.address_hash(shared, address))
            writer.write(events.pack(unit, round(self.now.timestamp() * 1e6) + 1, with_goal, kind=events.CONVERSION))
        writer.close()
        return len(mails)

    def judge(self) -> tuple[Verdict, str | None, str | None]:
        """Return the policy's verdict with what holds it and what ends the test."""
        arms = self.adapter.observe("run/0001")
        verdict = FiniteListPolicy().decide(Evidence(self.adapter.metric, (Look(*arms),)))
        return verdict, self.adapter.gates("run/0001", Look(*arms)).hold, self.adapter.ending("run/0001")


def tastes(addresses: Sequence[str], seed: int, old: float, new: float) -> dict[str, dict[str, bool]]:
    """Draw whether each person would answer each mail."""
    dice = random.Random(seed)
    return {address: {OLD: dice.random() < old, NEW: dice.random() < new} for address in addresses}


def make(office: Office, people: int = 60, *, old: float = 0.05, new: float = 0.5, holdout: float = 0.0) -> ListOffice:
    addresses = [f"p{i}@c{i}.example" for i in range(people)]
    office.write_recipients(addresses)
    office.set(list="test-and-roll", spread=PRIOR.sd)
    edit(office.folder, "campaign.toml", "holdout = 0.05", f"holdout = {holdout}")
    edit(office.folder, "campaign.toml", "baseline = 0.04", f"baseline = {PRIOR.mean}")
    return ListOffice(office, tastes(addresses, 3, old, new))


def test_a_list_is_spent_as_planned(office: Office) -> None:
    """The planned number is asked in each arm, the verdict waits for them, the rest get the winner, all of them once.

    The replies in all are those of the people who were asked, plus those of the rest to the mail that was chosen.
    """
    world = make(office)
    planned = plan_finite_list(60, PRIOR)
    world.begin()
    assert world.send() == 2 * planned.per_arm < 60
    subjects = Counter(mail["Subject"] for _, mail in office.taker.mails)
    assert subjects == {OLD: planned.per_arm, NEW: planned.per_arm}
    assert world.judge()[1:] == (f"It waits for {planned.per_arm} people in each arm.", None)
    world.now += timedelta(days=15)
    verdict, _, over = world.judge()
    assert verdict.decision is Decision.KEEP
    assert over is not None and f"The {2 * planned.per_arm} of the test" in over
    assert world.adapter.used_up() is None
    world.adapter.finish("run/0001", Outcome.KEPT)
    assert "the treatment was chosen by Test & Roll, a bet" in str(world.adapter.used_up())
    asked = set(office.recipients())
    assert world.send() == planned.rolled
    assert Counter(office.recipients()) == dict.fromkeys(world.answers, 1)
    assert {mail["Subject"] for address, mail in office.taker.mails if address not in asked} == {NEW}
    rest = sum(world.answers[address][NEW] for address in world.answers if address not in asked)
    tested = sum(world.answers[address][mail["Subject"]] for address, mail in office.taker.mails if address in asked)
    assert world.answered == rest + tested
    assert world.send() == 0
    assert "nobody is left" in str(world.adapter.used_up())


def test_who_is_asked_is_chance(office: Office) -> None:
    """In a file of two halves the people who are asked come from both, as a salted hash has it, exactly as planned."""
    world = make(office, 300)
    world.begin()
    with Journal(office.settings.shared) as journal:
        mails = office.mailing(journal).plan().mails
    expected = plan_finite_list(300, PRIOR)
    assert Counter(mail.arm for mail in mails) == {"control": expected.per_arm, "treatment": expected.per_arm}
    early = sum(int(mail.recipient.address[1:].split("@")[0]) < 150 for mail in mails)
    assert abs(early - expected.per_arm) < 4 * (expected.per_arm / 2) ** 0.5


def test_the_control_goes_to_the_rest_where_it_looks_better(office: Office) -> None:
    """A worse treatment is reverted by its sign, and the rest get what was there."""
    world = make(office, old=0.6, new=0.05)
    world.begin()
    world.send()
    world.now += timedelta(days=15)
    assert world.judge()[0].decision is Decision.REVERT
    world.adapter.finish("run/0001", Outcome.REVERTED)
    asked = len(office.taker.mails)
    world.send()
    assert {mail["Subject"] for _, mail in office.taker.mails[asked:]} == {OLD}
    assert len(office.taker.mails) == 60


def test_a_test_that_was_stopped_rolls_nothing(office: Office) -> None:
    """Ended before its part has answered it has chosen nothing, and nobody else is written to."""
    world = make(office)
    world.begin()
    world.send()
    world.adapter.finish("run/0001", Outcome.INCONCLUSIVE)
    with pytest.raises(UsageError, match="No test of mails is live"):
        world.send()


def test_the_holdout_waits_for_the_rest_and_gets_the_original(office: Office) -> None:
    """The permanent holdout is in neither arm; it is written to with the rest, and sees what was there first."""
    world = make(office, holdout=0.3)
    world.begin()
    asked = world.send()
    spent = list_test.read(office.live)
    assert spent is not None
    assert spent.people < 60
    assert asked == 2 * spent.per_arm
    world.now += timedelta(days=15)
    world.judge()
    world.adapter.finish("run/0001", Outcome.KEPT)
    world.send()
    later = Counter(mail["Subject"] for _, mail in office.taker.mails[asked:])
    assert later == {OLD: 60 - spent.people, NEW: spent.people - asked}


def test_a_mail_that_was_refused_is_replaced(office: Office) -> None:
    """Who cannot be written to does not count as asked; the next by the hash takes the place."""
    world = make(office)
    world.begin()
    with Journal(office.settings.shared) as journal:
        first = office.mailing(journal).plan().mails[0].recipient.address
    office.taker.recipients[first] = "550 5.7.1 no"
    asked = world.send()
    spent = list_test.read(office.live)
    assert spent is not None
    assert asked == 2 * spent.per_arm - 1
    assert world.send() == 1


def test_caps_cut_the_test_in_both_arms_alike(office: Office) -> None:
    """Under a cap the first mails are chance's, not the head of the file: both arms fill up together."""
    edit(office.folder, "campaign.toml", "per_day = 1000", "per_day = 10")
    world = make(office)
    world.begin()
    assert world.send() == 10
    subjects = Counter(mail["Subject"] for _, mail in office.taker.mails)
    assert min(subjects.values()) >= 2
    assert office.recipients() != sorted(office.recipients())[:10]


def test_the_plan_is_shown_and_called_a_bet(office: Office) -> None:
    """`send` says how the list is spent, where the prior comes from, and what was chosen; a bet each time."""
    world = make(office)
    world.begin()
    spent = list_test.read(office.live)
    assert spent is not None
    said = run("send", "-w", office.folder)
    assert f"Test & Roll: {spent.per_arm} in each arm" in said
    assert "from what is stated" in said
    assert "A bet, without an error rate" in said
    assert f"{60 - 2 * spent.per_arm} for the mail that the test will choose" in said
    world.send()
    world.now += timedelta(days=15)
    world.judge()
    world.adapter.finish("run/0001", Outcome.KEPT)
    said = run("send", "-w", office.folder)
    assert "Test & Roll chose the treatment: a bet, without an error rate" in said
    assert f"{60 - 2 * spent.per_arm} of 60 recipients are next" in said
    assert NEW in said
    assert OLD not in said


def test_a_choice_that_was_taken_back_is_not_sent(office: Office) -> None:
    """After a rollback the rest get what everybody gets, and the plan says that it is not what was chosen."""
    world = make(office)
    world.begin()
    world.send()
    world.now += timedelta(days=15)
    world.judge()
    world.adapter.finish("run/0001", Outcome.KEPT)
    world.adapter.roll_back(Workspace(office.folder), office.folder / "a", None)
    said = run("send", "-w", office.folder)
    assert "that was taken back since" in said
    assert f"Subject: {OLD}" in said
    asked = len(office.taker.mails)
    world.send()
    assert {mail["Subject"] for _, mail in office.taker.mails[asked:]} == {OLD}


def test_the_prior_comes_from_earlier_tests_where_no_spread_is_stated(office: Office) -> None:
    """Mean and spread are learned from the campaign's own finished tests, and the plan says so."""
    dice = random.Random(2)
    for number in range(6):
        arms = tuple(PastArm({"subject": f"{number}{arm}"}, 5_000, 5_000 * dice.gauss(0.1, 0.03)) for arm in "ab")
        remember(office.live.path, PastTest(f"t{number}", f"2026-01-0{number + 1}", arms))
    plan = list_test.planned(office.campaign, None, "run/0001", 1_000)
    assert plan.learned == "12 arms of earlier tests"
    assert 0.01 < plan.spread < 0.06
    assert 0.07 < plan.mean < 0.13


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"list": "test-and-roll"}, "State both"),
        ({"list": "rolling"}, "list must be one of race, test-and-roll"),
        ({"list": "test-and-roll", "spread": 0.0}, "spread must be above 0"),
        ({"spread": 0.1}, "nothing reads it without"),
        ({"list": "test-and-roll", "spread": 0.1, "assign_by": "domain"}, "plans by the person"),
    ],
)
def test_a_list_that_cannot_be_planned_is_refused(office: Office, keys: dict[str, object], words: str) -> None:
    """What is missing or makes no sense is named before anybody is written to."""
    office.set(**keys)
    office.write_arms()
    adapter = create_adapter({})
    with pytest.raises(UsageError, match=words):
        adapter.prepare(Workspace(office.folder))
        adapter.start(LiveExperiment("run/0001", office.folder / "a", office.folder / "b", EVEN, datetime.now(UTC)))
    assert not (office.live.path / "live.json").exists() or not office.live.read().tests


def test_a_list_of_one_is_too_short(office: Office) -> None:
    """Two arms need two people."""
    world = make(office, 1)
    with pytest.raises(UsageError, match="Two arms need two people"):
        world.begin()


def test_the_policy_is_the_lists(office: Office, tmp_path: Path) -> None:
    """The adapter names Test & Roll for a list that ends, and no policy for any other traffic."""
    adapter = create_adapter({})
    assert adapter.policy_for(Workspace(office.folder)) is None
    office.set(list="test-and-roll", spread=0.1)
    assert adapter.policy_for(Workspace(office.folder)) == "test_and_roll"
