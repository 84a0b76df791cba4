"""Gaps between reads that carried tokens, in bounded memory.

Log-linear buckets: exact below 128 µs, then 64 to each doubling, so at most 1.6 % wide (the layout
of HdrHistogram). A stream of hours has a few hundred of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

STALL_US = 1_000_000
"""A gap longer than this is a stall."""

_BITS = 6


def bucket(us: int) -> int:
    """The bucket of a gap; buckets are numbered in the order of their gaps."""
    shift = us.bit_length() - _BITS - 1
    return (shift << _BITS) + (us >> shift) if shift > 0 else us


def middle(number: int) -> int:
    """The gap in the middle of a bucket, in µs."""
    shift = max((number >> _BITS) - 1, 0)
    low = (number - (shift << _BITS)) << shift
    return low + (1 << shift >> 1)


class GapStats(NamedTuple):
    """Quantiles (nearest rank) and the longest gap in whole µs, and how many stalls."""

    p50_us: int
    p99_us: int
    max_us: int
    stalls: int


class Gaps:
    """How far apart the marks are, in whole µs."""

    __slots__ = ("_counts", "_last", "_longest", "_stalls")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._last: int | None = None
        self._longest = 0
        self._stalls = 0

    def mark(self, at: int) -> None:
        """A read at the instant `at` (ns) carried tokens."""
        self.mark_all((at,))

    def mark_all(self, instants: Sequence[int]) -> None:
        """Reads at these instants (ns), in their order, carried tokens."""
        counts, last = self._counts, self._last
        for at in instants:
            if last is not None:
                us = (at - last) // 1000 if at > last else 0
                number = bucket(us)
                counts[number] = counts.get(number, 0) + 1
                if us > self._longest:
                    self._longest = us
                if us > STALL_US:
                    self._stalls += 1
            last = at
        self._last = last

    def stats(self) -> GapStats | None:
        """The gaps so far; None without any."""
        if not self._counts:
            return None
        return GapStats(
            p50_us=self._quantile(50),
            p99_us=self._quantile(99),
            max_us=self._longest,
            stalls=self._stalls,
        )

    def _quantile(self, percent: int) -> int:
        """The middle of the bucket with the gap that `percent` of all gaps do not exceed."""
        rank = -(-percent * sum(self._counts.values()) // 100)
        for number in sorted(self._counts):
            rank -= self._counts[number]
            if rank <= 0:
                return min(middle(number), self._longest)
        return self._longest
