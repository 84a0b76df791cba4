"""A proxy in this process, with a clock and a wall clock of the experiment's own."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from proxy.record import Record
from proxy.serve.app import Proxy
from proxy.serve.config import Config

real_clock = time.monotonic_ns  # noqa: TID251  # an entry point


class Clocks:
    """The machine's clocks, until something happens to them."""

    def __init__(self) -> None:
        self._slept = 0
        self._asleep_since: int | None = None
        self._stepped = 0

    def monotonic(self) -> int:
        """CLOCK_MONOTONIC: it stands still while the machine sleeps. In ns."""
        now = real_clock() if self._asleep_since is None else self._asleep_since
        return now - self._slept

    def wall(self) -> int:
        """CLOCK_REALTIME, in ns."""
        return time.time_ns() + self._stepped

    def step_wall(self, seconds: float) -> None:
        """Somebody sets the clock."""
        self._stepped += int(seconds * 1e9)

    def sleep(self) -> None:
        """The machine is suspended."""
        self._asleep_since = real_clock()

    def wake(self) -> None:
        """It goes on."""
        assert self._asleep_since is not None
        self._slept += real_clock() - self._asleep_since
        self._asleep_since = None


@dataclass
class Inside:
    """The proxy and what it has emitted."""

    port: int
    records: list[Record] = field(default_factory=list)

    async def record(self, number: int) -> Record:
        """The record with that number, as soon as it is there. Raises `TimeoutError`."""
        async with asyncio.timeout(20):
            while len(self.records) < number:
                await asyncio.sleep(0.002)
        return self.records[number - 1]


@contextlib.asynccontextmanager
async def inside(url: str, clocks: Clocks) -> AsyncIterator[Inside]:
    """A proxy in front of `url` that knows no other clocks."""
    listener = socket.create_server(("127.0.0.1", 0))
    this = Inside(listener.getsockname()[1])
    proxy = Proxy(
        Config.load({"upstream": url, "log": "-"}, {}),
        clock=clocks.monotonic,
        wall=clocks.wall,
        emit=this.records.append,
    )
    server = proxy.server()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.001)
    try:
        yield this
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(serving, 20)
