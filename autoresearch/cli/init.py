"""`autoresearch init`: a workspace to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autoresearch.cli.options import DataOption, PresetOption, SetOption, adapter_options
from autoresearch.cli.place import shown_path, suffix
from autoresearch.core.workspace import Layout


def init(
    adapter: Annotated[str, typer.Option(help="What to improve; autoresearch adapters lists them.")],
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="DIR", help="Where; by default ./autoresearch-ADAPTER.", show_default=False),
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="The same as DIR.", show_default=False)
    ] = None,
    preset: PresetOption = None,
    data: DataOption = None,
    settings: SetOption = None,
) -> None:
    """Write a workspace: the artifact, program.md and autoresearch.toml. Files that are there stay as they are."""
    if folder is not None and workspace is not None and folder.resolve() != workspace.resolve():
        raise typer.BadParameter(f"DIR says {folder} and --workspace {workspace}; give one.", param_hint="--workspace")
    options = adapter_options(settings, preset, data)
    layout = Layout((folder or workspace or Path(f"autoresearch-{adapter}")).resolve())
    from autoresearch.core.driver import create_workspace

    written = create_workspace(layout, adapter, options)
    for path in written:
        typer.echo(f"wrote {shown_path(path)}")
    typer.echo(f"Next: autoresearch run{suffix(layout)}")
