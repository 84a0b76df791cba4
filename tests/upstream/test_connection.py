"""One connection: how a response ends, what breaks it, pauses, limits, and when it is kept."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

import httpx
import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.account import Mark
from proxy.upstream.client import Blame, Call, Upstream, UpstreamFault
from proxy.upstream.connection import Connection, Sink
from proxy.upstream.wire import MAX_HEAD, Framing
from tests.support import Peer, run
from tests.upstream.calls import (
    HOST,
    OK,
    SECOND,
    Pieces,
    Whole,
    always,
    ask,
    clock,
    listening,
    new_trace,
    tls_server,
    to,
)

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
EOF = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


def once(*writes: bytes, then: str) -> Callable[[Peer], Awaitable[None]]:
    """Answer one request, then close ("fin"), reset ("rst") or keep ("keep") the connection."""

    async def handle(peer: Peer) -> None:
        await peer.head()
        for data in writes:
            await peer.send(data)
            await asyncio.sleep(0.01)
        if then == "rst":
            peer.reset()
        elif then == "keep":
            await peer.rest()

    return handle


# -- responses that end as they should


@pytest.mark.parametrize(
    ("writes", "then", "framing", "payload"),
    [
        ([LENGTH + b"0123456789"], "keep", Framing.LENGTH, b"0123456789"),
        ([LENGTH, b"01234", b"56789"], "keep", Framing.LENGTH, b"0123456789"),
        ([LENGTH + b"0123456789"], "fin", Framing.LENGTH, b"0123456789"),
        ([CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"], "keep", Framing.CHUNKED, b"abc"),
        ([CHUNKED, b"3\r\na", b"bc\r\n", b"0\r\n", b"\r\n"], "fin", Framing.CHUNKED, b"abc"),
        ([EOF, b"data: 1\n\n", b"data: 2\n\n"], "fin", Framing.EOF, b"data: 1\n\ndata: 2\n\n"),
        ([EOF + b"all at once"], "fin", Framing.EOF, b"all at once"),
        ([EOF], "fin", Framing.EOF, b""),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], "keep", Framing.NONE, b""),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], "keep", Framing.LENGTH, b""),
        ([b"HTTP/1.0 200 OK\r\n\r\nold"], "fin", Framing.EOF, b"old"),
    ],
)
def test_a_body_ends_where_its_framing_says(
    writes: list[bytes], then: str, framing: Framing, payload: bytes
) -> None:
    """By length, by its last chunk, by FIN, or at once; FIN in the same read changes nothing."""

    async def story() -> None:
        async with listening(once(*writes, then=then)) as server, to(server.port) as upstream:
            answer = await ask(upstream)
        assert (answer.head.framing, answer.payload) == (framing, payload)
        marks = answer.trace.marks
        assert marks[Mark.RESPONSE_HEADERS] <= marks[Mark.UPSTREAM_RX_END]
        assert (Mark.FIRST_CHUNK in marks) == (payload != b"")

    run(story())


def test_a_head_answer_has_no_body_whatever_its_length_says() -> None:
    """And the connection carries the next request."""

    async def story() -> None:
        async with listening(always(LENGTH)) as server, to(server.port) as upstream:
            for _ in range(2):
                answer = await ask(upstream, "HEAD")
        assert (answer.head.framing, answer.payload) == (Framing.NONE, b"")
        assert answer.facts.reused

    run(story())


def test_chunks_are_handed_on_as_upstream_wrote_them() -> None:
    """The wire bytes with sizes and extensions, beside the payload; trailers at the end."""
    body = b"3;x=1\r\nabc\r\n0\r\nServer-Timing: a;dur=1\r\nX: 2\r\n\r\n"

    async def story() -> None:
        async with listening(always(CHUNKED, body)) as server, to(server.port) as upstream:
            answer = await ask(upstream)
        assert (answer.wire, answer.payload) == (body, b"abc")
        assert answer.head.wire
        assert answer.trailers == [(b"Server-Timing", b"a;dur=1"), (b"X", b"2")]

    run(story())


def test_interim_responses_are_told_and_are_not_the_answer() -> None:
    """100 and 103, in reads of their own or together with the final head."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"

    async def story() -> None:
        writes = (b"HTTP/1.1 100 Continue\r\n\r\n", early + early + OK)
        async with listening(once(*writes, then="keep")) as server, to(server.port) as upstream:
            answer = await ask(upstream)
        assert [head.status for head in answer.interim] == [100, 103, 103]
        assert answer.interim[1].fields == [(b"Link", b"</a>")]
        assert (answer.head.status, answer.payload) == (200, b"ok")

    run(story())


class Wire:
    """A transport that only takes notes."""

    def __init__(self) -> None:
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return self if name in ("socket", "ssl_object") else ("127.0.0.1", 1)

    def getsockopt(self, *_args: int) -> bytes:
        return b""

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted


