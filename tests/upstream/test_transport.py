"""The transport over real sockets: reuse, staleness, the pool's limit, early replies."""

import asyncio
import random
import socket
import ssl
from collections import Counter
from collections.abc import Callable

import httpx
import pytest
import trustme

from proxy.account import Mark, Phase
from proxy.upstream.client import Blame, Call, Upstream, UpstreamFault
from proxy.upstream.connection import Connection
from proxy.upstream.transport import RequestBody, Watch, WireTransport
from tests.support import Peer, run
from tests.upstream.calls import (
    HOST,
    OK,
    Answer,
    Pieces,
    Whole,
    always,
    ask,
    black_hole,
    clock,
    listening,
    new_trace,
    resolve_to,
    tls_server,
    to,
)


def pool_of(upstream: Upstream) -> str:
    """The state of the pool, in words."""
    assert isinstance(upstream.transport, WireTransport)
    return repr(upstream.transport._pool)


# -- what is sent


def test_a_request_goes_out_as_it_stands() -> None:
    """Raw target, field case and order and bytes, a stated length: nothing is added."""
    fields = [(b"x-B", b"\xff"), (b"Content-Length", b"4"), (b"X-a", b"1"), (b"x-B", b"2")]
    seen: list[bytes] = []

    async def handle(peer: Peer) -> None:
        seen.append(await peer.head() + await peer.exactly(4))
        await peer.send(OK)

    async def story() -> None:
        async with listening(handle) as server, to(server.port) as upstream:
            target = b"//a/../%2F?q=\"+'"
            await ask(upstream, "PATCH", target=target, fields=fields, body=Whole(b"body"))
        assert seen == [
            (
                b"PATCH //a/../%2F?q=\"+' HTTP/1.1\r\nHost: upstream\r\nx-B: \xff\r\n"
                b"Content-Length: 4\r\nX-a: 1\r\nx-B: 2\r\n\r\nbody"
            )
        ]

    run(story())


def test_a_chunked_request_goes_out_in_chunks_as_its_pieces_arrive() -> None:
    """The first piece is upstream before the second exists; trailers end it."""

    async def handle(peer: Peer) -> None:
        await peer.head()
        assert await peer.exactly(8) == b"3\r\nabc\r\n"
        second.set()
        assert await peer.until(b"\r\n\r\n") == b"2\r\nde\r\n0\r\nX-Sum: 5\r\n\r\n"
        await peer.send(OK)

    second = asyncio.Event()

    class Body(RequestBody):
        def ready(self) -> bytes | None:
            return None

        async def __aiter__(self):  # type: ignore[no-untyped-def] # an async generator
            yield b"abc"
            await second.wait()
            yield b"de"

        @property
        def trailers(self) -> list[tuple[bytes, bytes]]:
            return [(b"X-Sum", b"5")]

    async def story() -> None:
        async with listening(handle) as server, to(server.port) as upstream:
            chunked = [(b"Transfer-Encoding", b"chunked")]
            answer = await ask(upstream, "POST", fields=chunked, body=Body())
        assert answer.payload == b"ok"

    run(story())


def test_sent_is_told_once_when_the_last_byte_is_in_the_kernels_hands() -> None:
    """With a body that is here already and with one that arrives."""

    async def story() -> None:
        async def handle(peer: Peer) -> None:
            for _ in range(2):
                await peer.head()
                await peer.exactly(4)
                await peer.send(OK)

        async with listening(handle) as server, to(server.port) as upstream:
            length = [(b"Content-Length", b"4")]
            for body in (Whole(b"body"), Pieces([b"bo", b"dy"])):
                told: list[int] = []
                answer = await ask(
                    upstream,
                    "POST",
                    fields=length,
                    body=body,
                    sent=lambda told=told: told.append(1),  # type: ignore[misc]
                )
                assert told == [1]
                marks = answer.trace.marks
                assert marks[Mark.UPSTREAM_TX_START] <= marks[Mark.UPSTREAM_TX_END]

    run(story())


