"""The few statistics of the benchmarks. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


@dataclass(frozen=True, slots=True)
class Spread:
    """One number over all rounds."""

    middle: float
    least: float
    most: float
    rounds: int


def spread(values: Sequence[float]) -> Spread | None:
    """The median of the rounds with their range; None without rounds."""
    if not values:
        return None
    return Spread(median(values), min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Work:
    """What was done in a window, and the CPU time that it took."""

    requests: float
    events: float
    cpu_us: float


def split(one: Work, other: Work) -> tuple[float, float]:
    """CPU µs per request without its events, and per event.

    Solves `cpu = requests * a + events * b` for two windows with different stream lengths. Raises
    `ValueError` when they have the same.
    """
    determinant = one.requests * other.events - other.requests * one.events
    if not determinant:
        raise ValueError("two windows with the same mix cannot be told apart")
    per_request = (one.cpu_us * other.events - other.cpu_us * one.events) / determinant
    per_event = (one.requests * other.cpu_us - other.requests * one.cpu_us) / determinant
    return per_request, per_event


def gap_errors(arrivals: Sequence[int], gap_ns: int) -> list[int]:
    """How far each gap between arrivals (ns) is from the scripted one, without sign."""
    return [abs(later - earlier - gap_ns) for earlier, later in pairwise(arrivals)]
