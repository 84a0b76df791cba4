"""Cases that people who run such software have met, where no other test tells them.

The identifier of each case stands in the docstring; the others are told where they belong: first
tokens and dialects in `test_tap`, line ends in `test_framing`, endings in `test_endings`.
"""

import asyncio
import gzip
import hashlib
import json
import socket
import zlib
from collections.abc import Iterator

import pytest
import zstandard

from tests.stage import Stage, staged
from tests.support import Handler, Peer, Proxied, Upstream, proxied, run, upstream

CHAT = "/v1/chat/completions"
ASKED = b'{"model":"m-1","stream":true}'
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n'
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One proxy and one upstream for the tests of this file that need no others."""
    with staged() as one:
        yield one


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def post(path: str = CHAT, body: bytes = ASKED, fields: bytes = b"", close: bool = True) -> bytes:
    last = b"Connection: close\r\n" if close else b""
    head = f"POST {path} HTTP/1.1\r\nHost: me\r\n".encode() + fields + last
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


async def take(peer: Peer) -> tuple[bytes, bytes]:
    """One request: head and body."""
    head = await peer.head()
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head, await peer.exactly(int(line.split(b":")[1]))
    return head, b""


def answers(*writes: bytes, then: str = "keep") -> Handler:
    """An upstream that gives every request the same answer, write by write."""

    async def handle(peer: Peer) -> None:
        while True:
            await take(peer)
            for data in writes:
                await peer.send(data)
                await asyncio.sleep(0.005)
            if then == "rst":
                peer.reset()
            if then != "keep":
                return

    return handle


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


# -- silence and limits


def test_no_limit_of_its_own_ends_a_silent_stream() -> None:
    """No total and no idle limit unless one is set; only connecting has one (B08, B09, R9)."""

    async def story() -> None:
        async with upstream(answers(STREAM, then="hang")) as up, proxied(up.url) as proxy:
            config = proxy.proxy.config
            assert config.idle_timeout_s is None
            assert config.total_timeout_s is None
            assert config.connect_timeout_s == 10

    run(story())


def test_a_limit_that_was_set_names_class_and_phase() -> None:
    """Headers never come: 504, marked as the proxy's, never an empty message (B08)."""

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.rest()

    async def story() -> None:
        async with upstream(handle) as up, proxied(up.url, idle_timeout="0.1") as proxy:
            got, _ = await proxy.ask(post())
            assert got.startswith(b"HTTP/1.1 504 ")
            said = json.loads(body_of(got))["error"]
            assert said["type"] == "ttft_proxy_error"
            assert said["phase"] == "wait"
            assert "ReadTimeout" in said["code"]
            record = await proxy.record()
            assert "ReadTimeout" in (record.error or "")
            assert record.ended_in == "wait"
            assert record.duration_ms >= 100

    run(story())


