"""Who sees what: a salted hash turns a unit into a position, and shares cut positions into arms.

One hash, SHA-256, because its every bit depends on every bit of salt and unit: positions under two salts are
independent, whatever the ids look like, and can be recomputed years later in any language. It takes well under a
microsecond, so that a faster, weaker hash (FNV-1a, as some SDKs use) would buy nothing here.

Three salts answer three questions, independently: is the unit in the permanent holdout, which surface may experiment
with it (mutual exclusion), and which arm of the test does it see.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HOLDOUT_SHARE = 0.05
"""Share of units that sees the original for ever; the truth about the total is told by them."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a layer: the positions from `start` up to, not including, `end`.

    Attributes:
        start: In [0, 1).
        end: In (0, 1], above `start`.
    """

    start: float = 0.0
    end: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.start < self.end <= 1.0:
            raise ValueError(f"A part of a layer needs 0 <= start < end <= 1, not {self.start} and {self.end}.")

    def __contains__(self, position: float) -> bool:
        return self.start <= position < self.end


WHOLE = Part()
"""All of a layer: every unit may enter."""


def bucket(salt: str, unit: str) -> float:
    """Return the position of a unit under a salt, in [0, 1): the upper 53 bits of SHA-256 over salt, NUL, unit."""
    digest = hashlib.sha256(f"{salt}\0{unit}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53


def pick(position: float, split: Mapping[str, float]) -> str:
    """Return the arm at a position: arms lie side by side in the order of `split`, each as wide as its share.

    Args:
        position: In [0, 1).
        split: Share by arm; sums to 1. The last arm takes what rounding leaves over.
    """
    edge = 0.0
    arm = ""
    for arm, share in split.items():
        edge += share
        if position < edge:
            return arm
    return arm


def check_split(split: Mapping[str, float]) -> None:
    """Raise ValueError unless there are at least two arms with positive shares that sum to 1."""
    shares = list(split.values())
    if len(shares) < 2 or min(shares) <= 0.0 or abs(math.fsum(shares) - 1.0) > 1e-9:
        raise ValueError(f"A split needs two or more arms with positive shares that sum to 1, not {dict(split)}.")


def parts(surfaces: Sequence[str]) -> dict[str, Part]:
    """Cut a layer into equal parts, one per surface, so that no unit is in tests of two surfaces.

    Args:
        surfaces: Names of all surfaces that exclude each other, in an order that never changes.

    Returns:
        Surface -> its part; the last one ends at 1 exactly.
    """
    n = len(surfaces)
    return {name: Part(i / n, 1.0 if i == n - 1 else (i + 1) / n) for i, name in enumerate(surfaces)}


def held_out(salt: str, unit: str, share: float = HOLDOUT_SHARE) -> bool:
    """Say whether a unit belongs to the campaign's permanent holdout; never changes while salt and share stay."""
    return bucket(f"{salt}/holdout", unit) < share


def layer_position(salt: str, unit: str) -> float:
    """Return the position of a unit in the campaign's layer, see `parts`."""
    return bucket(f"{salt}/layer", unit)
