"""`autoresearch init`: a workspace to begin with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from autoresearch.cli.flags import command_flags, merged, place, taking
from autoresearch.cli.options import DataOption, KindOption, PresetOption, SetOption, adapter_options
from autoresearch.cli.place import shown_path, suffix
from autoresearch.core.workspace import Layout


@taking(command_flags)
def init(
    *,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Where; by default ./autoresearch-ADAPTER.", show_default=False),
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(help="What to improve; autoresearch adapters lists them.", show_default=False)
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="The same as DIR.", show_default=False)
    ] = None,
    existing: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="A loop set up for another tool, for --adapter command: helix.yaml, .auto, program.md, or a checkout "
            "with one of them.",
            show_default=False,
        ),
    ] = None,
    preset: PresetOption = None,
    data: DataOption = None,
    kind: KindOption = None,
    settings: SetOption = None,
    flagged: dict[str, str],
) -> None:
    """Write a workspace: the artifact, program.md and autoresearch.toml. Files that are there stay as they are.

    Of a checkout that --adapter command improves nothing is touched: all goes into its folder .autoresearch, which git
    ignores.
    """
    if folder is not None and workspace is not None and folder.resolve() != workspace.resolve():
        raise typer.BadParameter(f"DIR says {folder} and --workspace {workspace}; give one.", param_hint="--workspace")
    options = merged(adapter_options(settings, preset, data, kind=kind), flagged, adapter or "command")
    root = folder or workspace
    if existing is not None:
        adapter, root, options = _taken_over(existing, adapter, root, options)
    if adapter is None:
        raise typer.BadParameter(
            "say what to improve; autoresearch adapters lists what there is.", param_hint="--adapter"
        )
    layout = Layout((place(root, adapter) or Path(f"autoresearch-{adapter}")).resolve())
    from autoresearch.core.driver import create_workspace

    written = create_workspace(layout, adapter, options)
    for path in written:
        typer.echo(f"wrote {shown_path(path)}")
    typer.echo(f"Next: autoresearch run{suffix(layout)}")


def _taken_over(
    existing: Path, adapter: str | None, root: Path | None, options: Mapping[str, str]
) -> tuple[str, Path, dict[str, str]]:
    """Read a loop that another tool was set up for, and say what was found; what is given besides goes before it."""
    if adapter not in (None, "command"):
        raise typer.BadParameter(f"it belongs to --adapter command, and the adapter is {adapter}.", param_hint="--from")
    from autoresearch.adapters.command.existing import read_existing

    found = read_existing(existing)
    if root is not None and root.resolve() != found.root:
        raise typer.BadParameter(f"DIR says {root}, and {existing} belongs to {found.root}.", param_hint="--from")
    together = {**found.options, **options}
    typer.echo(f"Read {found.kind}:")
    for name, value in together.items():
        typer.echo(f"  {name} = {value}")
    for note in found.notes:
        typer.echo(f"Note: {note}.")
    return "command", found.root, together
