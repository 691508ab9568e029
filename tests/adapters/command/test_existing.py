"""Loops that were set up for other tools; the files here are written for these tests, in the shape that those have."""

from __future__ import annotations

from pathlib import Path

import pytest

from autoresearch.adapters.command.existing import read_existing
from autoresearch.adapters.command.options import Options
from autoresearch.core import UsageError
from tests.adapters.command.conftest import make_checkout

HELIX = r"""
name: tokens
domain: AI
scope:
  editable: [infer.py]
  readonly: [prepare.py, helix.yaml]
metrics:
  primary: {name: tokens_per_sec, optimize: maximize}
  quality_guard: {name: bpb, optimize: minimize, max_degradation: 0.01}
  evaluate:
    command: uv run infer.py
    timeout_seconds: 30
    output_format: pattern
    patterns:
      primary: '^tokens_per_sec:\s+([\d.]+)'
      quality_guard: '^bpb:\s+([\d.]+)'
requirements: {gpu: "one"}
"""

PROGRAM = """\
# a small research loop

- `prepare.py` — constants, data and evaluation. Do not modify.
- `train.py` — the file you modify. Everything is fair game.

Data lies in `~/.cache/small_research/`. You launch it simply as: `uv run train.py`.
The goal is simple: get the lowest val_bpb.

    grep "^val_bpb:" run.log

If a run exceeds 7 minutes, kill it.
"""

PROMPT = """\
# Make it fast

## Metrics
- **Primary**: `total_ms` (ms, lower is better) — wall time
- **Secondary**: `rss_mb`

## How to Run
`./.auto/measure.sh`

## Files in Scope
- `src/fast.py` — the hot path
- `lib/` — helpers

## Off Limits
- `bench.py` — the judge
- Test files
"""


def test_helix_yaml(tmp_path: Path) -> None:
    """Scope, metric, command, limit, patterns and the guard are taken over; what is not is named."""
    root = make_checkout(tmp_path / "c", {"helix.yaml": HELIX, "infer.py": ""})
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "python").touch()
    found = read_existing(root / "helix.yaml")
    assert dict(found.options) == {
        "edit": "infer.py",
        "read_only": "prepare.py",
        "measure": ".venv/bin/python infer.py",
        "timeout": "30",
        "metric": "tokens_per_sec",
        "direction": "maximize",
        "pattern": r"^tokens_per_sec:\s+([\d.]+)",
        "guard": "bpb<=+0.01",
        "pattern.bpb": r"^bpb:\s+([\d.]+)",
        "gpu": "true",
        "link": ".venv",
    }
    assert Options.parse(found.options).guards[0].kind == "difference"
    assert any("bpb<=+1%" in note for note in found.notes) and any("domain" in note for note in found.notes)


def test_a_program_in_the_shape_of_the_original(tmp_path: Path) -> None:
    """The editable and the read-only file, command, metric, limit, summary block and data folder are recognised."""
    root = make_checkout(tmp_path / "c", {"program.md": PROGRAM, "train.py": "import torch\n", "prepare.py": ""})
    found = read_existing(root)
    assert dict(found.options) == {
        "edit": "train.py",
        "read_only": "prepare.py",
        "measure": "uv run train.py",
        "metric": "val_bpb",
        "direction": "minimize",
        "timeout": "420",
        "summary": "true",
        "link": "~/.cache/small_research",
        "gpu": "true",
    }
    assert any("prepare the data" in note for note in found.notes)
    # A workspace was written by now, and init would refuse to write another.
    run = "autoresearch run --measure '.venv/bin/python train.py' --link '~/.cache/small_research,.venv'"
    assert any("uv sync" in note and note.endswith(run) for note in found.notes)


def test_a_folder_of_pi(tmp_path: Path) -> None:
    """Metric and scope come from the prompt, commands from the scripts; what is no path is left out."""
    files = {".auto/prompt.md": PROMPT, ".auto/measure.sh": "echo METRIC total_ms=1", ".auto/checks.sh": "true"}
    found = read_existing(make_checkout(tmp_path / "c", files))
    assert dict(found.options) == {
        "edit": "src/fast.py,lib/**",
        "read_only": "bench.py",
        "measure": "bash .auto/measure.sh",
        "check": "bash .auto/checks.sh",
        "metric": "total_ms",
        "unit": "ms",
        "direction": "minimize",
    }


def test_the_log_of_pi_goes_before_its_prompt(tmp_path: Path) -> None:
    """The newest header says metric and direction; a folder that git ignores is used where it lies."""
    header = '{"type": "config", "metricName": "score", "metricUnit": "", "bestDirection": "higher"}\n'
    files = {".auto/prompt.md": PROMPT, ".auto/measure.sh": "", ".gitignore": ".auto/\n"}
    root = make_checkout(tmp_path / "c", {".gitignore": ".auto/\n"})
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / ".auto" / "log.jsonl").write_text('{"run": 1}\n' + header + '{"run": 2}\n')
    options = read_existing(root / ".auto").options
    assert (options["metric"], options["direction"], options["link"]) == ("score", "maximize", ".auto")


@pytest.mark.parametrize(
    ("files", "name", "sentence"),
    [
        ({}, ".", "is no loop that this release can read"),
        ({"helix.yaml": HELIX, ".auto/measure.sh": ""}, ".", r"holds helix.yaml and \.auto"),
        ({"helix.yaml": "a: ["}, "helix.yaml", "cannot be read"),
        ({"helix.yaml": "scope: {}"}, "helix.yaml", "no table 'metrics'"),
        ({"helix.yaml": HELIX.replace("output_format: pattern", "output_format: xml")}, ".", "'xml' is not one"),
        ({"helix.yaml": HELIX.replace("[infer.py]", "infer.py")}, ".", "editable must be a list"),
        ({"helix.yaml": HELIX.replace("name: bpb", "title: bpb")}, ".", "quality_guard must have a name"),
        ({"helix.yaml": HELIX.replace("max_degradation: 0.01", "max_degradation: little")}, ".", "and a number as"),
        ({"helix.yaml": HELIX.replace('{gpu: "one"}', "gpu")}, ".", "no table 'requirements'"),
        ({".auto/measure.sh": "", ".auto/config.json": "{bad"}, ".", r"config\.json cannot be read"),
        ({".auto/measure.sh": "", ".auto/config.json": "[1]"}, ".", "an object was expected"),
        ({".auto/measure.sh": "", ".auto/log.jsonl": '{"type": "config", half'}, ".", r"log\.jsonl cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, files: dict[str, str], name: str, sentence: str) -> None:
    """Nothing there, two at once, broken YAML or JSON, half a file, wrong types and another format."""
    root = make_checkout(tmp_path / "c", files)
    with pytest.raises(UsageError, match=sentence):
        read_existing(root / name)
