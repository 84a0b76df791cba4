"""Quantiles, spreads and slopes of what was measured. Pure."""

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

BLOCKS = 20
"""A slope is taken over the medians of so many blocks: single outliers do not tilt it."""


def quantile(values: Sequence[float], share: float) -> float:
    """The nearest-rank quantile, `share` in (0, 1]. Raises `ValueError` without values."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


class Spread(NamedTuple):
    """What a column of differences looks like, in the unit of its values."""

    number: int
    low: float
    """The smallest value."""
    p50: float
    p99: float
    high: float
    """The largest value."""


def spread(values: Iterable[float]) -> Spread:
    """The spread of at least one value."""
    found = list(values)
    return Spread(len(found), min(found), quantile(found, 0.5), quantile(found, 0.99), max(found))


def drift(values: Sequence[float]) -> float:
    """How far `values`, in the order of the run, move from its start to its end.

    Theil and Sen's slope (the median of all pairwise slopes) of the medians of up to 20 blocks,
    times the length of the run. Zero for fewer than two values.
    """
    size = max(1, len(values) // BLOCKS)
    points = [
        (start + (size - 1) / 2, median(values[start : start + size]))
        for start in range(0, len(values) - size + 1, size)
    ]
    slopes = [
        (later - earlier) / (x - w)
        for index, (w, earlier) in enumerate(points)
        for x, later in points[index + 1 :]
    ]
    return median(slopes) * (len(values) - 1) if slopes else 0.0
