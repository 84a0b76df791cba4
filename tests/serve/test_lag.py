"""Loop lag: how late the event loop was while a request ran."""

from proxy.serve.lag import LagMonitor

MS = 1_000_000


def monitor() -> LagMonitor:
    return LagMonitor(lambda: 0, busy=lambda: True)


def test_the_worst_lag_that_overlaps_the_request_counts() -> None:
    """Lags before and after it do not."""
    lag = monitor()
    lag.note(due=10 * MS, now=110 * MS)
    lag.note(due=200 * MS, now=207 * MS)
    lag.note(due=300 * MS, now=303 * MS)
    lag.note(due=900 * MS, now=990 * MS)

    assert lag.worst(150 * MS, 400 * MS) == 7 * MS


def test_a_lag_that_began_before_the_end_counts_although_it_was_noted_after() -> None:
    """A late loop finds out late."""
    lag = monitor()
    lag.note(due=300 * MS, now=350 * MS)

    assert lag.worst(100 * MS, 310 * MS) == 50 * MS
    assert lag.worst(100 * MS, 290 * MS) == 0


def test_small_lags_are_noise() -> None:
    """Below a millisecond nothing is kept."""
    lag = monitor()
    lag.note(due=0, now=MS - 1)

    assert lag.worst(0, 10 * MS) == 0
