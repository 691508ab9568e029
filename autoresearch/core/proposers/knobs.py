"""Knobs: the literal constants of an artifact and the choices that an adapter declares."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Knob:
    """Something in the artifact that can be turned by replacing one literal.

    An adapter declares knobs to say more than the text shows; a declared knob replaces a found one of the same name.

    Attributes:
        name: Name of the constant as the source has it (`MATRIX_LR`, `Config.depth`).
        path: File that holds it, relative to the workspace.
        category: Kind of idea that turning it is.
        choices: Source texts to choose from (`("True", "False")`, `('"SSSL"', '"L"')`); empty for a number on a ladder.
        low: Smallest sensible value; None without.
        high: Largest sensible value; None without.
        log: True for multiplicative steps, False for additive ones, None to decide by the value.
        power_of_two: True where the value stays a power of two; None to decide by the value.
        frozen: True to keep the search away from a constant that it would find (a seed).
    """

    name: str
    path: str
    category: str = "constants"
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    log: bool | None = None
    power_of_two: bool | None = None
    frozen: bool = False
