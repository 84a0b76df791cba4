"""The client's side of the wire: framing, pipelining, keep-alive, endings of a connection."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from proxy.serve import relay
from proxy.serve.exchange import Exchange
from proxy.serve.protocol import RelayProtocol
from proxy.serve.refusal import Refusal
from tests.stage import Stage, staged
from tests.support import Peer, Proxied, Upstream, proxied, run, upstream

GET = b"GET /%d HTTP/1.1\r\nHost: me\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: me\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One proxy and one upstream for the tests of this file that need no others."""
    with staged() as one:
        yield one


async def echo(peer: Peer) -> None:
    """Answer every request with its target and the body that came with it."""
    while True:
        head = await peer.head()
        body = await read_body(peer, head)
        said = head.split(b" ")[1] + b":" + body
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))


async def read_body(peer: Peer, head: bytes) -> bytes:
    """The body of a request, its framing taken away."""
    lower = head.lower()
    if b"transfer-encoding: chunked" in lower:
        body = b""
        while size := int(await peer.until(b"\r\n"), 16):
            body += (await peer.exactly(size + 2))[:-2]
        await peer.until(b"\r\n")
        return body
    if b"content-length:" in lower:
        return await peer.exactly(int(lower.partition(b"content-length:")[2].split(b"\r\n")[0]))
    return b""


async def answer(client: Peer) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    head = await client.head()
    return int(head.split(b" ")[1]), await read_body(client, head)


# -- pipelining


def test_pipelined_requests_are_answered_in_order(stage: Stage) -> None:
    """Three in one write; the first answer is the slowest, and still comes first."""

    async def handle(peer: Peer) -> None:
        while True:
            target = (await peer.head()).split(b" ")[1]
            await asyncio.sleep(0.03 if target == b"/0" else 0)
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + target)

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(b"".join(GET % number for number in range(3)))
        got = [await answer(client) for _ in range(3)]
        assert got == [(200, b"/0"), (200, b"/1"), (200, b"/2")]
        assert [(await proxy.record(n)).path for n in (1, 2, 3)] == ["/0", "/1", "/2"]

    stage.play(handle, story)


def test_a_pipelined_request_is_not_sent_before_its_turn(stage: Stage) -> None:
    """One at a time to upstream, because the first answer may end the connection."""
    arrived: list[bytes] = []
    go = asyncio.Event()

    async def handle(peer: Peer) -> None:
        while True:
            arrived.append((await peer.head()).split(b" ")[1])
            await go.wait()
            await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def story(proxy: Proxied, up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(GET % 1 + GET % 2)
        while not arrived:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.03)
        assert arrived == [b"/1"]
        go.set()
        await client.head()
        await client.head()
        assert arrived == [b"/1", b"/2"]
        assert up.connections == 1

    stage.play(handle, story)


def test_a_bad_request_behind_a_good_one_waits_for_its_turn(stage: Stage) -> None:
    """The good answer is whole, then 400, then the end; a record for each."""

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(GET % 1 + b"GET nonsense\r\n\r\n")
        assert await answer(client) == (200, b"/1:")
        assert (await answer(client))[0] == 400
        assert await client.rest() == (b"", "fin")
        records = [await proxy.record(1), await proxy.record(2)]
        assert [(r.outcome, r.status) for r in records] == [("ok", 200), ("bad_request", 400)]

    stage.play(echo, story)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_client_that_leaves_with_requests_waiting_leaves_a_record_for_each(
    stage: Stage, how: str
) -> None:
    """Those that wait were never sent: they ended in the pool phase, without a status."""

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.rest()

    async def story(proxy: Proxied, up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(GET % 1 + GET % 2 + GET % 3 + b"BREW / HTTP/1.1\r\n\r\n")
        while not len(proxy.proxy.ledger):
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.02)
        client.reset() if how == "rst" else client.close()
        await proxy.record(4)
        seen = sorted((r.path or "", r.outcome, r.ended_in, r.status) for r in proxy.records)
        assert seen == [
            ("", "bad_request", "request_head", None),
            ("/1", "client_disconnect", "wait", None),
            ("/2", "client_disconnect", "pool", None),
            ("/3", "client_disconnect", "pool", None),
        ]
        assert up.connections == 1

    stage.play(handle, story)


