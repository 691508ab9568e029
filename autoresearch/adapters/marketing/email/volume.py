"""How many people mails can reach: what the list and the caps allow, where `[traffic] weekly` says more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autoresearch.adapters.marketing.email.recipients import read_recipients
from autoresearch.adapters.marketing.email.settings import EmailSettings

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign


@dataclass(frozen=True, slots=True)
class Bound:
    """What is less than `[traffic] weekly`.

    Attributes:
        weekly: Units a week that can be written to, evenly over the weeks of a test.
        why: A sentence that says so.
    """

    weekly: int
    why: str


def bound_of(campaign: Campaign, weekly: int, max_weeks: int) -> Bound | None:
    """Return what keeps a campaign of mails from reaching so many units a week; None where nothing does.

    A test writes to each unit once, so that a list of N gives it N units in all its weeks. A list that is not there yet
    bounds nothing.

    Raises:
        UsageError: If settings or recipients make no sense.
    """
    if campaign.traffic.source != "email" or "email" not in campaign.sources:
        return None
    settings = EmailSettings.of(campaign)
    if settings.test_and_roll:
        return None  # such a list is spent, and no race is planned on it
    cap = 7 * min(settings.per_day, settings.per_mailbox)
    found = Bound(cap, f"The caps of [email] let out {cap:,} mails a week, and not the {weekly:,} of [traffic] weekly.")
    bounds = [found] if cap < weekly else []
    if settings.recipients.is_file():
        units = len({row.unit_name(settings.assign_by) for row in read_recipients(settings.recipients).rows})
        share = max(1, units // max_weeks)
        why = (
            f"{settings.recipients.name} has {units:,} to assign, and a test writes to each once: in {max_weeks} weeks "
            f"that is {share:,} a week, and not the {weekly:,} of [traffic] weekly. Where nobody else will come, "
            '[email] list = "test-and-roll" spends such a list better.'
        )
        bounds += [Bound(share, why)] if share < min(weekly, cap) else []
    return bounds[-1] if bounds else None
