"""`autoresearch compare`: which proposer or policy gains more, and whether a paid one earns its fee."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.flags import COMMAND, command_flags, merged, place, taking
from autoresearch.cli.options import (
    BudgetSecondsOption,
    DataOption,
    DeviceOption,
    HoursOption,
    JsonOption,
    MaxUsdOption,
    ModelOption,
    PresetOption,
    SetOption,
    adapter_options,
)
from autoresearch.cli.place import colours_wanted, shown_path
from autoresearch.cli.render import ABSENT, Column, as_json, clean, effect, money, table
from autoresearch.cli.reporter import Plain, Quiet, reporter_for
from autoresearch.core.errors import UsageError
from autoresearch.core.workspace import Layout, Settings, read_settings

if TYPE_CHECKING:
    from autoresearch.core.compare import Comparison, Contestant, Contrast, Estimate, Plan, RunFigures


@taking(command_flags)
def compare(
    *,
    adapter: Annotated[
        str | None,
        typer.Option(help="What to improve; by default the adapter of --from.", show_default=False),
    ] = None,
    proposers: Annotated[
        str, typer.Option(metavar="NAMES", help="Proposers to compare, with commas between.")
    ] = "search,claude",
    policies: Annotated[str, typer.Option(metavar="NAMES", help="Policies to compare, with commas between.")] = "bayes",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each; one run of each can show nothing.")] = 2,
    experiments: Annotated[int, typer.Option("--experiments", "-n", min=1, help="Experiments of a run.")] = 20,
    fresh: Annotated[
        int, typer.Option(min=1, help="Fresh seeds with which incumbent and baseline are measured again.")
    ] = 3,
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR",
            help="Folder of the comparison, one workspace a run below it; by default ./compare-ADAPTER, of a checkout "
            ".autoresearch/compare.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Workspace whose artifact every run begins with; by default what the adapter's init writes, of "
            "--adapter command this folder.",
            show_default=False,
        ),
    ] = None,
    model: ModelOption = None,
    hours: HoursOption = None,
    max_usd: MaxUsdOption = None,
    budget_seconds: BudgetSecondsOption = None,
    device: DeviceOption = None,
    preset: PresetOption = None,
    data: DataOption = None,
    settings: SetOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing before the result.")] = False,
    json: JsonOption = False,
    flagged: dict[str, str],
) -> None:
    """Let proposers or policies compete, and say which gains more.

    All begin with one artifact, and each runs with several seeds under the same budget. What an incumbent gained is
    measured anew on the holdout, with seeds that no decision saw. The same command goes on where it was cut off.
    """
    from autoresearch.core import compare as core

    options = merged(adapter_options(settings, preset, data), flagged, adapter)
    start = place(start, adapter)
    found = _settings(start, adapter)
    name = adapter or (found.adapter if found else None)
    if name is None:
        raise UsageError("It is not said what to improve.\nName an adapter: autoresearch compare --adapter ml")
    if found is not None:
        options = {**found.options, **options}
    plan = core.Plan(
        adapter=name,
        proposers=_names(proposers, "--proposers"),
        policies=_names(policies, "--policies"),
        experiments=experiments,
        seeds=seeds,
        fresh=fresh,
        files=core.workspace_files(start, name, options) if start is not None and name != COMMAND else {},
        checkout=start.resolve() if start is not None and name == COMMAND else None,
        hours=hours,
        max_usd=max_usd,
        model=model or (found.model if found else None),
        budget_seconds=budget_seconds or (found.budget_seconds if found else None),
        device=device or (found.device if found else None),
        options=options,
    )
    inside = Layout(plan.checkout).state / "compare" if plan.checkout is not None else Path(f"compare-{name}")
    folder = (workspace or inside).resolve()
    if json:
        comparison = core.compare(folder, plan, Quiet() if quiet else Plain(sys.stderr))
        typer.echo(as_json(comparison_as_json(comparison)))
    else:
        with reporter_for(quiet=quiet, json=False) as reporter:
            comparison = core.compare(folder, plan, reporter)
        text = comparison_text(comparison, plan, folder, colour=colours_wanted())
        typer.echo(text if quiet else f"\n{text}", nl=False)
    if not comparison.complete:
        raise typer.Exit(130)


def _settings(start: Path | None, adapter: str | None) -> Settings | None:
    """Return the settings of the workspace to begin with; a checkout needs none where flags say what to improve."""
    if start is None or (adapter == COMMAND and not Layout(start.resolve()).config.is_file()):
        return None
    return read_settings(Layout(start.resolve()))


def _names(text: str, option: str) -> tuple[str, ...]:
    """Return the names between commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise typer.BadParameter(f"{text!r} has an empty name in it.", param_hint=option)
    return names


