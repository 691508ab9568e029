"""Ladders: the values that a knob may take, as source texts in order, built once from the baseline's value.

Because a ladder hangs on the baseline and not on the incumbent, its rungs mean the same through the whole run, and what
was learned of a rung stays true of it.
"""

from __future__ import annotations

import ast
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from autoresearch.core.proposers.knobs import FoundKnob, Knob, words_of

__all__ = ["Ladder", "ladder_of"]

Number = int | float

_HALF_STEPS = 8  # rungs of a factor sqrt(2) on each side: from a sixteenth to sixteen times the baseline
_DOUBLINGS = 5
_EQUAL_STEPS = 5
_COUNTING_BELOW = 8  # ints below count up by one: sqrt(2) times 3 layers is 4 layers
_NEAR_ONE = frozenset({"BETA", "BETAS", "BETA1", "BETA2", "MOMENTUM", "DECAY", "EMA"})
_SHARES = frozenset(
    {"FRAC", "FRACTION", "SHARE", "WARMUP", "WARMDOWN", "COOLDOWN", "DROPOUT", "PROB", "PROBABILITY", "RATIO"}
)
_SIZES = frozenset({"DEPTH", "LAYER", "LAYERS"})
_FROM_ZERO_FLOAT = (0.0, 0.01, 0.03, 0.1, 0.3)
_FROM_ZERO_INT = (0, 1, 2, 4, 8)


@dataclass(frozen=True)
class Ladder:
    """The rungs of one knob.

    Attributes:
        sources: Source text of each rung; numbers ascend.
        ordered: True where rungs are numbers, so that up and down mean something.
    """

    sources: tuple[str, ...]
    ordered: bool

    @cached_property
    def _values(self) -> tuple[Number, ...]:
        return tuple(_read(source) for source in self.sources) if self.ordered else ()

    def position(self, source: str) -> float | None:
        """Return where a text stands: a rung's index, a half between two rungs (beyond the ends too), else None."""
        if source in self.sources:
            return float(self.sources.index(source))
        if not self.ordered:
            return None
        try:
            value = _read(source)
        except ValueError:
            return None
        index = bisect_left(self._values, value)
        if index < len(self._values) and self._values[index] == value:
            return float(index)
        return index - 0.5


def ladder_of(found: FoundKnob) -> Ladder:
    """Return the ladder of a knob as found in the baseline; one rung has exactly the baseline's text."""
    knob, value = found.knob, found.value
    if knob.choices:
        return _of_choices(knob.choices, found.source)
    if isinstance(value, bool):
        return Ladder(("False", "True"), ordered=False)
    if value is None:
        return Ladder((found.source,), ordered=False)
    write = _writer(found.source, value)
    rungs = {value: found.source}
    for rung in _rungs(knob, value):
        if (knob.low is None or rung >= knob.low) and (knob.high is None or rung <= knob.high):
            rungs.setdefault(rung, write(rung))
    return Ladder(tuple(rungs[rung] for rung in sorted(rungs)), ordered=True)


def _of_choices(choices: tuple[str, ...], source: str) -> Ladder:
    try:
        values = {_read(choice): choice for choice in choices}
        values[_read(source)] = source
    except ValueError:
        return Ladder(choices if source in choices else (source, *choices), ordered=False)
    return Ladder(tuple(values[value] for value in sorted(values)), ordered=True)


def _read(source: str) -> Number:
    """Return the number that a source text stands for. Raises ValueError for anything but a number."""
    power = re.fullmatch(r"\s*(\d+)\s*\*\*\s*(\d+)\s*", source)
    if power:
        return int(int(power[1]) ** int(power[2]))
    try:
        value = ast.literal_eval(source.strip())
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{source} is not a number.") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{source} is not a number.")
    return value


def _rungs(knob: Knob, value: Number) -> Iterator[Number]:
    """Yield the values of the ladder around `value`, in no order, out of range ones included."""
    if value == 0:
        yield from _FROM_ZERO_INT if isinstance(value, int) else _FROM_ZERO_FLOAT
    elif isinstance(value, int):
        yield from _int_rungs(knob, value)
    else:
        yield from _float_rungs(knob, value)