def test_requests_behind_a_response_that_breaks_leave_records(stage: Stage) -> None:
    """Nobody can answer them any more, and it was not their client who ended it."""

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(GET % 1 + GET % 2)
        got, _ = await client.rest()
        assert got.endswith(b"\r\n\r\nabc")
        await proxy.record(2)
        seen = {(r.path, r.outcome, r.ended_by, r.status, r.error) for r in proxy.records}
        assert {one[:4] for one in seen} == {
            ("/1", "upstream_aborted", "upstream", 200),
            ("/2", "bad_request", "proxy", None),
        }
        assert "ConnectionBroken" in {one[4] for one in seen}

    stage.play(handle, story)


def test_nothing_counts_behind_the_last_request_of_a_connection(stage: Stage) -> None:
    """After `close` (or HTTP/1.0) what follows is not answered, not relayed, not recorded."""

    async def story(proxy: Proxied, _up: Upstream) -> None:
        for last in (LAST, b"GET /last HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"):
            for tail in (GET % 1, b"\x00garbage\r\n\r\n"):
                got, how = await proxy.ask(last + tail)
                assert (got.count(b"HTTP/1.1"), how) == (1, "fin")
                assert got.endswith(b"\r\nConnection: close\r\n\r\n/last:")
        await proxy.record(4)
        assert {record.path for record in proxy.records} == {"/last"}
        assert len(proxy.records) == 4

    stage.play(echo, story)


def test_pipelined_requests_are_served_before_a_shutdown() -> None:
    """What was accepted is finished within the grace time, and then the connection ends."""
    go = asyncio.Event()

    async def handle(peer: Peer) -> None:
        while True:
            target = (await peer.head()).split(b" ")[1]
            await go.wait()
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + target)

    async def story() -> None:
        async with upstream(handle) as up, proxied(up.url) as proxy:
            client = await proxy.connect()
            await client.send(GET % 1 + GET % 2)
            while not len(proxy.proxy.ledger):
                await asyncio.sleep(0.002)
            proxy.stop()
            await asyncio.sleep(0.15)
            go.set()
            assert [await answer(client), await answer(client)] == [(200, b"/1"), (200, b"/2")]
            assert await client.rest() == (b"", "fin")
            assert [record.outcome for record in proxy.records] == ["ok", "ok"]

    run(story())


# -- upgrades that are not taken

H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("pause", [False, True], ids=["one write", "in pieces"])
def test_an_offer_of_h2c_is_ignored_and_stripped(stage: Stage, pause: bool) -> None:
    """As `curl --http2` makes it: the request goes on as HTTP/1.1, and so does the connection."""
    heads: list[bytes] = []

    async def handle(peer: Peer) -> None:
        while True:
            head = await peer.head()
            heads.append(head)
            said = await read_body(peer, head)
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        start = b"POST /v1/x HTTP/1.1\r\nHost: me\r\n" + H2C
        for request, body in [
            (start.replace(b"POST", b"GET") + b"\r\n", b""),
            (start + b"Content-Length: 5\r\n\r\nhello", b"hello"),
            (start + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
             b"abcde"),
            (start + b"Content-Length: 0\r\n\r\n", b""),
        ]:  # fmt: skip
            if pause:
                for at in range(0, len(request), 7):
                    await client.send(request[at : at + 7])
                    await asyncio.sleep(0)
            else:
                await client.send(request)
            assert await answer(client) == (200, body)
        for head in heads:
            assert not any(word in head.lower() for word in (b"upgrade", b"http2", b"connect"))
        assert len(proxy.clients) == 1
        assert [(await proxy.record(n)).outcome for n in range(1, 5)] == ["ok"] * 4

    stage.play(handle, story)


