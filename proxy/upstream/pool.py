"""Who may use which connection: keep-alive, a limit, a fair queue. It opens and closes nothing.

`acquire` answers with an idle connection or with None, the right to open one. What the pool finds
dead, expired or superfluous it returns for the caller to close: deciding is apart from doing.
"""

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar


class Pooled(Protocol):
    """What the pool needs to know of a connection."""

    idle_since: int

    def usable(self) -> bool:
        """Whether it still looks alive."""
        ...


C = TypeVar("C", bound=Pooled)


class Pool(Generic[C]):
    """At most `limit` connections; idle ones are reused latest first and expire.

    Latest first keeps a few connections warm and lets the others expire. Waiters are served in
    the order in which they came.
    """

    def __init__(self, *, limit: int, keepalive_ns: int) -> None:
        self._limit = limit
        self._keepalive_ns = keepalive_ns
        self._idle: list[C] = []
        self._waiters: deque[asyncio.Future[C | None]] = deque()
        self._open = 0

    def __repr__(self) -> str:
        busy = self._open - len(self._idle)
        return f"<Pool {busy} busy, {len(self._idle)} idle, {len(self._waiters)} waiting>"

    @property
    def idle(self) -> int:
        """How many connections are idle."""
        return len(self._idle)

    async def acquire(self, now: int) -> tuple[C | None, list[C]]:
        """An idle connection, or None: open one. And the dead connections met on the way."""
        dead: list[C] = []
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < self._keepalive_ns and connection.usable():
                return connection, dead
            self._open -= 1
            dead.append(connection)
        if self._open < self._limit:
            self._open += 1
            return None, dead
        waiter: asyncio.Future[C | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            granted = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._pass_on(waiter.result())
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise
        if granted is not None and not granted.usable():
            # It died on its way here; its place is free for another.
            dead.append(granted)
            granted = None
        return granted, dead

    def release(self, connection: C) -> None:
        """Give a connection back that can carry another exchange."""
        self._pass_on(connection)

    def forget(self) -> None:
        """A connection that `acquire` granted is closed, or was never opened."""
        self._pass_on(None)

    def remove_idle(self, connection: C) -> None:
        """An idle connection died."""
        if connection in self._idle:
            self._idle.remove(connection)
            self._open -= 1

    def expired(self, now: int) -> list[C]:
        """Take out the idle connections that have been idle for too long."""
        old = [c for c in self._idle if now - c.idle_since >= self._keepalive_ns]
        for connection in old:
            self.remove_idle(connection)
        return old

    def drain(self) -> list[C]:
        """Take out every idle connection."""
        idle, self._idle = self._idle, []
        self._open -= len(idle)
        return idle

    def _pass_on(self, connection: C | None) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        if connection is None:
            self._open -= 1
        else:
            self._idle.append(connection)
