"""The load generator: raw connections, one read of the clock per read of the socket."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from proxy.account import Clock

from .script import END

Done = Callable[["Exchange"], None]


@dataclass(slots=True)
class Exchange:
    """One request, in ns of the monotonic clock. `arrivals` has one entry per content event."""

    started: int
    arrivals: list[int] = field(default_factory=list)
    ended: int = 0
    complete: bool = False
    """It has an answer of 200 that ended as it should."""

    @property
    def ttft(self) -> int:
        """From the request to the read that completed the first content event."""
        return self.arrivals[0] - self.started


class Client(asyncio.Protocol):
    """One connection; asks one request at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._exchange: Exchange | None = None
        self._done: Done = lambda _exchange: None
        self._mark = b""
        self._buffer = b""
        self._in_body = False
        self._chunked = False
        self._left = 0
        self.closed = False

    def ask(self, request: bytes, mark: bytes, done: Done) -> Exchange:
        """Send `request`; `done` gets the exchange when it has ended."""
        self._mark = mark
        self._done = done
        self._buffer = b""
        self._in_body = False
        exchange = self._exchange = Exchange(self._clock())
        self._transport.write(request)
        return exchange

    def close(self) -> None:
        """Close at once."""
        self._exchange = None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._finish(complete=False)

    def data_received(self, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        now = self._clock()
        size = len(data)
        data = self._buffer + data
        if not self._in_body:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = data
                return
            head = data[: end + 2].lower()
            data = data[end + 4 :]
            size = len(data)
            self._in_body = True
            exchange.complete = head[9:12] == b"200"
            self._chunked = b"\r\ntransfer-encoding: chunked" in head
            at = head.find(b"\r\ncontent-length:")
            self._left = int(head[at + 17 : head.index(b"\r", at + 2)]) if at >= 0 else 0
        count = data.count(self._mark)
        if count == 1:
            exchange.arrivals.append(now)
        elif count:
            exchange.arrivals.extend([now] * count)
        # A mark may be torn; what is kept of it is shorter than it and cannot count twice.
        self._buffer = data[1 - len(self._mark) :]
        self._left -= size
        if data.endswith(END) if self._chunked else self._left <= 0:
            exchange.ended = now
            self._finish(complete=exchange.complete)

    def _finish(self, *, complete: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.complete = complete
            self._done(exchange)


class Pool:
    """Connections to one port, the last one that became free first."""

    def __init__(self, port: int, clock: Clock) -> None:
        self.port = port
        self.opened = 0
        self._clock = clock
        self._all: list[Client] = []
        self._free: list[Client] = []

    async def grow(self, count: int) -> None:
        """Open connections until so many are free."""
        self._free = [client for client in self._free if not client.closed]
        while len(self._free) < count:
            self._free.append(await self._open())

    def take(self) -> Client | None:
        """A free connection, if there is one."""
        while self._free:
            client = self._free.pop()
            if not client.closed:
                return client
        return None

    def give(self, client: Client) -> None:
        """Back to the free ones."""
        self._free.append(client)

    def close(self) -> None:
        """Close all."""
        for client in self._all:
            client.close()
        self._all.clear()
        self._free.clear()

    async def _open(self) -> Client:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(
            lambda: Client(self._clock), "127.0.0.1", self.port
        )
        self.opened += 1
        self._all.append(client)
        return client
