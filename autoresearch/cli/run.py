"""`autoresearch run`: the loop itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoresearch.cli.flags import command_flags, merged, place, taking
from autoresearch.cli.options import (
    AnywayOption,
    BudgetSecondsOption,
    DataOption,
    DeviceOption,
    HoursOption,
    MaxUsdOption,
    ModelOption,
    NoWholeWeeksOption,
    PresetOption,
    SetOption,
    adapter_options,
)
from autoresearch.cli.place import refuse_ambiguity
from autoresearch.cli.reporter import JsonLines, reporter_for
from autoresearch.cli.summary import closing
from autoresearch.core.workspace import Layout

if TYPE_CHECKING:
    from autoresearch.core.adapter import Metric
    from autoresearch.core.driver import RunResult


@taking(command_flags)
def run(
    *,
    adapter: Annotated[
        str | None, typer.Option(help="What to improve; autoresearch adapters lists them.", show_default=False)
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="DIR",
            help="Workspace; by default this folder if it is one, else ./autoresearch-ADAPTER, made where missing.",
            show_default=False,
        ),
    ] = None,
    proposer: Annotated[
        str | None,
        typer.Option(
            help="claude, search or mcp (a coding agent answers); by default claude with a key, else search.",
            show_default=False,
        ),
    ] = None,
    model: ModelOption = None,
    policy: Annotated[
        str | None, typer.Option(help="bayes, race or greedy: the rule that keeps or reverts.", show_default=False)
    ] = None,
    keep_at: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Keep at this probability of being better.", show_default=False),
    ] = None,
    drop_below: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Revert below this probability.", show_default=False)
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="race: keep what is no better at most this often.", show_default=False),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="race: revert what is better by --min-effect at most this often.", show_default=False
        ),
    ] = None,
    min_effect: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="race, command: smallest improvement worth having; by default the metric's.",
            show_default=False,
        ),
    ] = None,
    experiments: Annotated[
        int | None, typer.Option("--experiments", "-n", min=0, help="End after so many.", show_default=False)
    ] = None,
    hours: HoursOption = None,
    max_usd: MaxUsdOption = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, help="End before proposals take more tokens.", show_default=False)
    ] = None,
    max_samples: Annotated[
        int | None, typer.Option(min=0, help="End after so many measurements.", show_default=False)
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="End when the incumbent is believed to be this good.", show_default=False)
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=0, help="End after so many in a row without a keep.", show_default=False)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="First seed of measurements and of the search.", show_default=False)
    ] = None,
    baseline_runs: Annotated[
        int | None, typer.Option(min=1, help="Measure the baseline so often at first.", show_default=False)
    ] = None,
    budget_seconds: BudgetSecondsOption = None,
    device: DeviceOption = None,
    preset: PresetOption = None,
    data: DataOption = None,
    anyway: AnywayOption = False,
    no_whole_weeks: NoWholeWeeksOption = False,
    settings: SetOption = None,
    early_stop: Annotated[
        bool | None,
        typer.Option(
            "--early-stop/--no-early-stop",
            help="Cut a measurement whose curve leaves no hope of beating the incumbent; off by default.",
            show_default=False,
        ),
    ] = None,
    approve: Annotated[
        bool | None,
        typer.Option("--approve/--no-approve", help="Wait for autoresearch approve N each time.", show_default=False),
    ] = None,
    confirm: Annotated[
        bool | None,
        typer.Option(
            "--confirm/--no-confirm",
            help="Confirm the gain on the holdout when a limit ends the run. By default if the budget allows, and in "
            "no more time than the run took.",
            show_default=False,
        ),
    ] = None,
    sandbox: Annotated[
        str | None,
        typer.Option(
            help="auto, bubblewrap, landlock, limits or none: how candidates are kept apart; by default auto.",
            show_default=False,
        ),
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET",
            help="Tell of a new best and of the end: https://..., mailto:... or cmd:...; several times for several.",
            show_default=False,
        ),
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(metavar="DIR|URI", help="Mirror the run to MLflow as it goes.", show_default=False),
    ] = None,
    wandb: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT",
            help="Mirror the run to Weights & Biases as it goes; offline unless WANDB_MODE=online.",
            show_default=False,
        ),
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="Begin a new run from the artifact as it is now.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing before the summary.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON line per experiment and one for the end.")] = False,
    flagged: dict[str, str],
) -> None:
    """Run the loop until a limit ends it; go on where the last session stopped.

    Ctrl-C once ends the run after the experiment in progress, twice at once. What is left out comes from
    autoresearch.toml in the workspace. Options that begin with "command:" go with --adapter command.
    """
    short = {"anyway": "yes" if anyway else None, "whole_weeks": "no" if no_whole_weeks else None}
    options = merged(adapter_options(settings, preset, data, **short), flagged, adapter)
    if adapter == "command" and min_effect is not None:
        options, min_effect = {**options, "min_effect": f"{min_effect:g}"}, None
    workspace = place(workspace, adapter)
    if workspace is None and adapter is None:
        refuse_ambiguity(Path.cwd())
    from autoresearch.core import driver

    parameters = {
        "keep_at": keep_at,
        "drop_below": drop_below,
        "alpha": alpha,
        "beta": beta,
        "min_effect": min_effect,
    }
    with reporter_for(quiet=quiet, json=json) as reporter:
        result = driver.run(
            adapter,
            workspace=workspace,
            proposer=proposer,
            policy=policy,
            policy_parameters={name: value for name, value in parameters.items() if value is not None} or None,
            model=model,
            experiments=experiments,
            hours=hours,
            max_usd=max_usd,
            max_tokens=max_tokens,
            max_samples=max_samples,
            target=target,
            patience=patience,
            seed=seed,
            baseline_runs=baseline_runs,
            budget_seconds=budget_seconds,
            device=device,
            early_stop=early_stop,
            approve=approve,
            confirm=confirm,
            sandbox=sandbox,
            options=options or None,
            notify=notify,
            mlflow=mlflow,
            wandb=wandb,
            new=new,
            reporter=reporter,
        )
    _conclude(result, quiet=quiet, json=json)
    if result.interrupted:
        raise typer.Exit(130)
    if result.fault:
        raise typer.Exit(1)


def _conclude(result: RunResult, *, quiet: bool, json: bool) -> None:
    """Print the summary, or the last JSON line."""
    if json:
        JsonLines(sys.stdout, None).event(end_event(result))
        return
    layout = Layout(result.workspace)
    metric = _metric_of(layout, result.status.run)
    summary = closing(
        result.status,
        metric,
        result.reason,
        result.branch,
        layout,
        has_history=_has_history(result.workspace),
        live=result.live,
    )
    typer.echo(summary if quiet else f"\n{summary}", nl=False)


def end_event(result: RunResult) -> dict[str, object]:
    """Return the last line of `run --json`."""
    return {
        "event": "end",
        "run": result.status.run,
        "reason": result.reason,
        "interrupted": result.interrupted,
        "fault": result.fault,
        "workspace": str(result.workspace),
        "branch": result.branch,
        "status": result.status.as_json(),
    }


def _metric_of(layout: Layout, run_id: str) -> Metric:
    from autoresearch.core.ledger import Ledger
    from autoresearch.core.memory import metric_from_json

    with Ledger.open(layout.ledger) as ledger:
        return metric_from_json(ledger.run(run_id).metric)


def _has_history(folder: Path) -> bool:
    """Say whether the user's repository has a commit to merge into; a repository that the run made has none."""
    done = subprocess.run(["git", "rev-parse", "--quiet", "--verify", "HEAD"], cwd=folder, capture_output=True)
    return done.returncode == 0
