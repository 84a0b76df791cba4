"""httpcore behind the same interface: HTTP/2, HTTP proxies, SOCKS."""

import asyncio
import gzip
import importlib.util
from typing import Any

import httpx
import pytest
import trustme

from proxy.account import Mark, Phase
from proxy.upstream.client import Blame, Call, UpstreamFault
from proxy.upstream.fallback import ExactUrl, fallback_transport
from tests.support import Handler, Peer, run
from tests.upstream.calls import (
    HOST,
    OK,
    SECOND,
    Pieces,
    Whole,
    always,
    ask,
    clock,
    closed_port,
    listening,
    new_trace,
    tls_server,
    to,
)
from tests.upstream.peers import Http2, HttpProxy, Socks5, Stream

CA = trustme.CA()
TARGET = b"//a/../%2F?q=\"+'"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def secure(handler: Handler, *alpn: str) -> Any:
    """A TLS upstream on 127.0.0.1."""
    return listening(handler, tls=tls_server(CA.issue_cert("127.0.0.1"), alpn=alpn or ["http/1.1"]))


def by_h2(port: int, **options: Any) -> Any:
    """The upstream side, speaking HTTP/2."""
    return to(port, scheme="https", http2=True, verify=False, **options)


def by_proxy(port: int, hop: int, *, scheme: str = "http", way: str = "http", **more: Any) -> Any:
    """The upstream side, through a forward proxy."""
    url = more.pop("url", f"{way}://127.0.0.1:{hop}")
    return to(port, scheme=scheme, forward_proxy=url, verify=False, **more)


# -- unchanged


class Notes:
    """An upstream that keeps what it was sent and answers in the same way every time."""

    def __init__(self, *answer: bytes, body: int = 4) -> None:
        self.answer = answer
        self.body = body
        self.seen: list[bytes] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            self.seen.append(await peer.head() + await peer.exactly(self.body))
            for data in self.answer:
                await peer.send(data)


FIELDS = [(b"x-B", b"\xff"), (b"Content-Length", b"4"), (b"X-a", b"1"), (b"x-B", b"2")]
LINES = b"Host: upstream\r\nx-B: \xff\r\nContent-Length: 4\r\nX-a: 1\r\nx-B: 2\r\n\r\nbody"


