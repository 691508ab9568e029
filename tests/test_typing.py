"""Users' code type-checks against the contracts, and a mistake in it is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api as mypy

ROOT = Path(__file__).parent.parent
ADAPTER = ROOT / "tests" / "typing" / "api.py"
MISTAKES = {
    "direction": ("core.Direction.MINIMIZE", '"minimize"', '"Direction"'),
    "member": ("def prepare(self", "def make_ready(self", "prepare"),
    "seed": ("seed=seed, seconds", "seed=str(seed), seconds", '"seed"'),
}
"""What is spoilt -> (text, text in its place, what mypy has to name)."""


def test_a_strangers_adapter_is_typed_strictly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter of thirty lines that inherits nothing is an `Adapter` to mypy; each planted mistake is named."""
    source = ADAPTER.read_text(encoding="utf-8")
    files = [ADAPTER]
    for name, (right, wrong, _) in MISTAKES.items():
        assert right in source
        files.append(tmp_path / f"{name}_spoilt.py")
        files[-1].write_text(source.replace(right, wrong), encoding="utf-8")
    monkeypatch.chdir(ROOT)
    # One call for all of them: two at a time would write one cache.
    report, fault, _ = mypy.run(["--strict", "--no-error-summary", *map(str, files)])
    assert not fault, fault
    said = {path.name: [line for line in report.splitlines() if path.name in line] for path in files}
    assert said[ADAPTER.name] == []
    for name, (_, _, named) in MISTAKES.items():
        assert any(named in line for line in said[f"{name}_spoilt.py"]), report
