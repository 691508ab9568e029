"""The dashboard's memory over a shortened run; `python -m benchmarks.dashboard` measures a whole hour of one."""

from __future__ import annotations

from pathlib import Path

from autoresearch.core.workspace import Layout
from benchmarks.dashboard import memory
from benchmarks.report import fill

MOST_MB = 12.0
"""From the tenth to the last of sixty experiments: what the allocator needs at first, and no page of each."""


def test_memory_stays_flat(tmp_path: Path) -> None:
    """Sixty experiments that begin and end while pages listen, leave and come back leave nothing behind."""
    layout = Layout(tmp_path / "w")
    layout.state.mkdir(parents=True)
    fill(layout.ledger, 100)
    sizes = memory(layout.root, 9.0, 3, steps=60)
    assert sizes[-1] - sizes[1] < MOST_MB, sizes
