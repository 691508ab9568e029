from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from autoresearch.adapters.ml_training.by_hand import HandRun
from autoresearch.adapters.ml_training.runner import SUMMARY_KEYS, summary_block
from autoresearch.core import UsageError

from .conftest import tiny_trainer


def test_a_script_started_by_hand_trains_evaluates_and_prints_the_summary(
    corpus: Path, cache: Path, tmp_path: Path
) -> None:
    """All nine keys of the original's block, in its order, last of all, and nothing is left in the workspace."""
    (tmp_path / "train.py").write_text(tiny_trainer(), encoding="utf-8")
    (tmp_path / "autoresearch.toml").write_text(
        '[run]\nadapter = "ml"\nbudget_seconds = 0.5\n'
        f'[adapter]\npreset = "cpu"\ndata = "{corpus}"\ncache = "{cache}"\n'
    )
    result = subprocess.run(
        [sys.executable, "-B", "train.py"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    block = result.stdout.rpartition("---\n")[2]
    assert re.findall(r"^(\w+):", block, flags=re.MULTILINE) == ["val_bpb", *SUMMARY_KEYS]
    assert 0.5 < float(re.search(r"^val_bpb: +([\d.]+)$", block, flags=re.MULTILINE)[1]) < 4.0  # type: ignore[index]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["autoresearch.toml", "train.py"]


def test_a_script_outside_of_a_workspace_says_how_to_make_one(tmp_path: Path) -> None:
    """Without settings there is no data and no budget."""
    (tmp_path / "train.py").write_text(tiny_trainer(), encoding="utf-8")
    result = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 1
    assert "is no workspace" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_script_in_another_adapters_workspace_is_refused(tmp_path: Path) -> None:
    """Its options would mean something else."""
    (tmp_path / "autoresearch.toml").write_text('[run]\nadapter = "marketing"\n')
    with pytest.raises(UsageError, match="'marketing'"):
        HandRun.open(tmp_path / "train.py")


def test_the_summary_says_what_is_not_known() -> None:
    """A processor has no video memory and no known peak; zero would be a lie."""
    lines = summary_block(1.234567891, {"num_steps": 812.0, "total_tokens_M": 0.415744}).splitlines()
    assert lines[:2] == ["---", "val_bpb:          1.234568"]
    assert "num_steps:        812" in lines
    assert "total_tokens_M:   0.416" in lines
    assert "peak_vram_mb:     n/a" in lines
