"""Clicks in mails, and which of them no person made. Off unless `[email] track_clicks = true`; opens likewise.

Mail scanners follow every link to see where it leads, so a click is evidence of a person only when these rules, which
are the same in every arm, leave it over:

1. It was a GET: not HEAD, and no fetching ahead of a reader (Purpose and Sec-Purpose headers).
2. Its user agent is no crawler's (package crawler-user-agents) and no mail scanner's (`SCANNERS`).
3. It came `SOON` seconds or more after the mail went out.
4. The mail's links were not all visited within `BURST` seconds of it, the unsubscribe link among them.

The rules look at a click and at what its mail's other links saw, nothing else. Of a click the link, the moment and the
rule that drops it are kept, until the mail's person is forgotten; no network address and no user agent is.

Opens (`[email] opens = true`) are loads of a picture of one point, under the same rules. They are recorded and never
decide: programs that fetch every picture for everybody, and others that fetch none, have made them mean little.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.email.journal import Journal

SOON = 10.0
"""Seconds after sending. No person has the mail, opens it and clicks in less; scanners visit on arrival."""

BURST = 10.0
"""Seconds around a click in which a scanner visits a mail's other links."""

SETTLED = 60.0
"""Seconds after which a click is judged: all that the rules look at has happened."""

GOAL, LEAVE, OPEN = "goal", "unsubscribe", "open"
"""The links of a mail: where it wants to lead, out, and its picture."""

PICTURE = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
"""A transparent GIF of one point."""

SCANNERS = re.compile(
    r"barracuda|proofpoint|mimecast|safelinks|ms-?office|microsoft office|symantec|messagelabs|forcepoint|ironport"
    r"|trend ?micro|fireeye|sophos|zscaler|cloudmark|spamassassin|urldefense|googleimageproxy|yahoomailproxy"
    r"|bingpreview|slackbot|whatsapp|telegrambot|skypeuripreview|headlesschrome|python-|curl/|wget/|go-http-client|java/|okhttp",
    re.IGNORECASE,
)
"""User agents of programs that visit links for readers."""

_MOST = 50  # visits of one link of a mail that are kept


@dataclass(frozen=True, slots=True)
class Click:
    """A visit of a mail's link.

    Attributes:
        token: The mail's.
        link: `GOAL`, `LEAVE` or `OPEN`.
        at: Seconds since 1970.
        dropped: Number of the rule that drops it by itself, 1 or 2; 0: none.
    """

    token: str
    link: str
    at: float
    dropped: int = 0


def rule_of_request(method: str, agent: str, *, robot: bool) -> int:
    """Return the rule that drops a visit by what its request says; 0 where none does.

    Args:
        method: Of the request.
        agent: Its User-Agent.
        robot: Whether the site takes it for a crawler or for fetching ahead.
    """
    if method != "GET":
        return 1
    return 2 if robot or SCANNERS.search(agent) else 0


def person_in(sent: float, clicks: Sequence[Click], wanted: str = GOAL) -> Click | None:
    """Return the first visit of a link that a person made; None where rules drop them all.

    Args:
        sent: When the mail went out, in seconds since 1970.
        clicks: All visits of its links.
        wanted: Which link.
    """
    for click in sorted(clicks, key=lambda each: each.at):
        if click.link != wanted or click.dropped or click.at - sent < SOON:
            continue
        if any(other.link == LEAVE and abs(other.at - click.at) <= BURST for other in clicks):
            continue
        return click
    return None


def record(journal: Journal, click: Click) -> None:
    """Write a visit down; visits beyond the fiftieth of a mail's link tell nothing new and are not kept."""
    journal.add_click(click.token, click.link, click.at, click.dropped, most=_MOST)


def people_in(journal: Journal, campaign: str, before: float, wanted: str = GOAL) -> Iterator[tuple[int, str, float]]:
    """Yield (unit, token, moment) for each mail of a campaign whose goal a person clicked on, or that a person opened.

    Args:
        journal: The journal.
        campaign: See `send.campaign_id`.
        before: Only mails that were quiet since then, see `SETTLED`.
        wanted: `GOAL` or `OPEN`.
    """
    rows = journal.clicks(campaign, before, (wanted, LEAVE))
    for (token, unit, sent), group in groupby(rows, key=lambda row: row[:3]):
        first = person_in(sent, [Click(token, link, at, dropped) for _, _, _, link, at, dropped in group], wanted)
        if first is not None:
            yield int(unit, 16), token, first.at
