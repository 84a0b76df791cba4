"""Loop lag: how late the event loop is, because stamps taken by a late loop are late, too."""

import asyncio
from collections import deque
from collections.abc import Callable

from proxy.account import Clock

PERIOD_S = 0.005
"""As long as a stall that may spoil a stamp: a shorter one falls between two firings."""
NOTED_NS = 1_000_000
"""Lags below one millisecond are not kept."""
_KEPT = 4096


class LagMonitor:
    """A timer that measures how late it fires, while `busy` says that somebody cares."""

    def __init__(self, clock: Clock, busy: Callable[[], bool]) -> None:
        self._clock = clock
        self._busy = busy
        self._due = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lags: deque[tuple[int, int]] = deque(maxlen=_KEPT)

    def wake(self) -> None:
        """Measure from now on, until nobody is busy."""
        if self._timer is None:
            self._arm(asyncio.get_running_loop())

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, due: int, now: int) -> None:
        """A timer that was due at `due` fired at `now` (ns)."""
        if now - due >= NOTED_NS:
            self._lags.append((now, now - due))

    def worst(self, since: int, until: int) -> int:
        """The largest lag (ns) that overlaps the interval, 0 when none was noted.

        A lag is known only when the timer fires at last, so one noted after `until` counts when it
        began before.
        """
        worst = max(0, until - self._due) if self._timer is not None else 0
        for noted, lag in reversed(self._lags):
            if noted < since:
                break
            if noted - lag <= until and lag > worst:
                worst = lag
        return worst

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = self._clock() + int(PERIOD_S * 1e9)
        self._timer = loop.call_later(PERIOD_S, self._fired, loop)

    def _fired(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self.note(self._due, self._clock())
        if self._busy():
            self._arm(loop)
