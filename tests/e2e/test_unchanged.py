"""Nothing changes on the way: whatever a client sends and whatever an upstream answers."""

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import httptools
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.serve.headers import HOP_BY_HOP
from tests.support import Handler, Peer, Proxied, Upstream, proxied, run, upstream

OURS = HOP_BY_HOP | {b"host", b"content-length", b"transfer-encoding", b"expect"}
Fields = list[tuple[bytes, bytes]]


@dataclass
class Message:
    """A request or a response as it stood on the wire, framing taken apart."""

    start: list[bytes]
    fields: Fields
    body: bytes
    trailers: Fields
    framing: str

    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


async def read_message(peer: Peer, *, is_response: bool, method: bytes = b"") -> Message:
    """Read one message by hand, so that the test trusts no parser of the product."""
    head = await peer.head()
    lines = head[:-4].split(b"\r\n")
    fields = []
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        fields.append((name, value.removeprefix(b" ")))
    by_name = {name.lower(): value for name, value in fields}
    body, trailers, framing = b"", [], "none"
    start = lines[0].split(b" ", 2)
    bodiless = is_response and (method == b"HEAD" or start[1] in (b"204", b"304"))
    if bodiless:
        pass
    elif b"transfer-encoding" in by_name:
        framing = "chunked"
        while size := int((await peer.until(b"\r\n")).split(b";")[0], 16):
            body += (await peer.exactly(size + 2))[:-2]
        while (line := await peer.until(b"\r\n")) != b"\r\n":
            name, _, value = line[:-2].partition(b":")
            trailers.append((name, value.removeprefix(b" ")))
    elif b"content-length" in by_name:
        framing = "length"
        body = await peer.exactly(int(by_name[b"content-length"]))
    elif is_response:
        framing = "eof"
        body, _ = await peer.rest()
    return Message(start, fields, body, trailers, framing)


def end_to_end(fields: Fields) -> Fields:
    """What has to arrive as it was."""
    return [(name, value) for name, value in fields if name.lower() not in OURS]


METHODS = (
    b"GET POST PUT DELETE PATCH OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH "
    b"UNLOCK BIND REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE "
    b"UNSUBSCRIBE PURGE MKCALENDAR LINK UNLINK SOURCE HEAD"
).split()
target = st.lists(
    st.sampled_from([b"/", b"//", b"..", b".", b"%2F", b"%2f", b"+", b"a", b";x=1", b"~", b"@:"]),
    max_size=6,
).map(lambda parts: b"/" + b"".join(parts))
query = st.sampled_from([b"", b"?", b"?a=1&a=2", b"?k=%22x%22&l=a+b", b"?u=http://h/../x"])
name = st.from_regex(rb"[A-Za-z][A-Za-z0-9_-]{0,10}", fullmatch=True).filter(
    lambda value: value.lower() not in OURS | {b"connection"}
)
value = st.from_regex(rb"([!-~\x80-\xff]([ -~\x80-\xff]{0,20}[!-~\x80-\xff])?)?", fullmatch=True)
fields = st.lists(st.tuples(name, value), max_size=8)
pieces = st.lists(st.binary(min_size=1, max_size=300), max_size=5)
trailer = st.lists(st.tuples(name, value), max_size=2)


@dataclass
class Sent:
    """One message to be sent: framing, pieces of the body, trailers."""

    framing: str
    pieces: list[bytes]
    trailers: Fields

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces) if self.framing != "none" else b""

    def field(self) -> Fields:
        if self.framing == "length":
            return [(b"cOntent-Length", b"%d" % len(self.body))]
        return [(b"Transfer-encoding", b"chunked")] if self.framing == "chunked" else []

    def writes(self) -> list[bytes]:
        if self.framing == "none":
            return []
        if self.framing != "chunked":
            return self.pieces
        chunks = [b"%X;ext\r\n%b\r\n" % (len(piece), piece) for piece in self.pieces]
        end = b"0\r\n" + b"".join(b"%b: %b\r\n" % field for field in self.trailers) + b"\r\n"
        return [*chunks, end]


def sent(*framings: str) -> st.SearchStrategy[Sent]:
    return st.builds(Sent, st.sampled_from(framings), pieces, trailer)


