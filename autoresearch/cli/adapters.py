"""`autoresearch adapters`: what is installed, and whether it works."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict, dataclass

import typer

from autoresearch.cli.options import JsonOption
from autoresearch.cli.place import terminal_width
from autoresearch.cli.render import Column, as_json, clean, table
from autoresearch.core.registry import ADAPTERS, POLICIES, PROPOSERS, Registered, registered, state_of

_KINDS = {ADAPTERS: "adapter", PROPOSERS: "proposer", POLICIES: "policy"}


@dataclass(frozen=True, slots=True)
class Found:
    """An installed adapter, or a proposer or policy of a package; `state` is `ok` or `broken`, `error` says why."""

    name: str
    distribution: str
    version: str
    state: str
    error: str | None
    kind: str


def adapters(json: JsonOption = False) -> None:
    """List the installed adapters, and the proposers and policies that packages add.

    A package that is broken is listed with its error and hurts nobody else.
    """
    found = [item for group in _KINDS for item in found_in(group)]
    typer.echo(
        as_json([asdict(item) for item in found]) + "\n" if json else adapter_table(found, terminal_width()), nl=False
    )


def found_adapters() -> list[Found]:
    """Return every installed adapter; imports each."""
    return found_in(ADAPTERS)


def found_in(group: str) -> list[Found]:
    """Return everything that packages declare in a group of entry points; imports each."""
    entries = registered(group)
    # What a stranger prints while it is imported must not end up in front of JSON.
    with contextlib.redirect_stdout(sys.stderr):
        return [_found(entry, entries, group) for entry in entries]


def _found(entry: Registered, entries: list[Registered], group: str) -> Found:
    state = state_of(entry, entries, group)
    error = None if state == "ok" else state
    return Found(entry.name, entry.distribution, entry.version, "broken" if error else "ok", error, _KINDS[group])


def adapter_table(found: list[Found], width: int | None) -> str:
    """Return what was found as a table, the errors of broken ones below it in full."""
    if not found:
        return "No adapter is installed.\n"
    rows = [[item.name, item.kind, item.distribution, item.version, item.state] for item in found]
    columns = [Column("name"), Column("kind"), Column("package"), Column("version"), Column("state")]
    if all(item.kind == "adapter" for item in found):
        columns, rows = [columns[0], *columns[2:]], [[row[0], *row[2:]] for row in rows]
    text = table(columns, rows, width=width)
    # Two packages that claim one name share one error.
    errors = dict.fromkeys(clean(f"{item.name}: {item.error}") for item in found if item.error)
    return text + "".join(f"\n{error}\n" for error in errors)
