"""`autoresearch confirm`: what may be said to other people of a run's gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.options import JsonOption, RunOption, WorkspaceOption
from autoresearch.cli.place import opened, suffix
from autoresearch.cli.render import Column, as_json, clean, effect, table
from autoresearch.cli.reporter import going_on_later, reporter_for
from autoresearch.core.words import headline

if TYPE_CHECKING:
    from autoresearch.core.adapter import Metric
    from autoresearch.core.confirm import Confirmation, Judged
    from autoresearch.core.readmodel import RunStatus

MOST_SEEDS = 10_000
"""So far up do calibrations have their seeds; one more would measure twice what should be fresh."""


def confirm(
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=2, max=MOST_SEEDS, help="Fresh seeds an arm; more may be asked for later.")
    ] = 5,
    claims: Annotated[
        int | None,
        typer.Option(
            "--claims",
            min=2,
            help="How many steps this run may ever claim; fixed by the first confirmation. [default: 20]",
            show_default=False,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing before the result.")] = False,
    json: JsonOption = False,
) -> None:
    """Measure the gain again, on data that no decision saw, and say what is proven.

    Baseline, incumbent and every kept step are measured with fresh seeds on the holdout. At most a tenth of the claims
    of a run are false on average. What was measured is kept, so a confirmation that was cut off goes on.
    """
    from autoresearch.core import confirm as core
    from autoresearch.core.fresh import bench_at
    from autoresearch.core.memory import metric_from_json
    from autoresearch.core.readmodel import status_of

    with opened(workspace, run) as place:
        core.refuse(place.ledger, place.run, seeds, claims)
        with (
            reporter_for(quiet=quiet, json=json) as reporter,
            bench_at(place.layout, place.ledger, place.run, reporter) as bench,
        ):
            count = core.measurements_needed(bench, seeds)
            reporter.say(
                f"Confirming run {place.run.id}: {count} measurements {_place(bench.claim_split.value)} to take."
            )
            with going_on_later(reporter, "autoresearch confirm"):
                found = core.confirm(bench, seeds=seeds, declared=claims)
        if json:
            typer.echo(as_json(confirmation_as_json(found)))
            return
        status = status_of(place.ledger, place.run, at_work=False)
        metric = metric_from_json(place.run.metric)
        typer.echo(confirmation_text(found, status, metric, suffix(place.layout)), nl=False)


def confirmation_as_json(found: Confirmation) -> dict[str, Any]:
    """Return a confirmation with the keys of docs/json.md."""
    from autoresearch.core.readmodel import share_confirmed

    return {
        "run": found.run,
        "seeds": found.seeds,
        "arms": found.arms,
        "measured": found.measured,
        "openings": found.openings,
        "sd": found.sd,
        "spread": found.spread,
        "believed_gain": found.believed,
        "confirmed_gain": found.confirmed,
        "share_confirmed": share_confirmed(found.believed, found.confirmed),
        "complete": found.complete,
        "split": found.split,
        "claims": [_claim_as_json(item) for item in found.claims],
    }


def _claim_as_json(item: Judged) -> dict[str, Any]:
    claim = item.claim
    names = ("subject", "number", "commit", "against", "outcome", "reason", "seeds", "raw", "shrunk", "low", "high")
    return {
        **{name: getattr(claim, name) for name in names},
        "e_value": claim.e_value,
        "e_needed": 1.0 / claim.level if claim.level else None,
        "level": claim.level,
        "share": claim.share,
        "alternative": claim.alternative,
        "seeds_needed": item.seeds_needed,
    }


def confirmation_text(found: Confirmation, status: RunStatus, metric: Metric, where: str) -> str:
    """Return what a confirmation found, for people; the first line is the one that every report begins with."""
    unit, holdout = clean(metric.unit), found.split == "holdout"
    lines = [headline(status, metric), ""]
    incumbent = max((item.claim.number for item in found.claims), default=0)
    lines += [_sentence(item, unit, found.split, incumbent) for item in found.claims]
    lines += ["", _claims_table(found, incumbent).rstrip("\n"), ""]
    lines.append(
        f"Effects in {unit or 'the metric'}, positive is better. {found.arms} arms, {found.seeds} fresh seeds each, "
        + (f"on the holdout, which this run has opened {found.openings} times." if holdout else _NO_HOLDOUT)
    )
    if found.sd is not None:
        lines.append(
            f"Spread of one measurement, seeds' own effects taken out: {found.sd:.3g} {unit}.".replace(" .", ".")
        )
    if found.spread is not None:
        lines.append(
            f"Shrunk towards zero as if true effects of steps spread normally around it with {found.spread:.3g}, "
            "estimated from these."
        )
    lines.append(
        "At most a tenth of a run's claims are false on average (e-LOND); the bounds hold at each claim's level."
    )
    if needed := [item.seeds_needed for item in found.claims if item.seeds_needed is not None]:
        lines.append(f"To settle what is open    autoresearch confirm --seeds {max(needed)}{where}")
    return "\n".join(lines) + "\n"


_NO_HOLDOUT = (
    "on what keep decisions saw: the adapter has no holdout. The luck of the runs that decided is out of it; whether "
    "the gain holds on other data is not shown."
)


def _place(split: str) -> str:
    return "on the holdout" if split == "holdout" else "once more on the same data"


def _subject(item: Judged, incumbent: int) -> str:
    number = item.claim.number
    if item.claim.subject != "incumbent":
        return f"experiment {number}"
    return (
        f"the incumbent (experiment {number})" if number == incumbent else f"experiment {number}, once the incumbent,"
    )


def _sentence(item: Judged, unit: str, split: str, incumbent: int) -> str:
    """Return one plain sentence about a claim; `incumbent` is the experiment that was kept last."""
    claim, what = item.claim, _subject(item, incumbent)
    than = "the baseline" if claim.subject == "incumbent" else "its parent"
    if claim.outcome == "failed":
        return f"Not confirmed: {what} could not be measured with fresh seeds: {clean(claim.reason)}"
    if claim.outcome == "open" or claim.e_value is None:
        return f"Open: {what} is not measured often enough yet."
    if claim.outcome == "confirmed":
        word = "Confirmed" if split == "holdout" else "Re-measured"
        return f"{word}: {what} is better than {than} by {effect(claim.shrunk)} {unit}".rstrip() + "."
    start = f"Not confirmed: that {what} is better than {than}"
    if claim.share == 0:
        return f"{start}; no error rate is left for it."
    if claim.raw is not None and claim.raw <= 0:
        return f"{start}; {_place(split)} it is not."
    if item.seeds_needed is None:
        return f"{start}; if the difference is what it seems, no affordable number of seeds would show it."
    return f"{start}; if the difference is what it seems, {item.seeds_needed} seeds an arm would show it."


def _claims_table(found: Confirmation, incumbent: int) -> str:
    columns = [Column("claim")]
    columns += [Column(name, right=True) for name in ("raw", "shrunk", "from", "to", "e-value", "needed")]
    columns.append(Column("outcome", styles={"confirmed": "green", "re-measured": "green", "not confirmed": "yellow"}))
    return table(columns, [_row(item, found.split, incumbent) for item in found.claims])


def _row(item: Judged, split: str, incumbent: int) -> list[str]:
    claim = item.claim
    name = f"experiment {claim.number} / {'baseline' if claim.subject == 'incumbent' else 'parent'}"
    if claim.subject == "incumbent" and claim.number == incumbent:
        name = "incumbent / baseline"
    e_value = "-" if claim.e_value is None else f"{claim.e_value:.3g}"
    needed = "-" if claim.level is None or claim.level <= 0 else f"{item.threshold:.3g}"
    names = {"unconfirmed": "not confirmed", "confirmed": "confirmed" if split == "holdout" else "re-measured"}
    outcome = names.get(claim.outcome, claim.outcome)
    bounds = [effect(bound) if bound is not None else "none" for bound in (claim.low, claim.high)]
    return [name, effect(claim.raw), effect(claim.shrunk), *bounds, e_value, needed, outcome]
