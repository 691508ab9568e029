"""What a surface looks like in each arm: all that the server needs to know of a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign

PAGE = "page"
"""The surface of a campaign that has only one."""


class Pages(Protocol):
    """Renders arms; called once per arm when it goes live, never per visitor."""

    @property
    def routes(self) -> Mapping[str, str]:
        """Path on the site -> surface."""
        ...

    def html(self, artifact: Path) -> bytes:
        """Return the whole page for the artifact in a folder. Raises UsageError where it cannot be rendered."""
        ...

    def slots(self, artifact: Path) -> Mapping[str, str]:
        """Return the texts of an artifact, for sites that render them themselves."""
        ...


class CampaignPages:
    """The pages of a campaign folder.

    Args:
        campaign: Of kind `page`; other kinds have texts and no page of their own.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self.routes: Mapping[str, str] = {"/": PAGE} if campaign.kind == "page" else {}

    def html(self, artifact: Path) -> bytes:
        """Return the page with the artifact's texts in the campaign's template."""
        from autoresearch.adapters.marketing.render import Context, render
        from autoresearch.adapters.marketing.wording import Copy

        campaign = self._campaign
        context = Context(action_url="/convert", landing_url=campaign.goal.landing_url)
        html = render(campaign, Copy.load(artifact), context=context).html
        return (html or "").encode()

    def slots(self, artifact: Path) -> Mapping[str, str]:
        """Return the artifact's texts."""
        from autoresearch.adapters.marketing.wording import Copy

        return Copy.load(artifact).slots