PAYLOAD = b"data: \xf0\x9f\x98\x80\n\n" * 3
RESPONSES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(PAYLOAD), PAYLOAD),
        CHUNKED + b"".join(b"1\r\n%c\r\n" % byte for byte in PAYLOAD) + b"0\r\n\r\n",
        CHUNKED + b"%x\r\n%b\r\n0\r\nX: 1\r\n\r\n" % (len(PAYLOAD), PAYLOAD),
        b"HTTP/1.1 103 Early Hints\r\n\r\n" + EOF + PAYLOAD,
    ]
)


@settings(max_examples=60, deadline=None)
@given(RESPONSES, st.lists(st.integers(1, 40), max_size=40))
def test_any_reads_give_the_same_response(response: bytes, sizes: list[int]) -> None:
    """Whatever the kernel's reads were, payload and end are the same."""

    async def story() -> None:
        connection = Connection(clock)
        connection.connection_made(Wire())  # type: ignore[arg-type] # it acts as one
        connection.begin("GET", new_trace(), None)
        rest = response
        for size in sizes:
            if rest:
                connection.data_received(rest[:size])
            rest = rest[size:]
        if rest:
            connection.data_received(rest)
        connection.eof_received()
        payload = bytearray()

        def sink(_wire: bytes, data: bytes, _at: int) -> bool:
            payload.extend(data)
            return True

        assert (await connection.head()).status == 200
        await connection.pump(sink)
        assert payload == PAYLOAD
        assert connection.complete

    asyncio.run(story())


# -- responses that break


@pytest.mark.parametrize(
    ("writes", "then"),
    [
        ([LENGTH + b"01234"], "fin"),
        ([LENGTH + b"01234"], "rst"),
        ([CHUNKED + b"3\r\nabc\r\n"], "fin"),
        ([CHUNKED + b"3\r\nabc\r\n"], "rst"),
        ([CHUNKED + b"3\r\nabc\r\n", b"5\r\nhe"], "fin"),
        ([CHUNKED + b"3\r\nabc\r\n0\r\n"], "fin"),
        ([CHUNKED + b"3\r\nabc\r\n", b"zz\r\n"], "keep"),
        ([EOF, b"data: 1\n\n"], "rst"),
    ],
)
def test_a_body_that_breaks_off_is_a_fault(writes: list[bytes], then: str) -> None:
    """FIN before the end, a reset in any framing, a broken chunk: never an end (B24)."""

    async def story() -> None:
        trace = new_trace()
        async with listening(once(*writes, then=then)) as server, to(server.port) as upstream:
            with pytest.raises(UpstreamFault) as caught:
                await ask(upstream, trace=trace)
        assert caught.value.blame is Blame.ABORTED
        assert caught.value.detail
        assert Mark.UPSTREAM_RX_END not in trace.marks

    run(story())


@pytest.mark.parametrize(
    ("writes", "then", "words"),
    [
        ([], "fin", "connection closed before a response head"),
        ([], "rst", "Connection reset by peer"),
        ([b"HTTP/1.1 200 OK\r\nX:"], "fin", "connection closed before a response head"),
        ([b"SSH-2.0-OpenSSH_9\r\n"], "keep", "not an HTTP/1.1 response head"),
        ([b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"], "keep", "lines not ended by CRLF"),
        ([b"HTTP/1.1 2x0 OK\r\n\r\n"], "keep", "not an HTTP/1.1 response head"),
        ([SWITCH], "keep", "101 Switching Protocols was not asked for"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n"], "keep", "not an HTTP/1.1"),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"], "keep", "transfer coding"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"a" * MAX_HEAD], "keep", "response head larger than"),
    ],
)
def test_what_is_no_response_is_a_fault(writes: list[bytes], then: str, words: str) -> None:
    """Nothing, half a head, another protocol, a huge head: at once, without quoting a byte."""

    async def story() -> None:
        async with listening(once(*writes, then=then)) as server, to(server.port) as upstream:
            with pytest.raises(UpstreamFault) as caught:
                await ask(upstream)
        assert caught.value.blame is Blame.UNREACHABLE
        assert words in caught.value.detail

    run(story())


def test_a_large_head_is_read() -> None:
    """120 KB of fields in many reads (B72)."""
    fields = b"".join(b"X-%d: %b\r\n" % (i, b"v" * 100) for i in range(1100))

    async def story() -> None:
        response = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + fields + b"\r\n"
        async with listening(always(response)) as server, to(server.port) as upstream:
            assert len((await ask(upstream)).head.fields) == 1101

    run(story())