def test_an_ignored_upgrade_does_not_overrule_close(stage: Stage) -> None:
    """A client that offers h2c and asks for the end of the connection gets the end."""

    async def story(proxy: Proxied, _up: Upstream) -> None:
        request = b"GET /x HTTP/1.1\r\nHost: me\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n"
        got, how = await proxy.ask(request + b"\r\n" + GET % 1)
        assert got == b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\n/x:"
        assert how == "fin"
        await proxy.record()
        assert len(proxy.records) == 1

    stage.play(echo, story)


def test_two_requests_behind_an_ignored_upgrade(stage: Stage) -> None:
    """They are pipelined like any others."""

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        upgrade = b"POST /0 HTTP/1.1\r\n" + H2C + b"Content-Length: 2\r\n\r\nhi"
        await client.send(upgrade + GET % 1 + upgrade)
        assert [await answer(client) for _ in range(3)] == [
            (200, b"/0:hi"),
            (200, b"/1:"),
            (200, b"/0:hi"),
        ]

    stage.play(echo, story)


# -- keep-alive


def test_a_client_may_keep_its_connection_for_many_requests(stage: Stage) -> None:
    """Idle in between; nothing is reset (B40)."""

    async def story(proxy: Proxied, up: Upstream) -> None:
        client = await proxy.connect()
        for number in range(50):
            await client.send(GET % number)
            assert await answer(client) == (200, b"/%d:" % number)
            await asyncio.sleep(0.02 if number % 10 == 0 else 0)
        assert len(proxy.clients) == up.connections == 1
        await proxy.record(50)
        assert all(record.connection_reused for record in proxy.records[1:])

    stage.play(echo, story)


def test_an_idle_connection_is_kept_longer_than_clients_pool_theirs() -> None:
    """75 s by default; the limit can be set, to less than a second, too (B40)."""

    async def story() -> None:
        async with upstream(echo) as up:
            async with proxied(up.url) as proxy:
                assert proxy.proxy.server().config.timeout_keep_alive >= 75
            async with proxied(up.url, client_keepalive="0.5") as proxy:
                client = await proxy.connect()
                for number in (1, 2):
                    await client.send(GET % number)
                    assert await answer(client) == (200, b"/%d:" % number)
                    await asyncio.sleep(0.05)
                assert await client.rest() == (b"", "fin")

    run(story())


@pytest.mark.parametrize(
    "request_bytes",
    [LAST, b"GET /last HTTP/1.0\r\n\r\n", b"GET /last HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"],
    ids=["close", "1.0", "1.0 keep-alive"],
)
def test_the_connection_ends_when_the_client_cannot_go_on(
    stage: Stage, request_bytes: bytes
) -> None:
    """And the answer says so."""

    async def story(proxy: Proxied, _up: Upstream) -> None:
        got, how = await proxy.ask(request_bytes)
        assert got.endswith(b"\r\nConnection: close\r\n\r\n/last:")
        assert how == "fin"

    stage.play(echo, story)


# -- lingering close


def test_an_early_answer_survives_what_the_client_still_sends(stage: Stage) -> None:
    """413 in mid-upload: the client writes on and gets the whole answer, not a reset.

    Closing at once with unread data would make the kernel send a reset, which destroys an answer
    that the client has not read yet (RFC 9112, section 9.6).
    """
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.send(refusal)
        await peer.rest()

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: me\r\nContent-Length: 99999999\r\n\r\n")
        for _ in range(60):
            await client.send(b"y" * 50_000)
            await asyncio.sleep(0)
        got, how = await client.rest()
        assert (len(got.partition(b"\r\n\r\n")[2]), how) == (20_000, "fin")
        assert b"\r\nConnection: close\r\n" in got
        record = await proxy.record()
        assert (record.outcome, record.status) == ("upstream_error", 413)

    stage.play(handle, story)


