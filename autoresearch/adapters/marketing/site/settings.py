"""The table `[site]` of campaign.toml, and what else of a campaign a server must know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autoresearch.adapters.marketing.assignment import HOLDOUT_SHARE
from autoresearch.adapters.marketing.events import Durability
from autoresearch.core import UsageError

KEYS: Mapping[str, type | tuple[type, ...]] = {
    "base_url": str,
    "consent": str,
    "sync": str,
    "max_events_per_second": (int, float),
    "max_log_gb": (int, float),
    "origins": list,
    "webhooks": list,
    "forms": dict,
    "suppression": str,
    "thanks_url": str,
}
"""What `[site]` may hold; `campaign.typed_table` checks it."""

_CONSENT = re.compile(r"[\w.-]+=[\w.-]+")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """How a server behaves.

    Attributes:
        base_url: Public address of the site without a path; empty where it is only visited as it is served.
        consent: `cookie=value` that a browser must send before its visitor is assigned and counted; empty where no
            consent is asked.
        goal: Name of the primary conversion.
        thanks_url: Where a visitor goes after a form that is handled nowhere else; empty: a plain page says thanks.
        forms: Addresses that take over a form post after it was counted, by goal.
        holdout: Share of units that sees the original for ever.
        sync: When events are on the disk.
        max_events_per_second: Per worker, in the long run.
        max_log_bytes: Size of the event log at which nobody is counted any more.
        origins: Other origins whose pages may ask and send events from the browser.
        webhooks: Names of systems that send signed events.
        max_body: Bytes of a request body that are read; more is refused.
        max_batch: Events of one request.
        suppression: Folder of the list of those who want no more mail, shared by campaigns; None: the campaign's own.
        simulated: Believe the header `x-autoresearch-time` (microseconds since 1970) instead of the clock. Only for an
            audience that is made up.
    """

    base_url: str = ""
    consent: str = ""
    goal: str = "conversion"
    thanks_url: str = ""
    forms: Mapping[str, str] = field(default_factory=dict)
    holdout: float = HOLDOUT_SHARE
    sync: Durability = Durability.SECOND
    max_events_per_second: float = 20_000.0
    max_log_bytes: int = 50 * 10**9
    origins: tuple[str, ...] = ()
    webhooks: tuple[str, ...] = ()
    max_body: int = 512 * 1024
    max_batch: int = 500
    suppression: Path | None = None
    simulated: bool = False

    def __post_init__(self) -> None:
        if self.consent and not _CONSENT.fullmatch(self.consent):
            raise UsageError(f"[site] consent must look like cookie=value, not {self.consent!r}.")
        for url in (self.base_url, self.thanks_url, *self.origins, *self.forms.values()):
            if url and urlsplit(url).scheme not in ("http", "https"):
                raise UsageError(f"[site] {url!r} is no address; it must begin with http:// or https://.")
        for name in self.webhooks:
            if not _NAME.fullmatch(name):
                raise UsageError(f"[site] webhooks: {name!r} must be lower-case letters, digits, - and _.")

    @property
    def secure(self) -> bool:
        """Whether cookies are for encrypted connections only."""
        return self.base_url.startswith("https://")

    @classmethod
    def parse(cls, path: Path, table: Mapping[str, Any], *, goal: str, holdout: float) -> SiteSettings:
        """Return the settings in a checked table `[site]`.

        Args:
            path: campaign.toml, for messages.
            table: What `campaign.typed_table` returned for `KEYS`.
            goal: The campaign's primary conversion.
            holdout: The campaign's holdout share.

        Raises:
            UsageError: If a value makes no sense.
        """
        for name in ("origins", "webhooks", "forms"):
            held = table.get(name, ())
            if not all(isinstance(text, str) for text in (held.values() if isinstance(held, dict) else held)):
                raise UsageError(f"{path}: [site] {name} must hold texts only, not {held!r}.")
        try:
            sync = Durability(table.get("sync", "second"))
        except ValueError as error:
            raise UsageError(f"{path}: [site] sync is 'second' or 'always', not {table['sync']!r}.") from error
        try:
            return cls(
                base_url=table.get("base_url", "").rstrip("/"),
                consent=table.get("consent", ""),
                goal=goal,
                thanks_url=table.get("thanks_url", ""),
                forms=dict(table.get("forms", {})),
                holdout=holdout,
                sync=sync,
                max_events_per_second=float(table.get("max_events_per_second", 20_000)),
                max_log_bytes=int(float(table.get("max_log_gb", 50)) * 1e9),
                origins=tuple(table.get("origins", ())),
                webhooks=tuple(table.get("webhooks", ())),
                suppression=path.parent / table["suppression"] if "suppression" in table else None,
            )
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from error
