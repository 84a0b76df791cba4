"""The last step before the transport: pieces of bytes, and the ways to break off."""

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable

from .timekeeper import Timekeeper

_POLL_NS = 1_000_000
_SMALL_BUFFER = 32_768


class Outlet:
    """Writes to a transport in pieces of `size` bytes, `delay` ns apart.

    With no delay each piece gets a turn of the event loop, so that it leaves on its own. Without
    a size nothing needs to be split, and callers write to the transport themselves.
    """

    def __init__(
        self, transport: asyncio.Transport, time: Timekeeper, size: int | None, delay: int
    ) -> None:
        self._transport = transport
        self._time = time
        self._size = size
        self._delay = delay
        self._pieces: deque[bytes] = deque()
        self._then: Callable[[], None] | None = None
        self._busy = False

    def write(self, data: bytes) -> None:
        """Write in pieces, in order."""
        size = self._size or len(data)
        self._pieces.extend(data[at : at + size] for at in range(0, len(data), size))
        if self._pieces and not self._busy:
            self._next()

    def when_written(self, then: Callable[[], None]) -> None:
        """Call `then` when the last piece was handed to the transport."""
        if self._busy:
            self._then = then
        else:
            then()

    def break_off(self, how: str) -> None:
        """End the connection in the middle: by "fin", by "rst", or not at all ("hang")."""
        if how == "fin":
            self._transport.close()
        elif how == "rst":
            # What was written has to reach the kernel first: a reset throws away the rest.
            self._time.after(_POLL_NS, self._reset)

    def _next(self) -> None:
        self._busy = bool(self._pieces)
        if self._transport.is_closing():
            self._pieces.clear()
            return
        if self._pieces:
            self._transport.write(self._pieces.popleft())
            if self._delay:
                self._time.after(self._delay, self._next)
            else:
                self._time.loop.call_soon(self._next)
        elif self._then is not None:
            self._then()

    def _reset(self) -> None:
        if not self._transport.is_closing() and _unsent(self._transport):
            self._time.after(_POLL_NS, self._reset)
            return
        reset(self._transport)


def _unsent(transport: asyncio.Transport) -> int:
    """Bytes that the peer's kernel does not have yet (SIOCOUTQ, tcp(7))."""
    unsent = transport.get_write_buffer_size()
    connection = transport.get_extra_info("socket")
    if unsent or connection is None:
        return unsent
    try:
        answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)


def reset(transport: asyncio.Transport) -> None:
    """Close so that the peer gets a RST: lingering for no time (socket(7))."""
    connection = transport.get_extra_info("socket")
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def shrink_receive_buffer(transport: asyncio.Transport) -> None:
    """Let the kernel hold little of what a client sends, so that it notices a slow reader."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
