"""Presets: what one kind of machine can train in one budget. Importing this does not import torch."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from autoresearch.adapters.ml_training import devices
from autoresearch.adapters.ml_training.task import ClockKind
from autoresearch.core.errors import UsageError

AUTO: Final = "auto"


@dataclass(frozen=True, slots=True)
class Preset:
    """Everything that depends on the machine.

    Attributes:
        name: As given to `--preset`.
        device: Kind of device: `cuda`, `mps`, `cpu`.
        vocab_size: Tokens in the vocabulary, special ones included.
        data: Default source of text.
        budget_seconds: Length of one training, in seconds of `clock`.
        clock: What the budget counts; see `task.TrainTask`.
        warmup_steps: Optimiser steps before the clock starts.
        eval_bytes: Upper bound of the bytes that a measurement scores; None scores the whole split.
        eval_batch_tokens: Tokens that are scored at once.
        noise: Standard deviation of val_bpb over seeds with the default data and budget; None where not measured.
        threads: Torch threads.
        constants: Name -> source text of the settings in `train.py` that `init` changes.
    """

    name: str
    device: str
    vocab_size: int
    data: str
    budget_seconds: float
    clock: ClockKind
    warmup_steps: int
    eval_bytes: int | None
    eval_batch_tokens: int
    noise: float | None = None
    threads: int = 1
    constants: Mapping[str, str] = field(default_factory=dict)

    @property
    def extra_seconds(self) -> float:
        """Wall-clock seconds that one measurement takes beside the training: starting, warming up, evaluating."""
        return 9.0 if self.device == "cpu" else 120.0


def _gpu(
    name: str,
    *,
    eval_batch_tokens: int,
    depth: int,
    head_dim: int,
    context: int,
    total_batch: int,
    rows: int,
    device: str = "cuda",
) -> Preset:
    """Return a preset for a GPU: `rows` sequences of `context` tokens per pass, `total_batch` tokens per step."""
    constants = {
        "DEPTH": str(depth),
        "ASPECT": "64",
        "HEAD_DIM": str(head_dim),
        "MLP_RATIO": "4",
        "CONTEXT": str(context),
        "WINDOWS": '"SSSL"',
        "SHORT_WINDOW": str(context // 8),  # windowed attention costs T * 2W: a wide window saves nothing
        "VALUE_EMBEDDINGS": "True",
        "TOTAL_BATCH": str(total_batch),
        "DEVICE_BATCH": str(rows),
    }
    return Preset(
        name=name,
        device=device,
        vocab_size=8192,
        data="climbmix",
        budget_seconds=300.0,
        clock="wall",
        # Steps of the original that its clock skips as well: compilation takes 40 to 90 s there.
        warmup_steps=10,
        eval_bytes=None,
        # Logits of a batch in float32, twice over, take 64 kB a token with this vocabulary.
        eval_batch_tokens=eval_batch_tokens,
        threads=4,
        constants=constants,
    )


PRESETS: Final[dict[str, Preset]] = {
    preset.name: preset
    for preset in (
        # The original's own shape on its own card.
        _gpu("h100", eval_batch_tokens=1 << 16, depth=8, head_dim=128, context=2048, total_batch=1 << 19, rows=128),
        _gpu("gpu-24gb", eval_batch_tokens=1 << 15, depth=6, head_dim=64, context=1024, total_batch=1 << 17, rows=32),
        _gpu("gpu-8gb", eval_batch_tokens=1 << 13, depth=4, head_dim=64, context=512, total_batch=1 << 16, rows=32),
        _gpu(
            "mps",
            device="mps",
            eval_batch_tokens=1 << 13,
            depth=4,
            head_dim=64,
            context=512,
            total_batch=1 << 15,
            rows=16,
        ),
        Preset(
            name="cpu",
            device="cpu",
            vocab_size=1024,
            data="sample",
            budget_seconds=20.0,
            clock="cpu",
            warmup_steps=0,
            # Two trainings that differ by their seed alone differ by 0.0065 on these bytes, with a standard error of
            # 0.0016 (0.0021 on 300,000): scoring them takes 2.4 s, and more would not show much more.
            eval_bytes=600_000,
            eval_batch_tokens=2048,
            # python -m benchmarks.spread on two processors that others kept 50 to 65 % busy: 0.0027 across five seeds,
            # 0.0016 for one seed three times, 0.0029 for all seven; an hour earlier, under more load, 0.0018, 0.0038
            # and 0.0027. What neighbours do to the speed is as large as what the seed does.
            noise=0.003,
        ),
    )
}


def choose_preset(name: str, device: str | None) -> Preset:
    """Return the preset of that name; `auto` takes the one for the device given, else for the best device found.

    Raises:
        UsageError: If there is no such preset, or it does not fit the device given.
        EnvironmentNotReadyError: If `auto` has to ask torch, and torch is not installed.
    """
    if name == AUTO:
        return PRESETS[_name_for(device or devices.best_device())]
    if name not in PRESETS:
        raise UsageError(f"There is no preset {name!r}; known are {', '.join([AUTO, *PRESETS])}.")
    return PRESETS[name]


def _name_for(device: str) -> str:
    kind = device.partition(":")[0]
    if kind != "cuda":
        return "mps" if kind == "mps" else "cpu"
    devices.demand_device(device, AUTO)
    memory = devices.memory_gb(device)
    return "h100" if memory >= 70 else "gpu-24gb" if memory >= 20 else "gpu-8gb"


def constants_of(source: str) -> dict[str, str]:
    """Return the top-level constants of a script, as source text.

    Raises:
        SyntaxError: If it does not parse.

    Example:
        >>> constants_of("DEPTH = 2  # layers\\nx.y = 1\\n")
        {'DEPTH': '2'}
    """
    return {name: ast.unparse(value) for name, value in _assigned(source).items()}


def _assigned(source: str) -> dict[str, ast.expr]:
    return {
        target.id: node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def set_constants(source: str, constants: Mapping[str, str]) -> str:
    """Return a script with the values of top-level constants replaced, everything else byte for byte the same.

    Args:
        source: Text of the script.
        constants: Name -> source text of the new value.

    Raises:
        KeyError: If the script has no such constant.

    Example:
        >>> set_constants("DEPTH = 2  # layers\\n", {"DEPTH": "8"})
        'DEPTH = 8  # layers\\n'
    """
    values = _assigned(source)
    lines = source.splitlines(keepends=True)
    for name, new in constants.items():
        node = values[name]
        if node.end_lineno != node.lineno or node.end_col_offset is None:
            raise KeyError(f"{name} spans several lines")
        line = lines[node.lineno - 1].encode()
        lines[node.lineno - 1] = (line[: node.col_offset] + new.encode() + line[node.end_col_offset :]).decode()
    return "".join(lines)