def comparison_as_json(found: Comparison) -> dict[str, Any]:
    """Return a comparison with the keys of docs/json.md."""
    return {
        "metric": found.metric.name,
        "unit": found.metric.unit,
        "complete": found.complete,
        "contestants": [_contestant_as_json(item) for item in found.contestants],
        "contrasts": [_contrast_as_json(item) for item in found.contrasts],
    }


def _contestant_as_json(item: Contestant) -> dict[str, Any]:
    true, claimed = item.true, item.claimed
    return {
        "proposer": item.proposer,
        "policy": item.policy,
        "true_gain": true.mean if true else None,
        "true_gain_error": true.error if true else None,
        "claimed_gain": claimed.mean if claimed else None,
        "claimed_gain_error": claimed.error if claimed else None,
        "experiments": item.experiments,
        "measurements": item.measurements,
        "usd": item.usd,
        "hours": item.hours,
        "gain_per_usd": item.gain_per_usd,
        "gain_per_hour": item.gain_per_hour,
        "runs": [_run_as_json(run) for run in item.runs],
    }


def _run_as_json(run: RunFigures) -> dict[str, Any]:
    names = ("seed", "run", "reason", "experiments", "kept", "measurements", "usd", "hours", "failed")
    return {
        **{name: getattr(run, name) for name in names},
        "workspace": str(run.workspace),
        "true_gain": run.true,
        "true_gain_error": run.true_error,
        "claimed_gain": run.claimed,
    }


def _contrast_as_json(item: Contrast) -> dict[str, Any]:
    low, high = item.interval or (None, None)
    return {
        "first": {"proposer": item.first.proposer, "policy": item.first.policy},
        "second": {"proposer": item.second.proposer, "policy": item.second.policy},
        "difference": item.difference,
        "low": low,
        "high": high,
        "shown": item.shown,
        "runs_needed": item.runs_needed,
    }


def comparison_text(found: Comparison, plan: Plan, folder: Path, *, colour: bool = False) -> str:
    """Return a comparison for people: the answers, the table, and how to read it."""
    unit = clean(found.metric.unit) or f"the unit of {clean(found.metric.name)}"
    lines = [answer(item, clean(found.metric.unit)) for item in found.contrasts]
    if not found.complete:
        lines.append("Ended before all was done; the same command goes on.")
    if len(found.contrasts) > 1:
        lines.append(f"Of {len(found.contrasts)} intervals of 90 % each, one may well miss.")
    lines += ["", _table(found.contestants, colour=colour).rstrip("\n"), ""] if found.contestants else []
    lines.append(
        f"Means over runs, +- is their standard error. Gains are in {unit}, positive is better; true gain: incumbent "
        f"against baseline with fresh seeds ({plan.fresh} a run) on the holdout; claimed: what the policy believes."
    )
    lines += [_left_out(run) for item in found.contestants for run in item.runs if run.failed is not None]
    lines += [_shorter(run) for item in found.contestants for run in item.runs if run.experiments < plan.experiments]
    lines.append(f"Every run lies below {shown_path(folder)}")
    return "\n".join(lines) + "\n"


