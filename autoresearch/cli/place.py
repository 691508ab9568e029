"""Which workspace and which run a command speaks about."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autoresearch.core.errors import UsageError
from autoresearch.core.workspace import CONFIG_NAME, Layout, find_workspace

if TYPE_CHECKING:
    from autoresearch.core.ledger import Ledger, Run


@dataclass(frozen=True, slots=True)
class Place:
    """An open ledger and the run that is meant."""

    layout: Layout
    ledger: Ledger
    run: Run


def locate(given: Path | None) -> Layout:
    """Return the workspace that is meant.

    Raises:
        UsageError: If there is none, or it is not clear which.
    """
    cwd = Path.cwd()
    layout = find_workspace(given, cwd=cwd)
    if layout is None:
        refuse_ambiguity(cwd)
        raise UsageError(
            f"There is no workspace in {cwd}.\nMake one with autoresearch run --adapter NAME, or name one with -w DIR."
        )
    # A run of the Python API with an adapter of its own has a ledger and no configuration.
    if not layout.config.is_file() and not layout.ledger.is_file():
        raise UsageError(
            f"{layout.root} is no workspace: it has no {CONFIG_NAME}.\n"
            f"Make one with autoresearch init --adapter NAME {shown_path(layout.root)}, or name another with -w DIR."
        )
    return layout


def refuse_ambiguity(cwd: Path) -> None:
    """Raise UsageError when several workspaces lie in `cwd`, so that taking one of them would be a guess."""
    found = [path.parent.name for path in sorted(cwd.glob(f"autoresearch-*/{CONFIG_NAME}"))]
    if len(found) > 1 and not Layout(cwd).config.is_file():
        raise UsageError(f"There are several workspaces here: {', '.join(found)}.\nName one of them with -w DIR.")


@contextmanager
def opened(workspace: Path | None, run_id: str | None = None, *, to_read: bool = False) -> Iterator[Place]:
    """Open the ledger of a workspace at a run, by default the latest.

    Args:
        workspace: As given with `-w`.
        run_id: As given with `--run`.
        to_read: Nothing will be written, so that it works in a workspace that cannot be written.

    Raises:
        UsageError: If there is no such workspace, no run in it yet, or no run of that id; or it was imported, and
            something would be written.
    """
    layout = locate(workspace)
    if not layout.ledger.is_file():
        raise _no_run(layout)
    from autoresearch.core.ledger import Ledger

    with (Ledger.reading if to_read else Ledger.open)(layout.ledger) as ledger:
        run = ledger.run(run_id) if run_id is not None else ledger.latest_run()
        if run is None:
            raise _no_run(layout)
        if not to_read:
            demand_own(run)
        yield Place(layout, ledger, run)


def demand_own(run: Run) -> None:
    """Raise UsageError for a run that was imported: it is finished, and no artifact of it is here."""
    from autoresearch.core.ledger import IMPORT_ADAPTER

    if run.adapter == IMPORT_ADAPTER:
        raise UsageError(
            f"Run {run.id} was imported from {run.options.get('file', 'a file')}: its log is here and its artifacts "
            "are not, so that it can only be looked at.\n"
            "These work on it: status, log, show, report, export and audit."
        )


def _no_run(layout: Layout) -> UsageError:
    return UsageError(f"No run has begun in {layout.root} yet.\nBegin one: autoresearch run{suffix(layout)}")


def suffix(layout: Layout) -> str:
    """Return the ` -w DIR` that a further command needs from the current folder; empty where it finds the workspace."""
    found = find_workspace(None, cwd=Path.cwd())
    return "" if found == layout else f" -w {shown_path(layout.root)}"


def shown_path(path: Path) -> str:
    """Return a path as short as it can be typed from the current folder, quoted for a shell."""
    cwd = Path.cwd().resolve()
    relative = path.relative_to(cwd) if path.is_relative_to(cwd) else path
    return shlex.quote(str(relative))


def terminal_width() -> int | None:
    """Return the columns of the terminal; None where standard output is none, and nothing needs to be cropped."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def colours_wanted() -> bool:
    """Say whether standard output is a terminal whose owner does not mind colours (https://no-color.org)."""
    import os

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
