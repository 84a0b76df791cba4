"""One request, relayed: what arrives when, what is kept, what is said about it."""

import asyncio
import gzip
import hashlib
import socket
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard

from tests.dialects.goldens import ANTHROPIC, CHAT, GOLDENS, RESPONSES, Golden
from tests.serving import Served, serve
from tests.stage import Stage, staged
from tests.support import Handler, Peer, Proxied, Upstream, proxied, run, upstream

ASKED = b'{"model":"m-1","stream":true}'
EVENTS = b"Content-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One proxy and one upstream for the tests of this file that need no others."""
    with staged() as one:
        yield one


def post(path: str = "/v1/chat/completions", body: bytes = ASKED, close: bool = False) -> bytes:
    """A request with a body, as SDKs send it."""
    head = f"POST {path} HTTP/1.1\r\nHost: me\r\nContent-Type: application/json\r\n".encode()
    last = b"Connection: close\r\n" if close else b""
    return head + last + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def ok(fields: bytes = EVENTS) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + fields


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def take(peer: Peer) -> bytes:
    """Read one request with a stated length, or without a body; its head."""
    head = await peer.head()
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            await peer.exactly(int(line.split(b":")[1]))
    return head


def answers(*writes: bytes) -> Handler:
    """An upstream that gives every request the same answer."""

    async def handle(peer: Peer) -> None:
        while True:
            await take(peer)
            for data in writes:
                await peer.send(data)

    return handle


# -- at once


