"""What is known about the constants of `train.py` beyond the values that stand there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from autoresearch.adapters.ml_training.presets import constants_of
from autoresearch.core import Knob

_BOOL: Final = ("True", "False")


def _k(name: str, category: str, **kinds: object) -> Knob:
    return replace(Knob(name, "", category), **kinds)  # type: ignore[arg-type]


KNOWN: Final[tuple[Knob, ...]] = (
    _k("DEPTH", "architecture", low=1, high=32, log=False),
    _k("ASPECT", "architecture", low=16, high=256, log=True),
    _k("HEAD_DIM", "architecture", choices=("16", "32", "64", "128")),
    _k("MLP_RATIO", "architecture", low=1, high=8, log=False),
    _k("CONTEXT", "architecture", low=32, high=8192, power_of_two=True),
    _k("WINDOWS", "attention", choices=('"L"', '"SL"', '"SSSL"', '"S"')),
    _k("SHORT_WINDOW", "attention", low=8, high=4096, power_of_two=True),
    _k("ROTARY_BASE", "attention", low=100, high=1e6, log=True),
    _k("VALUE_EMBEDDINGS", "embeddings", choices=_BOOL),
    _k("SMEAR", "embeddings", choices=_BOOL),
    _k("GRAMS", "embeddings", low=1, high=4, log=False),
    _k("TABLE_ROWS", "embeddings", low=1024, high=1 << 20, power_of_two=True),
    _k("LOGIT_CAP", "architecture", choices=("0.0", "15.0", "30.0")),
    _k("TOTAL_BATCH", "batch", low=256, high=1 << 21, power_of_two=True),
    # Only how a step is cut up: the result is the same, and how much fits is a matter of memory.
    _k("DEVICE_BATCH", "batch", frozen=True),
    _k("EMBEDDING_LR", "learning rates", low=1e-4, high=3.0, log=True),
    _k("TABLE_LR", "learning rates", low=1e-3, high=3.0, log=True),
    _k("HEAD_LR", "learning rates", low=1e-5, high=0.3, log=True),
    _k("MATRIX_LR", "learning rates", low=1e-4, high=0.3, log=True),
    _k("SMEAR_LR", "learning rates", low=1e-4, high=1.0, log=True),
    _k("ADAM_BETA1", "optimizer", choices=("0.0", "0.65", "0.8", "0.9", "0.95")),
    _k("ADAM_BETA2", "optimizer", choices=("0.9", "0.95", "0.98", "0.99", "0.999")),
    _k("MUON_MOMENTUM", "optimizer", choices=("0.8", "0.85", "0.9", "0.95", "0.98")),
    _k("MUON_STEPS", "optimizer", low=1, high=5, log=False),
    _k("WEIGHT_DECAY", "regularization", choices=("0.0", "0.01", "0.03", "0.1", "0.2")),
    _k("WARMUP", "schedule", choices=("0.0", "0.02", "0.05", "0.1")),
    _k("WARMDOWN", "schedule", low=0.1, high=1.0, log=False),
    _k("FINAL_LR", "schedule", choices=("0.0", "0.02", "0.05", "0.1", "0.2")),
)

"""What is worth saying of the constants that the template has; the test keeps both together."""


def declared_knobs(source: str, path: str) -> list[Knob]:
    """Return the knobs that are known and present in a script; one that turns nothing as the script stands is frozen.

    Args:
        source: Text of the script; one that does not parse has no knobs.
        path: Its path in the artifact.
    """
    try:
        values = constants_of(source)
    except (SyntaxError, ValueError):
        # Not swallowed: check() has refused such an artifact by a sentence, and an incumbent always parses.
        return []
    idle = _idle(values)
    return [replace(knob, path=path, frozen=knob.frozen or knob.name in idle) for knob in KNOWN if knob.name in values]


def _idle(values: Mapping[str, str]) -> set[str]:
    """Name the constants that have no effect while others stand as they do."""
    idle = set()
    if "S" not in values.get("WINDOWS", "S"):
        idle.add("SHORT_WINDOW")
    if values.get("GRAMS") == "1":
        idle |= {"TABLE_ROWS", "TABLE_LR"}
    if values.get("SMEAR") == "False":
        idle.add("SMEAR_LR")
    return idle
