"""The transport: httpx's seam, our wire. One request in, one response head out, the body streaming.

httpx gives the types of the seam (`Request`, `Response`, exceptions); the socket work is ours, so
that stamps are taken where bytes arrive and nothing is added to what is sent.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from proxy.account import Clock, Mark, Phase, Trace
from proxy.upstream.connect import Origin, open_connection
from proxy.upstream.connection import Connection, Sink
from proxy.upstream.kernel import KernelSample
from proxy.upstream.pool import Pool
from proxy.upstream.wire import Framing, Head

_SWEEP_S = 5.0
_BACKLOG = 256 * 1024
"""Bytes of an upload that may wait for the kernel before the next piece is taken."""


class RequestBody(httpx.AsyncByteStream):
    """A request body that may already be complete when it is asked for. This one is empty."""

    def ready(self) -> bytes | None:
        """The whole body when it has all arrived, else None; asked once, before any iteration."""
        return b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces as they arrive."""
        empty: tuple[bytes, ...] = ()
        for piece in empty:
            yield piece

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Trailer fields, known when the pieces have ended."""
        return []


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told what while a request is under way; travels in `request.extensions["watch"]`."""

    trace: Trace
    informational: Callable[[Head], None] | None = None
    """Called with every 1xx head, where it arrives."""
    sent: Callable[[], None] | None = None
    """Called when the whole request is in the kernel's hands."""
    carried: "Callable[[WireBody], None] | None" = None
    """Called when a connection is about to carry the request."""


class WireTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 over our own connections, kept alive in a pool.

    Raises `httpx.ConnectError`, `ConnectTimeout`, `ReadError`, `ReadTimeout`,
    `RemoteProtocolError`. Never retries, except on a fresh connection when a reused one refused
    the very first byte.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        pool_limit: int = 1000,
        keepalive_s: float = 55.0,
        connect_timeout: float | None = 10.0,
        idle_timeout: float | None = None,
    ) -> None:
        self._origin = origin
        self._clock = clock
        self._tls = tls
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._pool: Pool[Connection] = Pool(limit=pool_limit, keepalive_ns=int(keepalive_s * 1e9))
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send `request` as it stands and return with the response head."""
        watch: Watch = request.extensions["watch"]
        trace = watch.trace
        head = _request_head(request)
        chunked = "transfer-encoding" in request.headers
        body = request.stream
        whole = body.ready() if isinstance(body, RequestBody) and not chunked else None

        while True:
            # 1. A connection: reused, or opened step by step.
            connection, reused = await self._connection(trace)
            exchange = WireBody(self, connection, reused=reused, clock=self._clock)
            if watch.carried is not None:
                watch.carried(exchange)
            try:
                # 2. Send: head and body in one write when the body is here already.
                connection.begin(request.method, trace, watch.informational)
                trace.entered = Phase.OWN
                at = self._clock()
                connection.write(head + whole if whole else head)
                if reused and connection.write_failed is not None and not connection.bytes_sent:
                    # The kernel knew the connection was dead: no byte can have been seen.
                    await exchange.aclose()
                    continue
                trace.first(Mark.UPSTREAM_TX_START, at)
                trace.entered = Phase.SEND if whole is not None else Phase.UPLOAD
                upload = self._upload(connection, body, whole, chunked, watch)
                exchange.upload(upload)

                # 3. The response head, which may well come before the upload has ended.
                final = await connection.head()
                exchange.kernel_at_head = connection.sample()
            except BaseException:
                await exchange.aclose()
                raise
            return httpx.Response(
                final.status,
                headers=final.fields,
                stream=exchange,
                extensions={
                    "http_version": b"HTTP/" + final.version.encode("ascii"),
                    "reason_phrase": final.reason,
                },
            )

    async def _connection(self, trace: Trace) -> tuple[Connection, bool]:
        trace.entered = Phase.POOL
        connection, dead = await self._pool.acquire(self._clock())
        for corpse in dead:
            corpse.close()
        trace.first(Mark.POOL_READY, self._clock())
        if connection is not None:
            return connection, True
        try:
            connection = await open_connection(
                self._origin,
                trace,
                clock=self._clock,
                tls=self._tls,
                connect_timeout=self._connect_timeout,
                idle_timeout=self._idle_timeout,
            )
        except BaseException:
            self._pool.forget()
            raise
        connection.when_lost_idle(self._pool.remove_idle)
        return connection, False

    def _upload(
        self,
        connection: Connection,
        body: Any,
        whole: bytes | None,
        chunked: bool,
        watch: Watch,
    ) -> "asyncio.Task[None] | None":
        """Send what is not sent yet, beside the wait for the head; None when all is sent."""
        if whole is not None and connection.drained:
            self._sent(connection, watch)
            return None
        return asyncio.get_running_loop().create_task(
            self._send_rest(connection, None if whole is not None else body, chunked, watch)
        )

    async def _send_rest(
        self, connection: Connection, body: Any, chunked: bool, watch: Watch
    ) -> None:
        if body is not None:
            async for part in body:
                connection.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                if connection.backlog > _BACKLOG:
                    await connection.drain()
            if chunked:
                trailers = b"".join(b"%b: %b\r\n" % field for field in body.trailers)
                connection.write(b"0\r\n" + trailers + b"\r\n")
            watch.trace.entered = Phase.SEND
        await connection.drain()
        self._sent(connection, watch)

    def _sent(self, connection: Connection, watch: Watch) -> None:
        if connection.write_failed is None:
            watch.trace.first(Mark.UPSTREAM_TX_END, self._clock())
            watch.trace.entered = Phase.WAIT
        connection.all_written()
        if watch.sent is not None:
            watch.sent()

    def give_back(self, connection: Connection, *, reusable: bool, reset: bool) -> None:
        """The exchange on `connection` is over; `reset` when its request was not sent whole."""
        if reusable and not self._closed:
            self._pool.release(connection)
            self._sweep_later()
        else:
            connection.close(reset=reset)
            self._pool.forget()

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeper = None
        for connection in self._pool.expired(self._clock()):
            connection.close()
        if self._pool.idle:
            self._sweep_later()

    async def aclose(self) -> None:
        """Close the idle connections; busy ones end with their exchanges."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in self._pool.drain():
            connection.close()


