"""What the tests of the upstream side share: one call from start to end, and servers to call."""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import trustme

from proxy.account import Trace
from proxy.upstream.client import Call, ConnectionFacts, ResponseHead, Upstream
from proxy.upstream.connect import Origin
from proxy.upstream.transport import RequestBody
from proxy.upstream.wire import Head
from tests.support import Handler, Peer
from tests.support import Upstream as Listening

clock = time.monotonic_ns  # noqa: TID251  # a test is an entry point
SECOND = 1_000_000_000

HOST = [(b"Host", b"upstream")]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Whole(RequestBody):
    """A body that is here already."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def ready(self) -> bytes | None:
        return self.data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.data


class Pieces(RequestBody):
    """A body that arrives in pieces, `gap_s` seconds apart."""

    def __init__(
        self, pieces: Sequence[bytes], *, gap_s: float = 0, trailers: Sequence[Any] = ()
    ) -> None:
        self.pieces = pieces
        self.gap_s = gap_s
        self.taken = 0
        self._trailers = list(trailers)

    def ready(self) -> bytes | None:
        return None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            await asyncio.sleep(self.gap_s)
            self.taken += 1
            yield piece

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        return self._trailers


@dataclass
class Answer:
    """All that is known of a call after its end."""

    head: ResponseHead
    payload: bytes
    wire: bytes
    trailers: list[tuple[bytes, bytes]]
    facts: ConnectionFacts
    trace: Trace
    interim: list[Head] = field(default_factory=list)


async def ask(
    upstream: Upstream,
    method: str = "GET",
    *,
    target: bytes = b"/",
    fields: Sequence[tuple[bytes, bytes]] = (),
    body: bytes | RequestBody = b"",
    trace: Trace | None = None,
    sent: Callable[[], None] | None = None,
) -> Answer:
    """One call, read to its end. Bytes as a body come with their Content-Length."""
    trace = trace or new_trace()
    interim: list[Head] = []
    call = Call(upstream, trace, informational=interim.append, sent=sent)
    all_fields = [*HOST, *fields]
    if isinstance(body, bytes):
        if body:
            all_fields.append((b"Content-Length", b"%d" % len(body)))
        body = Whole(body)
    wire, payload = bytearray(), bytearray()

    def sink(raw: bytes, data: bytes, _at: int) -> bool:
        wire.extend(raw)
        payload.extend(data)
        return True

    try:
        head = await call.send(method, target, all_fields, body)
        await call.pump(sink)
        trailers = call.trailers
    finally:
        await call.aclose()
    return Answer(head, bytes(payload), bytes(wire), trailers, call.facts(), trace, interim)


def new_trace() -> Trace:
    """A trace that begins now."""
    return Trace(clock, clock())


@contextlib.asynccontextmanager
async def to(
    port: int, *, scheme: str = "http", host: str = "127.0.0.1", **options: Any
) -> AsyncIterator[Upstream]:
    """The upstream side under test, closed at the end."""
    upstream = Upstream(Origin(scheme, host, port), clock=clock, **options)
    try:
        yield upstream
    finally:
        await upstream.aclose()


@contextlib.asynccontextmanager
async def listening(
    handle: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[Listening]:
    """Like `support.upstream`, with TLS and on any address."""
    this = Listening()
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
            writer.close()

    server = await asyncio.start_server(accepted, host, 0, limit=1 << 24, ssl=tls)
    this.port = server.sockets[0].getsockname()[1]
    try:
        yield this
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not this.faults, this.faults


def always(*writes: bytes) -> Handler:
    """Answer every request without a body on a connection with these writes."""

    async def handle(peer: Peer) -> None:
        while True:
            await peer.head()
            for data in writes:
                await peer.send(data)

    return handle


def tls_server(cert: trustme.LeafCert, *, alpn: Sequence[str] = ("http/1.1",)) -> ssl.SSLContext:
    """A server's TLS with that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(list(alpn))
    cert.configure_cert(context)
    return context


@contextlib.contextmanager
def black_hole(host: str = "127.0.0.1") -> Iterator[int]:
    """A port whose connection attempts get no answer: its backlog is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((host, 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def closed_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


def resolve_to(*addresses: tuple[str, int]) -> None:
    """From now on the running loop resolves every name to these, in this order."""
    loop = asyncio.get_running_loop()
    original = loop.getaddrinfo

    async def resolver(host: str, port: int, **options: Any) -> list[Any]:
        with contextlib.suppress(ValueError):
            ipaddress.ip_address(host)
            return await original(host, port, **options)
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, at, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, at))
            for address, at in addresses
        ]

    loop.getaddrinfo = resolver  # type: ignore[assignment]


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True
