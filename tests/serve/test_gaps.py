"""Gaps: quantiles within 1.6 percent, in bounded memory."""

import math

from hypothesis import given
from hypothesis import strategies as st

from proxy.serve.gaps import Gaps, GapStats, bucket, middle

MS = 1_000_000


def gaps(*instants_ms: float) -> GapStats | None:
    seen = Gaps()
    for instant in instants_ms:
        seen.mark(int(instant * MS))
    return seen.stats()


def test_one_read_has_no_gap() -> None:
    """Unknown is None, not 0."""
    assert gaps() is None
    assert gaps(100) is None


def test_even_stream() -> None:
    """50 reads 20 ms apart."""
    stats = gaps(*range(0, 1000, 20))

    assert stats is not None
    assert stats.max_us == 20_000
    assert abs(stats.p50_us - 20_000) <= 20_000 * 0.008
    assert stats.p99_us == stats.p50_us
    assert stats.stalls == 0


def test_a_pause_is_a_stall_above_one_second() -> None:
    """Exactly one second is none yet."""
    stats = gaps(0, 10, 1010, 2010.001)

    assert stats is not None
    assert stats.stalls == 1
    assert stats.max_us == 1_000_001


def test_two_reads_in_the_same_instant() -> None:
    """A gap of nothing is a gap of 0."""
    assert gaps(5, 5) == GapStats(0, 0, 0, 0)


@given(st.integers(0, 10**12))
def test_buckets_are_narrow_and_contain_their_gap(us: int) -> None:
    """The middle is at most half a bucket away: 0.8 percent."""
    assert bucket(middle(bucket(us))) == bucket(us)
    assert abs(middle(bucket(us)) - us) <= us * 0.008 + 0.5


@given(st.integers(0, 10**12))
def test_buckets_are_in_order(us: int) -> None:
    """A longer gap never has a lower bucket; no number is skipped."""
    assert bucket(us + 1) - bucket(us) in (0, 1)


@given(st.lists(st.integers(0, 10**8), min_size=1, max_size=60))
def test_quantiles_are_those_of_the_gaps(values: list[int]) -> None:
    """Nearest rank, within half a bucket."""
    seen = Gaps()
    at = 0
    seen.mark(at)
    for us in values:
        at += us * 1000
        seen.mark(at)
    stats = seen.stats()

    assert stats is not None
    for percent, found in ((50, stats.p50_us), (99, stats.p99_us)):
        exact = sorted(values)[math.ceil(percent * len(values) / 100) - 1]
        assert abs(found - exact) <= exact * 0.008 + 1
    assert stats.max_us == max(values)
    assert stats.stalls == sum(us > 1_000_000 for us in values)


def test_memory_is_bounded_by_the_spread_of_the_gaps() -> None:
    """100,000 reads, a few hundred counters."""
    seen = Gaps()
    at = 0
    for n in range(100_000):
        at += (n * 7919 % 100_000) * 1000
        seen.mark(at)

    assert len(seen._counts) < 900