async def write(peer: Peer, head: bytes, message: Sent, *, slowly: bool) -> None:
    """Write a message, in one go or piece by piece."""
    for data in [head, *message.writes()]:
        peer.writer.write(data)
        if slowly:
            await peer.writer.drain()
            await asyncio.sleep(0.0005)


@dataclass
class Stage:
    """A proxy and an upstream that stay up while many examples pass through them."""

    loop: asyncio.Runner
    proxy: Proxied
    upstream: Upstream
    answer: Handler


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One proxy, one upstream whose answer each example sets."""
    stack = contextlib.AsyncExitStack()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:

        async def start() -> Stage:
            async def answer(peer: Peer) -> None:
                await this.answer(peer)

            up = await stack.enter_async_context(upstream(answer))
            this = Stage(loop, await stack.enter_async_context(proxied(up.url)), up, answer)
            return this

        yield loop.run(start())
        loop.run(stack.aclose())


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    method=st.sampled_from(METHODS),
    raw_target=st.tuples(target, query).map(b"".join),
    request_fields=fields,
    request=sent("none", "length", "chunked"),
    status=st.sampled_from([200, 201, 204, 207, 299, 302, 304, 400, 404, 413, 429, 500, 529, 599]),
    reason=st.sampled_from([b"OK", b"", b"Sehr gut", b"\xc3\xa9tat"]),
    response_fields=fields,
    response=sent("length", "chunked", "eof"),
    slowly=st.booleans(),
)
def test_whatever_is_sent_arrives(
    stage: Stage,
    method: bytes,
    raw_target: bytes,
    request_fields: Fields,
    request: Sent,
    status: int,
    reason: bytes,
    response_fields: Fields,
    response: Sent,
    slowly: bool,
) -> None:
    """Method, target, fields, body and framing to upstream; status, reason and all that back."""
    seen: list[Message] = []

    async def answer(peer: Peer) -> None:
        seen.append(await read_message(peer, is_response=False))
        head = b"HTTP/1.1 %d %b\r\n" % (status, reason)
        for field in [*response_fields, *response.field()]:
            head += b"%b: %b\r\n" % field
        bodiless = method == b"HEAD" or status in (204, 304)
        body = Sent("none", [], []) if bodiless else response
        await write(peer, head + b"\r\n", body, slowly=slowly)
        if response.framing == "eof" or bodiless:
            peer.close()

    async def story() -> None:
        client = await stage.proxy.connect()
        head = b"%b %b HTTP/1.1\r\nhOST: me\r\n" % (method, raw_target)
        for field in [*request_fields, *request.field()]:
            head += b"%b: %b\r\n" % field
        await write(client, head + b"\r\n", request, slowly=slowly)
        got = await read_message(client, is_response=True, method=method)
        client.close()

        arrived = seen[0]
        assert arrived.start == [method, raw_target, b"HTTP/1.1"]
        assert end_to_end(arrived.fields) == end_to_end(request_fields)
        assert arrived.framing == request.framing
        assert arrived.digest() == hashlib.sha256(request.body).hexdigest()
        assert arrived.trailers == (request.trailers if request.framing == "chunked" else [])
        assert [v for n, v in arrived.fields if n.lower() == b"host"] == [
            stage.upstream.url.removeprefix("http://").encode()
        ]
        assert got.start == [b"HTTP/1.1", b"%d" % status, reason]
        assert end_to_end(got.fields) == end_to_end(response_fields)
        if got.framing != "none":
            assert got.digest() == hashlib.sha256(response.body).hexdigest()
            assert got.framing == {"eof": "chunked"}.get(response.framing, response.framing)
            assert got.trailers == (response.trailers if response.framing == "chunked" else [])
        record = await stage.proxy.record(before + 1)
        assert (record.status, record.method) == (status, method.decode())

    before = len(stage.proxy.records)
    stage.answer = answer
    stage.loop.run(story())


def test_the_list_of_methods_is_the_parsers() -> None:
    """Every method that is sent above is one that the parser takes."""
    for method in METHODS:
        parser = httptools.HttpRequestParser(object())
        parser.feed_data(b"%b / HTTP/1.1\r\nHost: x\r\n\r\n" % method)


async def get(proxy: Proxied, request: bytes) -> bytes:
    """The whole answer to a request whose connection ends with it."""
    data, _ = await proxy.ask(request)
    return data


def test_nothing_is_added_in_either_direction() -> None:
    """No Date, Server, User-Agent, Accept, Accept-Encoding; not even an empty Via."""
    heads: list[bytes] = []

    async def answer(peer: Peer) -> None:
        heads.append(await peer.head())
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async def story() -> None:
        async with upstream(answer) as up, proxied(up.url) as proxy:
            got = await get(proxy, b"GET /x HTTP/1.1\r\nHost: me\r\nConnection: close\r\n\r\n")
            host = up.url.removeprefix("http://").encode()
            assert heads == [b"GET /x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"]
            assert got == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"

    run(story())


@pytest.mark.parametrize(
    ("prefix", "sent_target", "expected"),
    [
        ("/api", b"/v1/messages?beta=true", b"/api/v1/messages?beta=true"),
        ("/v1/", b"/v1/files/v1/foo", b"/v1/v1/files/v1/foo"),
        ("", b"//v1/x", b"//v1/x"),
        ("", b"http://elsewhere.example:81/a?b", b"/a?b"),
        ("/api", b"http://elsewhere.example", b"/api/"),
        ("", b"*", b"*"),
        ("", b"/?q", b"/?q"),
    ],
)
def test_targets_join_by_one_rule_and_never_choose_a_host(
    prefix: str, sent_target: bytes, expected: bytes
) -> None:
    """The prefix, then the client's target as it came."""
    seen: list[bytes] = []

    async def answer(peer: Peer) -> None:
        seen.append((await peer.head()).split(b" ")[1])
        await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def story() -> None:
        async with upstream(answer) as up, proxied(up.url + prefix) as proxy:
            method = b"OPTIONS" if sent_target == b"*" else b"GET"
            request = b"%b %b HTTP/1.1\r\nHost: me\r\nConnection: close\r\n\r\n"
            await get(proxy, request % (method, sent_target))
            assert seen == [expected]

    run(story())


