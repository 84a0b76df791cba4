"""The clock of the simulator, and timers on it that are never early."""

import asyncio
from collections.abc import Callable

from proxy.account import Clock

_SAME_CLOCK_NS = 20_000_000


class Timekeeper:
    """Joins a clock in ns to the timers of the running event loop.

    The clock has to run at the pace of the loop's own. Both being the system's monotonic clock
    is the normal case, and then timers are absolute: they do not inherit how late the loop is.
    """

    def __init__(self, clock: Clock) -> None:
        self.now = clock
        self.loop = asyncio.get_running_loop()
        self._exact = isinstance(self.loop, asyncio.BaseEventLoop)
        shift = round(self.loop.time() * 1_000_000_000) - clock()
        self._shift = 0 if abs(shift) < _SAME_CLOCK_NS else shift

    def at(self, instant: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call at `instant` or after it, by about a millisecond at most on an idle loop."""
        when = instant + self._shift
        if self._exact:
            return self.loop.call_at(when / 1_000_000_000, callback)
        # libuv counts whole milliseconds and rounds to the nearest: ask for the next one.
        return self.loop.call_at(-(-when // 1_000_000) / 1000, callback)

    def after(self, delay: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call `delay` ns from now, or later."""
        return self.at(self.now() + delay, callback)
