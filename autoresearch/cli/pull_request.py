"""The text of a pull request with the kept work of a run, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autoresearch.core.adapter import MetricKind
from autoresearch.core.words import clean, counts, metric_in_words, number

if TYPE_CHECKING:
    from autoresearch.core.readmodel import RunStatus
    from autoresearch.core.review import KeptWork
    from autoresearch.core.store import ReviewBranch
    from autoresearch.web.report import Page


def pull_request(work: KeptWork, page: Page, status: RunStatus, branch: tuple[str, ReviewBranch] | None = None) -> str:
    """Return the text: believed beside confirmed, the kept changes, what did not work, how to do it again.

    Args:
        work: What was kept.
        page: What the report of the run says.
        status: The run in figures.
        branch: Name of the branch and its commits, where one was written.
    """
    from autoresearch.web.report import escaped_markdown as md

    parts = [
        f"**{md(page.headline)}**",
        _honesty(work, status, live=page.live),
        f"{counts(status)}. Metric: {md(metric_in_words(work.metric))}; baseline {number(status.baseline)}.",
        _table(work, branch),
        _tried(page),
        _again(work, branch, live=page.live),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _honesty(work: KeptWork, status: RunStatus, *, live: bool) -> str:
    """Return what of the gain is shown and what is a bet."""
    if live and all(row.e_win is not None for row in work.kept):
        return "Each kept change passed a test of its own, at the error rate of its race."
    if live:
        return "What the table calls a bet was kept without a test that shows it."
    bet = "Believed is a bet: what the policy expects after one or a few looks at each change."
    if status.confirmed_gain is not None and status.confirmed_on == "search":
        return (
            f"{bet} The whole was measured again with fresh seeds, on the same data: there is no held-out data here, "
            "so that luck with the seeds is taken out and luck with the data is not."
        )
    if status.confirmed_gain is not None:
        return f"{bet} Confirmed is shown on data that no keep decision saw."
    if status.confirmed_on is not None:
        return f"{bet} **It was measured again and is not confirmed**: the gain may be smaller, or none."
    return f"{bet} **Nothing of it is confirmed yet**: `autoresearch confirm` measures it again."


def _table(work: KeptWork, branch: tuple[str, ReviewBranch] | None) -> str:
    from autoresearch.core.review import evidence_of, interval_of, shown_of, sized
    from autoresearch.web.report import escaped_markdown as md

    raced = any(row.e_win is not None for row in work.kept)
    head = ["#", "commit", "change", "effect", "interval" if raced else "90 % interval", "evidence", "shown"]
    lines = [_row(head), "|--:|---|---|--:|---|---|---|"]
    for place, row in enumerate(work.kept):
        commit = branch[1].commits[place] if branch is not None else row.kept_commit or ""
        effect = "" if row.effect is None else sized(row.effect, work.metric)
        interval = interval_of(row, work.metric).removeprefix("90 % interval ")
        evidence = md(" ".join(evidence_of(row, work)))
        shown = shown_of(row, work)
        lines.append(_row([str(row.number), commit[:10], md(row.hypothesis), effect, interval, evidence, shown]))
    unit = f" in {md(work.metric.unit)}" if work.metric.unit else ""
    sizes = f"Effects{unit}" if work.metric.kind is MetricKind.VALUE else "Effects relative to the incumbent"
    return "\n".join(["## What changes", "", f"{sizes}, positive is better.", "", *lines])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tried(page: Page) -> str:
    from autoresearch.web.report import escaped_markdown as md

    lines = []
    for one in page.categories:
        if one.failed:
            lines.append(f"- **{md(one.name)}**: {one.tried} tried, {one.kept} kept")
            lines += [f"  - {md(words)}" for words in one.failed]
            lines += [f"  - and {one.omitted} more"] if one.omitted else []
    return "\n".join(["## What was tried and did not work", "", *lines]) if lines else ""


def _again(work: KeptWork, branch: tuple[str, ReviewBranch] | None, *, live: bool) -> str:
    run = work.run
    lines = [
        f"Run `{run.id}`: adapter {run.adapter}, policy {run.policy}, proposals by {run.proposer}, seed {run.seed}."
    ]
    measure = run.options.get("measure")
    if isinstance(measure, str):
        lines.append(f"Each change was measured with:\n\n{_block(measure)}")
    if branch is not None:
        name, written = branch
        lines.append(f"One commit for each change, on {(written.base or 'an empty repository')[:12]}:")
        lines.append(_block(f"git log -p {_span(written, name)}"))
    log = f"autoresearch log --run {run.id}"
    if live:
        lines.append(f"To see everything that was tried:\n\n{_block(log)}")
    else:
        confirm = f"autoresearch confirm --run {run.id}\n{log}"
        lines.append(f"To measure the gain again, and to see everything that was tried:\n\n{_block(confirm)}")
    return "\n\n".join(["## How to reproduce", *lines])


def _span(written: ReviewBranch, name: str) -> str:
    start = written.as_found or written.base
    return f"{start[:12]}..{name}" if start else name


def _block(text: str) -> str:
    from autoresearch.web.report import fenced

    return fenced(clean(text, lines=True), "bash")
