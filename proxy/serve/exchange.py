"""One exchange with a client: its request as it arrives, and the means to answer it.

The relay's view of the client's side. The protocol fills it from the socket; tests fill it by
hand. Nothing is added to a response that the relay did not say, except `Connection: close`, which
belongs to this connection alone.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

HIGH_WATER = 256 * 1024
"""Bytes of upload that may wait here before reading from the client pauses."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request head as received.

    `length` is the stated length of the body, None without one; `chunked` says that the body
    comes in the chunked coding. Neither means no body.
    """

    method: str
    target: bytes
    version: str
    fields: list[tuple[bytes, bytes]]
    started: int
    """The instant (ns) of the read that completed the head."""
    length: int | None = None
    chunked: bool = False
    expects_continue: bool = False


class ClientConnection(Protocol):
    """What an exchange needs of the connection that it is on."""

    def write(self, data: bytes) -> bool:
        """Write at once; false when the client does not keep up."""
        ...

    def pause_reading(self) -> None:
        """Let the client wait with its upload."""
        ...

    def resume_reading(self) -> None:
        """Take more of the upload."""
        ...

    def exchange_done(self, *, keep: bool) -> None:
        """The response is complete; `keep` says that the connection may carry another."""
        ...

    def break_off(self, *, reset: bool) -> None:
        """End uncleanly, after what was written; `reset` when only a reset shows the break."""
        ...


class Exchange:
    """A request of a client and its answer. One owner: the relay."""

    __slots__ = (
        "_buffered",
        "_connection",
        "_continued",
        "_keep",
        "_parts",
        "_wakeup",
        "broken",
        "gone",
        "head",
        "left_at",
        "on_gone",
        "on_writable",
        "request_bytes",
        "request_complete",
        "request_ended_at",
        "responded",
        "trailers",
        "write",
        "write_paused_at",
        "write_pending_ns",
    )

    def __init__(self, head: RequestHead, connection: ClientConnection, *, keep: bool) -> None:
        self.head = head
        self._connection = connection
        self.write = connection.write
        """Writes bytes of the body, framed already; false when the client does not keep up."""
        self._keep = keep
        self._parts: deque[bytes] = deque()
        self._buffered = 0
        self._wakeup: asyncio.Future[None] | None = None
        self._continued = not head.expects_continue
        self.request_complete = False
        self.request_ended_at: int | None = None
        self.request_bytes = 0
        self.trailers: list[tuple[bytes, bytes]] = []
        self.gone = False
        self.left_at: int | None = None
        self.broken: str | None = None
        self.responded = False
        self.on_gone: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.write_paused_at: int | None = None
        self.write_pending_ns = 0

    # -- the request, filled by the protocol

    def body_arrived(self, data: bytes) -> None:
        """A piece of the body was read."""
        self.request_bytes += len(data)
        self._parts.append(data)
        self._buffered += len(data)
        if self._buffered > HIGH_WATER:
            self._connection.pause_reading()
        self._wake()

    def request_ended(self, at: int) -> None:
        """The read at the instant `at` completed the request."""
        self.request_complete = True
        self.request_ended_at = at
        self._wake()

    def client_left(self, at: int) -> None:
        """The client closed or reset its connection at the instant `at`."""
        if not self.gone:
            self.gone = True
            self.left_at = at
            if self.on_gone is not None:
                self.on_gone()

    def body_broke(self, error: str) -> None:
        """The client's body broke its framing; `error` names the class."""
        if not self.request_complete and self.broken is None:
            self.broken = error
            if self.on_gone is not None:
                self.on_gone()

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    # -- the request, read by the relay

    def ready_body(self) -> bytes | None:
        """The whole body when it has all arrived and none of it was taken, else None."""
        if not self.request_complete:
            return None
        whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._buffered = 0
        self._connection.resume_reading()
        return whole

    async def next_part(self) -> bytes | None:
        """The next piece of the body, or None at its end."""
        while not self._parts:
            if self.request_complete:
                return None
            self._wakeup = asyncio.get_running_loop().create_future()
            await self._wakeup
        part = self._parts.popleft()
        self._buffered -= len(part)
        if self._buffered <= HIGH_WATER:
            self._connection.resume_reading()
        return part

    # -- the answer

    def inform(self, status: int, reason: bytes, fields: Sequence[tuple[bytes, bytes]]) -> None:
        """Pass an interim (1xx) response on; HTTP/1.0 clients get none (RFC 9110, 15.2)."""
        if self.responded or self.gone or self.head.version == "1.0":
            return
        if status == 100:
            if self._continued and self.head.expects_continue:
                return
            self._continued = True
        self._connection.write(_head_bytes(status, reason, fields))

    def continue_anyway(self) -> None:
        """Answer `Expect: 100-continue` ourselves: upstream has been silent for long enough."""
        if not self._continued and not self.request_bytes and not self.request_complete:
            self.inform(100, b"Continue", ())

    def respond(self, status: int, reason: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bool:
        """Write the final response head at once; false when the client does not keep up."""
        self.responded = True
        self._keep = self._keep and self.request_complete
        if not self._keep:
            fields = [*fields, (b"Connection", b"close")]
        return self._connection.write(_head_bytes(status, reason, fields))

    def finish(self) -> None:
        """The response is complete."""
        self._connection.exchange_done(keep=self._keep)

    def close_after(self) -> None:
        """Only the end of the connection will end this response."""
        self._keep = False

    def break_off(self, *, reset: bool = False) -> None:
        """The response is broken and must look broken."""
        self._connection.break_off(reset=reset)


def _head_bytes(status: int, reason: bytes, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    lines = [b"HTTP/1.1 %d %b\r\n" % (status, reason)]
    lines += [b"%b: %b\r\n" % field for field in fields]
    lines.append(b"\r\n")
    return b"".join(lines)
