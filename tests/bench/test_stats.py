"""The statistics of the benchmarks."""

import pytest

from tests.bench.stats import Spread, Work, gap_errors, median, quantile, split, spread


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)]
)
def test_a_quantile_is_one_of_the_values(share: float, expected: int) -> None:
    """The smallest value that so many do not exceed, in any order."""
    assert quantile(list(range(100, 0, -1)), share) == expected


def test_a_quantile_of_one_value() -> None:
    """Is that value."""
    assert quantile([7.0], 0.99) == 7.0


def test_a_median() -> None:
    """The one in the middle, or the mean of two."""
    assert median([3, 1, 2]) == 2
    assert median([4, 1, 2, 3]) == 2.5


def test_a_spread_over_rounds() -> None:
    """The median of rounds with their range; nothing is not zero."""
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert spread([]) is None


def test_two_windows_tell_requests_from_events() -> None:
    """A request at 500 us and an event at 40 us come back out of two mixes."""
    short = Work(300, 15_000, 300 * 500 + 15_000 * 40)
    long = Work(40, 19_000, 40 * 500 + 19_000 * 40)
    assert split(short, long) == pytest.approx((500, 40))
    assert split(long, short) == pytest.approx((500, 40))


def test_the_same_mix_twice_tells_nothing() -> None:
    """It is refused, instead of a division by zero."""
    with pytest.raises(ValueError, match="same mix"):
        split(Work(1, 50, 100), Work(2, 100, 200))


def test_gap_errors_have_no_sign() -> None:
    """An event that is late makes two errors: the gap before it and the one after."""
    assert gap_errors([0, 20, 45, 60], 20) == [0, 5, 5]
    assert gap_errors([7], 20) == []
