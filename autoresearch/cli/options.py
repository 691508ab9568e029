"""Options that several commands share, so that they mean the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

WorkspaceOption = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        "-w",
        metavar="DIR",
        help="Workspace; by default this folder if it is one, else the only ./autoresearch-* folder.",
        show_default=False,
    ),
]
RunOption = Annotated[
    str | None, typer.Option("--run", metavar="ID", help="Which run; by default the latest.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; docs/json.md names the keys.")]


def _some_time(seconds: float | None) -> float | None:
    if seconds == 0:
        raise typer.BadParameter("a measurement needs more than no time.")
    return seconds


ModelOption = Annotated[str | None, typer.Option(help="Model of the proposer.", show_default=False)]
HoursOption = Annotated[float | None, typer.Option(min=0.0, help="End a run after so many hours.", show_default=False)]
MaxUsdOption = Annotated[
    float | None, typer.Option(min=0.0, help="End a run before its proposals cost more dollars.", show_default=False)
]
BudgetSecondsOption = Annotated[
    float | None,
    typer.Option(min=0.0, callback=_some_time, help="Budget of one measurement.", show_default=False),
]
DeviceOption = Annotated[
    str | None, typer.Option(help="Device of the measurements: cpu, cuda:0, mps.", show_default=False)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="An option of the adapter; may be given again.", show_default=False
    ),
]
PresetOption = Annotated[
    str | None, typer.Option("--preset", help="Short for --set preset=PRESET.", show_default=False)
]
DataOption = Annotated[str | None, typer.Option("--data", help="Short for --set data=DATA.", show_default=False)]

KindOption = Annotated[
    str | None,
    typer.Option("--kind", help="marketing: page, email or ad. Short for --set kind=KIND.", show_default=False),
]
AnywayOption = Annotated[
    bool,
    typer.Option("--anyway", help="marketing: run a plan that the traffic cannot afford. Short for --set anyway=yes."),
]
NoWholeWeeksOption = Annotated[
    bool,
    typer.Option("--no-whole-weeks", help="marketing: let a test end in mid-week. Short for --set whole_weeks=no."),
]


def adapter_options(
    settings: Sequence[str] | None, preset: str | None, data: str | None, **short: str | None
) -> dict[str, str]:
    """Return the adapter's options as typed.

    Args:
        settings: What `--set` was given.
        preset: What `--preset` was given.
        data: What `--data` was given.
        short: Further options by name that a flag of their own was given for; None where it was not.

    Raises:
        typer.BadParameter: If a setting has no `=` or no name, or a name is given twice with different values.
    """
    options: dict[str, str] = {}
    flags = {"preset": preset, "data": data, **short}
    for text in [*(settings or ()), *(f"{name}={value}" for name, value in flags.items() if value is not None)]:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE.", param_hint="--set")
        if options.get(name, value) != value:
            raise typer.BadParameter(f"{name} is given twice: {options[name]!r} and {value!r}.", param_hint="--set")
        options[name] = value
    return options