def test_a_tag_in_the_path_becomes_the_label() -> None:
    """Dify's provider form can change nothing but the path."""
    seen: list[bytes] = []

    async def answer(peer: Peer) -> None:
        seen.append((await peer.head()).split(b" ")[1])
        await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def story() -> None:
        async with upstream(answer) as up, proxied(up.url, tags=True) as proxy:
            await get(proxy, b"GET /t/rag-app/v1/x HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert seen == [b"/v1/x"]
            assert (await proxy.record()).label == "rag-app"

    run(story())


def test_interim_responses_pass_through_in_order() -> None:
    """103 and any other 1xx, with their fields; none of them to HTTP/1.0."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nlink: </b>\r\n\r\n"
    odd = b"HTTP/1.1 150 Odd\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    async def answer(peer: Peer) -> None:
        await peer.head()
        await peer.send(early + odd)
        await asyncio.sleep(0.01)
        await peer.send(final)

    async def story() -> None:
        async with upstream(answer) as up, proxied(up.url) as proxy:
            client = await proxy.connect()
            await client.send(b"GET / HTTP/1.1\r\nHost: me\r\n\r\n")
            assert await client.head() + await client.head() + await client.head() == (
                early + odd + final
            )
            client.close()
            old = await get(proxy, b"GET / HTTP/1.0\r\n\r\n")
            assert old == final[:-2] + b"Connection: close\r\n\r\n"

    run(story())


def test_heads_up_to_the_limit_pass_both_ways() -> None:
    """A 200 kB field to upstream, a 120 kB field back, 300 fields (B72)."""
    big = b"a" * 200_000
    many = b"".join(b"X-%d: %d\r\n" % (i, i) for i in range(300))

    async def answer(peer: Peer) -> None:
        head = await peer.head()
        assert b"X-Big: " + big + b"\r\n" in head
        assert many in head
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Back: " + big[:120_000])
        await peer.send(b"\r\n\r\n")

    async def story() -> None:
        async with upstream(answer) as up, proxied(up.url) as proxy:
            request = b"GET / HTTP/1.1\r\nHost: me\r\nConnection: close\r\nX-Big: " + big
            got = await get(proxy, request + b"\r\n" + many + b"\r\n")
            assert b"X-Back: " + big[:120_000] + b"\r\n" in got

    run(story())
