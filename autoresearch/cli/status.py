"""`autoresearch status`: a run in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from autoresearch.cli.options import JsonOption, RunOption, WorkspaceOption
from autoresearch.cli.place import Place, opened, suffix
from autoresearch.cli.render import as_json, clean, duration, fields, money, number
from autoresearch.core.words import counts, headline, metric_in_words

if TYPE_CHECKING:
    from autoresearch.core.readmodel import RunStatus


def status(workspace: WorkspaceOption = None, run: RunOption = None, json: JsonOption = False) -> None:
    """Show a run in figures: what is believed to be gained, what became of the experiments, what it cost."""
    from autoresearch.core import lock
    from autoresearch.core.readmodel import status_of

    with opened(workspace, run, to_read=True) as place:
        figures = status_of(place.ledger, place.run, at_work=lock.is_held(place.layout))
        typer.echo(as_json(figures.as_json()) if json else status_text(figures, place), nl=json)


def status_text(figures: RunStatus, place: Place) -> str:
    """Return the figures for people."""
    from autoresearch.core.formats import costs_known
    from autoresearch.core.memory import metric_from_json

    run, metric = place.run, metric_from_json(place.run.metric)
    where = suffix(place.layout)
    others = len(place.ledger.runs()) - 1
    pairs = [
        ("run", f"{figures.run} (adapter {figures.adapter}, policy {run.policy}, proposer {run.proposer})"),
        ("state", _state(figures, where)),
        *(_in_flight(place) if figures.state in ("running", "paused") else ()),
        ("metric", metric_in_words(metric)),
        ("baseline", number(figures.baseline)),
        ("incumbent", number(figures.incumbent)),
        ("outcomes", counts(figures)),
        (
            "spent",
            f"{money(figures.usd)} and {duration(figures.seconds)}" if costs_known(run) else "the log does not say",
        ),
        ("others", f"{others} more in this ledger; see one with --run ID" if others else ""),
    ]
    return f"{headline(figures, metric)}\n{fields(pairs)}"


def _state(figures: RunStatus, where: str) -> str:
    if figures.state == "killed":
        return f"killed: its process ended without a word; go on with autoresearch run{where}"
    if figures.state == "paused":
        return f"paused; go on with autoresearch resume{where}"
    return f"{figures.state}: {clean(figures.stop_reason)}" if figures.stop_reason else figures.state


def _in_flight(place: Place) -> list[tuple[str, str]]:
    """Return the experiment that a process works on right now; in lanes there are several, a line each."""
    rows = place.ledger.unfinished(place.run.id)
    return [
        ("" if index else "now", f"experiment {row.number}, {clean(row.lane or row.category)}: {clean(row.hypothesis)}")
        for index, row in enumerate(rows)
    ]
