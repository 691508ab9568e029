"""What a page looks like in each arm and to each audience: all that the server needs to know of a campaign."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from autoresearch.adapters.marketing.surfaces import EVERYBODY, PAGE, Surface

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign


class Pages(Protocol):
    """Renders arms; called once per arm when it goes live, never per visitor."""

    @property
    def routes(self) -> Mapping[str, str]:
        """Path on the site -> page."""
        ...

    @property
    def surfaces(self) -> Sequence[Surface]:
        """What is tested at the same time; none: the whole copy is one surface."""
        ...

    def shows(self, page: str, surface: str) -> bool:
        """Say whether a page shows what a surface tests."""
        ...

    def html(self, artifact: Path, page: str = PAGE, audience: str = EVERYBODY) -> bytes:
        """Return the whole page for the artifact in a folder. Raises UsageError where it cannot be rendered."""
        ...

    def slots(self, artifact: Path, page: str = PAGE, audience: str = EVERYBODY) -> Mapping[str, str]:
        """Return the texts of an artifact on a page, for sites that render them themselves."""
        ...


class CampaignPages:
    """The pages of a campaign folder.

    Args:
        campaign: Of kind `page`; other kinds have texts and no page of their own.
    """

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self.surfaces = campaign.surfaces
        others = {one.path: one.name for one in campaign.surfaces if one.path not in ("", "/")}
        self.routes: Mapping[str, str] = {"/": PAGE, **others} if campaign.kind == "page" else {}

    def shows(self, page: str, surface: str) -> bool:
        """Say whether a page shows one of the slots that a surface may change."""
        tested = next((one.slots for one in self.surfaces if one.name == surface), ())
        return bool(set(tested) & set(self._asked(page)))

    def html(self, artifact: Path, page: str = PAGE, audience: str = EVERYBODY) -> bytes:
        """Return the page with the artifact's texts in the campaign's template."""
        from autoresearch.adapters.marketing.render import Context, render
        from autoresearch.adapters.marketing.wording import Copy

        campaign = self._campaign.at(page)
        context = Context(action_url="/convert", landing_url=campaign.goal.landing_url)
        html = render(campaign, Copy.load(artifact).seen_by(audience), context=context).html
        return (html or "").encode()

    def slots(self, artifact: Path, page: str = PAGE, audience: str = EVERYBODY) -> Mapping[str, str]:
        """Return the artifact's texts, where there are several pages those of one."""
        from autoresearch.adapters.marketing.wording import Copy

        shown = Copy.load(artifact).seen_by(audience).slots
        if len(self.routes) < 2:
            return shown
        asked = self._asked(page)
        return {name: text for name, text in shown.items() if name in asked}

    def _asked(self, page: str) -> tuple[str, ...]:
        from autoresearch.adapters.marketing.render import slots_in

        return slots_in(self._campaign.at(page) if self.routes else self._campaign)