@pytest.mark.parametrize("way", ["http", "socks5"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_through_a_proxy_a_request_stays_as_it_is(way: str, scheme: str) -> None:
    """Raw target, fields, body: nothing added; only a plain HTTP proxy is asked with a full URL."""

    async def story() -> None:
        proxy: HttpProxy | Socks5 = HttpProxy() if way == "http" else Socks5()
        notes = Notes(OK)
        server = secure(notes) if scheme == "https" else listening(notes)
        async with (
            server as origin,
            listening(proxy) as hop,
            by_proxy(origin.port, hop.port, scheme=scheme, way=way) as upstream,
        ):
            answer = await ask(upstream, "POST", target=TARGET, fields=FIELDS, body=Whole(b"body"))
        assert answer.payload == b"ok"
        assert notes.seen == [b"POST " + TARGET + b" HTTP/1.1\r\n" + LINES]
        if way == "socks5":
            assert proxy.asked == [b"\x7f\0\0\1"]
        elif scheme == "https":
            host = b"127.0.0.1:%d" % origin.port
            line = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nAccept: */*\r\n\r\n"
            assert proxy.asked == [line % (host, host)]
        else:
            url = b"http://127.0.0.1:%d" % origin.port + TARGET
            assert proxy.asked[0].startswith(b"POST " + url + b" HTTP/1.1\r\nHost: upstream\r\n")

    run(story())


def test_a_response_through_a_proxy_is_raw() -> None:
    """Case, repeats, reason, and a compressed body as it came."""
    body = gzip.compress(b"hello")
    head = (
        b"HTTP/1.1 207 Mixed Bag\r\nX-A: 1\r\nx-a: 2\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )

    async def story() -> None:
        async with (
            listening(Notes(head + body, body=0)) as server,
            listening(HttpProxy()) as hop,
            by_proxy(server.port, hop.port) as upstream,
        ):
            answer = await ask(upstream)
        assert answer.payload == body
        assert (answer.head.status, answer.head.reason) == (207, b"Mixed Bag")
        assert answer.head.fields[:3] == [
            (b"X-A", b"1"),
            (b"x-a", b"2"),
            (b"Content-Encoding", b"gzip"),
        ]

    run(story())


def test_a_body_that_arrives_in_pieces_goes_out_in_pieces() -> None:
    """Chunked stays chunked."""

    async def story() -> None:
        notes = Notes(OK, body=20)
        async with (
            listening(notes) as server,
            listening(HttpProxy()) as hop,
            by_proxy(server.port, hop.port) as upstream,
        ):
            fields = [(b"Transfer-Encoding", b"chunked")]
            body = Pieces([b"abc", b"defg"])
            assert (await ask(upstream, "POST", fields=fields, body=body)).payload == b"ok"
        (request,) = notes.seen
        assert request.endswith(b"\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n")

    run(story())


def test_over_http2_nothing_is_added_either() -> None:
    """Lower-case names, as HTTP/2 wants them; Host is the authority; the body is raw."""
    body = gzip.compress(b"hello")
    seen: list[Any] = []

    async def serve(stream: Stream) -> None:
        seen.append((stream.fields, bytes(stream.body)))
        await stream.head(200, (b"content-encoding", b"gzip"))
        await stream.data(body, end=True)

    async def story() -> None:
        async with secure(Http2(serve), "h2") as server, by_h2(server.port) as upstream:
            answer = await ask(upstream, "POST", target=TARGET, fields=FIELDS, body=Whole(b"body"))
        assert answer.payload == body
        assert answer.head.fields == [(b"content-encoding", b"gzip")]
        assert seen == [
            (
                [
                    (b":method", b"POST"),
                    (b":authority", b"upstream"),
                    (b":scheme", b"https"),
                    (b":path", TARGET),
                    *((name.lower(), value) for name, value in FIELDS),
                ],
                b"body",
            )
        ]

    run(story())


def test_an_exact_url_keeps_its_target() -> None:
    """And only that is its own."""
    url = ExactUrl(httpx.URL("https://api.test:8443"), TARGET)
    assert (url.raw_scheme, url.raw_host, url.port) == (b"https", b"api.test", 8443)
    assert url.raw_path == TARGET


# -- HTTP/2


def test_a_stream_of_events_over_http2_arrives_event_by_event() -> None:
    """Each is stamped when it comes, not at the end."""
    seen: list[bytes] = []

    async def serve(stream: Stream) -> None:
        await stream.head(200, (b"content-type", b"text/event-stream"))
        for number in range(5):
            await stream.data(b"data: %d\n\n" % number)
            while len(seen) <= number:  # the next one is sent when this one has been seen
                await asyncio.sleep(0.002)
        await stream.data(b"", end=True)

    async def story() -> None:
        def sink(_wire: bytes, payload: bytes, _at: int) -> bool:
            seen.append(payload)
            return True

        async with secure(Http2(serve), "h2") as server, by_h2(server.port) as upstream:
            trace = new_trace()
            call = Call(upstream, trace)
            await call.send("GET", b"/", HOST, Whole(b""))
            await call.pump(sink)
            await call.aclose()
        assert seen == [b"data: %d\n\n" % number for number in range(5)]
        assert trace.marks[Mark.FIRST_CHUNK] < trace.marks[Mark.UPSTREAM_RX_END]
        assert call.facts().http_version == "2"

    run(story())


def test_one_reset_stream_does_not_hurt_the_others() -> None:
    """Ten streams of one connection, one of them reset: nine arrive whole (B67)."""

    async def serve(stream: Stream) -> None:
        await stream.head(200)
        for _ in range(5):
            await stream.data(b"data: x\n\n")
            await asyncio.sleep(0.01)
            if stream.path == b"/3":
                await stream.reset()
                return
        await stream.data(b"", end=True)

    async def story() -> None:
        async with secure(Http2(serve), "h2") as server, by_h2(server.port) as upstream:
            await ask(upstream)  # the settings are known, all others go side by side
            ends = await asyncio.gather(
                *(ask(upstream, target=b"/%d" % number) for number in range(10)),
                return_exceptions=True,
            )
            assert server.connections == 1
        fault = ends.pop(3)
        assert isinstance(fault, UpstreamFault)
        assert (fault.blame, fault.error) == (Blame.ABORTED, "StreamReset")
        assert fault.detail == "upstream reset this stream"
        for end in ends:
            assert not isinstance(end, BaseException)
            assert end.payload == b"data: x\n\n" * 5

    run(story())


def test_a_connection_that_upstream_ends_is_a_fault_and_the_next_call_opens_another() -> None:
    """GOAWAY and FIN in the middle of a stream."""
    calls = 0

    async def serve(stream: Stream) -> None:
        nonlocal calls
        calls += 1
        await stream.head(200)
        await stream.data(b"x", end=calls > 1)
        if calls == 1:
            stream.server.state.close_connection(additional_data=b"sk-secret")
            await stream.server.flush()
            stream.server.peer.close()

    async def story() -> None:
        async with secure(Http2(serve), "h2") as server, by_h2(server.port) as upstream:
            with pytest.raises(UpstreamFault) as caught:
                await ask(upstream)
            assert caught.value.blame is Blame.ABORTED
            assert caught.value.detail
            assert "sk-secret" not in str(caught.value)
            assert (await ask(upstream)).payload == b"x"
            assert server.connections == 2

    run(story())


def test_a_server_that_allows_one_stream_gets_one_after_the_other() -> None:
    """The others wait; none fails."""
    running = most = 0

    async def serve(stream: Stream) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        await stream.head(200)
        await stream.data(b"x", end=True)

    async def story() -> None:
        server_side = Http2(serve, max_streams=1)
        async with secure(server_side, "h2") as server, by_h2(server.port) as upstream:
            await ask(upstream)
            answers = await asyncio.gather(*(ask(upstream) for _ in range(6)))
        assert [answer.payload for answer in answers] == [b"x"] * 6
        assert most == 1

    run(story())


# -- pauses


@pytest.mark.parametrize("way", ["proxy", "h2"])
def test_a_stalled_client_pauses_reading_here_too(way: str) -> None:
    """Upstream pushes 50 MB: little is taken until the client takes more."""
    total, piece = 50 << 20, b"x" * 65536
    pushed = 0

    async def pushes(peer: Peer) -> None:
        nonlocal pushed
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while pushed < total:
            await peer.send(piece)
            pushed += len(piece)

    async def serve(stream: Stream) -> None:
        nonlocal pushed
        await stream.head(200)
        while pushed < total:
            await stream.data(piece)
            pushed += len(piece)
        await stream.data(b"", end=True)

    async def story() -> None:
        read, open_ = 0, False

        def sink(_wire: bytes, data: bytes, _at: int) -> bool:
            nonlocal read
            read += len(data)
            return open_

        server = secure(Http2(serve), "h2") if way == "h2" else listening(pushes)
        async with server as origin, listening(HttpProxy()) as hop:
            by_way = by_h2(origin.port) if way == "h2" else by_proxy(origin.port, hop.port)
            async with by_way as upstream:
                call = Call(upstream, new_trace())
                await call.send("GET", b"/", HOST, Whole(b""))
                pump = asyncio.create_task(call.pump(sink))
                try:
                    before = -1
                    while pushed > before or not pushed:  # until upstream is stuck
                        before = pushed
                        await asyncio.sleep(0.1)
                    assert 0 < read <= 1 << 20
                    assert pushed < 40 << 20
                    paused = call.facts()
                    assert paused.first_paused_at is not None
                    assert paused.read_paused_ns > 0
                    call.resume()  # one piece, and the sink wants a pause again
                    await asyncio.sleep(0.02)
                    assert read < 2 << 20
                    open_ = True
                    call.resume()
                    await pump
                finally:
                    pump.cancel()
                    await asyncio.gather(pump, return_exceptions=True)
                    await call.aclose()
        assert read == total
        facts = call.facts()
        assert facts.first_paused_at == paused.first_paused_at
        assert facts.read_paused_ns >= paused.read_paused_ns

    run(story())


# -- faults


async def fails(upstream: Any) -> tuple[UpstreamFault, Phase]:
    """The fault of a call, and the phase in which it ended."""
    trace = new_trace()
    with pytest.raises(UpstreamFault) as caught:
        await ask(upstream, trace=trace)
    return caught.value, trace.phase


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("way", ["http", "socks5"])
def test_a_dead_proxy_is_blamed_and_not_upstream(way: str, scheme: str) -> None:
    """In words and by class; its credentials are never shown (B17, B18)."""

    async def story() -> None:
        port = closed_port()
        url = f"{way}://me:sk-secret@127.0.0.1:{port}"
        async with by_proxy(443, port, scheme=scheme, url=url) as upstream:
            fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.TCP)
        assert fault.error == "ProxyError(ConnectionRefusedError)"
        assert fault.detail == "proxy connect failed: Connection refused"

    run(story())


async def silent(peer: Peer) -> None:
    """A proxy that takes everything and says nothing."""
    await peer.rest()


@pytest.mark.parametrize("way", ["http", "socks5"])
def test_a_proxy_that_says_nothing_ends_with_the_connect_limit(way: str) -> None:
    """All of connecting is limited: a tunnel that never stands is no connection."""

    async def story() -> None:
        async with listening(silent) as hop:
            limit: dict[str, Any] = {"connect_timeout": 0.2}
            async with by_proxy(443, hop.port, scheme="https", way=way, **limit) as upstream:
                started = clock()
                fault, phase = await fails(upstream)
        assert clock() - started < 10 * SECOND
        assert (fault.blame, phase) == (Blame.CONNECT_TIMEOUT, Phase.TCP)
        assert fault.detail == "proxy connect failed: not connected within the limit"

    run(story())


def test_a_slow_answer_is_not_a_slow_connect() -> None:
    """The connect limit ends when the request is on its way."""

    async def slow(peer: Peer) -> None:
        await peer.head()
        await asyncio.sleep(0.5)
        await peer.send(OK)

    async def story() -> None:
        async with (
            listening(slow) as server,
            listening(HttpProxy()) as hop,
            by_proxy(server.port, hop.port, connect_timeout=0.2) as upstream,
        ):
            assert (await ask(upstream)).payload == b"ok"

    run(story())


@pytest.mark.parametrize(
    ("proxy", "way", "words"),
    [
        (HttpProxy(answer=b"HTTP/1.1 403 No, sk-secret\r\n\r\n"), "http", "refused"),
        (HttpProxy(credentials=b"me:other"), "http", "wants credentials"),
        (Socks5(reply=5), "socks5", "refused"),
        (Socks5(credentials=(b"me", b"other")), "socks5", "refused"),
    ],
)
def test_a_proxy_that_refuses_is_told(proxy: Handler, way: str, words: str) -> None:
    """By status or by SOCKS reply; what it said and what we sent are not quoted."""

    async def story() -> None:
        async with listening(proxy) as hop:
            url = f"{way}://me:sk-secret@127.0.0.1:{hop.port}"
            async with by_proxy(443, hop.port, scheme="https", url=url) as upstream:
                fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.TCP)
        assert fault.error == "ProxyError"
        assert fault.detail == f"proxy connect failed: the forward proxy {words}"

    run(story())


@pytest.mark.parametrize("way", ["http", "socks5"])
def test_credentials_in_the_proxys_url_are_used(way: str) -> None:
    """They go to the proxy and to nobody else."""

    async def story() -> None:
        proxy: Handler = (
            HttpProxy(credentials=b"me:sk-secret")
            if way == "http"
            else Socks5(credentials=(b"me", b"sk-secret"))
        )
        notes = Notes(OK, body=0)
        async with secure(notes) as server, listening(proxy) as hop:
            url = f"{way}://me:sk-secret@127.0.0.1:{hop.port}"
            async with by_proxy(server.port, hop.port, scheme="https", url=url) as upstream:
                assert (await ask(upstream)).payload == b"ok"
        assert b"Proxy-Authorization" not in notes.seen[0]

    run(story())


@pytest.mark.parametrize("way", ["http", "socks5"])
def test_a_certificate_behind_a_proxy_is_upstreams(way: str) -> None:
    """The tunnel stands; TLS fails: phase TLS, no head was seen, upstream's certificate."""

    async def story() -> None:
        proxy: Handler = HttpProxy() if way == "http" else Socks5()
        async with secure(always(OK)) as server, listening(proxy) as hop:
            url = f"{way}://127.0.0.1:{hop.port}"
            async with to(server.port, scheme="https", forward_proxy=url) as upstream:
                fault, phase = await fails(upstream)
        assert (fault.blame, phase) == (Blame.UNREACHABLE, Phase.TLS)
        assert fault.error == "ConnectError(SSLCertVerificationError)"
        assert fault.detail.startswith("certificate not trusted: ")

    run(story())


@pytest.mark.parametrize(
    ("answer", "blame"),
    [
        (b"sk-secret\r\n\r\n", Blame.UNREACHABLE),
        (b"", Blame.UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nsk-secret", Blame.ABORTED),
        (CHUNKED + b"3\r\nabc\r\n", Blame.ABORTED),
        (CHUNKED + b"sk-secret\r\n", Blame.ABORTED),
    ],
)
def test_a_broken_response_through_a_proxy_is_upstreams_and_is_not_quoted(
    answer: bytes, blame: Blame
) -> None:
    """No head, or a body that breaks off."""

    async def breaks(peer: Peer) -> None:
        await peer.head()
        await peer.send(answer)

    async def story() -> None:
        async with (
            listening(breaks) as server,
            listening(HttpProxy()) as hop,
            by_proxy(server.port, hop.port) as upstream,
        ):
            fault, _ = await fails(upstream)
        assert fault.blame is blame
        assert fault.detail == "the connection broke, or what came is not HTTP"

    run(story())


def test_the_idle_limit_holds_here_too() -> None:
    """No byte from upstream for that long; waiting for a place does not count."""

    async def story() -> None:
        async with listening(silent) as server, listening(HttpProxy()) as hop:
            options: dict[str, Any] = {"idle_timeout": 0.3, "pool_limit": 1}
            async with by_proxy(server.port, hop.port, **options) as upstream:
                traces = [new_trace(), new_trace()]
                ends = await asyncio.gather(
                    *(ask(upstream, trace=trace) for trace in traces), return_exceptions=True
                )
        for end in ends:
            assert isinstance(end, UpstreamFault)
            assert (end.blame, end.error) == (Blame.IDLE_TIMEOUT, "ReadTimeout")
            assert end.detail == "no byte from upstream within the limit"
        ready = [trace.marks[Mark.POOL_READY] - trace.start for trace in traces]
        assert ready[1] > 0.25 * SECOND > ready[0]

    run(story())


def test_a_cancelled_call_closes_its_connection() -> None:
    """Through a proxy, in the body; upstream sees it."""

    async def story() -> None:
        ended = asyncio.Event()

        async def handle(peer: Peer) -> None:
            await peer.head()
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1")
            await peer.rest()
            ended.set()

        async with (
            listening(handle) as server,
            listening(HttpProxy()) as hop,
            by_proxy(server.port, hop.port) as upstream,
        ):
            call = asyncio.create_task(ask(upstream))
            await asyncio.sleep(0.1)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await asyncio.wait_for(ended.wait(), 5)

    run(story())


# -- extras


@pytest.mark.parametrize(
    ("options", "extra"),
    [
        ({"http2": True, "forward_proxy": None}, "ttft-proxy[http2]"),
        ({"http2": False, "forward_proxy": "socks5://127.0.0.1:1"}, "ttft-proxy[socks]"),
    ],
)
def test_a_missing_extra_is_told_at_the_start(
    options: dict[str, Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which one to install, before any request."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ImportError) as caught:
        fallback_transport(tls=None, pool_limit=1, keepalive_s=1, **options)
    assert extra in str(caught.value)
