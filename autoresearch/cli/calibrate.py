"""`autoresearch calibrate`: the noise, and what it hides from the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.options import JsonOption, RunOption, WorkspaceOption
from autoresearch.cli.place import opened
from autoresearch.cli.render import as_json, clean, number
from autoresearch.cli.reporter import going_on_later, reporter_for

if TYPE_CHECKING:
    from autoresearch.core.adapter import Metric
    from autoresearch.core.calibrate import Calibration


def calibrate(
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    runs: Annotated[
        int, typer.Option("--runs", min=2, max=10_000, help="Measurements of the incumbent; earlier ones count.")
    ] = 4,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing before the result.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure the noise, and what it hides.

    The incumbent is measured against itself with fresh seeds, and the values join every other replicate in what the run
    knows of its noise. Then the run's policy is tried, in simulation, on changes that change nothing and on changes
    that help.
    """
    from autoresearch.core import calibrate as core
    from autoresearch.core.fresh import bench_at
    from autoresearch.core.memory import metric_from_json

    with opened(workspace, run) as place:
        with (
            reporter_for(quiet=quiet, json=json) as reporter,
            bench_at(place.layout, place.ledger, place.run, reporter) as bench,
            going_on_later(reporter, "autoresearch calibrate"),
        ):
            found = core.calibrate(bench, runs=runs)
        if json:
            typer.echo(as_json(calibration_as_json(found)))
            return
        text = calibration_text(found, metric_from_json(place.run.metric), place.run.policy)
        typer.echo(text, nl=False)


def calibration_as_json(found: Calibration) -> dict[str, Any]:
    """Return a calibration with the keys of docs/json.md."""
    known = found.assessment
    return {
        "run": found.run,
        "number": found.number,
        "values": list(found.values),
        "measured": found.measured,
        "noise_sd": None if known is None else known.noise.sd,
        "noise_dof": None if known is None else known.noise.dof,
        "false_keep_rate": None if known is None else known.false_keeps,
        "smallest_effect": None if known is None else known.smallest_effect,
    }


def calibration_text(found: Calibration, metric: Metric, policy: str) -> str:
    """Return what a calibration found, for people."""
    from autoresearch.core.calibrate import relative_error

    name, unit, known = clean(metric.name), clean(metric.unit), found.assessment
    who = "the baseline" if found.number == 0 else f"the incumbent (experiment {found.number})"
    values = " ".join(number(value) for value in found.values)
    lines = [f"{name} of {who} with {len(found.values)} fresh seeds: {values}"]
    if known is None or known.noise.sd == 0:
        lines.append("It repeats exactly: every difference is real, and there is no noise to hide one.")
        return "\n".join(lines) + "\n"
    lines.append(
        f"Noise, all replicates of the run together: standard deviation {known.noise.sd:.3g} {unit}".rstrip()
        + f", known to about {relative_error(known.noise):.0%} ({known.noise.dof:.0f} degrees of freedom)."
    )
    if known.false_keeps is not None:
        lines.append(f"The policy {policy} keeps a change that changes nothing {known.false_keeps:.1%} of the time.")
    if known.smallest_effect is None:
        lines.append("It sees no effect of any size with 80 % power at this budget; more baseline runs may help.")
    else:
        times = known.smallest_effect / known.noise.sd
        lines.append(
            f"The smallest improvement that it keeps 80 % of the time is {known.smallest_effect:.3g} {unit}".rstrip()
            + f" ({times:.1f} times the noise)."
        )
    lines.append(
        "Both rates are simulated for the first candidate after the baseline, the noise as uncertain as it is."
    )
    return "\n".join(lines) + "\n"