def test_a_pause_in_the_stream_is_a_gap_and_nothing_is_injected(stage: Stage) -> None:
    """Silence between two tokens: no keep-alive bytes of ours; the gap is in the record (B09)."""

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(STREAM + chunk(TOKEN))
        await asyncio.sleep(0.15)
        await peer.send(chunk(TOKEN) + chunk(DONE) + END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, _ = await proxy.ask(post())
        assert body_of(got) == chunk(TOKEN) * 2 + chunk(DONE) + END
        record = await proxy.record()
        assert (record.gap_max_ms or 0) >= 149

    stage.play(handle, story)


# -- compressed requests

LARGE = b'{"model":"m-zstd","stream":true,"messages":"' + b"x" * 1_000_000 + b'"}'
BOMB = zstandard.compress(b'{"model":"' + b"0" * (64 << 20))


@pytest.mark.parametrize(
    ("coding", "body", "model"),
    [
        (b"zstd", zstandard.compress(LARGE), "m-zstd"),
        (b"gzip", gzip.compress(LARGE), "m-zstd"),
        (b"deflate", zlib.compress(LARGE), "m-zstd"),
        (b"gzip, zstd", zstandard.compress(gzip.compress(LARGE)), "m-zstd"),
        (b"zstd", zstandard.compress(LARGE)[:100] + b"corrupt", None),
        (b"zstd", BOMB, None),
        (b"rot13", LARGE, None),
    ],
    ids=["zstd", "gzip", "deflate", "two", "corrupt", "bomb", "unknown"],
)
def test_a_compressed_request_is_forwarded_as_it_is(
    stage: Stage, coding: bytes, body: bytes, model: str | None
) -> None:
    """Bytes, coding and length arrive; the model is read from a bounded copy or unknown (B11)."""
    seen: list[tuple[bytes, bytes]] = []

    async def handle(peer: Peer) -> None:
        seen.append(await take(peer))
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
        await peer.send(b"Content-Length: 2\r\n\r\n{}")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        fields = b"Content-Encoding: " + coding + b"\r\n"
        got, _ = await proxy.ask(post("/v1/responses", body, fields))
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        head, arrived = seen[0]
        assert fields in head
        assert arrived == body
        record = await proxy.record()
        assert (record.request_bytes, record.model) == (len(body), model)
        assert record.request_encoding == coding.decode()
        if model is None:
            assert record.nulls["model"] in (
                "undecodable", "body_too_large", "unsupported_encoding",
            )  # fmt: skip

    stage.play(handle, story)


# -- what the record must not make up


@pytest.mark.parametrize(
    "options",
    [b"", b',"stream_options":{"include_usage":false}', b',"stream_options":null'],
    ids=["none", "no", "null"],
)
def test_usage_is_not_asked_for_on_behalf_of_a_client(stage: Stage, options: bytes) -> None:
    """The request stays as it is; without usage there is no TPOT, but there are gaps (B16)."""
    seen: list[bytes] = []
    body = ASKED[:-1] + options + b"}"

    async def handle(peer: Peer) -> None:
        seen.append((await take(peer))[1])
        await peer.send(STREAM)
        for _ in range(10):
            await peer.send(chunk(TOKEN))
            await asyncio.sleep(0.002)
        await peer.send(chunk(STOP) + chunk(DONE) + END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        await proxy.ask(post(body=body))
        assert seen == [body]
        record = await proxy.record()
        assert (record.tokens, record.nulls["tokens"]) == (None, "no_usage")
        assert (record.tpot_ms, record.nulls["tpot_ms"]) == (None, "no_usage")
        assert record.gap_p50_ms is not None
        assert (record.chunks or 0) >= 3

    stage.play(handle, story)


@pytest.mark.parametrize(
    "first",
    [
        b'{"id":"","choices":[],"prompt_filter_results":[{}]}',
        b'{"choices":null}',
        b'{"choices":{}}',
        b'{"choices":[null,5,"x",{"delta":7}]}',
        b'{"usage":null}',
        b"[1,2]",
        b"null",
        b"{broken",
        b"\xff\xfe",
    ],
)
def test_what_the_parser_cannot_use_passes_and_counts_for_nothing(
    stage: Stage, first: bytes
) -> None:
    """Azure's first chunk and worse: relayed, no token, and the rest is still read (B15)."""
    events = [b"data: " + first + b"\n\n", TOKEN, STOP, USAGE, DONE]
    body = b"".join(chunk(event) for event in events) + END

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(STREAM + chunk(events[0]))
        await asyncio.sleep(0.02)
        await peer.send(body[len(chunk(events[0])) :])

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, _ = await proxy.ask(post())
        assert body_of(got) == body
        record = await proxy.record()
        assert record.outcome == "ok"
        assert record.marks_us["first_token"] - record.marks_us["first_chunk"] >= 15_000
        assert record.tokens is not None
        assert record.tokens.output == 3

    stage.play(handle, story)


def test_keep_alives_pass_at_once_and_are_no_tokens(stage: Stage) -> None:
    """Comments, pings and empty fields, each before the next one is sent (B20)."""
    alive = [
        b": OPENROUTER PROCESSING\n\n",
        b'event: ping\ndata: {"type":"ping"}\n\n',
        b":\n",
        b"data:\n\n",
        b"retry: 1000\n\n",
        b"id: 7\n",
    ]
    got: asyncio.Queue[None] = asyncio.Queue()

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(STREAM)
        for piece in [*alive, TOKEN]:
            await peer.send(chunk(piece))
            await got.get()
        await peer.send(chunk(STOP) + chunk(DONE) + END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(post())
        await client.head()
        for piece in [*alive, TOKEN]:
            assert await client.exactly(len(chunk(piece))) == chunk(piece)
            await asyncio.sleep(0.005)
            got.put_nowait(None)
        await client.rest()
        record = await proxy.record()
        assert record.outcome == "ok"
        assert record.marks_us["first_token"] - record.marks_us["first_chunk"] >= 25_000

    stage.play(handle, story)


@pytest.mark.parametrize("coding", ["identity", "gzip"])
def test_lengths_describe_what_is_on_the_wire(stage: Stage, coding: str) -> None:
    """Length and coding stay, and agree with the bytes, longer or shorter than plain (B21, B22)."""
    plain = b'{"choices":[],"usage":{"completion_tokens":4}}'
    body = gzip.compress(plain) if coding == "gzip" else plain
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: %b\r\n"
        b"Content-Length: %d\r\nVary: a\r\nvary: b\r\n\r\n" % (coding.encode(), len(body))
    )

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(post(close=False))
        assert await client.exactly(len(head + body)) == head + body
        record = await proxy.record()
        assert record.response_bytes == len(body)
        assert record.tokens is not None
        assert record.tokens.output == 4

    stage.play(answers(head + body), story)


# -- broken and unfinished answers

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize("then", ["fin", "rst"])
@pytest.mark.parametrize(
    ("head", "sent"),
    [
        (STREAM, chunk(TOKEN) * 2),
        (STREAM, chunk(TOKEN) + chunk(TOKEN)[:25]),
        (STREAM, chunk(TOKEN) + b"3"),
        (STREAM, chunk(TOKEN) + b"0\r\n"),
        (PLAIN % (len(TOKEN) + 5), TOKEN),
    ],
    ids=["between chunks", "in a chunk", "in a size", "in the last chunk", "short of its length"],
)
def test_a_broken_answer_arrives_as_far_as_it_went_and_broken(
    stage: Stage, then: str, head: bytes, sent: bytes
) -> None:
    """Every byte that came, no final chunk of ours; TTFT is kept (B24, R1)."""

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, _ = await proxy.ask(post())
        if then == "fin":
            assert body_of(got) == sent
        else:
            assert sent.startswith(body_of(got))
        assert not got.endswith(END)
        record = await proxy.record()
        assert (record.outcome, record.ended_by) == ("upstream_aborted", "upstream")
        assert record.error
        if body_of(got) == sent:
            assert record.ttft_ms is not None

    stage.play(answers(head, sent, then=then), story)


ARGUMENTS = b'{"tool_calls":[{"function":{"arguments":"{\\"a"}}]}'
TOOL = b'data: {"choices":[{"index":0,"delta":' + ARGUMENTS + b"}]}\n\n"


@pytest.mark.parametrize("event", [TOKEN, TOOL], ids=["text", "tool"])
@pytest.mark.parametrize("framing", ["chunked", "eof"])
def test_a_clean_end_without_a_terminal_event_is_incomplete(
    stage: Stage, framing: str, event: bytes
) -> None:
    """It may be cut, and looks whole: nothing is appended, and the record says so (B25)."""
    if framing == "chunked":
        handle = answers(STREAM, chunk(event) * 3 + END)
    else:
        handle = answers(
            STREAM.replace(b"Transfer-Encoding: chunked\r\n", b""), event * 3, then="fin"
        )

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, how = await proxy.ask(post())
        assert how == "fin"
        assert got.count(event) == 3
        assert b"[DONE]" not in got
        assert got.endswith(END)
        record = await proxy.record()
        assert (record.outcome, record.error) == ("incomplete", "NoTerminalEvent")

    stage.play(handle, story)


@pytest.mark.parametrize("where", ["refused", "no name", "dies"])
def test_a_transport_failure_is_never_a_success(where: str) -> None:
    """Asked for a stream, and still 502 with JSON that says whose it is (B50)."""

    async def handle(peer: Peer) -> None:
        await take(peer)

    async def story() -> None:
        async with upstream(handle) as up:
            with socket.socket() as closed:
                closed.bind(("127.0.0.1", 0))
                urls = {
                    "refused": f"http://127.0.0.1:{closed.getsockname()[1]}",
                    "no name": "http://no-such-host.invalid",
                    "dies": up.url,
                }
                async with proxied(urls[where]) as proxy:
                    got, _ = await proxy.ask(post())
                    assert got.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
                    assert b"\r\nX-TTFT-Proxy-Error: phase=" in got
                    record = await proxy.record()
                    assert record.outcome == "upstream_unreachable"
                    assert record.ended_in in ("tcp", "dns", "wait")
                    assert json.loads(body_of(got))["error"]["code"] == record.error

    run(story())


# -- size and number


def test_a_line_of_megabytes_passes_and_the_rest_is_still_read(stage: Stage) -> None:
    """8 MB of an image in one event: every byte, a flag, and the usage after it (B32)."""
    image = b'data: {"choices":[{"index":0,"delta":{"image":"' + b"A" * (8 << 20) + b'"}}]}\n\n'
    pieces = [chunk(image[at : at + 65536]) for at in range(0, len(image), 65536)]
    rest = chunk(TOKEN) + chunk(STOP) + chunk(USAGE) + chunk(DONE) + END

    async def handle(peer: Peer) -> None:
        await take(peer)
        await peer.send(STREAM)
        for piece in pieces:
            await peer.send(piece)
        await peer.send(rest)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, _ = await proxy.ask(post())
        whole = b"".join(pieces) + rest
        assert hashlib.sha256(body_of(got)).digest() == hashlib.sha256(whole).digest()
        record = await proxy.record()
        assert record.outcome == "ok"
        assert "oversize_event" in record.flags
        assert record.ttft_ms is None
        assert record.nulls["ttft_ms"] == "oversize_event"
        assert record.tokens is not None
        assert record.tokens.output == 3

    stage.play(handle, story)


def test_many_streams_at_once_need_no_setting(stage: Stage) -> None:
    """150 streams, all open at the same time; nobody waits for a slot (B42)."""
    arrived = 0
    everybody = asyncio.Event()

    async def handle(peer: Peer) -> None:
        nonlocal arrived
        await take(peer)
        arrived += 1
        if arrived == 150:
            everybody.set()
        await everybody.wait()
        await peer.send(STREAM + chunk(TOKEN) + chunk(DONE) + END)

    async def story(proxy: Proxied, up: Upstream) -> None:
        got = await asyncio.gather(*(proxy.ask(post()) for _ in range(150)))
        assert all(answer.endswith(END) for answer, _ in got)
        await proxy.record(150)
        assert {record.outcome for record in proxy.records} == {"ok"}
        assert max(record.inflight or 0 for record in proxy.records) == 149
        assert up.connections == 150

    stage.play(handle, story)


def test_a_full_pool_shows_as_the_proxys_own_wait() -> None:
    """One connection for two requests: the second waits in the pool, and says so (B42)."""
    go = asyncio.Event()

    async def handle(peer: Peer) -> None:
        while True:
            await take(peer)
            await go.wait()
            await peer.send(STREAM + chunk(TOKEN) + chunk(DONE) + END)

    async def story() -> None:
        async with upstream(handle) as up, proxied(up.url, pool_limit="1") as proxy:
            first = asyncio.create_task(proxy.ask(post()))
            while not len(proxy.proxy.ledger):
                await asyncio.sleep(0.002)
            second = asyncio.create_task(proxy.ask(post()))
            while len(proxy.proxy.ledger) < 2:
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.05)
            go.set()
            await asyncio.gather(first, second)
            waited = await proxy.record(2)
            assert waited.marks_us["pool_ready"] >= 45_000
            assert (waited.segments_ms["proxy_time"] or 0) >= 45
            assert (waited.outcome, up.connections) == ("ok", 1)

    run(story())


def test_requests_cancelled_while_connecting_leak_no_slot() -> None:
    """Thirty clients give up during TLS; the next one, in a pool of two, is served (B42)."""
    silent = True

    async def handle(peer: Peer) -> None:
        if silent:
            await peer.rest()  # a TLS handshake that never gets an answer

    async def story() -> None:
        nonlocal silent
        async with upstream(handle) as up:
            url = up.url.replace("http:", "https:")
            async with proxied(url, pool_limit="2") as proxy:
                for number in range(1, 31):
                    client = await proxy.connect()
                    await client.send(post())
                    while not len(proxy.proxy.ledger):
                        await asyncio.sleep(0.001)
                    client.reset() if number % 2 else client.close()
                    record = await proxy.record(number)
                    assert record.outcome == "client_disconnect"
                    assert record.ended_in in ("tcp", "tls", "pool", "dns")
                silent = False
                got, _ = await proxy.ask(post())
                assert got.startswith(b"HTTP/1.1 502 ")
                assert (await proxy.record(31)).ended_in == "tls"

    run(story())


def test_a_huge_event_in_small_pieces_holds_nobody_up(stage: Stage) -> None:
    """5 MB in pieces of 1 kB: other streams end while it is still on its way (B57)."""
    start = b'data: {"choices":[{"index":0,"delta":{"content":"'
    piece = chunk(b"x" * 1000)
    others = asyncio.Event()

    async def handle(peer: Peer) -> None:
        head, _ = await take(peer)
        await peer.send(STREAM)
        if b"/big" in head:
            await peer.send(chunk(start))
            for number in range(5000):
                peer.writer.write(piece)
                if number % 50 == 0:
                    await peer.writer.drain()
                    await asyncio.sleep(0)
                if number == 4000:
                    await others.wait()
            await peer.send(chunk(b'"}}]}\n\n'))
        else:
            for _ in range(20):
                await peer.send(chunk(TOKEN))
                await asyncio.sleep(0.002)
        await peer.send(chunk(DONE) + END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        big = asyncio.create_task(proxy.ask(post("/big" + CHAT)))
        await asyncio.gather(*(proxy.ask(post()) for _ in range(10)))
        assert not big.done()
        others.set()
        got, _ = await big
        assert got.count(piece) == 5000
        record = await proxy.record(11)
        assert (record.path, record.outcome) == ("/big" + CHAT, "ok")

    stage.play(handle, story)


# -- stages of the time


def test_a_queue_seen_in_the_stream_and_a_servers_total_stay_apart(stage: Stage) -> None:
    """Structure early, first token late; the server's total is a cross-check, no addend (B46)."""
    created = b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n'
    delta = (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","delta":"Hi"}\n\n'
    )
    done = b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n'
    timing = b"openai-processing-ms: 20\r\n"
    head = STREAM.replace(b"Content-Type", timing + b"Content-Type")

    async def handle(peer: Peer) -> None:
        await take(peer)
        await asyncio.sleep(0.03)
        await peer.send(head)
        for event in (created, delta, done):
            await asyncio.sleep(0.03)
            await peer.send(chunk(event))
        await peer.send(END)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, _ = await proxy.ask(post("/v1/responses"))
        assert timing in got
        record = await proxy.record()
        marks = record.marks_us
        assert marks["first_event"] - marks["response_headers"] >= 29_000
        assert marks["first_token"] - marks["first_event"] >= 29_000
        (claim,) = (one for one in record.evidence if one.name == "openai-processing-ms")
        assert (claim.kind, claim.ms) == ("lump", 20)
        assert record.segments_ms["queue_delay"] is None
        assert (record.segments_ms["unattributed"] or 0) >= 60

    stage.play(handle, story)


def test_two_calls_of_one_turn_are_two_records(stage: Stage) -> None:
    """A title call beside the answer, as Dify makes it: which began when, and what it was (B45)."""

    async def handle(peer: Peer) -> None:
        _, body = await take(peer)
        if b'"stream":true' in body:
            await peer.send(STREAM + chunk(TOKEN) + chunk(DONE) + END)
        else:
            await asyncio.sleep(0.1)
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
            await peer.send(b"Content-Length: 2\r\n\r\n{}")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        title = asyncio.create_task(proxy.ask(post(body=b'{"model":"m-1"}')))
        while not len(proxy.proxy.ledger):
            await asyncio.sleep(0.001)
        await proxy.ask(post())
        await title
        answer, title_call = await proxy.record(1), await proxy.record(2)
        assert (answer.stream, title_call.stream) == (True, False)
        assert title_call.ts < answer.ts
        assert (answer.inflight, title_call.account_of) == (1, "response")

    stage.play(handle, story)