def test_a_refused_write_hides_a_reset_and_so_nothing_after_it_is_an_end() -> None:
    """EPIPE consumes the socket's error; the read that follows then looks like a FIN."""

    async def story() -> None:
        connection = Connection(clock)
        connection.connection_made(Wire())  # type: ignore[arg-type] # it acts as one
        connection.begin("POST", new_trace(), None)
        connection.data_received(EOF + b"half")
        connection.write_failed = BrokenPipeError()
        connection.eof_received()
        connection.connection_lost(None)
        with pytest.raises(httpx.RemoteProtocolError):
            await connection.pump(lambda *_: True)

    asyncio.run(story())


# -- whether it is kept


@pytest.mark.parametrize(
    ("response", "kept"),
    [
        (OK, True),
        (CHUNKED + b"0\r\n\r\n", True),
        (OK + b"HTTP/1.1 200 OK\r\n", False),
        (CHUNKED + b"0\r\n\r\n\r\n", False),
        (b"HTTP/1.1 204 No Content\r\n\r\nbody", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_only_a_connection_in_a_known_state_is_kept(response: bytes, kept: bool) -> None:
    """Bytes after the end of a message could be anybody's answer."""

    async def story() -> None:
        async with listening(always(response)) as server, to(server.port) as upstream:
            await ask(upstream)
            assert (await ask(upstream)).facts.reused is kept
        assert server.connections == (1 if kept else 2)

    run(story())


class Threaded:
    """A server that answers one request and, when told, does `then`.

    It lives in a thread: things happen while the event loop is held up.
    """

    def __init__(self, tls: ssl.SSLContext | None, then: str) -> None:
        self._tls = tls
        self._then = then
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._told, self._acted, self._over = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._told.set()
        self._over.set()
        self._thread.join()

    def act(self) -> None:
        """Do it now; returns when it is done."""
        self._told.set()
        assert self._acted.wait(20)

    def _serve(self) -> None:
        raw, _ = self._listener.accept()
        sock = raw if self._tls is None else self._tls.wrap_socket(raw, server_side=True)
        with self._listener, sock:
            while not sock.recv(65536).endswith(b"\r\n\r\n"):
                pass
            sock.sendall(OK)
            self._told.wait(20)
            if self._then == "bytes":
                sock.sendall(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            elif self._then == "fin":
                sock.shutdown(socket.SHUT_WR)
            else:
                linger = b"\x01\0\0\0\0\0\0\0"
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                sock.close()
            self._acted.set()
            self._over.wait(20)


@pytest.mark.parametrize(
    ("secure", "then"),
    [(False, "fin"), (False, "rst"), (False, "bytes"), (True, "fin"), (True, "rst")],
)
def test_an_idle_connection_shows_its_death_before_the_loop_has_seen_it(
    secure: bool, then: str
) -> None:
    """FIN, RST or bytes nobody asked for, arrived a moment ago: the kernel is asked (B38)."""

    async def story() -> None:
        tls = tls_server(trustme.CA().issue_cert("127.0.0.1")) if secure else None
        scheme = "https" if secure else "http"
        with Threaded(tls, then) as server:
            async with to(server.port, scheme=scheme, verify=False) as upstream:
                await ask(upstream)
                (connection,) = upstream.transport._pool._idle  # type: ignore[attr-defined]
                assert connection.usable()
                server.act()  # The loop stands still until it has happened.
                deadline = clock() + 5 * SECOND
                while connection.usable() and clock() < deadline:
                    pass  # Loopback may deliver a moment later.
                assert not connection.usable()

    run(story())


# -- pauses


@contextlib.asynccontextmanager
async def calling(call: Call, sink: Sink) -> AsyncIterator[tuple[Call, "asyncio.Task[None]"]]:
    """A call whose body is being pumped, closed at the end."""
    await call.send("GET", b"/", HOST, Whole(b""))
    pump = asyncio.create_task(call.pump(sink))
    try:
        yield call, pump
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        await call.aclose()


def test_a_sink_that_wants_a_pause_stops_reading() -> None:
    """50 MB are pushed: little is read, the rest waits at upstream; then all of it arrives."""
    total, piece = 50 << 20, b"x" * 65536
    pushed = 0

    async def pushes(peer: Peer) -> None:
        nonlocal pushed
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while pushed < total:
            await peer.send(piece)
            pushed += len(piece)

    async def story() -> None:
        read, open_ = 0, False

        def sink(_wire: bytes, data: bytes, _at: int) -> bool:
            nonlocal read
            read += len(data)
            return open_

        async with listening(pushes) as server, to(server.port) as upstream:
            trace = new_trace()
            async with calling(Call(upstream, trace), sink) as (call, pump):
                before = -1
                while pushed > before or not pushed:  # until upstream is stuck
                    before = pushed
                    await asyncio.sleep(0.1)
                assert read < 8 << 20  # what one turn of the loop can read
                assert pushed < 25 << 20  # and what the buffers of two sockets hold
                paused = call.facts()
                assert paused.first_paused_at is not None
                assert paused.read_paused_ns > 0  # a pause that goes on counts already

                open_ = True
                call.resume()
                await pump
        assert read == total
        facts = call.facts()
        assert facts.read_paused_ns >= paused.read_paused_ns
        assert facts.first_paused_at == paused.first_paused_at
        assert trace.marks[Mark.FIRST_CHUNK] <= paused.first_paused_at

    run(story())


def test_a_pause_that_never_ends_is_known_at_the_end() -> None:
    """The client left while it was not reading."""

    async def story() -> None:
        async with (
            listening(once(LENGTH, b"0", then="keep")) as server,
            to(server.port) as upstream,
            calling(Call(upstream, new_trace()), lambda *_: False) as (call, _),
        ):
            while call.facts().first_paused_at is None:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
        assert call.facts().read_paused_ns >= 40_000_000

    run(story())


# -- the idle limit


def test_after_a_pause_the_idle_limit_begins_anew() -> None:
    """Upstream has had no chance to be heard before."""

    async def story() -> None:
        now = 0
        connection = Connection(lambda: now * SECOND, idle_timeout=1000)
        wire = Wire()
        connection.connection_made(wire)  # type: ignore[arg-type] # it acts as one
        connection.begin("GET", new_trace(), None)
        connection.uploading = False
        connection.data_received(LENGTH)
        connection.pause(now)
        for now, failed in ((5000, False), (5999, False), (6001, True)):
            if now == 5000:
                connection._check_idle()
                connection.resume(now * SECOND)
            connection._check_idle()
            assert wire.aborted is failed
        with pytest.raises(httpx.ReadTimeout):
            await connection.pump(lambda *_: True)

    asyncio.run(story())


async def stalls(peer: Peer) -> None:
    """Takes the request and says nothing."""
    await peer.head()
    await peer.rest()


async def drips(peer: Peer) -> None:
    """A byte now and then, for twice the limit."""
    await peer.head()
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")
    for _ in range(12):
        await asyncio.sleep(0.1)
        await peer.send(b".")


async def takes_slowly(peer: Peer) -> None:
    """Reads the whole body of ten bytes, then answers."""
    await peer.head()
    await peer.exactly(10)
    await peer.send(OK)


async def takes_nothing(peer: Peer) -> None:
    """Never reads on."""
    await peer.head()
    await asyncio.sleep(30)


LIMIT = 0.6


async def limited(
    handle: Callable[[Peer], Awaitable[None]], call: Callable[[Upstream], Awaitable[Any]]
) -> Any:
    """What `call` returns or raises under an idle limit."""
    async with listening(handle) as server, to(server.port, idle_timeout=LIMIT) as upstream:
        try:
            return await call(upstream)
        except UpstreamFault as fault:
            return fault


LONG = 20 << 20


async def pauses(upstream: Upstream) -> int:
    """A client that, after the first piece, does not read for longer than the limit."""
    read, open_ = 0, False

    def sink(_wire: bytes, data: bytes, _at: int) -> bool:
        nonlocal read
        read += len(data)
        return open_

    async with calling(Call(upstream, new_trace()), sink) as (call, pump):
        await asyncio.sleep(2.5 * LIMIT)
        assert 0 < read < LONG
        open_ = True
        call.resume()
        await pump
    return read


def test_the_idle_limit_counts_upstreams_silence_only() -> None:
    """Not the client's slow upload, not our own pause, not a stream that drips (B08, B09)."""
    ten = [(b"Content-Length", b"10")]
    huge = [(b"Content-Length", b"%d" % (64 << 20))]

    async def story() -> None:
        silent, half, greedy, dripped, slow, paused = await asyncio.gather(
            limited(stalls, ask),
            limited(once(LENGTH, b"0", then="keep"), ask),
            limited(
                takes_nothing,
                lambda up: ask(up, "POST", fields=huge, body=Pieces([b"x" * 65536] * 1024)),
            ),
            limited(drips, ask),
            limited(
                takes_slowly,
                lambda up: ask(up, "POST", fields=ten, body=Pieces([b"12345"] * 2, gap_s=0.9)),
            ),
            limited(
                always(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % LONG, b"." * LONG), pauses
            ),
        )
        for fault in (silent, half, greedy):
            assert isinstance(fault, UpstreamFault)
            assert (fault.blame, fault.error) == (Blame.IDLE_TIMEOUT, "ReadTimeout")
            assert fault.detail == f"no byte from upstream for {LIMIT:g} s"
        assert dripped.payload == b"." * 12
        assert slow.payload == b"ok"
        assert paused == LONG

    run(story())