def _int_rungs(knob: Knob, value: int) -> Iterator[int]:
    if value < 0 or knob.log is False or (value < _COUNTING_BELOW and knob.log is None and not _doubles(knob, value)):
        step = max(1, abs(value) // _COUNTING_BELOW)
        rungs = [value + i * step for i in range(-_EQUAL_STEPS, _EQUAL_STEPS + 1)]
        yield from (rung for rung in rungs if value < 0 or rung >= 1)
    elif _doubles(knob, value):
        rungs = [value << i for i in range(_DOUBLINGS + 1)] + [value >> i for i in range(1, _DOUBLINGS + 1)]
        yield from (rung for rung in rungs if rung >= 1)
    else:
        grain = _grain(value)
        for i in range(-_HALF_STEPS, _HALF_STEPS + 1):
            rung = _two_digits(value * 2 ** (i / 2))
            yield max(grain, round(rung / grain) * grain)


def _doubles(knob: Knob, value: int) -> bool:
    """Say whether a positive int stays a power of two."""
    if knob.power_of_two is not None:
        return knob.power_of_two
    # A depth of 8 is a count that happens to be a power of two; a batch of 8 is one on purpose.
    return value >= 4 and value & (value - 1) == 0 and knob.log is None and not words_of(knob.name) & _SIZES


def _grain(value: int) -> int:
    """Return the power of two that rungs stay multiples of: 768 channels divide by 128, and heads need that."""
    divisor = value & -value
    return max(1, min(divisor, 1 << max(0, (value // 6).bit_length() - 1)))


def _float_rungs(knob: Knob, value: float) -> Iterator[float]:
    words = words_of(knob.name)
    if knob.log is None and 0.5 < value < 1.0 and words & _NEAR_ONE:
        # What matters of a momentum is its distance from 1: 0.95 averages over 20 steps, 0.975 over 40.
        yield from (_clean(1.0 - _two_digits((1.0 - value) * 2 ** (i / 2))) for i in range(-_HALF_STEPS, 5))
        return
    is_share = knob.log is None and 0.0 < value <= 1.0 and bool(words & _SHARES)
    if knob.log is False or is_share:
        step = _nice(_range_step(knob, value))
        rungs = [_clean(value + i * step) for i in range(-_EQUAL_STEPS, _EQUAL_STEPS + 1)]
        yield from (rung for rung in rungs if (value < 0 or rung >= 0) and (not is_share or rung <= 1))
    else:
        yield from (_two_digits(value * 2 ** (i / 2)) for i in range(-_HALF_STEPS, _HALF_STEPS + 1))


def _range_step(knob: Knob, value: float) -> float:
    """Return about how far apart additive rungs lie: a quarter of the value, or a tenth of a declared range."""
    quarter = abs(value) / 4
    if knob.low is None or knob.high is None or knob.high <= knob.low:
        return quarter
    return min(quarter, (knob.high - knob.low) / 10)


def _nice(step: float) -> float:
    """Return the one of 1, 2 and 5 times a power of ten that is nearest to `step` by ratio."""
    unit = 10.0 ** math.floor(math.log10(step))
    return _clean(unit * min((1, 2, 5, 10), key=lambda digit: abs(math.log(digit * unit / step))))


def _two_digits(value: float) -> float:
    return float(f"{value:.1e}")


def _clean(value: float) -> float:
    """Return `value` without the dust of binary fractions (0.6 + 0.1)."""
    return float(f"{value:.10g}")


def _writer(source: str, value: Number) -> Callable[[Number], str]:
    """Return what turns a value into text in the manner of the baseline's text."""
    if isinstance(value, int):
        if re.fullmatch(r"2\s*\*\*\s*\d+", source):
            return lambda rung: source[: source.index("**")] + f"**{int(rung).bit_length() - 1}"
        return (lambda rung: f"{int(rung):_}") if "_" in source else (lambda rung: str(int(rung)))
    return _exponent if "e" in source.lower() else (lambda rung: repr(float(rung)))


def _exponent(value: Number) -> str:
    """Return a float in exponent notation, as short as it goes: `4.2e-4`."""
    mantissa, exponent = f"{value:.9e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
