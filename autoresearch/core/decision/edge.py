"""Where a monotone test changes its mind: the ends of intervals are found by inverting the test itself."""

from __future__ import annotations

import math
from collections.abc import Callable

_TOLERANCE = 1e-10
_ROUNDS = 200


def edge(excess: Callable[[float], float], *, rising: bool, step: float, limit: float) -> float:
    """Return the y at which `excess` changes its sign, searching from 0 in the only direction where it can.

    An interval begins where the test of a null stops rejecting. Searching from the null that the verdict is about
    (y = 0) makes the two agree by construction: an end found upward is never below 0, one found downward never above.

    Args:
        excess: Monotone function of y: log of the e-value for the null at y, less the log of its threshold. Zero and
            above is a rejection.
        rising: Whether it rises with y.
        step: Length of the first step; every further one is twice as long.
        limit: How far to look.

    Returns:
        The y, to 1e-10; infinity with the sign of the direction where nothing changes up to `limit`.
    """
    inside, at_inside = 0.0, excess(0.0)
    direction = 1.0 if (at_inside < 0) == rising else -1.0
    while True:
        outside = inside + direction * step
        at_outside = excess(outside)
        if (at_outside >= 0) != (at_inside >= 0):
            return _root(excess, inside, at_inside, outside, at_outside)
        if abs(outside) >= limit:
            return direction * math.inf
        inside, at_inside, step = outside, at_outside, 2.0 * step


def _root(excess: Callable[[float], float], a: float, at_a: float, b: float, at_b: float) -> float:
    """Return a root between `a` and `b` by the rule of false position, with Illinois' halving of the end that stays."""
    for _ in range(_ROUNDS):
        if abs(b - a) <= _TOLERANCE * max(1.0, abs(a)) or at_b == at_a:
            break
        c = b - at_b * (b - a) / (at_b - at_a)
        at_c = excess(c)
        if (at_c >= 0) != (at_b >= 0):
            a, at_a = b, at_b
        else:
            at_a *= 0.5
        b, at_b = c, at_c
        if at_b == 0 or abs(at_b) < 1e-11:
            break
    return b
