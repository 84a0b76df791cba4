"""The simulated model API of the benchmarks: an event is one write of bytes that exist already.

`proxy.simulate` costs about as much per event. What it lacks here: instants finer than the event
loop's timers of 1 ms, streams cut at random lengths, and scripts that need nothing in the request,
which some rows would not pass on.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from .script import BIG, END, Script, big_event
from .timetable import Timetable


class Model:
    """Answers every request by `script`.

    `length` chooses how many of its pieces a stream gets (None: all).
    """

    def __init__(self, timetable: Timetable, script: Script) -> None:
        self.timetable = timetable
        self.big = big_event()
        self.use(script)

    def use(self, script: Script, length: Callable[[], int] | None = None) -> None:
        """From now on answer so."""
        self.script = script
        self.whole = script.whole
        self.length = length

    async def listen(self, port: int) -> asyncio.Server:
        """Serve on loopback."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Connection(self), "127.0.0.1", port, backlog=4096)


class _Connection(asyncio.Protocol):
    def __init__(self, model: Model) -> None:
        self._model = model
        self._head = b""
        self._left = 0
        self._chunked = False
        self._in_body = False
        self._is_big = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            data = self._head[end + 4 :]
            head = self._head[: end + 2].lower()
            self._head = b""
            at = head.find(b"\r\ncontent-length:")
            self._left = int(head[at + 17 : head.index(b"\r", at + 2)]) if at >= 0 else 0
            self._chunked = b"\r\ntransfer-encoding: chunked" in head
            self._in_body = True
            self._is_big = False
        self._left -= len(data)
        self._is_big = self._is_big or BIG in data
        if data.endswith(END) if self._chunked else self._left <= 0:
            self._in_body = False
            self._answer()

    def _answer(self) -> None:
        model = self._model
        script = model.script
        if script.document:
            self._transport.write(model.whole)
            return
        now = model.timetable.clock()
        self._transport.write(script.head)
        if self._is_big:
            self._transport.write(model.big + script.closing)
            return
        self._script = script
        self._due = now + script.first_ns
        self._sent = 0
        self._size = model.length() if model.length is not None else len(script.pieces)
        model.timetable.at(self._due, self._event)

    def _event(self) -> None:
        if self._transport.is_closing():
            return
        script = self._script
        piece = script.pieces[self._sent]
        self._sent += 1
        if self._sent == self._size:
            self._transport.write(piece + script.closing)
            return
        self._transport.write(piece)
        self._due += script.gap_ns
        self._model.timetable.at(self._due, self._event)