# -- reuse


@pytest.mark.parametrize("secure", [False, True])
def test_a_connection_is_reused_with_its_handshakes_done_once(secure: bool) -> None:
    """Twenty requests in turn, one connection (B41); its facts stay the same."""

    async def story() -> None:
        tls = tls_server(trustme.CA().issue_cert("127.0.0.1")) if secure else None
        scheme = "https" if secure else "http"
        async with (
            listening(always(OK), tls=tls) as server,
            to(server.port, scheme=scheme, verify=False) as upstream,
        ):
            answers = [await ask(upstream) for _ in range(20)]
        assert server.connections == 1
        first, *others = (answer.facts for answer in answers)
        assert (first.reused, first.idle_ns, first.kernel_before) == (False, None, None)
        for facts in others:
            assert facts.reused
            assert facts.idle_ns is not None
            assert facts.idle_ns >= 0
            assert (facts.local_port, facts.address) == (first.local_port, first.address)
        assert first.address == f"127.0.0.1:{server.port}"
        assert first.family == "ipv4"
        assert first.http_version == "1.1"

    run(story())


def test_idle_connections_expire() -> None:
    """After `keepalive_s` a connection is closed, not used."""

    async def story() -> None:
        async with listening(always(OK)) as server, to(server.port, keepalive_s=0.05) as upstream:
            await ask(upstream)
            await asyncio.sleep(0.1)
            assert (await ask(upstream)).facts.reused is False

    run(story())


def test_after_aclose_nothing_is_kept() -> None:
    """A call that ends after the pool was closed closes its connection itself."""

    async def story() -> None:
        ends: list[str] = []

        async def handle(peer: Peer) -> None:
            await peer.head()
            await peer.send(OK)
            ends.append((await peer.rest())[1])

        async with listening(handle) as server, to(server.port) as upstream:
            call = Call(upstream, new_trace())
            await call.send("GET", b"/", HOST, Whole(b""))
            await call.pump(lambda *_: True)
            await upstream.aclose()
            await call.aclose()
            assert pool_of(upstream) == "<Pool 0 busy, 0 idle, 0 waiting>"
            while not ends:
                await asyncio.sleep(0.005)

    run(story())


# -- stale connections


def closes_idle(after_s: float, how: str, seen: Counter[bytes]) -> Callable[[Peer], object]:
    """Answers POSTs of six bytes; closes a connection that was idle for `after_s`."""

    async def handle(peer: Peer) -> None:
        while True:
            try:
                async with asyncio.timeout(after_s):
                    await peer.reader.readuntil(b"\r\n\r\n")
            except TimeoutError:
                if how == "rst":
                    peer.reset()
                return
            seen[await peer.exactly(6)] += 1
            await peer.send(OK)

    return handle


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_around_the_closing_instant_no_post_is_sent_twice(how: str) -> None:
    """Many times: it succeeds, on a fresh connection if need be, or it is a fault (B38)."""

    async def story() -> None:
        seen: Counter[bytes] = Counter()
        succeeded: set[bytes] = set()
        handler = closes_idle(0.01, how, seen)
        async with (
            listening(handler) as server,  # type: ignore[arg-type]
            to(server.port) as upstream,
        ):
            for number in range(120):
                body = b"%06d" % number
                (end,) = await asyncio.gather(
                    ask(upstream, "POST", body=body), return_exceptions=True
                )
                if isinstance(end, Answer):
                    assert end.payload == b"ok"
                    succeeded.add(body)
                else:
                    assert isinstance(end, UpstreamFault)
                    assert end.blame is Blame.UNREACHABLE
                await asyncio.sleep(random.uniform(0.008, 0.012))
            assert pool_of(upstream).startswith("<Pool 0 busy, ")
        assert max(seen.values()) == 1
        assert succeeded <= set(seen)
        assert len(succeeded) > 60
        assert server.connections > 1

    run(story())


