"""Flags that belong to one adapter: given to a command beside its own, and handed on as the adapter's options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_type_hints

import typer

COMMAND = "command"
"""Name of the adapter that these flags belong to."""

_Flags = Callable[..., dict[str, str]]
"""Its parameters are the flags; it returns the options that they stand for."""


def taking(flags: _Flags) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the parameters of `flags` as well; what `flags` makes of them arrives as `flagged`."""

    def extend(command: Callable[..., None]) -> Callable[..., None]:
        own, added = inspect.signature(command).parameters, inspect.signature(flags).parameters

        @functools.wraps(command)
        def extended(**values: object) -> None:
            flagged = flags(**{name: values.pop(name) for name in added})
            command(**values, flagged=flagged)

        hints = get_type_hints(command, include_extras=True) | get_type_hints(flags, include_extras=True)
        together = {name: parameter for name, parameter in (own | added).items() if name != "flagged"}
        extended.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
                for name, parameter in together.items()
            ]
        )
        extended.__annotations__ = {name: hints[name] for name in together}
        return extended

    return extend


def command_flags(
    edit: Annotated[
        list[str] | None,
        typer.Option("--edit", metavar="GLOB", help="command: files that may change; repeatable."),
    ] = None,
    measure: Annotated[
        str | None, typer.Option("--measure", help="command: what prints the number; {seed} and {split} are filled in.")
    ] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="command: name of the number.")] = None,
    minimize: Annotated[
        bool | None, typer.Option("--minimize/--maximize", help="command: which way is better.", show_default=False)
    ] = None,
    check: Annotated[
        str | None, typer.Option("--check", help="command: what must end well before a candidate is measured.")
    ] = None,
    guard: Annotated[
        list[str] | None,
        typer.Option("--guard", help="command: a number to hold, as in 'memory_mb<=+5%'; repeatable."),
    ] = None,
    repeat: Annotated[
        str | None,
        typer.Option("--repeat", help="command: runs a measurement, or auto; their median counts."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.0, help="command: longest run of it, in seconds; 300 by default.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--pattern", help="command: regular expression whose one group is the number.")
    ] = None,
    json_path: Annotated[
        str | None, typer.Option("--json-path", help="command: keys to the number in printed JSON, as in results.p50.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="command: the number stands in a block of name: value lines below ---.")
    ] = False,
    unit: Annotated[str | None, typer.Option("--unit", help="command: unit of the number.")] = None,
    noise: Annotated[
        float | None, typer.Option("--noise", help="command: spread between two measurements; by default estimated.")
    ] = None,
    read_only: Annotated[
        list[str] | None,
        typer.Option("--read-only", metavar="GLOB", help="command: files to show the proposer; repeatable."),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", metavar="PATH", help="command: used where it lies: data, .venv; repeatable."),
    ] = None,
) -> dict[str, str]:
    """Return the options of the adapter `command` that these flags stand for."""
    lists = {"edit": edit, "guard": guard, "read_only": read_only, "link": link}
    texts = {"measure": measure, "metric": metric, "check": check, "repeat": repeat, "pattern": pattern}
    texts |= {"json_path": json_path, "unit": unit}
    numbers = {"timeout": timeout, "noise": noise}
    options = {name: ",".join(values) for name, values in lists.items() if values}
    options |= {name: text for name, text in texts.items() if text is not None}
    options |= {name: f"{number:g}" for name, number in numbers.items() if number is not None}
    options |= {} if minimize is None else {"direction": "minimize" if minimize else "maximize"}
    return options | ({"summary": "true"} if summary else {})


def merged(options: dict[str, str], flagged: dict[str, str], adapter: str | None) -> dict[str, str]:
    """Return options given with `--set` and by flags together.

    Raises:
        typer.BadParameter: If a flag is given for another adapter, or contradicts a `--set`.
    """
    if flagged and adapter not in (None, COMMAND):
        raise typer.BadParameter(
            f"it belongs to --adapter {COMMAND}, and the adapter is {adapter}.", param_hint=_flag(next(iter(flagged)))
        )
    for name, value in flagged.items():
        if options.get(name, value) != value:
            raise typer.BadParameter(f"--set {name} says {options[name]!r} and this {value!r}.", param_hint=_flag(name))
    return options | flagged


def place(workspace: Path | None, adapter: str | None) -> Path | None:
    """Return the workspace: without one given, `--adapter command` means the folder that it is called in."""
    return Path.cwd() if workspace is None and adapter == COMMAND else workspace


def _flag(name: str) -> str:
    return "--minimize/--maximize" if name == "direction" else f"--{name.replace('_', '-')}"
