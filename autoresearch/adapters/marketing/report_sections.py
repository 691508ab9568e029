"""What a campaign adds to the report of its run: the three totals, and the map of what resonates."""

from __future__ import annotations

from pathlib import Path

from autoresearch.adapters.marketing.total import Totals, others_in_words, totals_of
from autoresearch.core import Estimate, ReportSection, UsageError
from autoresearch.core.ledger import Ledger
from autoresearch.core.workspace import Layout


def sections(folder: Path, run_id: str) -> tuple[ReportSection, ...]:
    """Return the sections of a campaign's run; those for which nothing is known yet are left out.

    Raises:
        UsageError: If the campaign cannot be read.
    """
    with Ledger.reading(Layout(folder).ledger) as ledger:
        found = [totals_section(totals_of(folder, ledger, run_id))]
    return (*found, *_askers(folder), *_map(folder))


def totals_section(found: Totals) -> ReportSection:
    """Return the totals of all kept changes over the original, each with what must be said of it."""
    shown = f"the original was seen by {found.held_out:,} people since the last change; 95 %"
    estimates = [
        Estimate("as tested", found.believed, note="optimistic: winners are lucky ones"),
        Estimate("shrunk", found.shrunk, note="the luck taken off, by all tests of the run"),
        Estimate("holdout", found.holdout, found.low, found.high, shown if found.holdout is not None else ""),
    ]
    if found.truth is not None:
        estimates.append(Estimate("truth", found.truth, note="known, because these people are made up"))
    plural = "change" if found.kept == 1 else "changes"
    text = f"{found.kept} kept {plural} together over the original, told three ways."
    if found.label:
        text += f" These people are {found.label}: nothing of it says anything about real ones."
    if found.others and (found.held_back or found.truth is not None):
        text += f" {others_in_words(found.others)}"
    return ReportSection("All kept changes together", text, tuple(estimates))


def _askers(folder: Path) -> tuple[ReportSection, ...]:
    from autoresearch.adapters.marketing.site import askers

    said = askers.in_words(askers.read(folder / ".autoresearch" / "marketing"))
    if not said:
        return ()
    text = "Requests, not persons, and approximate. Only people are in tests and holdout; the others see the control."
    return (ReportSection("Who asked", f"{text} {'. '.join(said.splitlines())}."),)


def _map(folder: Path) -> tuple[ReportSection, ...]:
    from autoresearch.adapters.marketing.resonance import make_map, tests_of
    from autoresearch.adapters.marketing.resonance_picture import picture

    tests = tests_of(folder)
    try:
        made = make_map(tests)
    except UsageError:  # too few tests for a map
        return ()
    text = "Effects of kinds of text over all finished tests, with intervals of 90 %. It is a map of ideas, not proof."
    return (ReportSection("What resonates", text, picture=picture(made)),)