def test_lingering_ends_after_a_while(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that neither reads nor leaves does not hold the connection for ever."""
    monkeypatch.setattr("proxy.serve.protocol.LINGER_S", 0.05)

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")
        await peer.rest()

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: me\r\nContent-Length: 9\r\n\r\n")
        await client.head()
        for _ in range(1000):
            await asyncio.sleep(0.01)
            client.writer.write(b"y")
            if client.writer.is_closing():
                return
        raise AssertionError("the connection is still open")

    stage.play(handle, story)


# -- Expect: 100-continue

EXPECT = b"POST /v1/x HTTP/1.1\r\nHost: me\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def test_a_100_of_upstream_goes_out_at_once(stage: Stage) -> None:
    """The body is sent after it, and arrives; no second 100 is made (B70)."""
    heads: list[bytes] = []

    async def handle(peer: Peer) -> None:
        heads.append(await peer.head())
        await peer.send(b"HTTP/1.1 100 Go ahead\r\nX-A: b\r\n\r\n")
        assert await peer.exactly(5) == b"hello"
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(EXPECT)
        assert await client.head() == b"HTTP/1.1 100 Go ahead\r\nX-A: b\r\n\r\n"
        await client.send(b"hello")
        assert await client.head() == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        assert b"\r\nExpect: 100-continue\r\n" in heads[0]

    stage.play(handle, story)


def test_silence_of_upstream_is_answered_for_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second of waiting (here less) the client may send; the wait counts as its upload."""
    assert relay.CONTINUE_AFTER_S == 1.0
    monkeypatch.setattr(relay, "CONTINUE_AFTER_S", 0.1)

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.exactly(5)
        await peer.send(CONTINUE)  # too late: it was given already
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(EXPECT)
        assert await client.head() == CONTINUE
        await client.send(b"hello")
        assert (await client.head()).startswith(b"HTTP/1.1 200 ")
        record = await proxy.record()
        assert record.network_ms["upload"] >= 90

    stage.play(handle, story)


@pytest.mark.parametrize("status", [401, 417])
def test_a_final_refusal_goes_out_without_the_body(stage: Stage, status: int) -> None:
    """Then both connections end: nobody can say where the next request would begin (B70)."""
    gone: list[tuple[bytes, str]] = []

    async def handle(peer: Peer) -> None:
        head = await peer.head()
        if b"GET" in head:
            await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")
        else:
            await peer.send(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)
        gone.append(await peer.rest())

    async def story(proxy: Proxied, up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(EXPECT)
        assert await client.rest() == (
            b"HTTP/1.1 %d No\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno" % status,
            "fin",
        )
        record = await proxy.record()
        assert (record.status, record.request_bytes) == (status, 0)
        await proxy.ask(LAST)
        assert up.connections == 2
        assert gone[0][0] == b""

    stage.play(handle, story)


def test_a_client_need_not_wait(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks and sends at once: no 100 of ours, and the body is not held back."""
    monkeypatch.setattr(relay, "CONTINUE_AFTER_S", 0.02)

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.exactly(5)
        await asyncio.sleep(0.05)
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(EXPECT + b"hello")
        assert await client.head() == b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    stage.play(handle, story)


def test_http_1_0_gets_no_100(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interim responses came with HTTP/1.1."""
    monkeypatch.setattr(relay, "CONTINUE_AFTER_S", 0.02)

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.send(CONTINUE)
        await asyncio.sleep(0.05)
        await peer.exactly(5)
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(EXPECT.replace(b"1.1", b"1.0"))
        await asyncio.sleep(0.05)
        await client.send(b"hello")
        assert (await client.head()).startswith(b"HTTP/1.1 200 OK\r\n")

    stage.play(handle, story)


# -- trailers


def test_trailers_are_not_fields(stage: Stage) -> None:
    """They follow the body to upstream and never join the head, whose meaning they could change."""
    got: list[bytes] = []

    async def handle(peer: Peer) -> None:
        got.append(await peer.head())
        got.append(await peer.until(b"0\r\nX-Sum: 1\r\nAuthorization: late\r\n\r\n"))
        await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def story(proxy: Proxied, _up: Upstream) -> None:
        client = await proxy.connect()
        await client.send(b"POST / HTTP/1.1\r\nHost: me\r\nTransfer-Encoding: chunked\r\n\r\n")
        await client.send(b"2\r\nhi\r\n0\r\nX-Sum: 1\r\nAuthorization: late\r\n\r\n")
        await client.head()
        assert b"late" not in got[0]
        assert b"X-Sum" not in got[0]

    stage.play(handle, story)


@pytest.mark.parametrize(
    ("start", "more"),
    [(b"0\r\n", b"X-A: v\r\n" * 20), (b"1;", b"e" * 200)],
    ids=["trailers", "chunk extension"],
)
def test_what_is_neither_head_nor_body_is_bounded_like_a_head(start: bytes, more: bytes) -> None:
    """Endless trailers or chunk extensions would have to be kept in memory until they end."""

    async def handle(peer: Peer) -> None:
        await peer.head()
        await peer.rest()

    async def story() -> None:
        async with upstream(handle) as up, proxied(up.url, max_head_bytes="4096") as proxy:
            client = await proxy.connect()
            await client.send(b"POST / HTTP/1.1\r\nHost: me\r\nTransfer-Encoding: chunked\r\n\r\n")
            await client.send(b"2\r\nhi\r\n" + start)
            while not proxy.records:
                await client.send(more)
                await asyncio.sleep(0.001)
            assert (await client.head()).startswith(b"HTTP/1.1 400 ")
            record = proxy.records[0]
            assert (record.outcome, record.ended_by) == ("bad_request", "client")
            assert record.error == "HeadTooLarge"

    run(story())


# -- the protocol by itself: any reads, any bytes


class Handle:
    """A task or a timer that nothing comes of."""

    def add_done_callback(self, _callback: Any) -> None:
        pass

    def cancel(self) -> None:
        pass


class Wire:
    """A transport, a loop and an application in one: what a protocol talks to, without a socket.

    A request is answered as soon as it is complete, as a quick upstream would.
    """

    def __init__(self) -> None:
        self.closed = self.half_closed = self.paused = False
        self.written = b""
        self.now = 0
        self.seen: list[tuple[Any, ...]] = []
        self.running: list[tuple[Exchange, Refusal | None]] = []
        config = uvicorn.Config(
            self.app, log_config=None, ws="none", interface="asgi3", proxy_headers=False
        )
        here: Any = self
        self.protocol = RelayProtocol(
            config, ServerState(), {}, here, clock=self.clock, max_head=2048
        )
        self.protocol.connection_made(here)

    def clock(self) -> int:
        self.now += 1000
        return self.now

    # the application

    def app(self, scope: Any, _receive: Any, _send: Any) -> None:
        extensions = scope["extensions"]
        self.running.append((extensions["proxy.exchange"], extensions["proxy.refusal"]))

    def create_task(self, _result: None) -> Handle:
        return Handle()

    def call_later(self, _delay: float, _callback: Any, *_arguments: Any) -> Handle:
        return Handle()

    # the transport

    def get_extra_info(self, name: str) -> Any:
        return True if name == "ssl_object" else None

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.half_closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        assert not self.closed
        assert not self.half_closed
        self.written += data

    # the story

    def feed(self, data: bytes) -> None:
        """One read; then every request that is complete, refused or broken gets its answer."""
        if not self.closed:
            self.protocol.data_received(data)
        while self.running:
            exchange, refusal = self.running[0]
            if refusal is None and not exchange.request_complete and exchange.broken is None:
                return
            del self.running[0]
            head = exchange.head
            why = refusal.error if refusal is not None else exchange.broken
            what: tuple[Any, ...] = (head.method, head.target, why)
            if why is None:
                what += (head.fields, exchange.ready_body(), exchange.trailers)
            self.seen.append(what)
            status = refusal.status if refusal is not None else 400 if exchange.broken else 200
            exchange.respond(status, b"", [(b"Content-Length", b"0")])
            exchange.finish()


name = st.sampled_from([b"Host", b"X-A", b"x-a", b"Accept"])
value = st.sampled_from([b"", b"v", b"a, b", b"\xe9"])
upgrade = st.sampled_from([b"", b"", b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"])
body = st.binary(max_size=40)


@st.composite
def one_request(draw: st.DrawFn) -> bytes:
    """A request with any framing, perhaps with an upgrade that is not taken."""
    fields = b"".join(b"%b: %b\r\n" % field for field in draw(st.lists(st.tuples(name, value))))
    head = b"POST /%b HTTP/1.1\r\n" % draw(st.sampled_from([b"", b"a", b"%2F?q=1"])) + fields
    head += draw(upgrade)
    if draw(st.integers(0, 9)) == 0:
        head += b"Connection: close\r\n"
    content = draw(body)
    framing = draw(st.sampled_from(["none", "length", "chunked"]))
    if framing == "none":
        return head + b"\r\n"
    if framing == "length":
        return head + b"Content-Length: %d\r\n\r\n%b" % (len(content), content)
    chunk = b"%x\r\n%b\r\n" % (len(content), content) if content else b""
    trailer = draw(st.sampled_from([b"", b"X-T: 1\r\n"]))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk + b"0\r\n" + trailer + b"\r\n"


broken = st.sampled_from(
    [
        b"",
        b"\x00\x01",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad field\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT h:1 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"a" * 3000 + b"\r\n\r\n",
    ]
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` cut at `places`."""
    ends = sorted({place for place in places if 0 < place < len(data)} | {len(data)})
    starts = [0, *ends]
    return [data[start:end] for start, end in zip(starts, ends, strict=False)]


def answered(pieces: list[bytes]) -> list[tuple[Any, ...]]:
    """What is seen of a connection that reads these pieces."""
    wire = Wire()
    for piece in pieces:
        wire.feed(piece)
    statuses = [int(line.split(b" ")[1]) for line in wire.written.split(b"\r\n\r\n")[:-1]]
    return [(*one, status) for one, status in zip(wire.seen, statuses, strict=True)]


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(one_request(), max_size=4), broken, st.lists(st.integers(0, 400), max_size=8))
def test_any_split_gives_the_same_exchanges(
    requests: list[bytes], end: bytes, places: list[int]
) -> None:
    """However the reads fall: the same requests, the same answers, the same refusal."""
    data = b"".join(requests) + end
    whole = answered([data])

    assert answered(cut(data, places)) == whole
    assert answered([data[at : at + 1] for at in range(len(data))]) == whole


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.binary(max_size=60)
        | st.sampled_from(
            [
                b"GET / HTTP/1.1\r\n",
                b"Content-Length: 5\r\n",
                b"Content-Length: 99999999999999999999999\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"Connection: upgrade\r\nUpgrade: h2c\r\n",
                b"Expect: 100-continue\r\n",
                b"\r\n",
                b"ffffffffffffffffffff\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"GET / HTTP/9.9\r\n\r\n",
            ]
        ),
        max_size=12,
    )
)
def test_garbage_never_raises(pieces: list[bytes]) -> None:
    """Anything may come; what was answered was answered in whole responses."""
    wire = Wire()
    for piece in pieces:
        wire.feed(piece)
    wire.protocol.eof_received()
    assert wire.written.count(b"HTTP/1.1 ") == wire.written.count(b"Content-Length: 0")
    assert len(wire.seen) == wire.written.count(b"HTTP/1.1 ")
