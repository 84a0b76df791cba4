"""A raw HTTP client for these tests: sends bytes, reads one answer, forgives nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvloop

from proxy.simulate.server import Simulator
from proxy.simulate.witness import Received

PATIENCE_S = 20.0
MS = 1_000_000

clock = time.monotonic_ns  # noqa: TID251 (real sockets need the real clock)

Pairs = list[tuple[str, str]]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a story on asyncio's loop and on uvloop: the simulator has to be the same on both."""
    asyncio.run(story())
    uvloop.run(story())


@dataclass
class Reply:
    """One answer as it came."""

    status: int = 0
    line: str = ""
    headers: Pairs = field(default_factory=list)
    head: bytes = b""
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    trailers: Pairs = field(default_factory=list)
    informational: list[bytes] = field(default_factory=list)
    complete: bool = False

    def values(self, name: str) -> list[str]:
        """The values of a field, whose name is compared as it is."""
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str | None, Any]]:
        """The SSE events, comments included as (":", text)."""
        return sse(self.body)

    @property
    def objects(self) -> list[Any]:
        """The JSON objects among the SSE events."""
        return [data for _, data in self.events if isinstance(data, dict)]


def sse(body: bytes) -> list[tuple[str | None, Any]]:
    """Events of a body with LF line ends; data that is not JSON stays text."""
    assert not body or body.endswith(b"\n\n")
    found: list[tuple[str | None, Any]] = []
    for block in body.decode().split("\n\n")[:-1]:
        name: str | None = None
        for line in block.split("\n"):
            key, _, value = line.partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                found.append((name, json.loads(value) if value.startswith("{") else value))
            else:
                found.append((":", value))
    return found


def parse(data: bytes, method: str = "POST") -> Reply:
    """One answer from all bytes of a connection. What misses its end is not `complete`."""
    reply = Reply()
    while not reply.head:
        head, blank, data = data.partition(b"\r\n\r\n")
        if not blank:
            return reply
        if head.startswith(b"HTTP/1.1 1"):
            reply.informational.append(head)
        else:
            reply.head = head + blank
    line, *fields = reply.head[:-4].decode("latin-1").split("\r\n")
    reply.line = line
    reply.status = int(line.split(" ")[1])
    reply.headers = _pairs(fields)
    named = {name.lower(): value for name, value in reply.headers}
    if method == "HEAD" or reply.status in (204, 304):
        assert data == b""
        reply.complete = True
    elif "transfer-encoding" in named:
        _dechunk(reply, data)
    elif "content-length" in named:
        reply.body = data
        reply.complete = len(data) == int(named["content-length"])
    else:
        reply.body = data
        reply.complete = True
    return reply


def _dechunk(reply: Reply, data: bytes) -> None:
    at = 0
    while True:
        end = data.find(b"\r\n", at)
        if end < 0:
            break
        length = int(data[at:end], 16)
        at = end + 2
        if not length:
            *trailers, last = data[at:].split(b"\r\n")[:-1] or [b"x"]
            reply.trailers = _pairs([line.decode("latin-1") for line in trailers])
            reply.complete = last == b""
            break
        reply.chunks.append(data[at : at + length])
        at += length + 2
    reply.body = b"".join(reply.chunks)
    if reply.chunks and at > len(data):
        reply.chunks.pop()


def _pairs(lines: list[str]) -> Pairs:
    pairs = []
    for line in lines:
        name, _, value = line.partition(": ")
        pairs.append((name, value))
    return pairs


@dataclass
class Client:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        """Write."""
        self.writer.write(data)
        await self.writer.drain()

    async def until(self, mark: bytes) -> bytes:
        """Everything up to and including `mark`."""
        return await asyncio.wait_for(self.reader.readuntil(mark), PATIENCE_S)

    async def read(self, size: int = 65536) -> bytes:
        """What one read gives."""
        return await asyncio.wait_for(self.reader.read(size), PATIENCE_S)

    async def rest(self) -> tuple[bytes, str]:
        """Everything until the end, and how it ended: "fin" or "rst"."""
        data = b""
        while True:
            try:
                piece = await self.read()
            except ConnectionError:
                # A reader that has an error tells it before the bytes that came in front of it.
                return data + bytes(self.reader._buffer), "rst"  # type: ignore[attr-defined] # nothing public does
            if not piece:
                return data, "fin"
            data += piece


@asynccontextmanager
async def connected(sim: Simulator, **options: Any) -> AsyncIterator[Client]:
    """A connection to the simulator."""
    reader, writer = await asyncio.open_connection(
        sim.host, sim.port, limit=64 * 1024 * 1024, **options
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.sleep(0)


def request(
    script: object = None,
    *,
    method: str = "POST",
    target: str = "/v1/chat/completions",
    headers: tuple[str, ...] = (),
    body: object = None,
    close: bool = True,
) -> bytes:
    """A request; a `script` goes into its X-Sim header."""
    lines = [f"{method} {target} HTTP/1.1", "Host: sim", *headers]
    if script is not None:
        text = script if isinstance(script, str) else json.dumps(script)
        lines.append(f"X-Sim: {text}")
    if close:
        lines.append("Connection: close")
    if method == "POST":
        value = {"model": "m", "stream": True} if body is None else body
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines.append(f"Content-Length: {len(data)}")
    else:
        data = b""
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


async def exchange(sim: Simulator, data: bytes) -> tuple[bytes, str]:
    """Send on a fresh connection; everything that comes back, and how it ends."""
    async with connected(sim) as client:
        await client.send(data)
        return await client.rest()


async def ask(sim: Simulator, script: object = None, **options: Any) -> Reply:
    """One request on a connection of its own, and its answer."""
    data, _ = await exchange(sim, request(script, **options))
    return parse(data, options.get("method", "POST"))


def offsets(received: Received, name: str) -> list[float]:
    """When parts of an answer left, in ms after the complete request."""
    start = received.head_at if received.complete_at is None else received.complete_at
    return [(at - start) / MS for at in received.instants(name)]


def wait_answered(sim: Simulator, count: int = 1) -> Coroutine[Any, Any, list[Received]]:
    """Wait until requests have ended."""
    return sim.wait_requests(count, PATIENCE_S)
