"""Every ending is one record: who ended it, in which phase, how. Over real sockets."""

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.record import Record
from tests.support import Peer, Proxied, proxied, run, upstream

BODY = b'{"model":"m-1","stream":true,"messages":[]}'
POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: me\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(data: bytes) -> bytes:
    """One SSE event in one chunk."""
    text = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(text), text)


ROLE = event(b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}')
TOKEN = event(b'{"choices":[{"index":0,"delta":{"content":"Hi"}}]}')
STOP = event(b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
DONE = event(b"[DONE]")
END = b"0\r\n\r\n"
ERROR = b'{"error":{"type":"rate_limit_error","message":"slow down"}}'

Upstream = Callable[[Peer], Awaitable[None]]
Client = Callable[[Proxied], Awaitable[None]]


async def request(peer: Peer) -> None:
    """Take the usual request."""
    await peer.head()
    await peer.exactly(len(BODY))


def answers(*writes: bytes, then: str = "keep") -> Upstream:
    """Take the request, write, then keep the connection, close it, reset it or hang."""

    async def handle(peer: Peer) -> None:
        while True:
            await request(peer)
            for data in writes:
                await peer.send(data)
                await asyncio.sleep(0.01)
            if then == "fin":
                return
            if then == "rst":
                peer.reset()
                return
            if then == "hang":
                await peer.rest()
                return

    return handle


async def reads_all(proxy: Proxied) -> None:
    """A client that sends the usual request and reads until the end of the answer."""
    client = await proxy.connect()
    await client.send(POST.replace(b"Host: me", b"Host: me\r\nConnection: close"))
    await client.rest()
    client.close()


def leaves_after(mark: bytes | None, how: str = "fin", sent: bytes = POST) -> Client:
    """A client that sends `sent`, reads until `mark` (None: waits a little), and leaves."""

    async def client(proxy: Proxied) -> None:
        peer = await proxy.connect()
        await peer.send(sent)
        if mark is None:
            await asyncio.sleep(0.05)
        else:
            await peer.until(mark)
        if how == "rst":
            peer.reset()
        else:
            peer.close()

    return client


def says(data: bytes) -> Client:
    """A client that writes raw bytes and reads what comes back."""

    async def client(proxy: Proxied) -> None:
        await proxy.ask(data)

    return client


async def never(_peer: Peer) -> None:
    """An upstream that must not be asked."""
    raise AssertionError("the request must not reach upstream")


@dataclass
class Case:
    """One ending."""

    name: str
    client: Client
    upstream: Upstream | str
    """What upstream does; or a URL that nobody answers."""
    outcome: str
    by: str
    phase: str
    status: int | None
    flags: dict[str, str | bool] = field(default_factory=dict)
    closes_upstream: bool = False


async def stalled_upload(peer: Peer) -> None:
    """Read the head and nothing more, until the other side is gone."""
    await peer.head()
    transport: Any = peer.writer.transport
    transport.pause_reading()
    poll = select.poll()
    poll.register(peer.writer.get_extra_info("socket").fileno(), select.POLLRDHUP)
    while not poll.poll(0):
        await asyncio.sleep(0.01)


async def refuses_early(peer: Peer) -> None:
    """Answer 413 after the head, without reading the body."""
    await peer.head()
    await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
    await peer.rest()


async def closes_at_once(peer: Peer) -> None:
    """Take the request and close without a word."""
    await request(peer)


async def leaves_with_a_full_upload(proxy: Proxied) -> None:
    """Upload until the proxy stops reading, then vanish: reading is paused at that moment."""
    sock = socket.create_connection(("127.0.0.1", proxy.port))
    sock.setblocking(False)
    sock.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: me\r\nContent-Length: 99999999\r\n\r\n")
    loop = asyncio.get_running_loop()
    chunk = b"x" * 65536
    try:
        async with asyncio.timeout(0.5):
            while True:
                await loop.sock_sendall(sock, chunk)
    except TimeoutError:
        pass
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    sock.close()


def unused_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


UPLOAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: me\r\nContent-Length: 100000\r\n\r\nabc"
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

CASES = [
    Case("complete stream", reads_all, answers(SSE, ROLE, TOKEN, STOP, DONE, END),
         "ok", "upstream", "done", 200),
    Case("complete document", reads_all, answers(WHOLE), "ok", "upstream", "done", 200),
    Case("client closes after the terminal event",
         leaves_after(b"[DONE]"), answers(SSE, TOKEN, DONE, b"", b"", b"", b"", END),
         "ok", "client", "done", 200),
    Case("client resets after the terminal event, upstream never ends",
         leaves_after(b"[DONE]", "rst"), answers(SSE, TOKEN, DONE, then="hang"),
         "ok", "client", "stream", 200, closes_upstream=True),
    Case("error status", reads_all,
         answers(b"HTTP/1.1 429 Slow\r\nContent-Length: %d\r\n\r\n%b" % (len(ERROR), ERROR)),
         "upstream_error", "upstream", "done", 429),
    Case("redirect", reads_all,
         answers(b"HTTP/1.1 307 T\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"),
         "redirect", "upstream", "done", 307),
    Case("error event first", reads_all, answers(SSE, event(ERROR), END),
         "stream_error", "upstream", "done", 200),
    Case("error event after tokens", reads_all, answers(SSE, TOKEN, TOKEN, event(ERROR), END),
         "stream_error", "upstream", "done", 200),
    Case("clean end without a terminal event", reads_all, answers(SSE, TOKEN, TOKEN, END),
         "incomplete", "upstream", "done", 200),
    Case("upstream closes inside a chunked stream", reads_all,
         answers(SSE, ROLE, TOKEN, then="fin"), "upstream_aborted", "upstream", "stream", 200),
    Case("upstream resets before the first token", reads_all, answers(SSE, ROLE, then="rst"),
         "upstream_aborted", "upstream", "body", 200),
    Case("upstream closes after the head", reads_all, answers(SSE, then="fin"),
         "upstream_aborted", "upstream", "head", 200),
    Case("upstream's body is shorter than its length", reads_all, answers(LENGTH, then="fin"),
         "upstream_aborted", "upstream", "body", 200),
    Case("upstream's chunks are malformed", reads_all, answers(SSE, b"zz\r\n", then="hang"),
         "upstream_aborted", "upstream", "head", 200, closes_upstream=True),
    Case("upstream closes without an answer", reads_all, closes_at_once,
         "upstream_unreachable", "upstream", "wait", 502),
    Case("upstream resets without an answer", reads_all, answers(then="rst"),
         "upstream_unreachable", "upstream", "wait", 502),
    Case("upstream does not speak HTTP", reads_all, answers(b"220 smtp.example\r\n", then="hang"),
         "upstream_unreachable", "upstream", "wait", 502, closes_upstream=True),
    Case("nobody listens", reads_all, "http://127.0.0.1:{unused}",
         "upstream_unreachable", "upstream", "tcp", 502),
    Case("the name does not resolve", reads_all, "http://does-not-exist.invalid",
         "upstream_unreachable", "upstream", "dns", 502),
    Case("TLS fails", reads_all, "https://127.0.0.1:{plain}",
         "upstream_unreachable", "upstream", "tls", 502),
    Case("silence until the idle limit", reads_all, answers(then="hang"),
         "timeout", "proxy", "wait", 504, {"idle_timeout": "0.2"}, closes_upstream=True),
    Case("silence in the stream until the idle limit", reads_all,
         answers(SSE, TOKEN, then="hang"),
         "timeout", "proxy", "stream", 200, {"idle_timeout": "0.2"}, closes_upstream=True),
    Case("total limit before the head", reads_all, answers(then="hang"),
         "timeout", "proxy", "wait", 504, {"total_timeout": "0.2"}, closes_upstream=True),
    Case("total limit in the stream", reads_all, answers(SSE, TOKEN, then="hang"),
         "timeout", "proxy", "stream", 200, {"total_timeout": "0.2"}, closes_upstream=True),
    Case("client leaves during its upload", leaves_after(None, sent=UPLOAD), stalled_upload,
         "client_disconnect", "client", "upload", None, closes_upstream=True),
    Case("client resets while reading is paused", leaves_with_a_full_upload, stalled_upload,
         "client_disconnect", "client", "upload", None, closes_upstream=True),
    Case("client leaves before the head", leaves_after(None), answers(then="hang"),
         "client_disconnect", "client", "wait", None, closes_upstream=True),
    Case("client resets before the head", leaves_after(None, "rst"), answers(then="hang"),
         "client_disconnect", "client", "wait", None, closes_upstream=True),
    Case("client leaves before the first token", leaves_after(b"assistant"),
         answers(SSE, ROLE, then="hang"),
         "client_disconnect", "client", "body", 200, closes_upstream=True),
    Case("client resets in the stream", leaves_after(b"Hi", "rst"),
         answers(SSE, TOKEN, then="hang"),
         "client_disconnect", "client", "stream", 200, closes_upstream=True),
    Case("client leaves a document that is not complete", leaves_after(b"{"),
         answers(LENGTH, then="hang"),
         "client_disconnect", "client", "body", 200, closes_upstream=True),
    Case("early refusal of an upload", says(UPLOAD), refuses_early,
         "upstream_error", "upstream", "done", 413, closes_upstream=True),
    Case("client breaks the framing of its body",
         says(b"POST /v1/x HTTP/1.1\r\nHost: me\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
         stalled_upload, "bad_request", "client", "pool", 400),
    Case("both lengths", says(b"POST / HTTP/1.1\r\nHost: me\r\nContent-Length: 1\r\n"
                              b"Transfer-Encoding: chunked\r\n\r\n"),
         never, "bad_request", "proxy", "request_head", 400),
    Case("not HTTP", says(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), never,
         "bad_request", "proxy", "request_head", 501),
    Case("unknown method", says(b"BREW /pot HTTP/1.1\r\nHost: me\r\n\r\n"), never,
         "bad_request", "proxy", "request_head", 501),
    Case("CONNECT", says(b"CONNECT api.example:443 HTTP/1.1\r\nHost: api.example\r\n\r\n"), never,
         "bad_request", "proxy", "request_head", 501),
    Case("head beyond the limit",
         says(b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n\r\n"), never,
         "bad_request", "proxy", "request_head", 431),
    Case("WebSocket upgrade",
         says(b"GET /v1/responses HTTP/1.1\r\nHost: me\r\nConnection: Upgrade\r\n"
              b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"), never,
         "bad_request", "proxy", "request_head", 426),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_ending_is_one_record(case: Case) -> None:
    """With the outcome, who ended it, in which phase, and the status that the client saw."""
    ended = asyncio.Event()

    async def handle(peer: Peer) -> None:
        try:
            if isinstance(case.upstream, str):
                await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            else:
                await case.upstream(peer)
        finally:
            ended.set()

    async def story() -> None:
        async with upstream(handle) as up:
            url = up.url
            if isinstance(case.upstream, str):
                url = case.upstream.format(unused=unused_port(), plain=up.port)
            async with proxied(url, **case.flags) as proxy:
                await case.client(proxy)
                record = await proxy.record()
                if case.closes_upstream:
                    await asyncio.wait_for(ended.wait(), 2.0)
                await asyncio.sleep(0.02)
                assert [seen(other) for other in proxy.records[1:]] == []
                assert seen(record) == (case.outcome, case.by, case.phase, case.status)
                assert (record.error is None) == (case.outcome in ("ok", "redirect"))
                assert len(proxy.proxy.ledger) == 0

    run(story())


def seen(record: Record) -> tuple[str, str, str, int | None]:
    return record.outcome, record.ended_by, record.ended_in, record.status


def test_the_list_is_long_enough_to_mean_something() -> None:
    """Distinct in who, phase and how."""
    assert len({(c.outcome, c.by, c.phase, c.status) for c in CASES}) >= 20


def test_shutdown_cuts_what_does_not_end_in_time_and_records_it() -> None:
    """A short stream completes within the grace time; an endless one is cut, uncleanly (B64)."""

    arrived: list[Peer] = []

    async def handle(peer: Peer) -> None:
        await request(peer)
        await peer.send(SSE + TOKEN)
        if not arrived:
            arrived.append(peer)
            await peer.rest()
        await asyncio.sleep(0.2)
        await peer.send(DONE + END)

    async def story() -> None:
        async with upstream(handle) as up, proxied(up.url, shutdown_grace="1") as proxy:
            endless = await proxy.connect()
            await endless.send(POST)
            await endless.until(b"Hi")
            short = await proxy.connect()
            await short.send(POST)
            await short.until(b"Hi")
            proxy.stop()
            got, how = await short.rest()
            assert got.endswith(DONE + END)
            cut, how = await endless.rest()
            assert (END in cut, how) == (False, "fin")
            assert [seen(record)[:2] for record in proxy.records] == [
                ("ok", "upstream"),
                ("proxy_shutdown", "proxy"),
            ]

    run(story())


def test_tokens_that_arrive_while_the_client_leaves_take_nothing_away() -> None:
    """What was seen before the client left stays in the record, whatever is read after that."""

    async def handle(peer: Peer) -> None:
        await request(peer)
        await peer.send(SSE)
        while True:
            await peer.send(TOKEN)
            await asyncio.sleep(0)

    async def story() -> None:
        async with upstream(handle) as up, proxied(up.url) as proxy:
            for number in range(1, 11):
                client = await proxy.connect()
                await client.send(POST)
                await client.until(b"Hi")
                client.reset()
                record = await proxy.record(number)
                assert record.outcome == "client_disconnect"
                assert "first_token" in record.marks_us
                assert "last_token" in record.marks_us
                assert record.nulls["tpot_ms"] == "no_usage"

    run(story())


def test_a_request_that_upstream_never_took_still_names_its_model() -> None:
    """During an outage that is what a person looks for."""

    async def story() -> None:
        async with proxied(f"http://127.0.0.1:{unused_port()}") as proxy:
            await proxy.ask(POST.replace(b"Host: me", b"Host: me\r\nConnection: close"))
            record = await proxy.record()
            assert (record.model, record.stream) == ("m-1", True)
            assert "model" not in record.nulls
            assert record.nulls["tpot_ms"] == "no_token"

    run(story())


def test_every_latency_that_is_null_has_a_reason() -> None:
    """Also of a response that was not streamed."""

    async def story() -> None:
        async with upstream(answers(WHOLE)) as up, proxied(up.url) as proxy:
            await reads_all(proxy)
            record = await proxy.record()
            for name in ("ttft_ms", "first_content_ms", "relay_delay_ms", "band", "gap_p50_ms"):
                assert getattr(record, name) is None
                assert record.nulls[name] == "not_streamed"

    run(story())
