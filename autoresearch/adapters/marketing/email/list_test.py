"""A list of people that ends: one test on a part of it, then the better-looking mail to all the rest (Test & Roll).

How many people are asked is planned once, when the test begins, and written down before anybody is written to. Who they
are is chance: within each arm those whose salted hash comes first. When they have answered, the sign decides, and
`autoresearch marketing send` writes to everybody else. It is a bet without an error rate, and every output says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from autoresearch.adapters.marketing import assignment
from autoresearch.core import UsageError
from autoresearch.core.decision.arms import plan_finite_list

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.email.send import Planned
    from autoresearch.adapters.marketing.live import LiveFolder, LiveTest

_NAME = "list.json"


@dataclass(frozen=True, slots=True)
class ListTest:
    """How a list is spent.

    Attributes:
        test: Id of the test.
        people: Whom could be written to when it began, the permanent holdout excepted.
        per_arm: How many of them are in each arm.
        mean: Rate that the plan expects of a variant.
        spread: Standard deviation that it expects of variants' true rates.
        learned: Where mean and spread come from, in words.
        chosen: What goes to the rest, `control` or `treatment`; None before that is settled.
    """

    test: str
    people: int
    per_arm: int
    mean: float
    spread: float
    learned: str
    chosen: str | None = None

    @property
    def in_words(self) -> str:
        """The plan in a sentence."""
        return (
            f"Test & Roll: {self.per_arm:,} in each arm, then the better-looking mail to the other "
            f"{self.people - 2 * self.per_arm:,} of {self.people:,} (rates around {self.mean:.3g} with a spread of "
            f"{self.spread:.2g}, from {self.learned}). A bet, without an error rate."
        )


def planned(campaign: Campaign, spread: float | None, test_id: str, people: int) -> ListTest:
    """Return the plan of a new test.

    Args:
        campaign: The campaign; its finished tests say what rates are like where `spread` is None.
        spread: What [email] spread says; the usual rate is then that of [traffic] baseline.
        test_id: Of the test.
        people: Whom could be written to now, the permanent holdout excepted.

    Raises:
        UsageError: If nobody says what rates are like, or the list is too short to compare anything.
    """
    from autoresearch.adapters.marketing.planning import list_prior

    # What is stated goes before what was learned, or nobody could overrule a few odd tests.
    stated = None if spread is None else campaign.traffic.baseline
    prior, learned = list_prior(campaign.folder, stated, spread)
    try:
        plan = plan_finite_list(people, prior)
    except ValueError as error:
        raise UsageError(
            f"{error}\nAdd people to the recipients' file, or leave list out of the table [email]."
        ) from error
    return ListTest(test_id, people, plan.per_arm, prior.mean, prior.sd, learned)


def read(live: LiveFolder) -> ListTest | None:
    """Return how the list is being spent; None before its test began.

    Raises:
        UsageError: If what is written there cannot be understood.
    """
    path = live.path / _NAME
    try:
        return ListTest(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be understood: {error}.\nIt says who of the list is in the test. Put it back as it was, or "
            "begin a new run, which ends the test: --new"
        ) from error


def of_test(live: LiveFolder, test_id: str) -> ListTest | None:
    """Return the plan of a test; None where it spends no list."""
    found = read(live)
    return found if found is not None and found.test == test_id else None


def write(live: LiveFolder, plan: ListTest) -> None:
    """Write down how the list is spent, by rename."""
    from autoresearch.core.formats import write_by_rename

    write_by_rename(live.path / _NAME, json.dumps(asdict(plan), indent=1))


def choose(live: LiveFolder, plan: ListTest, chosen: str) -> None:
    """Write down what goes to the rest. Idempotent."""
    write(live, replace(plan, chosen=chosen))


def in_test(plan: ListTest, test: LiveTest, open_mails: Iterable[Planned], taken: Mapping[str, int]) -> list[Planned]:
    """Return the mails of those who are in the test and have none yet, in an order that chance decides.

    By the same order the first ones go out when a cap allows no more, so that arms fill up together, whatever the
    order of the file.

    Args:
        plan: The plan.
        test: The running test.
        open_mails: Of everybody who could be written to.
        taken: How many in each arm have had their mail.
    """
    room = {arm: plan.per_arm - taken.get(arm, 0) for arm in test.arms}
    chosen = []
    for mail in sorted(open_mails, key=lambda mail: assignment.bucket(f"{test.salt}/list", f"{mail.unit:016x}")):
        if room.get(mail.arm, 0) > 0:
            room[mail.arm] -= 1
            chosen.append(mail)
    return chosen