def test_the_head_goes_out_while_the_body_is_still_to_come(stage: Stage) -> None:
    """Upstream sends its body only after the client has seen the head; two marks (B28)."""
    seen = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(ok() + CHUNKED)
        await seen.wait()
        await asyncio.sleep(0.02)
        await peer.send(chunk(TOKEN) + chunk(DONE) + END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(post())
        assert await client.head() == ok() + CHUNKED
        seen.set()
        await client.until(END)
        marks = (await proxy.record()).marks_us
        assert marks["first_chunk"] - marks["response_headers"] >= 20_000

    stage.play(handle, story)


def test_every_read_is_written_at_once(stage: Stage) -> None:
    """Fifty events, each sent only after the client has got the one before (B27)."""
    acknowledged: asyncio.Queue[None] = asyncio.Queue()

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(ok() + CHUNKED)
        for _ in range(50):
            await peer.send(chunk(TOKEN))
            await acknowledged.get()
        await peer.send(chunk(DONE))
        await acknowledged.get()
        await peer.send(END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(post())
        await client.head()
        for event in [TOKEN] * 50 + [DONE]:
            assert await client.exactly(len(chunk(event))) == chunk(event)
            acknowledged.put_nowait(None)
        assert await client.exactly(len(END)) == END
        record = await proxy.record()
        assert (record.events, record.events_per_read) == (51, 1.0)
        assert record.outcome == "ok"

    stage.play(handle, story)


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunked"])
def test_an_upload_passes_while_it_arrives(stage: Stage, chunked: bool) -> None:
    """Upstream has each piece before the client sends the next one; framing is kept (B51, B55)."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(peer: Peer) -> None:
        head = await peer.head()
        assert (b"transfer-encoding: chunked" in head.lower()) == chunked
        assert (b"content-length: 30" in head.lower()) == (not chunked)
        for _ in range(3):
            data = await (peer.until(b"\n\r\n") if chunked else peer.exactly(10))
            arrived.put_nowait(data)
        if chunked:
            await peer.until(END)
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        framing = CHUNKED if chunked else b"Content-Length: 30\r\n\r\n"
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: me\r\n" + framing)
        for number in range(3):
            piece = b"\x00\xffpiece.%d\n" % number
            piece = chunk(piece) if chunked else piece
            await client.send(piece)
            got = await asyncio.wait_for(arrived.get(), 20)
            assert got == piece
        if chunked:
            await client.send(END)
        await client.head()
        record = await proxy.record()
        assert record.request_bytes == 30
        assert record.network_ms["upload"] > 0

    stage.play(handle, story)


# -- bounded


def test_memory_stays_flat_for_large_bodies(tmp_path: Path) -> None:
    """300 MB up, 200 MB down to a reader that stalls: identical bytes, a few MB of memory.

    In a process of its own, so that only the proxy is measured (B55, B58).
    """
    piece = bytes(range(256)) * 4096
    up_pieces, down_pieces = 300, 200
    memory: list[int] = []
    digests: list[str] = []
    stalled = asyncio.Event()
    served: Served

    async def handle(peer: Peer) -> None:
        head = await peer.head()
        if head.startswith(b"POST"):
            digest = hashlib.sha1(usedforsecurity=False)
            left = up_pieces * len(piece)
            while left:
                data = await peer.reader.read(1 << 20)
                digest.update(data)
                if left // (64 << 20) != (left - len(data)) // (64 << 20):
                    memory.append(await served.memory())
                left -= len(data)
            digests.append(digest.hexdigest())
            await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            length = b"Content-Length: %d\r\n\r\n" % (down_pieces * len(piece))
            await peer.send(ok(b"Content-Type: application/octet-stream\r\n") + length)
            for number in range(down_pieces):
                try:
                    async with asyncio.timeout(0.3 if not stalled.is_set() else None):
                        await peer.send(piece)
                except TimeoutError:
                    stalled.set()
                    memory.append(await served.memory())
                    await peer.writer.drain()
                    assert number < down_pieces // 2

    async def story() -> None:
        nonlocal served
        async with upstream(handle) as up, serve(tmp_path, up.url) as served:
            memory.append(await served.memory())
            client = await served.connect()
            size = up_pieces * len(piece)
            await client.send(
                b"POST /v1/files HTTP/1.1\r\nHost: me\r\nContent-Length: %d\r\n\r\n" % size
            )
            for _ in range(up_pieces):
                await client.send(piece)
            assert (await client.head()).startswith(b"HTTP/1.1 204 ")
            whole = hashlib.sha1(piece * up_pieces, usedforsecurity=False)
            assert digests == [whole.hexdigest()]

            reader = await served.connect()
            await reader.send(b"GET /v1/files/1/content HTTP/1.1\r\nHost: me\r\n\r\n")
            await reader.head()
            reading: Any = reader.writer.transport
            reading.pause_reading()
            await stalled.wait()
            reading.resume_reading()
            for _ in range(down_pieces):
                assert await reader.exactly(len(piece)) == piece
            memory.append(await served.memory())
            uploaded, downloaded = await served.records(2)
            assert uploaded.request_bytes == size
            assert downloaded.response_bytes == down_pieces * len(piece)
            assert (downloaded.read_paused_ms or 0) > 0
            assert max(memory) - memory[0] < 40 << 20, memory

    run(story())


def test_a_slow_reader_pauses_reading_and_spoils_only_what_it_spoils(stage: Stage) -> None:
    """What is on its way stays bounded; TTFT holds, TPOT and gaps do not (B58)."""
    event = chunk(TOKEN.replace(b"Hi", b"x" * 65_000))
    sent = 0

    async def handle(peer: Peer) -> None:
        nonlocal sent
        await take(peer)
        await peer.send(ok() + CHUNKED + chunk(TOKEN))
        for _ in range(500):
            await peer.send(event)
            sent += len(event)
        usage = b'data: {"choices":[],"usage":{"completion_tokens":501}}\n\n'
        await peer.send(chunk(usage) + chunk(DONE) + END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        sock.connect(("127.0.0.1", proxy.port))
        sock.setblocking(False)
        sock.send(post(close=True))
        before = -1
        while sent != before or not sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 20 << 20
        loop = asyncio.get_running_loop()
        got = 0
        while data := await loop.sock_recv(sock, 1 << 20):
            got += len(data)
        sock.close()
        assert got > 500 * len(event)
        record = await proxy.record()
        assert record.outcome == "ok"
        assert record.ttft_ms is not None
        assert (record.read_paused_ms or 0) >= 100
        assert (record.write_pending_ms or 0) >= 100
        assert record.tokens is not None
        assert record.tokens.output == 501
        for name in ("tpot_ms", "gap_p50_ms", "gap_max_ms"):
            assert getattr(record, name) is None
            assert record.nulls[name] == "slow_reader"

    stage.play(handle, story)


def test_one_slow_exchange_holds_up_no_other(stage: Stage) -> None:
    """One upstream neither reads nor answers, one client neither sends nor reads; ten others go."""
    stuck = asyncio.Event()

    async def handle(peer: Peer) -> None:
        head = await peer.head()
        if b"/slow" in head:
            await stuck.wait()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        slow = await proxy.connect()
        await slow.send(b"POST /slow HTTP/1.1\r\nHost: me\r\nContent-Length: 9000000\r\n\r\n")
        slow.writer.write(b"x" * 8_000_000)
        idle = await proxy.connect()
        await idle.send(b"POST /idle HTTP/1.1\r\nHost: me\r\nContent-Le")
        for _ in range(10):
            got, _ = await proxy.ask(
                b"GET /quick HTTP/1.1\r\nHost: me\r\nConnection: close\r\n\r\n"
            )
            assert got.endswith(b"hi")
        assert [record.path for record in proxy.records] == ["/quick"] * 10
        assert {record.inflight for record in proxy.records} == {1}
        stuck.set()

    stage.play(handle, story)


# -- connections to upstream


async def four_requests(
    handle: Handler, leaves: Callable[[Peer], Awaitable[None]]
) -> tuple[int, list[str]]:
    """Four requests one after the other; upstream connections used, and outcomes."""
    async with upstream(handle) as up, proxied(up.url) as proxy:
        for number in range(1, 5):
            client = await proxy.connect()
            await client.send(post())
            await leaves(client)
            await proxy.record(number)
        assert len(proxy.records) == 4
        return up.connections, [record.outcome for record in proxy.records]


def test_a_client_that_leaves_with_its_answer_keeps_upstreams_connection() -> None:
    """As Codex and the OpenAI SDK do, before the last chunk: the proxy reads on (R5, B14)."""
    gone = asyncio.Event()

    async def handle(peer: Peer) -> None:
        while True:
            await take(peer)
            await peer.send(ok() + CHUNKED + chunk(TOKEN) + chunk(DONE))
            await gone.wait()
            gone.clear()
            await asyncio.sleep(0.02)
            await peer.send(END)

    async def leaves(client: Peer) -> None:
        await client.until(b"[DONE]")
        client.close()
        await asyncio.sleep(0.02)
        gone.set()

    async def story() -> None:
        assert await four_requests(handle, leaves) == (1, ["ok"] * 4)

    run(story())


def test_a_client_that_leaves_before_the_end_of_its_answer_does_not() -> None:
    """Four requests, four connections: what is not drained cannot be used again."""

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(ok() + CHUNKED + chunk(TOKEN))
        await peer.rest()

    async def leaves(client: Peer) -> None:
        await client.until(b"Hi")
        client.close()

    async def story() -> None:
        assert await four_requests(handle, leaves) == (4, ["client_disconnect"] * 4)

    run(story())


def test_a_broken_answer_to_http_1_0_ends_with_a_reset(stage: Stage) -> None:
    """There the end of the connection is the end of the body: only a reset shows a break (R1)."""

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(ok() + CHUNKED + chunk(TOKEN))
        await asyncio.sleep(0.02)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        request = post().replace(b"HTTP/1.1", b"HTTP/1.0")
        got, how = await proxy.ask(request)
        assert how == "rst"
        assert b"ransfer-Encoding" not in got
        assert (await proxy.record()).outcome == "upstream_aborted"

    stage.play(handle, story)


# -- what is learned of an answer


@pytest.mark.parametrize("golden", GOLDENS, ids=[golden.name for golden in GOLDENS])
def test_streams_of_every_dialect(stage: Stage, golden: Golden) -> None:
    """Byte for byte, and with their first token, tokens and model in the record."""
    pieces = [chunk(step) for step, _ in golden.steps]
    content_type = b"Content-Type: " + golden.content_type + b"\r\n"

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(ok(content_type) + CHUNKED)
        for piece in pieces:
            await peer.send(piece)
            await asyncio.sleep(0.001)
        await peer.send(END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, _ = await proxy.ask(post(golden.path, close=True))
        assert got.partition(b"\r\n\r\n")[2] == b"".join(pieces) + END
        record = await proxy.record()
        kinds = [kind for kind in golden.kinds if kind is not None]
        assert record.dialect == golden.dialect
        assert record.first_token_kind == (kinds[0].value if kinds else None)
        assert (record.ttft_ms is None) == (not kinds)
        if golden.dialect != "opaque":
            assert record.model == "m-1"
        if golden.usage is not None:
            assert record.tokens is not None
            assert record.tokens.output == golden.usage.output
            assert record.tokens.input == golden.usage.input
        if golden.error is not None:
            assert (record.outcome, record.error) == ("stream_error", golden.error)
        elif golden.terminal:
            assert record.outcome == "ok"

    stage.play(handle, story)


@pytest.mark.parametrize("golden", [CHAT, RESPONSES, ANTHROPIC], ids=lambda golden: golden.name)
def test_an_ordinary_stream_has_the_whole_account(golden: Golden) -> None:
    """TTFT, TPOT, tokens, phases, connection: nothing is missing, and the order of marks holds."""
    pieces = [chunk(step) for step, _ in golden.steps]

    async def handle(peer: Peer) -> None:
        await take(peer)
        await asyncio.sleep(0.03)
        await peer.send(ok() + b"X-Request-Id: req_1\r\n" + CHUNKED)
        for piece in pieces:
            await asyncio.sleep(0.005)
            await peer.send(piece)
        await peer.send(END)

    async def story() -> None:
        async with upstream(handle) as up, proxied(up.url, label="before") as proxy:
            request = post(golden.path).replace(b"Host: me", b"Host: me\r\nUser-Agent: codex_cli/1")
            client = await proxy.connect()
            await client.send(request)
            await client.until(END)
            record = await proxy.record()
            assert (record.outcome, record.status, record.kind) == ("ok", 200, "http")
            assert (record.label, record.client) == ("before", "codex")
            assert record.upstream_request_id == "req_1"
            assert (record.stream, record.connection_reused) == (True, False)
            assert record.ttft_ms is not None
            assert record.ttft_ms >= 30
            assert record.tpot_ms is not None
            assert record.relay_delay_ms is not None
            assert record.tokens is not None
            assert record.tokens.source == "usage"
            assert record.address_family == "ipv4"
            assert record.upstream_addr == up.url.removeprefix("http://")
            assert record.response_bytes == len(golden.body)
            marks = record.marks_us
            order = (
                "request_end", "upstream_tx_start", "upstream_tx_end", "response_headers",
                "first_chunk", "first_event", "first_token", "last_token", "upstream_rx_end", "end",
            )  # fmt: skip
            assert [marks[mark] for mark in order] == sorted(marks[mark] for mark in order)

    run(story())


@pytest.mark.parametrize(
    ("path", "start"),
    [
        (CHAT.path, b'{"model":"x","choices":[{"message":{"content":"Hi"}}],'),
        (RESPONSES.path, b'{"object":"response","status":"completed","output":[],'),
        (ANTHROPIC.path, b'{"type":"message","content":[],"stop_reason":"end_turn",'),
    ],
)
@pytest.mark.parametrize("asked_for_a_stream", [False, True])
def test_a_whole_answer(stage: Stage, path: str, start: bytes, asked_for_a_stream: bool) -> None:
    """Total time and usage, no TTFT; a stream that was asked for in vain is flagged (B49, R16)."""
    names = (
        b"completion_tokens prompt_tokens" if path == CHAT.path else b"output_tokens input_tokens"
    )
    body = start + b'"usage":{"%b":5,"%b":3}}' % tuple(names.split())
    head = ok(b"Content-Type: application/json\r\n") + b"Content-Length: %d\r\n\r\n" % len(body)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        asked = ASKED if asked_for_a_stream else b'{"model":"m-1","stream":false}'
        client = await proxy.connect()
        await client.send(post(path, asked))
        assert await client.head() + await client.exactly(len(body)) == head + body
        record = await proxy.record()
        assert (record.outcome, record.account_of) == ("ok", "response")
        assert (record.stream, record.nulls["ttft_ms"]) == (False, "not_streamed")
        assert ("stream_mismatch" in record.flags) == asked_for_a_stream
        assert record.tokens is not None
        assert (record.tokens.input, record.tokens.output) == (3, 5)

    stage.play(answers(head, body), story)


def test_a_stream_that_nobody_asked_for(stage: Stage) -> None:
    """Only pings came: a stream all the same, by the answer's own word (B49)."""
    ping = b'event: ping\ndata: {"type":"ping"}\n\n'
    head = ok(b"Content-Type: text/event-stream;charset=UTF-8\r\n") + CHUNKED

    async def story(proxy: Proxied, _up: Upstream) -> None:
        await proxy.ask(post("/v1/messages", b'{"model":"m","stream":false}', close=True))
        record = await proxy.record()
        assert (record.stream, record.ttft_ms, record.events) == (True, None, 2)
        assert "stream_mismatch" in record.flags
        assert record.outcome == "incomplete"

    stage.play(answers(head, chunk(ping) * 2 + END), story)


def in_gzip(events: list[bytes]) -> list[bytes]:
    packer = zlib.compressobj(wbits=31)
    return [packer.compress(event) + packer.flush(2) for event in events] + [packer.flush()]


def in_brotli(events: list[bytes]) -> list[bytes]:
    packer = brotli.Compressor()
    return [packer.process(event) + packer.flush() for event in events] + [packer.finish()]


def in_zstd(events: list[bytes]) -> list[bytes]:
    packer = zstandard.ZstdCompressor().compressobj()
    block = zstandard.COMPRESSOBJ_FLUSH_BLOCK
    return [packer.compress(event) + packer.flush(block) for event in events] + [packer.flush()]


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", in_gzip), ("br", in_brotli), ("zstd", in_zstd)]
)
def test_a_compressed_stream(
    stage: Stage, coding: str, pack: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Untouched and not delayed, event by event; accounted like a plain one (B04, B05)."""
    packed = [chunk(piece) for piece in pack([step for step, _ in CHAT.steps]) if piece]
    acknowledged: asyncio.Queue[None] = asyncio.Queue()

    async def handle(peer: Peer) -> None:
        head = await take(peer)
        assert head.lower().count(b"accept-encoding") == 1
        fields = EVENTS + b"Content-Encoding: " + coding.encode() + b"\r\n"
        await peer.send(ok(fields) + CHUNKED)
        for piece in packed:
            await peer.send(piece)
            await acknowledged.get()
        await peer.send(END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(post().replace(b"Host: me", b"Host: me\r\nAccept-Encoding: *"))
        assert f"\r\nContent-Encoding: {coding}\r\n".encode() in await client.head()
        for piece in packed:
            assert await client.exactly(len(piece)) == piece
            acknowledged.put_nowait(None)
        await client.until(END)
        record = await proxy.record()
        assert (record.outcome, record.response_encoding) == ("ok", coding)
        assert record.ttft_ms is not None
        assert record.tokens is not None
        assert record.tokens.output == 3
        assert record.response_bytes == sum(len(piece.split(b"\r\n", 1)[1]) - 2 for piece in packed)

    stage.play(handle, story)


QUOTA = b'{"error":{"message":"slow down","type":"rate_limit_error"}}'
PACKED = gzip.compress(QUOTA)


@pytest.mark.parametrize(
    ("status", "fields", "body", "error"),
    [
        (429, b"Retry-After: 7\r\nContent-Type: application/json\r\n", QUOTA, "rate_limit_error"),
        (401, b"Content-Type: application/json\r\n", b'{"error":{"code":"bad_key"}}', "bad_key"),
        (400, b"Content-Type: application/json\r\n", b"{}", "Status400"),
        (529, b"Content-Type: application/json\r\n", QUOTA, "rate_limit_error"),
        (502, b"Content-Type: text/html\r\n", b"<html>Bad gateway</html>", "Status502"),
        (404, b"Content-Type: application/json\r\nContent-Encoding: gzip\r\n", PACKED,
         "rate_limit_error"),
    ],
)  # fmt: skip
def test_an_error_is_relayed_as_it_is(
    stage: Stage, status: int, fields: bytes, body: bytes, error: str
) -> None:
    """Status, reason, fields and body; its type in the record, and no TTFT (B04, B06, R8)."""
    head = b"HTTP/1.1 %d Nope\r\n%bContent-Length: %d\r\n\r\n" % (status, fields, len(body))

    async def story(proxy: Proxied, up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(post())
        assert await client.exactly(len(head + body)) == head + body
        record = await proxy.record()
        assert (record.outcome, record.status) == ("upstream_error", status)
        assert record.error == error
        assert record.ttft_ms is None
        assert record.level == "error"
        assert up.connections == 1

    stage.play(answers(head + body), story)


OVERLOADED = b'{"type":"error","error":{"type":"overloaded_error"}}'
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
FAILED = (
    b'event: response.failed\ndata: {"type":"response.failed","response":'
    b'{"status":"failed","error":{"code":"server_error"}}}\n\n'
)


@pytest.mark.parametrize(
    ("path", "events", "error", "timed"),
    [
        ("/v1/messages", [b"event: error\ndata: " + OVERLOADED + b"\n\n"], "overloaded_error",
         False),
        ("/v1/chat/completions", [TOKEN] * 3 + [b"data: " + QUOTA + b"\n\n"], "rate_limit_error",
         True),
        ("/v1/messages", [PING, PING, b"data: " + OVERLOADED + b"\n\n"], "overloaded_error", False),
        ("/v1/chat/completions", [b'data: {"error":{"type":"quota"}}\n\n', DONE], "quota", False),
        ("/v1/responses", [FAILED], "server_error", False),
    ],
)  # fmt: skip
def test_an_error_inside_a_success(
    stage: Stage, path: str, events: list[bytes], error: str, timed: bool
) -> None:
    """The client gets its 200 and every byte; the record says what it was (B07)."""
    body = b"".join(chunk(event) for event in events) + END

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, _ = await proxy.ask(post(path, close=True))
        assert got.endswith(b"\r\n\r\n" + body)
        record = await proxy.record()
        assert (record.status, record.outcome, record.error) == (200, "stream_error", error)
        assert (record.ttft_ms is not None) == timed
        assert record.events == len(events)

    stage.play(answers(ok() + CHUNKED, body), story)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_the_clients_business(stage: Stage, status: int) -> None:
    """Not followed, not rewritten; none of the proxy's own for odd slashes (B53)."""
    targets: list[bytes] = []
    reply = b"HTTP/1.1 %d Moved\r\nLocation: /else?where\r\nContent-Length: 4\r\n\r\nmove" % status

    async def handle(peer: Peer) -> None:
        while True:
            targets.append((await take(peer)).split(b" ")[1])
            await peer.send(reply)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        for path in ("/v1/responses", "/v1/responses/", "//v1//responses"):
            await client.send(post(path))
            assert await client.exactly(len(reply)) == reply
        assert targets == [b"/v1/responses", b"/v1/responses/", b"//v1//responses"]
        assert {r.outcome for r in proxy.records} == {"redirect"}

    stage.play(handle, story)


def test_cors_is_upstreams(stage: Stage) -> None:
    """OPTIONS goes through, and the answer's fields come back once, even an empty one (B69)."""
    heads: list[bytes] = []
    reply = (
        b"HTTP/1.1 204 No Content\r\naccess-control-allow-origin: \r\n"
        b"Access-Control-Allow-Headers: authorization, x-stainless-os\r\n\r\n"
    )

    async def handle(peer: Peer) -> None:
        heads.append(await take(peer))
        await peer.send(reply)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        asked = b"Origin: http://a\r\nAccess-Control-Request-Headers: authorization,x-stainless-os"
        await client.send(b"OPTIONS /v1/responses HTTP/1.1\r\nHost: me\r\n" + asked + b"\r\n\r\n")
        assert await client.exactly(len(reply)) == reply
        assert asked in heads[0]
        record = await proxy.record()
        assert (record.method, record.dialect, record.ttft_ms) == ("OPTIONS", "opaque", None)

    stage.play(handle, story)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        (b"POST", b"/v1/messages/count_tokens?beta=true"),
        (b"GET", b"/v1/models?limit=1"),
        (b"DELETE", b"/v1/responses/resp_1"),
        (b"PATCH", b"/v1/x"),
        (b"HEAD", b"/"),
        (b"POST", b"/v1/responses/compact"),
    ],
)
def test_calls_that_are_no_model_calls(stage: Stage, method: bytes, target: bytes) -> None:
    """Any path and method; repeated fields stay two; recorded, outside TTFT (B44, R11)."""
    heads: list[bytes] = []
    reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"

    async def handle(peer: Peer) -> None:
        heads.append(await take(peer))
        await peer.send(reply if method == b"HEAD" else reply + b"{}")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        beta = b"anthropic-beta: a\r\nAnthropic-Beta: b, c\r\n"
        await client.send(b"%b %b HTTP/1.1\r\nHost: me\r\n%b\r\n" % (method, target, beta))
        assert await client.head() == reply
        assert heads[0].startswith(b"%b %b HTTP/1.1\r\n" % (method, target))
        assert beta in heads[0]
        record = await proxy.record()
        assert record.outcome == "ok"
        assert record.path == target.partition(b"?")[0].decode()
        assert (record.ttft_ms, record.tpot_ms) == (None, None)
        assert b"beta=true" not in record.upstream_path.encode() if record.upstream_path else True

    stage.play(handle, story)


