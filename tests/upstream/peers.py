"""What httpcore's transport is tried against: an HTTP/2 server, an HTTP proxy, a SOCKS5 proxy."""

import asyncio
import base64
import contextlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import h2.settings

from tests.support import Peer

Fields = list[tuple[bytes, bytes]]


@dataclass
class Stream:
    """One request on an HTTP/2 connection, and the means to answer it."""

    server: "Http2"
    number: int
    fields: Fields
    body: bytearray = field(default_factory=bytearray)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reset_code: int | None = None

    @property
    def path(self) -> bytes:
        return dict(self.fields)[b":path"]

    async def head(self, status: int, *fields: tuple[bytes, bytes]) -> None:
        self.server.state.send_headers(
            self.number, [(b":status", b"%d" % status), *fields], end_stream=False
        )
        await self.server.flush()

    async def data(self, data: bytes, *, end: bool = False) -> None:
        """Send, as far as the caller's window allows, waiting for more of it."""
        state = self.server.state
        while data:
            window = state.local_flow_control_window(self.number)
            size = min(window, state.max_outbound_frame_size, len(data))
            if not size:
                self.server.window.clear()
                await self.server.window.wait()
                continue
            state.send_data(self.number, data[:size])
            data = data[size:]
            await self.server.flush()
        if end:
            state.end_stream(self.number)
            await self.server.flush()

    async def reset(self) -> None:
        self.server.state.reset_stream(self.number, error_code=2)
        await self.server.flush()


Serve = Callable[[Stream], Awaitable[None]]


class Http2:
    """A handler of connections that speaks HTTP/2 and hands every request to `serve`."""

    def __init__(self, serve: Serve, *, max_streams: int = 100) -> None:
        self._serve = serve
        self._max_streams = max_streams
        self.streams: dict[int, Stream] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.window = asyncio.Event()
        self.state: Any = None
        self.peer: Any = None

    async def __call__(self, peer: Peer) -> None:
        connection = Http2(self._serve, max_streams=self._max_streams)
        await connection.run(peer)

    async def flush(self) -> None:
        await self.peer.send(self.state.data_to_send())

    async def run(self, peer: Peer) -> None:
        config = h2.config.H2Configuration(client_side=False, header_encoding=None)
        self.peer, self.state = peer, h2.connection.H2Connection(config)
        self.state.initiate_connection()
        limit = {h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: self._max_streams}
        self.state.update_settings(limit)
        await self.flush()
        try:
            while data := await peer.reader.read(65536):
                for event in self.state.receive_data(data):
                    self.on_event(event)
                await self.flush()
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)

    def on_event(self, event: Any) -> None:
        if isinstance(event, h2.events.RequestReceived):
            stream = Stream(self, event.stream_id, list(event.headers))
            self.streams[event.stream_id] = stream
            self.tasks.append(asyncio.create_task(self.serve(stream)))
        elif isinstance(event, h2.events.DataReceived):
            self.streams[event.stream_id].body += event.data
            self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            self.streams[event.stream_id].ended.set()
        elif isinstance(event, h2.events.StreamReset):
            self.streams[event.stream_id].reset_code = event.error_code
        elif isinstance(event, h2.events.WindowUpdated):
            self.window.set()

    async def serve(self, stream: Stream) -> None:
        await stream.ended.wait()
        await self._serve(stream)


async def splice(one: Peer, other: Peer) -> None:
    """Pass bytes both ways until one side ends."""

    async def pump(source: Peer, sink: Peer) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.reader.read(65536):
                await sink.send(data)
        sink.close()

    try:
        await asyncio.gather(pump(one, other), pump(other, one))
    finally:
        other.close()


async def dial(host: str, port: int) -> Peer:
    """Connect; every name is this machine."""
    del host
    return Peer(*await asyncio.open_connection("127.0.0.1", port))


@dataclass
class HttpProxy:
    """A forward proxy: CONNECT, and absolute targets."""

    credentials: bytes | None = None
    answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    asked: list[bytes] = field(default_factory=list)

    async def __call__(self, peer: Peer) -> None:
        head = await peer.head()
        self.asked.append(head)
        if self.credentials is not None:
            expected = b"Proxy-Authorization: Basic " + base64.b64encode(self.credentials)
            if expected not in head:
                await peer.send(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
                return
        line, _, fields = head.partition(b"\r\n")
        method, target, version = line.split(b" ")
        if method == b"CONNECT":
            await peer.send(self.answer)
            if b" 200 " not in self.answer:
                return
            host, _, port = target.decode().rpartition(":")
            await splice(peer, await dial(host, int(port)))
            return
        url = urlsplit(target.decode())
        upstream = await dial(str(url.hostname), url.port or 80)
        path = target.partition(b"//")[2].partition(b"/")
        await upstream.send(b"%b /%b %b\r\n%b" % (method, path[2], version, fields))
        await splice(peer, upstream)


@dataclass
class Socks5:
    """A SOCKS5 proxy (RFC 1928), with or without a password (RFC 1929)."""

    credentials: tuple[bytes, bytes] | None = None
    reply: int = 0
    asked: list[bytes] = field(default_factory=list)

    async def __call__(self, peer: Peer) -> None:
        version, count = await peer.exactly(2)
        assert version == 5
        methods = await peer.exactly(count)
        wanted = 0 if self.credentials is None else 2
        if wanted not in methods:
            await peer.send(b"\x05\xff")
            return
        await peer.send(bytes((5, wanted)))
        if self.credentials is not None:
            user = await peer.exactly((await peer.exactly(2))[1])
            password = await peer.exactly((await peer.exactly(1))[0])
            good = (user, password) == self.credentials
            await peer.send(b"\x01\x00" if good else b"\x01\x01")
            if not good:
                return
        kind = (await peer.exactly(4))[3]
        size = {1: 4, 4: 16}.get(kind) or (await peer.exactly(1))[0]
        host = await peer.exactly(size)
        (port,) = struct.unpack("!H", await peer.exactly(2))
        self.asked.append(host)
        await peer.send(bytes((5, self.reply, 0, 1, 0, 0, 0, 0, 0, 0)))
        if not self.reply:
            await splice(peer, await dial("", port))