class WireBody(httpx.AsyncByteStream):
    """A response body on its connection: pumped into a sink, or iterated."""

    def __init__(
        self, transport: WireTransport, connection: Connection, *, reused: bool, clock: Clock
    ) -> None:
        self._transport = transport
        self._connection = connection
        self._clock = clock
        self._upload: asyncio.Task[None] | None = None
        self._closed = False
        self.reused = reused
        self.idle_ns = clock() - connection.idle_since if reused else None
        self.kernel_before = connection.last_sample
        self.kernel_at_head: KernelSample | None = None

    def upload(self, task: "asyncio.Task[None] | None") -> None:
        """Own the task that still sends the request."""
        self._upload = task

    @property
    def connection(self) -> Connection:
        """The connection, for facts about its socket."""
        return self._connection

    @property
    def framing(self) -> tuple[Framing, int]:
        """How the body ends, and its stated length."""
        return self._connection.framing

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Trailer fields, once the body is complete."""
        return self._connection.trailers

    async def pump(self, sink: Sink) -> None:
        """Hand every read to `sink` where it arrives, until the body is complete."""
        await self._connection.pump(sink)

    def resume(self) -> None:
        """Read on after the sink asked for a pause."""
        self._connection.resume(self._clock())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The payload, piece by piece as it was read: the seam as httpx knows it."""
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

        def sink(_wire: bytes, payload: bytes, _at: int) -> bool:
            pieces.put_nowait(payload)
            return False

        pump = asyncio.get_running_loop().create_task(self.pump(sink))
        pump.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
                self.resume()
            await pump
        finally:
            pump.cancel()

    async def aclose(self) -> None:
        """End the exchange; the connection is kept when both sides are through with it."""
        if self._closed:
            return
        self._closed = True
        sent = self._upload is None or (
            self._upload.done() and not self._upload.cancelled() and not self._upload.exception()
        )
        if self._upload is not None:
            self._upload.cancel()
        reusable = self._connection.finish() and sent
        self._transport.give_back(self._connection, reusable=reusable, reset=not sent)


def _request_head(request: httpx.Request) -> bytes:
    """The request line with the raw target, and the fields as they stand."""
    target: bytes = request.extensions["target"]
    lines = [request.method.encode("ascii") + b" " + target + b" HTTP/1.1\r\n"]
    lines += [b"%b: %b\r\n" % field for field in request.headers.raw]
    lines.append(b"\r\n")
    return b"".join(lines)
