"""The benchmark that races past tests says what is in the file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from autoresearch.adapters.marketing.archive import ArchiveArm, ArchiveTest, write_archive
from benchmarks.replay import main


def test_the_benchmark_tells_winners_from_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where every second headline doubles the rate the race keeps it, the judges agree, and halves of one arm differ in
    nothing."""
    rng, tests = np.random.default_rng(8), []
    for number in range(40):
        arms = [
            ArchiveArm(f"{name} {number}", "", 6000, int(rng.binomial(6000, rate)))
            for name, rate in (("plain", 0.03), ("good", 0.06))
        ]
        tests.append(ArchiveTest(f"t{number}", 201401 + 4, tuple(arms)))
    write_archive(tests, tmp_path / "past.csv.gz")
    main([str(tmp_path / "past.csv.gz"), "--days", "7"])
    printed = capsys.readouterr().out
    kept = [float(share) for share in re.findall(r"\| race, beta 0\.2 \| ([\d.]+)%", printed)]
    whole, half, nothing = kept
    assert whole > 95
    assert half > 80
    assert nothing <= 5
    assert "40 past tests of headlines, 480,000 impressions" in printed
