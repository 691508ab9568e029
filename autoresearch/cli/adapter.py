"""`autoresearch adapter`: write a package with a new adapter, and check one that is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import keyword
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.options import JsonOption, SetOption, adapter_options
from autoresearch.cli.place import shown_path, terminal_width
from autoresearch.cli.render import Column, as_json, clean, table
from autoresearch.core.errors import EnvironmentNotReadyError, UsageError

if TYPE_CHECKING:
    from autoresearch.testing import Checked, Files

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Write a package with an adapter of your own, and check one against the contract.",
)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the adapter, as in run --adapter NAME.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Where; by default ./NAME.", show_default=False)
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="For a metric that arrives from people.")] = False,
) -> None:
    """Write a package that can be installed: an adapter of some thirty lines, its test, and a README."""
    from autoresearch.cli.scaffold import package_files
    from autoresearch.core import registry

    if not name.isidentifier() or keyword.iskeyword(name) or not name.islower():
        raise UsageError(f"The name must be lower-case letters, digits and _, and no word of Python's, not {name!r}.")
    # Two packages may not claim one name, so that the new one would stop both.
    taken = [entry.distribution for entry in registry.registered(registry.ADAPTERS) if entry.name == name]
    others = [owner for owner in taken if owner.replace("_", "-") != f"autoresearch-{name}".replace("_", "-")]
    if others:
        raise UsageError(f"The package {others[0]} has an adapter {name} already.\nChoose another name.")
    root = (folder or Path(name)).resolve()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UsageError(
            f"{root} is there already and not empty.\nName another folder: autoresearch adapter new {name} DIR"
        )
    try:
        for relative, text in package_files(name, live=live).items():
            path = root / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            typer.echo(f"wrote {shown_path(path)}")
    except OSError as error:
        raise EnvironmentNotReadyError(f"{root} cannot be written: {error.strerror}.\nName another folder.") from error
    typer.echo(f"Next: pip install -e {shown_path(root)}\n      autoresearch run --adapter {name} --experiments 6")


@app.command()
def check(
    name: Annotated[str, typer.Argument(help="Name of an installed adapter.")],
    artifact: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="File or folder to begin with; by default what init writes.", show_default=False
        ),
    ] = None,
    worse: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File or folder that is clearly worse.", show_default=False),
    ] = None,
    broken: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File or folder that cannot be measured.", show_default=False),
    ] = None,
    beside: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with what else the workspace holds.", show_default=False),
    ] = None,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Check an installed adapter against every clause of the contract; exit code 1 unless all hold.

    What is worse and what is broken you have to say: without it those checks fail. Of a live adapter only the checks
    that need no people can hold here; its package's own test has the others.
    """
    if importlib.util.find_spec("pytest") is None:
        raise EnvironmentNotReadyError(
            "The checks are run by pytest, which is not installed.\nInstall it: pip install pytest"
        )
    from autoresearch.testing import run_checks

    kit = _kit(
        name,
        adapter_options(settings, None, None),
        {"artifact": artifact, "worse": worse, "broken": broken, "beside": beside},
    )
    # What a stranger prints while it is measured must not end up in front of JSON.
    with contextlib.redirect_stdout(sys.stderr):
        found = run_checks(kit)
    text = as_json([asdict(item) for item in found]) + "\n" if json else check_table(found, terminal_width())
    typer.echo(text, nl=False)
    if not all(item.holds for item in found):
        raise typer.Exit(1)


def check_table(found: list[Checked], width: int | None) -> str:
    """Return the checks as a table, below it why those that do not hold do not, and a count."""
    columns = [
        Column("outcome", styles={"passed": "green", "failed": "red", "skipped": "yellow", "known gap": "yellow"}),
        Column("check"),
    ]
    text = table(columns, [[item.outcome, item.name] for item in found], width=width)
    why: dict[str, list[Checked]] = {}
    for item in found:
        if not item.holds:
            why.setdefault(clean(item.detail).strip(), []).append(item)
    for detail, items in why.items():
        text += "".join(f"\n{clean(item.name)}: {clean(item.clause)}" for item in items) + f"\n  {detail}\n"
    wanting = sum(not item.holds for item in found)
    passed = sum(item.outcome == "passed" for item in found)
    not_offered = sum(item.outcome == "not offered" for item in found)
    verdict = "The contract is kept" if not wanting else f"{wanting} of {len(found)} checks do not hold"
    return f"{text}\n{verdict}: {passed} passed, {not_offered} about things that it does not offer.\n"


def _kit(name: str, options: Mapping[str, str], texts: Mapping[str, Path | None]) -> type:
    """Return the conformance class of an installed adapter; what was not given stays missing, and fails there."""
    import pytest

    from autoresearch.core import Adapter, registry
    from autoresearch.core.sandbox import best_level
    from autoresearch.testing import AdapterConformance, LiveAdapterConformance

    first, _ = registry.create_adapter(name, options)
    base: type = AdapterConformance if isinstance(first, Adapter) else LiveAdapterConformance
    members: dict[str, Any] = {
        "adapter": pytest.fixture(lambda self: registry.create_adapter(name, options)[0]),
        "options": pytest.fixture(lambda self: options),
        "sandbox": pytest.fixture(lambda self: best_level().value),
    }
    members |= {name: _not_given(sentence) for name, sentence in _missing_texts(first).items()}
    fixtures = {"artifact": "artifact", "worse": "worse_artifact", "broken": "broken_artifact", "beside": "other_files"}
    for flag, path in texts.items():
        if path is not None:
            members[fixtures[flag]] = _fixture(_read(path))
    return type("TestKit", (base,), members)


def _missing_texts(adapter: object) -> Mapping[str, str]:
    """Return fixture -> what to say where it is needed and nothing was given for it."""
    from autoresearch.core import LiveAdapter, OffersWorkspace

    found = {}
    if not isinstance(adapter, OffersWorkspace):
        found["artifact"] = "It writes no workspace of its own. Say what to begin with: --artifact PATH"
    if isinstance(adapter, LiveAdapter):
        found["treatment"] = (
            "This needs people, who do not come to the command line. Run the test of its package: pytest"
        )
    else:
        found["worse_artifact"] = "Say what is clearly worse: --worse PATH"
        found["broken_artifact"] = "Say what cannot be measured: --broken PATH"
    return found


def _not_given(sentence: str) -> Any:
    import pytest

    return pytest.fixture(lambda self: pytest.fail(sentence, pytrace=False))


def _fixture(files: Files) -> Any:
    import pytest

    return pytest.fixture(lambda self: files)


def _read(path: Path) -> Files:
    """Return a file's text, or the files of a folder by relative path."""
    from autoresearch.core.artifact import Artifact

    if not path.exists():
        raise UsageError(f"There is no {path}.")
    return path.read_text(encoding="utf-8") if path.is_file() else Artifact.read(path, ("**",)).files
