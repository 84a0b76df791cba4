"""Quantiles and slopes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.stats import drift, quantile, spread


@given(st.lists(st.integers(-1000, 1000), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_the_smallest_value_that_enough_do_not_exceed(
    values: list[int], share: float
) -> None:
    """The definition of the nearest rank."""
    found = quantile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) * (1 - 1e-9)
    assert sum(value < found for value in values) < share * len(values)


def test_no_values_have_no_quantile() -> None:
    """Rather an error than an invented zero."""
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_spread() -> None:
    """Count, smallest, middle, nearly the largest, largest."""
    assert spread(range(1, 201)) == (200, 1, 100, 198, 200)


@pytest.mark.parametrize("size", [2, 19, 20, 21, 1000])
def test_drift_finds_a_slope(size: int) -> None:
    """A value that grows by 3 over the run drifts by 3, also with an outlier or two."""
    values = [3 * index / (size - 1) for index in range(size)]
    assert drift(values) == pytest.approx(3)
    if size > 20:
        values[5] = values[-2] = 1e6
        assert drift(values) == pytest.approx(3, rel=0.15)


def test_noise_does_not_drift() -> None:
    """The same values all along."""
    assert drift([1.0, 5.0, 2.0] * 100) == 0
    assert drift([4.0]) == 0
