"""A run in a few lines: what is believed, what is confirmed, what became of the experiments, where to look next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from autoresearch.cli.place import shown_path, suffix
from autoresearch.core.adapter import Metric
from autoresearch.core.words import clean, counts, duration, headline, live_headline, money
from autoresearch.core.workspace import Layout

if TYPE_CHECKING:
    from autoresearch.core.readmodel import RunStatus


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
        live_headline(status, metric) if live else headline(status, metric),
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
    lines.append(f"A picture of it     autoresearch report{where}")
    lines.append(f"A table             {shown_path(layout.results)}")
    lines.append(f"To go on            autoresearch run{where}")
    return "\n".join(lines) + "\n"
