"""Count the pairs of points that lie within a radius of each other, on a grid so that not all pairs are looked at."""

from __future__ import annotations

import math

CELL = 6.0  # width of a cell of the grid, in radii
REACH = 2  # how many cells to look around in each direction; too few overlook pairs
SORTED = False  # order the points first, so that neighbours lie close together in memory
ROOTS = True  # compare distances rather than their squares


def count_pairs(points: list[tuple[float, float]], radius: float) -> int:
    """Return how many pairs of `points` are at most `radius` apart."""
    width = CELL * radius
    cells: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for point in sorted(points) if SORTED else points:
        cells.setdefault((int(point[0] // width), int(point[1] // width)), []).append(point)
    found = 0
    for (column, row), inside in cells.items():
        for x in range(column - REACH, column + REACH + 1):
            for y in range(row - REACH, row + REACH + 1):
                if (x, y) in cells:
                    found += _between(inside, cells[x, y], radius)
    return (found - len(points)) // 2  # every pair was met twice, and every point itself once


def _between(ours: list[tuple[float, float]], theirs: list[tuple[float, float]], radius: float) -> int:
    """Return how many of `theirs` lie within `radius` of one of `ours`, counted for each of them."""
    if ROOTS:
        return sum(math.dist(one, other) <= radius for one in ours for other in theirs)
    square = radius * radius
    return sum((a - c) * (a - c) + (b - d) * (b - d) <= square for a, b in ours for c, d in theirs)
