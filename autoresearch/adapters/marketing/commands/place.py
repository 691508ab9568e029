"""Which campaign a command means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autoresearch.core.workspace import Layout

CampaignOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="DIR",
        help="The campaign folder; by default this folder if it is one, else ./autoresearch-marketing.",
        show_default=False,
    ),
]


def folder_here() -> Path | None:
    """Return this folder if it is a campaign, else `./autoresearch-marketing` if that is one; None where neither is."""
    from autoresearch.adapters.marketing.campaign import CAMPAIGN_NAME

    places = (Path.cwd(), Path.cwd() / "autoresearch-marketing")
    return next((place for place in places if (place / CAMPAIGN_NAME).is_file()), None)


def layout_of(given: Path | None) -> Layout:
    """Return the campaign that is meant, as a workspace.

    Raises:
        UsageError: If there is none.
    """
    from autoresearch.adapters.marketing.campaign import CAMPAIGN_NAME
    from autoresearch.core import UsageError
    from autoresearch.core.workspace import Layout

    folder = given or folder_here()
    if folder is None or not (folder / CAMPAIGN_NAME).is_file():
        raise UsageError(
            f"There is no campaign at {folder or Path.cwd()}: it has no {CAMPAIGN_NAME}.\n"
            "Name one with -w DIR, or make one: autoresearch init --adapter marketing DIR"
        )
    return Layout(folder.resolve())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say it in a sentence when what is named by `path` cannot be written.

    Raises:
        EnvironmentNotReadyError: Then.
    """
    from autoresearch.core import EnvironmentNotReadyError

    try:
        yield
    except OSError as error:
        raise EnvironmentNotReadyError(
            f"{path} cannot be written: {error.strerror or error}.\nMake it writable, or name another place."
        ) from error
