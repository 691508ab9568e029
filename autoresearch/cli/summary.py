"""A run in a few lines: what is believed, what is confirmed, what became of the experiments, where to look next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoresearch.cli.place import shown_path, suffix
from autoresearch.cli.render import clean, duration, effect, money, number
from autoresearch.core.adapter import Direction, Metric
from autoresearch.core.workspace import Layout

if TYPE_CHECKING:
    from autoresearch.core.readmodel import RunStatus


def headline(status: RunStatus, metric: Metric) -> str:
    """Return believed gain beside confirmed gain: the line that every report of ours begins with."""
    from autoresearch.core.readmodel import share_confirmed

    again = status.confirmed_on == "search"  # no data that keep decisions never saw
    nothing = "not shown by measuring again" if again else "not confirmed"
    confirmed = nothing if status.confirmed_gain is None else _gain(status.confirmed_gain, metric)
    share = share_confirmed(status.believed_gain, status.confirmed_gain)
    if share is not None:
        confirmed += f" ({share:.0%} of what is believed)"
    return f"{_believed(status, metric)} | {'re-measured' if again else 'confirmed'} gain: {confirmed}"


def _live_headline(status: RunStatus, metric: Metric) -> str:
    """Return what live tests showed; each kept one is a claim already, with the error rate of the race."""
    return f"{_believed(status, metric)}, each kept test at the race's error rate"


def _believed(status: RunStatus, metric: Metric) -> str:
    if status.baseline is None:
        return "believed gain: none, the baseline is not measured yet"
    if status.believed_gain is None:
        return f"believed gain: none yet ({metric.name} of the baseline {number(status.baseline)})"
    if status.kept == 0:
        return f"believed gain: none, nothing was kept ({metric.name} {number(status.baseline)})"
    way = f"{metric.name} {number(status.baseline)} -> {number(status.incumbent)}"
    return f"believed gain {_gain(status.believed_gain, metric)} ({way})"


def _gain(value: float, metric: Metric) -> str:
    return f"{effect(value)} {clean(metric.unit)}".rstrip()


def metric_in_words(metric: Metric) -> str:
    """Return name, unit and which way is better."""
    better = "lower" if metric.direction is Direction.MINIMIZE else "higher"
    unit = f"{metric.unit}, " if metric.unit and metric.unit != metric.name else ""
    return f"{metric.name} ({unit}{better} is better)"


def counts(status: RunStatus) -> str:
    """Return how many experiments ended how; outcomes that did not happen are left out, kept ones never."""
    parts = [f"{status.kept} kept"]
    for name in ("reverted", "inconclusive", "crashed", "invalid"):
        if (count := getattr(status, name)) > 0:
            parts.append(f"{count} {name}")
    plural = "" if status.experiments == 1 else "s"
    return f"{status.experiments} experiment{plural}: {', '.join(parts)}"


def closing(
    status: RunStatus,
    metric: Metric,
    reason: str,
    branch: str,
    layout: Layout,
    *,
    has_history: bool,
    live: bool = False,
) -> str:
    """Return what `run` ends with.

    Args:
        status: The run in figures.
        metric: What was measured.
        reason: Why the session ended.
        branch: Git branch with the kept steps.
        layout: The workspace.
        has_history: Whether the repository has a commit of the user's own, so that there is something to merge into.
        live: Whether the metric arrived from people, so that nothing can be measured again.
    """
    where = suffix(layout)
    lines = [
        _live_headline(status, metric) if live else headline(status, metric),
        f"{counts(status)}; {money(status.usd)}, {duration(status.seconds)}",
        f"Ended: {clean(reason)}.",
        "",
        f"Every experiment    autoresearch log{where}",
    ]
    if status.kept > 0:
        lines.append(f"The last kept step  autoresearch show best --diff{where}")
        here = layout.root == Path.cwd().resolve()
        git = "git" if here else f"git -C {shown_path(layout.root)}"
        # Without a commit of one's own git has nothing to merge into, and would refuse to overwrite the artifact.
        take = f"{git} merge {branch}" if has_history else f"{git} restore --source={branch} ."
        lines.append(f"All kept steps      {git} log -p {branch}")
        lines.append(f"To take them over   {take}")
        if status.confirmed_gain is None and not live:
            lines.append(f"To prove the gain   autoresearch confirm{where}")
    lines.append(f"A table             {shown_path(layout.results)}")
    lines.append(f"To go on            autoresearch run{where}")
    return "\n".join(lines) + "\n"
