"""`autoresearch ml ...`: what the ml adapter adds to the command line. Heavy imports happen inside the commands."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autoresearch.adapters.ml_training.data import PreparedData
    from autoresearch.core.workspace import Layout

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Language-model training: sample from the incumbent, prepare the text.",
)

WorkspaceOption = Annotated[
    Path | None, typer.Option("--workspace", "-w", help="The workspace; default: the current folder, if it is one.")
]


@app.command()
def sample(
    workspace: WorkspaceOption = None,
    prompt: Annotated[str, typer.Option(help="Text to go on from.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Most tokens to write.")] = 200,
    temperature: Annotated[float, typer.Option(min=0.0, help="0: the likeliest token; 1: as the model says.")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Another seed writes another text.")] = 0,
) -> None:
    """Write text with the incumbent's saved weights."""
    from autoresearch.adapters.ml_training.sample import SampleTask, sample_text

    folder = str(_workspace(workspace).incumbent)
    sample_text(SampleTask(folder, prompt, tokens, temperature, seed), _write)
    _write("\n")


@app.command(short_help="Prepare the text, and describe it.")
def data(
    workspace: WorkspaceOption = None,
    source: Annotated[
        str | None, typer.Option("--data", help="sample, climbmix, or a file or folder of .txt, .jsonl, .parquet.")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Decides the vocabulary; default: the workspace's.")] = None,
    cache: Annotated[str | None, typer.Option(help="Folder for prepared data.")] = None,
    download: Annotated[int | None, typer.Option(min=1, help="Take so many shards of climbmix.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Prepare the text (fetch, split, tokenize) and describe it; quick when that was done before."""
    from autoresearch.adapters.ml_training.adapter import MlAdapter, Options
    from autoresearch.core import UsageError, Workspace

    layout, options = _settings(workspace)
    if download is not None:
        chosen = source or options.get("data", "climbmix")
        if chosen.partition(":")[0] != "climbmix":
            raise UsageError(
                f"--download takes shards of climbmix, and the data is {chosen}. Leave one of the two out."
            )
        source = _with_shards(chosen, download)
    given = {"data": source, "preset": preset, "cache": cache}
    options |= {name: value for name, value in given.items() if value is not None}
    adapter = MlAdapter(Options.parse(options))
    prepared = adapter.prepare_text(Workspace(layout, options, progress=_Progress().show))
    print(json.dumps({"path": str(prepared.path), **prepared.manifest}, indent=2) if as_json else describe(prepared))


def describe(prepared: PreparedData) -> str:
    """Return what a person wants to know about prepared data, one fact a line."""
    manifest = prepared.manifest
    lines = [
        f"source          {manifest['source']}",
        f"folder          {prepared.path}",
        f"vocabulary      {prepared.vocab_size:,} tokens",
    ]
    for name, split in manifest["splits"].items():
        lines.append(
            f"{name:<15} {split['documents']:,} documents, {split['bytes']:,} bytes, {split['tokens']:,} tokens "
            f"({split['bytes'] / split['tokens']:.2f} bytes each)"
        )
    lines.append(f"{'dropped':<15} {manifest['near_duplicates_dropped']:,} near-duplicates of scored text")
    return "\n".join(lines)


def _with_shards(source: str, shards: int) -> str:
    """Return a climbmix source with its number of shards replaced."""
    kept = [option for option in source.partition(":")[2].split(",") if option and not option.startswith("shards=")]
    return f"climbmix:{','.join([f'shards={shards}', *kept])}"


def _workspace(given: Path | None) -> Layout:
    from autoresearch.core import UsageError
    from autoresearch.core.workspace import find_workspace

    layout = find_workspace(given, cwd=Path.cwd(), adapter="ml")
    if layout is None or not layout.config.is_file():
        raise UsageError(
            f"There is no workspace at {layout.root if layout else Path.cwd()}.\n"
            "Name one with -w DIR, or make one: autoresearch init --adapter ml DIR"
        )
    return layout


def _settings(given: Path | None) -> tuple[Path, dict[str, str]]:
    """Return folder and options of the workspace; outside of one, the current folder and no options."""
    from autoresearch.core.workspace import find_workspace, read_settings

    if given is not None:
        return given.resolve(), dict(read_settings(_workspace(given)).options)
    layout = find_workspace(None, cwd=Path.cwd(), adapter="ml")
    if layout is None or not layout.config.is_file():
        return Path.cwd(), {}
    return layout.root, dict(read_settings(layout).options)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


class _Progress:
    """One line on the error stream that is overwritten in a terminal; when piped, a line for each new phase."""

    def __init__(self) -> None:
        self._phase = ""

    def show(self, share: float, text: str) -> None:
        if sys.stderr.isatty():
            end = "\n" if share >= 1.0 else ""
            sys.stderr.write(f"\r\x1b[K{share:4.0%}  {text}{end}")
        elif (phase := text.partition(":")[0]) != self._phase:
            self._phase = phase
            sys.stderr.write(f"{share:4.0%}  {text}\n")
        sys.stderr.flush()
