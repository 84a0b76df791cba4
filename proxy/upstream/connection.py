"""One connection to the upstream: an `asyncio.Protocol` that carries one exchange at a time.

Rules of this file:

1. Stamps are taken where bytes arrive: in `data_received`, before anything looks at them.
2. Each read is handed on at once, to the sink of the exchange, and then the account sees it.
3. A response that breaks off is an error, never an end.
"""

import asyncio
import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

import httpx

from proxy.account import Clock, Mark, Trace
from proxy.upstream.kernel import KernelSample, sample
from proxy.upstream.wire import (
    CHUNK_SIZES,
    ChunkedBody,
    Framing,
    Head,
    HeadReader,
    WireError,
    body_framing,
)

SMALL = 10_000
"""Bytes of a request that any initial window holds: the kernel sends them at once (RFC 6928)."""

Sink = Callable[[bytes, bytes, int], bool]
"""Takes (bytes as read, payload in them, instant of the read in ns); false means "pause"."""

_RESET = struct.pack("ii", 1, 0)
_GONE = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)  # Linux only


class Connection(asyncio.Protocol):
    """A connection: idle, or busy with one exchange.

    Raises httpx's exceptions, because it lives behind httpx's transport seam: `ReadError` and
    `RemoteProtocolError` when the upstream breaks off or does not speak HTTP/1.1, `ReadTimeout`
    when `idle_timeout` seconds pass without a byte.
    """

    def __init__(self, clock: Clock, *, idle_timeout: float | None = None) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._idle_timeout = idle_timeout
        self._transport: Any = None
        self._socket: Any = None
        self._fd = -1
        self._lost = False
        self._close_when_idle: Callable[[Connection], None] | None = None
        self.peer: Any = None
        self.local: Any = None
        self.last_sample: KernelSample | None = None
        self.uses = 0
        self.idle_since = 0
        self._paused_ns = 0
        self.first_paused_at: int | None = None
        self._paused_at: int | None = None
        self._writable: asyncio.Future[None] | None = None
        self._write_paused = False
        self._timer: asyncio.TimerHandle | None = None
        self._last_activity = 0
        self._forget()

    def _forget(self) -> None:
        """Between exchanges nothing of the last one is kept."""
        self._trace: Trace | None = None
        self._method = ""
        self._heads = HeadReader()
        self._head: asyncio.Future[Head] | None = None
        self._informational: Callable[[Head], None] | None = None
        self._framing = Framing.NONE
        self._left = 0
        self._chunked: ChunkedBody | None = None
        self._sink: Sink | None = None
        self._early: list[tuple[bytes, bytes, int]] = []
        self._done: asyncio.Future[None] | None = None
        self._complete = False
        self._begun = False
        self._clean = True
        self.write_failed: OSError | None = None
        self.bytes_sent = False
        self._written = 0
        self.sample_when_sent: KernelSample | None = None
        self.uploading = True
        """Silence is the client's while this is true: the idle limit does not count it."""
        self.final_head: Head | None = None

    # -- the exchange, in the order of its life

    def begin(
        self, method: str, trace: Trace, informational: Callable[[Head], None] | None
    ) -> None:
        """Start an exchange; `informational` is called with every 1xx head."""
        self._forget()
        self.uses += 1
        self._paused_ns = 0
        self.first_paused_at = None
        self._method = method
        self._trace = trace
        self._informational = informational
        self._head = self._loop.create_future()
        self._done = self._loop.create_future()
        self._last_activity = self._clock()
        if self._idle_timeout is not None:
            self._timer = self._loop.call_later(self._idle_timeout, self._check_idle)

    def write(self, data: bytes) -> None:
        """Hand `data` to the kernel; what it does not take at once waits in the transport.

        On a plain socket the write goes straight to the kernel, so that it happens now and not at
        the end of the loop's turn, and so that a refusal (EPIPE, ECONNRESET) does not tear down
        the transport before an early reply has been read. The refusal is kept in `write_failed`.
        """
        if self.write_failed is not None or self._lost:
            self.write_failed = self.write_failed or BrokenPipeError()
            return
        self._last_activity = self._clock()
        self._written += len(data)
        if self._fd >= 0 and not self._write_paused and not self._transport.get_write_buffer_size():
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self.write_failed = error
                return
            if sent:
                self.bytes_sent = True
            if sent == len(data):
                return
            data = data[sent:]
        self.bytes_sent = True
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until everything written is in the kernel's hands."""
        while self._write_paused and not self._lost and self.write_failed is None:
            self._writable = self._loop.create_future()
            await self._writable

    @property
    def drained(self) -> bool:
        """Whether everything written is in the kernel's hands (or was refused)."""
        return not self._write_paused

    def all_written(self) -> None:
        """The whole request is in the kernel's hands, which may take its time with a large one."""
        self.uploading = False
        if self._written > SMALL:
            self.sample_when_sent = sample(self._socket) if not self._lost else None

    @property
    def backlog(self) -> int:
        """Bytes written that the kernel has not taken yet."""
        return 0 if self._lost else int(self._transport.get_write_buffer_size())

    async def head(self) -> Head:
        """The final response head."""
        assert self._head is not None
        return await self._head

    async def pump(self, sink: Sink) -> None:
        """Hand every body read to `sink` where it arrives; return when the body is complete."""
        assert self._done is not None
        self._sink = sink
        early, self._early = self._early, []
        for wire, payload, at in early:
            if not sink(wire, payload, at) and not self._complete:
                self.pause(at)
        await self._done

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Trailer fields of a complete chunked body."""
        return self._chunked.trailers if self._chunked is not None else []

    @property
    def framing(self) -> tuple[Framing, int]:
        """How the body of the final head ends, and what is left of a stated length."""
        return self._framing, self._left

    @property
    def complete(self) -> bool:
        """Whether the response arrived whole."""
        return self._complete

    def finish(self) -> bool:
        """End the exchange; whether the connection can carry another."""
        self._stop_timer()
        reusable = (
            self._complete
            and self._clean
            and not self._lost
            and self.write_failed is None
            and not self._write_paused
            and self.final_head is not None
            and self.final_head.keep_alive
            and self._framing is not Framing.EOF
        )
        self.resume(self._clock())
        if reusable:
            self._forget()
            self.idle_since = self._clock()
        return reusable

    # -- idle

    def when_lost_idle(self, callback: "Callable[[Connection], None] | None") -> None:
        """Call `callback` when the connection dies while idle."""
        self._close_when_idle = callback

    def usable(self) -> bool:
        """Whether an idle connection still looks alive: not closed, nothing to read, no FIN."""
        if self._lost or self._transport.is_closing():
            return False
        # Under TLS, bytes that wait may be a session ticket.
        gone = _GONE | select.POLLIN if self._fd >= 0 else _GONE
        poll = select.poll()
        poll.register(self._socket.fileno(), gone)
        return not poll.poll(0)

    def close(self, *, reset: bool = False) -> None:
        """Close at once; with a reset where unread bytes would hold up a FIN."""
        self._stop_timer()
        if self._transport is not None and not self._lost:
            if reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()

    # -- flow control of reading

    def pause(self, at: int) -> None:
        """Stop reading: the client does not take what was read."""
        if self._paused_at is None and not self._lost:
            self._paused_at = at
            if self.first_paused_at is None:
                self.first_paused_at = at
            self._transport.pause_reading()

    def resume(self, at: int) -> None:
        """Read again."""
        if self._paused_at is not None:
            self._paused_ns += at - self._paused_at
            self._paused_at = None
            self._last_activity = at
            if not self._lost and not self._transport.is_closing():
                self._transport.resume_reading()

    # -- facts

    @property
    def read_paused_ns(self) -> int:
        """How long reading was paused in this exchange, up to now."""
        running = self._clock() - self._paused_at if self._paused_at is not None else 0
        return self._paused_ns + running

    def sample(self) -> KernelSample | None:
        """`TCP_INFO` of the socket, now; kept as `last_sample`, the next exchange's baseline."""
        self.last_sample = sample(self._socket) if not self._lost else None
        return self.last_sample

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; learn whether the socket can be written directly."""
        self._transport = transport
        # The write buffer counts as full when it holds anything: "drained" is then "in the
        # kernel's hands", which is what upstream_tx_end means.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._socket = transport.get_extra_info("socket")
        self.peer = transport.get_extra_info("peername")
        self.local = transport.get_extra_info("sockname")
        if transport.get_extra_info("ssl_object") is None:
            self._fd = self._socket.fileno()

    def data_received(self, data: bytes) -> None:
        """Stamp, then hand on."""
        at = self._clock()
        self._last_activity = at
        chunked, sink = self._chunked, self._sink
        if chunked is not None and chunked.between and self._begun and sink is not None:
            # The usual read of a stream is one whole chunk: no state changes, straight on.
            head = data.find(b"\r\n", 0, 5)
            if CHUNK_SIZES.get(data[:head]) == len(data) - head - 4 and data[-2:] == b"\r\n":
                if not sink(data, data[head + 2 : -2], at):
                    self.pause(at)
                return
        if self.final_head is not None and not self._complete:
            self._on_body(data, at)
        elif self._trace is not None and self.final_head is None:
            self._on_head(data, at)
        else:
            # Bytes that nobody asked for: the connection cannot be trusted with another exchange.
            self._clean = False
            self._transport.abort()

    def eof_received(self) -> bool:
        """The upstream sent FIN: the end of an EOF-framed body, else a break."""
        ends = self._framing is Framing.EOF and self.final_head is not None and not self._complete
        # A refused write has eaten the news of a reset: what looks like FIN may have been one.
        if ends and self.write_failed is None:
            self._complete_at(self._clock())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone: fail what is still open."""
        self._lost = True
        self._fd = -1
        self._stop_timer()
        if self._trace is None:
            if self._close_when_idle is not None:
                self._close_when_idle(self)
            return
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if self._complete:
            return
        if self.final_head is not None:
            self._fail(
                httpx.ReadError("connection lost before the end of the body")
                if exc is not None
                else httpx.RemoteProtocolError("connection closed before the end of the body"),
                exc,
            )
        elif exc is not None:
            self._fail(httpx.ReadError("connection lost before a response head"), exc)
        else:
            self._fail(httpx.RemoteProtocolError("connection closed before a response head"), None)

    def pause_writing(self) -> None:
        """The transport holds bytes that the kernel did not take."""
        self._write_paused = True

    def resume_writing(self) -> None:
        """Everything written is in the kernel's hands."""
        self._write_paused = False
        self._last_activity = self._clock()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    # -- reading a response

    def _on_head(self, data: bytes, at: int) -> None:
        assert self._trace is not None
        assert self._head is not None
        try:
            while (found := self._heads.feed(data)) is not None:
                head, data = found
                if head.status == 101:
                    raise WireError("101 Switching Protocols was not asked for")
                if head.status >= 200:
                    self._framing, self._left = body_framing(self._method, head)
                    break
                if self._informational is not None:
                    self._informational(head)
                if not data:
                    return
            else:
                return
        except WireError as error:
            self._fail(httpx.RemoteProtocolError(str(error)), error)
            return
        self.final_head = head
        self._trace.first(Mark.RESPONSE_HEADERS, at)
        if self._framing is Framing.CHUNKED:
            self._chunked = ChunkedBody()
        if self._framing is Framing.NONE or (self._framing is Framing.LENGTH and not self._left):
            self._clean = self._clean and not data
            self._complete_at(at)
        elif data:
            self._on_body(data, at)
        if not self._head.done():
            self._head.set_result(head)

    def _on_body(self, data: bytes, at: int) -> None:
        assert self._trace is not None
        payload = data
        complete = False
        if self._chunked is not None:
            try:
                payload, taken = self._chunked.feed(data)
            except WireError as error:
                self._fail(httpx.RemoteProtocolError(str(error)), error)
                return
            complete = self._chunked.complete
            if taken < len(data):
                data = data[:taken]
                self._clean = False
        elif self._framing is Framing.LENGTH:
            if len(data) > self._left:
                payload = data = data[: self._left]
                self._clean = False
            self._left -= len(data)
            complete = not self._left
        if not self._begun and payload:
            self._begun = True
            self._trace.first(Mark.FIRST_CHUNK, at)
        if complete:
            # Before the sink: by the time it acts, the response is known to be whole.
            self._complete = True
            self._trace.first(Mark.UPSTREAM_RX_END, at)
        if self._sink is None:
            self._early.append((data, payload, at))
        elif not self._sink(data, payload, at) and not complete:
            self.pause(at)
        if complete:
            self._complete_at(at)

    def _complete_at(self, at: int) -> None:
        assert self._trace is not None
        assert self._done is not None
        self._complete = True
        self._trace.first(Mark.UPSTREAM_RX_END, at)
        self._stop_timer()
        if not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: httpx.TransportError, cause: BaseException | None) -> None:
        error.__cause__ = cause
        self._stop_timer()
        for future in (self._head, self._done):
            if future is not None and not future.done():
                future.set_exception(error)
                # Somebody waits for one of the two at most; the other is no mistake.
                future.exception()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        if not self._lost:
            self._transport.abort()

    # -- the idle limit

    def _check_idle(self) -> None:
        assert self._idle_timeout is not None
        idle = (self._clock() - self._last_activity) / 1e9
        ours = self._paused_at is not None or (self.uploading and not self._write_paused)
        if idle >= self._idle_timeout and not ours:
            self._timer = None
            self._fail(
                httpx.ReadTimeout(f"no byte from upstream for {self._idle_timeout:g} s"), None
            )
            return
        wait = self._idle_timeout if ours else self._idle_timeout - idle
        self._timer = self._loop.call_later(max(wait, 0.001), self._check_idle)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