@pytest.mark.parametrize(
    ("how", "replaced"),
    [("rst", True), ("fin", False)],
)
def test_only_a_refused_first_byte_is_replaced(
    how: str, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset socket refuses the write: nobody can have seen it. A half-closed one takes it."""

    async def story() -> None:
        seen: Counter[bytes] = Counter()
        handler = closes_idle(0.01, how, seen)
        async with (
            listening(handler) as server,  # type: ignore[arg-type]
            to(server.port) as upstream,
        ):
            await ask(upstream, "POST", body=b"number")
            transport = upstream.transport
            assert isinstance(transport, WireTransport)
            (idle,) = transport._pool._idle
            # Our side sees neither the end nor the reset: only the kernel does.
            idle._transport.pause_reading()
            monkeypatch.setattr(Connection, "usable", lambda _: True)
            await asyncio.sleep(0.1)
            if replaced:
                answer = await ask(upstream, "POST", body=b"second")
                assert answer.facts.reused is False
                assert server.connections == 2
            else:
                call = asyncio.create_task(ask(upstream, "POST", body=b"second"))
                await asyncio.sleep(0.05)
                if not idle._lost:
                    idle._transport.resume_reading()
                with pytest.raises(UpstreamFault) as caught:
                    await call
                assert caught.value.blame is Blame.UNREACHABLE
                assert server.connections == 1
        assert seen[b"second"] == (1 if replaced else 0)

    run(story())


def test_a_connection_that_dies_on_its_way_to_a_waiter_is_not_used() -> None:
    """It was given back alive, and closed before the waiter's turn came."""

    async def story() -> None:
        async with listening(always(OK)) as server, to(server.port, pool_limit=1) as upstream:
            call = Call(upstream, new_trace())
            await call.send("GET", b"/", HOST, Whole(b""))
            await call.pump(lambda *_: True)
            waiter = asyncio.create_task(ask(upstream))
            await asyncio.sleep(0.01)
            assert call._stream is not None
            connection = call._stream.connection
            await call.aclose()  # the waiter has it now, and has not run yet
            connection.close()
            assert (await waiter).facts.reused is False
        assert server.connections == 2

    run(story())


# -- the pool's limit


class Gate:
    """An upstream that answers when the gate is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.head()
            self.waiting += 1
            await self.open.wait()
            await peer.send(OK)


def test_many_streams_at_once_do_not_wait_for_a_place() -> None:
    """150 requests are with upstream at the same time (B42)."""

    async def story() -> None:
        gate = Gate()
        async with listening(gate) as server, to(server.port) as upstream:
            calls = [asyncio.create_task(ask(upstream)) for _ in range(150)]
            while gate.waiting < 150:
                await asyncio.sleep(0.005)
            gate.open.set()
            await asyncio.gather(*calls)
        assert server.connections == 150

    run(story())


def test_the_wait_for_a_place_is_measured_and_is_nobody_elses_time() -> None:
    """Two places, six requests: the others wait, in phase pool, in the order they came."""

    async def story() -> None:
        gate = Gate()
        traces = [new_trace() for _ in range(6)]
        done: list[int] = []

        async def one(number: int) -> None:
            await ask(upstream, trace=traces[number])
            done.append(number)

        async with listening(gate) as server, to(server.port, pool_limit=2) as upstream:
            calls = [asyncio.create_task(one(number)) for number in range(6)]
            while gate.waiting < 2:
                await asyncio.sleep(0.005)
            assert [trace.phase for trace in traces[2:]] == [Phase.POOL] * 4
            assert pool_of(upstream) == "<Pool 2 busy, 0 idle, 4 waiting>"
            opened = clock()
            gate.open.set()
            await asyncio.gather(*calls)
            assert pool_of(upstream) == "<Pool 0 busy, 2 idle, 0 waiting>"
        ready = [trace.marks[Mark.POOL_READY] for trace in traces]
        assert max(ready[:2]) < opened <= min(ready[2:])
        assert ready == sorted(ready)
        assert server.connections == 2

    run(story())


def test_two_hundred_cancelled_requests_leak_no_place() -> None:
    """Cancelled while connecting or while waiting for a place, some twice; then one works."""

    async def story() -> None:
        async with listening(always(OK)) as server:
            with black_hole() as hole:
                resolve_to(("127.0.0.1", hole))
                async with to(1, host="api.test", pool_limit=50) as upstream:
                    calls = [asyncio.create_task(ask(upstream)) for _ in range(200)]
                    await asyncio.sleep(0.1)
                    assert pool_of(upstream) == "<Pool 50 busy, 0 idle, 150 waiting>"
                    for number, call in enumerate(calls):
                        call.cancel()
                        if number % 3 == 0:
                            call.cancel()
                        if number % 7 == 0:
                            await asyncio.sleep(0)
                    ends = await asyncio.gather(*calls, return_exceptions=True)
                    assert all(isinstance(end, asyncio.CancelledError) for end in ends)
                    assert pool_of(upstream) == "<Pool 0 busy, 0 idle, 0 waiting>"

                    resolve_to(("127.0.0.1", server.port))
                    assert (await ask(upstream)).payload == b"ok"

    run(story())


def test_a_failed_connect_gives_its_place_to_the_next() -> None:
    """One place, ten requests to a port where nobody listens."""

    async def story() -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            async with to(port, pool_limit=1) as upstream:
                ends = await asyncio.gather(
                    *(ask(upstream) for _ in range(10)), return_exceptions=True
                )
                assert pool_of(upstream) == "<Pool 0 busy, 0 idle, 0 waiting>"
        assert [type(end) for end in ends] == [UpstreamFault] * 10

    run(story())


@pytest.mark.parametrize("when", ["head", "body"])
def test_a_cancelled_call_closes_its_connection(when: str) -> None:
    """Upstream sees it, before the head and in the body; the place is free again."""

    async def story() -> None:
        ends: list[str] = []

        async def handle(peer: Peer) -> None:
            await peer.head()
            if when == "body":
                await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1")
            ends.append((await peer.rest())[1])

        async with listening(handle) as server, to(server.port) as upstream:
            call = asyncio.create_task(ask(upstream))
            await asyncio.sleep(0.05)
            call.cancel()
            while not ends:
                await asyncio.sleep(0.005)
            assert pool_of(upstream) == "<Pool 0 busy, 0 idle, 0 waiting>"

    run(story())


@pytest.mark.parametrize("secure", [False, True])
def test_an_upload_that_nobody_reads_is_ended_by_a_reset(secure: bool) -> None:
    """A FIN would wait behind megabytes; the reset arrives at once, also under TLS."""

    async def story() -> None:
        ended = asyncio.Event()

        async def handle(peer: Peer) -> None:
            await peer.reader.readuntil(b"\r\n\r\n")
            peer.writer.transport.pause_reading()  # type: ignore[attr-defined] # it can
            await cancelled.wait()
            peer.writer.transport.resume_reading()  # type: ignore[attr-defined] # it can
            if (await peer.rest())[1] == "rst":
                ended.set()

        cancelled = asyncio.Event()
        tls = tls_server(trustme.CA().issue_cert("127.0.0.1")) if secure else None
        scheme = "https" if secure else "http"
        async with (
            listening(handle, tls=tls) as server,
            to(server.port, scheme=scheme, verify=False) as upstream,
        ):
            length = [(b"Content-Length", b"%d" % (64 << 20))]
            body = Pieces([b"x" * 65536] * 1024)
            call = asyncio.create_task(ask(upstream, "POST", fields=length, body=body))
            taken = -1
            while body.taken > taken or not body.taken:  # until the buffers are full
                taken = body.taken
                await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            cancelled.set()
            await asyncio.wait_for(ended.wait(), 5)

    run(story())


# -- early replies

REFUSAL = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 8\r\n\r\ntoo big!"
FIVE_MB = 5 << 20


def refuses(then: str) -> Callable[[Peer], object]:
    """Takes the head, refuses, and keeps reading, closes or resets with the body unread."""

    async def handle(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(REFUSAL)
        if then == "read":
            await peer.rest()
        elif then == "rst":
            peer.reset()

    return handle


async def upload(upstream: Upstream) -> Answer:
    """Five megabytes, in pieces."""
    length = [(b"Content-Length", b"%d" % FIVE_MB)]
    body = Pieces([b"x" * 65536] * (FIVE_MB // 65536))
    return await ask(upstream, "POST", fields=length, body=body)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("then", ["read", "close"])
def test_an_early_refusal_reaches_the_caller(then: str, secure: bool) -> None:
    """413 while the body is still being sent: always, also when upstream then closes."""

    async def story() -> None:
        tls: ssl.SSLContext | None = None
        if secure:
            tls = tls_server(trustme.CA().issue_cert("127.0.0.1"))
        scheme = "https" if secure else "http"
        async with (
            listening(refuses(then), tls=tls) as server,  # type: ignore[arg-type]
            to(server.port, scheme=scheme, verify=False) as upstream,
        ):
            for _ in range(25):
                answer = await upload(upstream)
                assert (answer.head.status, answer.payload) == (413, b"too big!")
                assert pool_of(upstream) == "<Pool 0 busy, 0 idle, 0 waiting>"

    run(story())


def test_a_refusal_followed_by_a_reset_is_had_or_is_a_fault() -> None:
    """Never a hang. What the kernel delivered before the reset is read (on Linux: all of it)."""

    async def story() -> None:
        async with (
            listening(refuses("rst")) as server,  # type: ignore[arg-type]
            to(server.port) as upstream,
        ):
            for _ in range(25):
                (end,) = await asyncio.gather(
                    asyncio.wait_for(upload(upstream), 10), return_exceptions=True
                )
                if isinstance(end, Answer):
                    assert (end.head.status, end.payload) == (413, b"too big!")
                else:
                    assert isinstance(end, UpstreamFault)
                    assert end.blame in (Blame.UNREACHABLE, Blame.ABORTED)
            assert pool_of(upstream) == "<Pool 0 busy, 0 idle, 0 waiting>"

    run(story())


def test_an_early_answer_does_not_wait_for_a_slow_client() -> None:
    """Upstream answers after the first piece; the second never comes."""

    class Stuck(Pieces):
        async def __aiter__(self):  # type: ignore[no-untyped-def] # an async generator
            yield b"first"
            await asyncio.sleep(60)

    async def story() -> None:
        async with (
            listening(refuses("read")) as server,  # type: ignore[arg-type]
            to(server.port) as upstream,
        ):
            length = [(b"Content-Length", b"10")]
            answer = await ask(upstream, "POST", fields=length, body=Stuck([]))
        assert answer.head.status == 413
        assert Mark.UPSTREAM_TX_END not in answer.trace.marks

    run(story())


# -- httpx's seam


def test_the_body_can_be_iterated_as_httpx_does() -> None:
    """The transport is an `httpx.AsyncBaseTransport` like any other."""

    async def story() -> None:
        chunked = b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = b"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n"
        async with listening(always(chunked, body)) as server, to(server.port) as upstream:
            request = httpx.Request(
                "GET",
                upstream.url,
                headers=HOST,
                stream=RequestBody(),
                extensions={"target": b"/", "watch": Watch(new_trace())},
            )
            response = await upstream.transport.handle_async_request(request)
            assert await response.aread() == b"abcdef"
            await response.aclose()
            assert response.extensions["reason_phrase"] == b"Fine"
            assert pool_of(upstream) == "<Pool 0 busy, 1 idle, 0 waiting>"

    run(story())
