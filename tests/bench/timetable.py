"""Calls at absolute instants, finer than the event loop's own timers, which round to 1 ms."""

import asyncio
import ctypes
import heapq
import os
from collections.abc import Callable
from types import TracebackType
from typing import Self

from proxy.account import Clock

_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_S = 1_000_000_000


class _Setting(ctypes.Structure):
    """`struct itimerspec` of timerfd_settime(2)."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class Timetable:
    """One timer descriptor (timerfd_create(2)) and a heap of what is due.

    `clock` has to be the monotonic one, in ns. Raises `OSError` where the kernel has no such timer.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._armed = 0
        asyncio.get_running_loop().add_reader(self._fd, self._ring)

    def at(self, due: int, call: Callable[[], None]) -> None:
        """Call at `due`, or as soon after as can be."""
        self._number += 1
        heapq.heappush(self._due, (due, self._number, call))
        if not self._armed or due < self._armed:
            self._arm(due)

    def clear(self) -> None:
        """Forget what is due."""
        self._due.clear()

    def _arm(self, due: int) -> None:
        self._armed = max(1, due)
        setting = _Setting(0, 0, self._armed // _S, self._armed % _S)
        self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(setting), None)

    def _ring(self) -> None:
        os.read(self._fd, 8)
        self._armed = -1  # armed at the end of this turn, whatever the calls ask for
        due = self._due
        now = self.clock()
        while due and due[0][0] <= now:
            heapq.heappop(due)[2]()
        self._armed = 0
        if due:
            self._arm(due[0][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
