"""`autoresearch gc`: remove what can be made again, and what nobody wants any more."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.options import JsonOption, WorkspaceOption
from autoresearch.cli.place import opened
from autoresearch.cli.render import as_json

if TYPE_CHECKING:
    from autoresearch.core.cleanup import Removable
    from autoresearch.core.workspace import Layout


def gc(
    workspace: WorkspaceOption = None,
    older_than: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS", min=0.0, help="Forget rejected candidates that ended so long ago.", show_default=False
        ),
    ] = None,
    keep_last: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Forget rejected candidates but the last N of each run.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove scratch folders and copies of artifacts of finished experiments, and checkpoints of no use.

    Ledger, logs, baseline, incumbent and kept steps stay, and so does everything that is yours. Candidates that were
    not kept stay as git refs, unless --older-than or --keep-last says otherwise (both: a ref must meet both); their
    diffs stay in the ledger, and git itself decides when their objects go.
    """
    from autoresearch.core import lock
    from autoresearch.core.cleanup import removable, remove

    with opened(workspace) as place, lock.held(place.layout):
        now = datetime.now(UTC)
        found = removable(place.layout, place.ledger, now=now, older_than_days=older_than, keep_last=keep_last)
        if not dry_run:
            remove(place.layout, found)
        if json:
            typer.echo(as_json(as_record(found, place.layout, removed=not dry_run)))
        else:
            typer.echo(in_words(found, place.layout, dry_run=dry_run), nl=False)


def as_record(found: Removable, layout: Layout, *, removed: bool) -> dict[str, Any]:
    """Return what `gc --json` prints."""
    return {
        "removed": removed,
        "bytes": found.size,
        "folders": [{"path": _inside(layout, path), "bytes": size} for path, size in found.folders],
        "refs": [
            {"run": run_id, "number": number, "commit": commit}
            for run_id, numbers in found.refs.items()
            for number, commit in numbers.items()
        ],
        "checkpoints": list(found.threads),
        "kept_back": list(found.kept_back),
    }


def in_words(found: Removable, layout: Layout, *, dry_run: bool) -> str:
    """Return what goes, line by line where nothing was removed yet, and the sum."""
    lines = []
    if dry_run:
        lines += [f"{_inside(layout, path)}  {_amount(size)}" for path, size in found.folders]
        lines += [
            f"refs/autoresearch/{run_id}/{number:04d}" for run_id, numbers in found.refs.items() for number in numbers
        ]
        lines += [f"checkpoint {name}" for name in found.threads]
    lines += found.kept_back
    what = [
        _count(len(found.folders), "folder"),
        _count(found.n_refs, "ref of a rejected candidate", "refs of rejected candidates"),
        _count(len(found.threads), "checkpoint"),
    ]
    verb = "Would remove" if dry_run else "Removed"
    lines.append(f"{verb} {', '.join(what)}: {_amount(found.size)}.")
    return "\n".join(lines) + "\n"


def _inside(layout: Layout, path: Path) -> str:
    return path.relative_to(layout.root).as_posix()


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _amount(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB" if size >= 1000 else f"{size} bytes"