def answer(item: Contrast, unit: str) -> str:
    """Return what the numbers say of two contestants, and no more."""
    fee = item.first.usd - item.second.usd
    asked = f"Does {clean(item.first.proposer)} earn its fee here? " if _is_fee(item) else ""
    return f"{asked}{_finding(item, unit, fee if _is_fee(item) else 0.0)}{_missing(item)}"


def _is_fee(item: Contrast) -> bool:
    """Say whether the question is one of money: two proposers, of which the first costs more."""
    return item.first.proposer != item.second.proposer and item.first.usd > item.second.usd


def _finding(item: Contrast, unit: str, fee: float) -> str:
    first, second, both = _who(item)
    more = "more" if item.difference >= 0 else "less"
    size = f"{abs(item.difference):.3g} {unit}".rstrip()
    if item.interval is None:
        span = "one run of each, so no interval"
    else:
        span = f"90 % interval {effect(item.interval[0])} to {effect(item.interval[1])}"
    gained = f"{first} gained {size} {more} than {second}{both} ({span})"
    cost = f" and cost {money(fee)} more a run" if fee > 0 else ""
    if item.shown > 0:
        return f"{'Yes, it gains more' if fee > 0 else 'Shown'}: {gained}{cost}."
    if item.shown < 0:
        return f"{'No' if fee > 0 else 'Shown'}: {gained}{cost}."
    if item.interval == (0.0, 0.0):
        return f"{'No' if fee > 0 else 'No difference'}: {first} and {second} gained the same{both} in every run{cost}."
    return f"{'These runs cannot tell' if fee > 0 else 'Not shown'}: {gained}{cost}."


def _who(item: Contrast) -> tuple[str, str, str]:
    """Return the names of both sides by that in which they differ, and what they have in common."""
    first, second = item.first, item.second
    if first.proposer == second.proposer:
        return clean(first.policy), clean(second.policy), f" with proposals by {clean(first.proposer)}"
    return clean(first.proposer), clean(second.proposer), f" under {clean(first.policy)}"


def _missing(item: Contrast) -> str:
    """Return what would settle an open question."""
    if item.interval is None:
        return " More runs tell: --seeds 3 or more."
    if item.shown != 0 or item.interval == (0.0, 0.0):
        return ""
    if item.runs_needed is None:
        return " If the difference is what it seems, no affordable number of runs would show it."
    return f" If the difference is what it seems, {item.runs_needed} runs of each would show it (--seeds)."


def _table(contestants: Sequence[Contestant], *, colour: bool) -> str:
    titles = (
        "runs", "true gain", "claimed", "experiments", "measured", "dollars", "hours", "gain per $", "gain per h",
    )  # fmt: skip
    columns = [Column("proposer"), Column("policy"), *(Column(title, right=True) for title in titles)]
    return table(columns, [_row(item) for item in contestants], colour=colour)


def _row(item: Contestant) -> list[str]:
    return [
        item.proposer, item.policy, str(len(item.runs)), _estimate(item.true), _estimate(item.claimed),
        f"{item.experiments:.4g}", f"{item.measurements:.4g}", money(item.usd), f"{item.hours:.3g}",
        effect(item.gain_per_usd), effect(item.gain_per_hour),
    ]  # fmt: skip


def _estimate(estimate: Estimate | None) -> str:
    if estimate is None:
        return ABSENT
    return effect(estimate.mean) if estimate.error is None else f"{effect(estimate.mean)} +- {estimate.error:.2g}"


def _left_out(run: RunFigures) -> str:
    return (
        f"Left out of the true gain: {clean(run.proposer)}, {run.policy}, seed {run.seed}, whose incumbent could not "
        f"be measured with fresh seeds: {clean(run.failed or '')}"
    )


def _shorter(run: RunFigures) -> str:
    return (
        f"Shorter than the others: {clean(run.proposer)}, {run.policy}, seed {run.seed} ended after {run.experiments} "
        f"experiments: {clean(run.reason)}."
    )
