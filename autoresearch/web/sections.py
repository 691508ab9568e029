"""What an adapter adds to the report of its run, asked for without knowing any adapter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from autoresearch.core import registry
from autoresearch.core.adapter import OffersReportSections, ReportSection
from autoresearch.core.errors import AutoresearchError
from autoresearch.core.ledger import Run


def sections_of(workspace: Path, run: Run) -> Sequence[ReportSection]:
    """Return the sections of the run's adapter; where it fails, one that says why.

    An adapter that only the Python API was given cannot be asked and adds nothing.
    """
    if run.adapter not in registry.names(registry.ADAPTERS):
        return ()
    try:
        adapter, _ = registry.create_adapter(run.adapter, run.options)
        return adapter.report_sections(workspace, run.id) if isinstance(adapter, OffersReportSections) else ()
    except AutoresearchError as error:
        return (ReportSection(f"What {run.adapter} adds is missing", str(error)),)
