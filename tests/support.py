"""What tests over real sockets share: a proxy in this process, a raw upstream, a raw client."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import uvloop

from proxy.record import Record
from proxy.serve.app import Proxy
from proxy.serve.config import Config

Handler = Callable[["Peer"], Awaitable[None]]
PATIENCE_S = 20.0
"""How long a test waits for what must happen; long, because machines can be slow."""


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run a test's story on the event loop that the product uses."""
    uvloop.run(story)


@dataclass
class Peer:
    """One connection, read and written by hand."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> bytes:
        """The next head, with its empty line."""
        return await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)

    async def exactly(self, size: int) -> bytes:
        """That many bytes."""
        return await asyncio.wait_for(self.reader.readexactly(size), PATIENCE_S)

    async def until(self, mark: bytes) -> bytes:
        """Everything up to and including `mark`."""
        return await asyncio.wait_for(self.reader.readuntil(mark), PATIENCE_S)

    async def rest(self) -> tuple[bytes, str]:
        """Everything until the end, and how it ended: "fin" or "rst"."""
        data = bytearray()
        async with asyncio.timeout(PATIENCE_S):
            try:
                while piece := await self.reader.read(65536):
                    data += piece
            except ConnectionError:
                return bytes(data), "rst"
        return bytes(data), "fin"

    async def send(self, data: bytes) -> None:
        """Write and drain."""
        self.writer.write(data)
        await self.writer.drain()

    def close(self) -> None:
        """Close with a FIN."""
        self.writer.close()

    def reset(self) -> None:
        """Close with a RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.writer.transport.abort()


@dataclass
class Upstream:
    """A raw upstream: every connection is handled by the test's own function."""

    port: int = 0
    connections: int = 0
    faults: list[BaseException] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def upstream(handle: Handler) -> AsyncIterator[Upstream]:
    """Listen, and hand every connection to `handle`; its faults fail the test."""
    this = Upstream()
    tasks: set[asyncio.Task[None]] = set()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        this.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handle(Peer(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except BaseException as fault:
            this.faults.append(fault)
        finally:
            with contextlib.suppress(ConnectionError):
                writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=1 << 24)
    this.port = server.sockets[0].getsockname()[1]
    try:
        yield this
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not this.faults, this.faults


@dataclass
class Proxied:
    """A running proxy and the records that it has emitted."""

    port: int
    proxy: Proxy
    emitted: list[Record]
    stop: Callable[[], None]
    clients: list[Peer] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        """The records of all requests that have ended, without waiting for the bookkeeping."""
        self.proxy.settle()
        return self.emitted

    async def connect(self) -> Peer:
        """A client's connection to the proxy; closed at the end if the test does not do it."""
        peer = Peer(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24))
        self.clients.append(peer)
        return peer

    async def ask(self, request: bytes) -> tuple[bytes, str]:
        """Send a request on its own connection; all that came back, and how it ended."""
        peer = await self.connect()
        peer.writer.write(request)
        try:
            return await peer.rest()
        finally:
            peer.close()

    async def record(self, number: int = 1) -> Record:
        """The record with that number, as soon as it is there."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.records) < number:
                await asyncio.sleep(0.002)
        return self.records[number - 1]


@contextlib.asynccontextmanager
async def proxied(url: str, **flags: str | bool) -> AsyncIterator[Proxied]:
    """A proxy before `url`, with the flags of `ttft serve`; checks every record at its end."""
    config = Config.load({"upstream": url, "log": "-", **flags}, {})
    records: list[Record] = []
    proxy = Proxy(
        config,
        clock=time.monotonic_ns,  # noqa: TID251  # a test is an entry point
        wall=time.time_ns,
        emit=records.append,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    server = proxy.server()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.001)

    def stop() -> None:
        server.should_exit = True

    this = Proxied(listener.getsockname()[1], proxy, records, stop)
    try:
        yield this
    finally:
        for client in this.clients:
            client.close()
        stop()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(serving, PATIENCE_S)
        proxy.settle()
    for record in records:
        check(record)


def check(record: Record) -> None:
    """What holds for every record, whatever happened."""
    parts = [value for value in record.segments_ms.values() if value is not None]
    micro = [round(value * 1000) for value in parts]
    assert sum(micro) == round(record.account_ms * 1000)
    assert all(value >= 0 for value in micro)
    assert (record.ttft_ms is None) == ("ttft_ms" in record.nulls)
    assert record.ttft_ms is None or record.ttft_ms == record.account_ms
    assert all(0 <= at <= record.marks_us["end"] for at in record.marks_us.values())
    assert record.duration_ms == record.marks_us["end"] / 1000
    assert record.error != ""
    for segment, value in record.segments_ms.items():
        assert (value is None) == (segment in record.nulls)
        assert (value is None) == (segment not in record.grades)
