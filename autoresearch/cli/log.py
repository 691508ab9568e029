"""`autoresearch log`: the experiments of a run, or the proposals that came to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autoresearch.cli.options import JsonOption, RunOption, WorkspaceOption
from autoresearch.cli.place import colours_wanted, opened, suffix, terminal_width
from autoresearch.cli.render import OUTCOME_STYLES, Column, as_json, clean, effect, money, number, probability, table

if TYPE_CHECKING:
    from autoresearch.core.ledger import Experiment, ProposalRow

_NARROW = 100
"""Below so many columns the category gives its place to the hypothesis."""

_CAME_TO_NOTHING = ("failed", "refused", "crashed")


def log(
    workspace: WorkspaceOption = None,
    run: RunOption = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="List the proposals that failed, were refused or crashed instead.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List the finished experiments of a run, the baseline first; a positive effect is a better candidate."""
    with opened(workspace, run, to_read=True) as place:
        if failed:
            rows = [row for row in place.ledger.proposals(place.run.id) if row.status in _CAME_TO_NOTHING]
            text = as_json(failed_rows(rows)) + "\n" if json else failed_table(rows, terminal_width())
        else:
            from autoresearch.core.formats import log_rows

            experiments = place.ledger.experiments(place.run.id)
            name = str(place.run.metric["name"])
            text = (
                as_json(log_rows(experiments)) + "\n"
                if json
                else log_table(name, experiments, terminal_width(), colour=colours_wanted())
            )
            if not json and all(row.outcome is None for row in experiments):
                text = f"No experiment has ended yet. What goes on: autoresearch status{suffix(place.layout)}\n"
        typer.echo(text, nl=False)


def log_table(metric: str, experiments: Sequence[Experiment], width: int | None, *, colour: bool = False) -> str:
    """Return the finished experiments as a table; without a width nothing is cropped."""
    wide = width is None or width >= _NARROW
    lanes = any(row.lane for row in experiments)
    columns = [
        Column("#", right=True),
        *([Column("lane")] if lanes else []),
        Column("outcome", styles=OUTCOME_STYLES),
        Column(metric, right=True),
        Column("effect", right=True),
        Column("p", right=True),
        *([Column("category")] if wide else []),
        Column("hypothesis"),
    ]
    rows = [
        [
            str(row.number),
            *([clean(row.lane)] if lanes else []),
            row.outcome if row.number > 0 else "baseline",
            number(row.value),
            effect(row.effect),
            probability(row.p_better),
            *([row.category] if wide else []),
            row.hypothesis,
        ]
        for row in experiments
        if row.outcome is not None
    ]
    return table(columns, rows, width=width, colour=colour)


def failed_rows(rows: Sequence[ProposalRow]) -> list[dict[str, Any]]:
    """Return the proposals with the keys of `log --failed --json`."""
    names = ("number", "attempt", "status", "reason", "category", "hypothesis", "proposer", "model", "usd", "seconds")
    return [
        {
            **{name: getattr(row, name) for name in names},
            "tokens": row.tokens_in + row.tokens_cached + row.tokens_out,
            "created": row.created.isoformat(),
        }
        for row in rows
    ]


def failed_table(rows: Sequence[ProposalRow], width: int | None) -> str:
    """Return the proposals that came to nothing as a table; `#` is the experiment that they were meant for."""
    if not rows:
        return "No proposal failed or was refused.\n"
    columns = [Column("#", right=True), Column("try", right=True), Column("status"), Column("cost", right=True)]
    cells = [
        [str(row.number), str(row.attempt + 1), row.status, money(row.usd), f"{row.reason} {_of(row)}"] for row in rows
    ]
    return table([*columns, Column("reason")], cells, width=width)


def _of(row: ProposalRow) -> str:
    return f"({row.hypothesis})" if row.hypothesis else ""