# -- context


def test_requests_under_way_are_counted_at_arrival(stage: Stage) -> None:
    """The first sees none, the third two."""
    go = asyncio.Event()

    async def handle(peer: Peer) -> None:
        await take(peer)
        await go.wait()
        await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        for number in range(3):
            client = await proxy.connect()
            await client.send(b"GET /%d HTTP/1.1\r\nHost: me\r\n\r\n" % number)
            while len(proxy.proxy.ledger) <= number:
                await asyncio.sleep(0.002)
        go.set()
        await proxy.record(3)
        seen = {record.path: record.inflight for record in proxy.records}
        assert seen == {"/0": 0, "/1": 1, "/2": 2}

    stage.play(handle, story)


def test_a_stalled_loop_is_flagged(stage: Stage) -> None:
    """Stamps taken meanwhile are late, and the record says by how much they may be."""

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(ok() + CHUNKED + chunk(TOKEN))
        await asyncio.sleep(0.05)
        time.sleep(0.06)  # noqa: ASYNC251  # the stall that this test is about
        await peer.send(chunk(DONE) + END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        await proxy.ask(post(close=True))
        record = await proxy.record()
        assert "loop_lag" in record.flags
        assert (record.loop_lag_ms or 0) >= 30

    stage.play(handle, story)
