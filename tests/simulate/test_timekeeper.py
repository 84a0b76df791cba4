"""Timers on the simulator's clock."""

import asyncio
from functools import partial

from proxy.simulate.timekeeper import Timekeeper

from .client import clock, run


def test_a_timer_is_never_early() -> None:
    """Also for instants between the milliseconds that libuv counts."""

    async def story() -> None:
        keeper = Timekeeper(clock)
        fired: list[tuple[int, int]] = []

        def fire(due: int) -> None:
            fired.append((due, keeper.now()))

        start = keeper.now()
        for step in range(40):
            due = start + step * 137_000
            keeper.at(due, partial(fire, due))
        await asyncio.sleep(0.02)

        assert len(fired) == 40
        assert all(due <= at for due, at in fired)

    run(story)


def test_another_clock_at_the_same_pace_will_do() -> None:
    """Its zero may lie anywhere."""

    async def story() -> None:
        def other() -> int:
            return clock() - 10**15

        keeper = Timekeeper(other)
        done = asyncio.Event()
        start = other()
        keeper.after(3_000_000, done.set)
        await asyncio.wait_for(done.wait(), 5)

        # The loop's own time is read in whole milliseconds where libuv runs it.
        assert other() - start >= 1_000_000

    run(story)
