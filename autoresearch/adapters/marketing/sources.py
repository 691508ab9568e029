"""Where people come from: one contract for every traffic source of `campaign.toml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from autoresearch.core import ArmTotals, EnvironmentNotReadyError, LiveExperiment, MetricKind, UsageError

if TYPE_CHECKING:
    from autoresearch.adapters.marketing.campaign import Campaign
    from autoresearch.adapters.marketing.live import LiveTest


SERVED = ("site", "api", "email")
"""Sources whose people meet `autoresearch marketing serve`, be it only to unsubscribe."""

WITHOUT_VALUES = ("simulated", "email")
"""Sources whose conversions have no value: made-up people pay nothing, and an answer is no sum."""

NOT_RANDOMISED = "not randomised"
"""The label of totals whose tool chose who saw what."""

NOTES = {
    NOT_RANDOMISED: "Not randomised: the platform chose who saw which variant, so the difference may be the audience's."
}
"""What is said beside a verdict, by label. Made-up and past people need none: the metric's name tells of them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a source knows of a test at one moment.

    Attributes:
        arms: Cumulative totals of matured units for the primary metric, `control` first.
        exposed: Units per arm so far, matured or not: what the split is judged by. Empty where units do not come by
            assignment (totals from another tool).
        crossed: Units that met both arms.
        guardrails: Cumulative totals per arm of every guardrail, by name.
        at: The moment, in the source's own time (a replay and a simulation have their own calendar).
        over: Why there is no more traffic for this test; None while there is.
        hold: Why no verdict may be had yet, whatever the numbers say; None where one may.
    """

    arms: Sequence[ArmTotals]
    exposed: Mapping[str, int]
    crossed: int
    guardrails: Mapping[str, Sequence[ArmTotals]]
    at: datetime
    over: str | None = None
    hold: str | None = None


class Source(Protocol):
    """Shows two arms to people and tells what they did. `start` and `finish` are idempotent."""

    @property
    def label(self) -> str:
        """What every output must say of these numbers (`simulated`, `not randomised`); empty where nothing."""
        ...

    def prepare(self) -> None:
        """Check that traffic can come.

        Raises:
            EnvironmentNotReadyError: If something is missing that a person must provide.
        """
        ...

    def start(self, experiment: LiveExperiment) -> datetime:
        """Show both arms; return when the test began, in the source's time."""
        ...

    def look(self, experiment_id: str) -> Seen:
        """Return what is known now; where the source has its own calendar it moves on by one step."""
        ...

    def wait_seconds(self, experiment_id: str) -> float:
        """Return how long to wait before the next look is worth taking."""
        ...

    def finish(self, experiment_id: str, *, kept: bool) -> None:
        """Stop the test; a kept treatment is what everybody sees from now on. Fine for a test that never started."""
        ...

    def show(self, artifact: Path) -> None:
        """Show a copy to everybody, without a test."""
        ...

    def close(self) -> None:
        """Let go of what is held open."""
        ...


@runtime_checkable
class SharesPeople(Protocol):
    """A source that runs tests of several candidates, and several tests at once, on people of their own."""

    def start_together(self, experiments: Sequence[LiveExperiment]) -> LiveTest:
        """Show all arms of a test against one control; return it as it is live."""
        ...

    def show_to_everybody(self, artifact: Path) -> None:
        """Show a copy to everybody who is in no test; what runs goes on. Nothing happens where it is shown already."""
        ...


def create_source(campaign: Campaign, options: Mapping[str, str]) -> Source:
    """Return the source that `[traffic] source` names; each module is imported when it is wanted.

    Raises:
        UsageError: If the source does not fit the campaign.
        EnvironmentNotReadyError: If its packages are not installed.
    """
    name = campaign.traffic.source
    if name in WITHOUT_VALUES and campaign.metric.kind is MetricKind.MEAN:
        raise UsageError(
            f'{campaign.path}: [metric] kind = "mean" adds up what people are worth, and with the source {name} nobody '
            'says what that is.\nMeasure the share of people who convert, kind = "proportion", or choose one of site, '
            "api, counts, which bring values."
        )
    if name == "simulated":
        from autoresearch.adapters.marketing.simulated import SimulatedSource

        return SimulatedSource(campaign, seed=_seed(options))
    if name in ("site", "api"):
        from autoresearch.adapters.marketing.served import ServedSource

        return ServedSource(campaign)
    if name == "email":
        from autoresearch.adapters.marketing.email.source import EmailSource

        return EmailSource(campaign)
    if name == "counts":
        from autoresearch.adapters.marketing.counted import CountsSource

        return CountsSource(campaign)
    if name == "replay":
        from autoresearch.adapters.marketing.replayed import ReplayedSource

        return ReplayedSource(campaign, seed=_seed(options))
    raise EnvironmentNotReadyError(f"The traffic source {name} is not a part of this release.")


def _seed(options: Mapping[str, str]) -> int:
    text = options.get("seed", "0")
    if not text.isdecimal():
        raise UsageError(f"The option seed must be a whole number, not {text!r}.")
    return int(text)
