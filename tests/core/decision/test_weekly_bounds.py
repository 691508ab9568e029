"""The bounds that the benchmark sets beside the race."""

from __future__ import annotations

import pytest

from benchmarks.decisions import obrien_fleming


def test_published_lan_demets_bounds() -> None:
    """Four looks at one-sided 2.5 %, spent as O'Brien and Fleming would, have the bounds that are in print."""
    assert obrien_fleming(4, 0.025).tolist() == pytest.approx([4.3326, 2.9631, 2.3590, 2.0141], abs=2e-4)
