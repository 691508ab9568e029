"""`autoresearch adapters`: what is installed, and whether it works."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict, dataclass

import typer

from autoresearch.cli.options import JsonOption
from autoresearch.cli.place import terminal_width
from autoresearch.cli.render import Column, as_json, clean, table
from autoresearch.core.registry import ADAPTERS, Registered, registered, state_of


@dataclass(frozen=True, slots=True)
class Found:
    """An installed adapter; `state` is `ok` or `broken`, `error` says why."""

    name: str
    distribution: str
    version: str
    state: str
    error: str | None


def adapters(json: JsonOption = False) -> None:
    """List the installed adapters. A package that is broken is listed with its error and hurts nobody else."""
    found = found_adapters()
    typer.echo(
        as_json([asdict(item) for item in found]) + "\n" if json else adapter_table(found, terminal_width()), nl=False
    )


def found_adapters() -> list[Found]:
    """Return every installed adapter; imports each."""
    entries = registered(ADAPTERS)
    # What a stranger prints while it is imported must not end up in front of JSON.
    with contextlib.redirect_stdout(sys.stderr):
        return [_found(entry, entries) for entry in entries]


def _found(entry: Registered, entries: list[Registered]) -> Found:
    state = state_of(entry, entries)
    error = None if state == "ok" else state
    return Found(entry.name, entry.distribution, entry.version, "broken" if error else "ok", error)


def adapter_table(found: list[Found], width: int | None) -> str:
    """Return the adapters as a table, the errors of broken ones below it in full."""
    if not found:
        return "No adapter is installed.\n"
    columns = [Column("name"), Column("package"), Column("version"), Column("state")]
    text = table(columns, [[item.name, item.distribution, item.version, item.state] for item in found], width=width)
    errors = [clean(f"{item.name}: {item.error}") for item in found if item.error]
    return text + "".join(f"\n{error}\n" for error in errors)
