"""HTTP/2 streams that are given up."""

import asyncio

import httpx
import pytest
import trustme

from proxy.upstream.orphans import reset_orphans
from tests.support import run
from tests.upstream.calls import ask, listening, tls_server, to
from tests.upstream.peers import Http2, Stream


@pytest.mark.parametrize("when", ["head", "body"])
def test_a_call_that_is_given_up_resets_its_stream(when: str) -> None:
    """Upstream can stop generating; the connection and its other streams go on (B13)."""
    streams: list[Stream] = []

    async def serve(stream: Stream) -> None:
        streams.append(stream)
        if stream.path == b"/endless":
            if when == "body":
                await stream.head(200)
                await stream.data(b"data: x\n\n")
            return
        await stream.head(200)
        await stream.data(b"ok", end=True)

    async def story() -> None:
        tls = tls_server(trustme.CA().issue_cert("127.0.0.1"), alpn=["h2"])
        async with (
            listening(Http2(serve), tls=tls) as server,
            to(server.port, scheme="https", http2=True, verify=False) as upstream,
        ):
            await ask(upstream)
            call = asyncio.create_task(ask(upstream, target=b"/endless"))
            other = asyncio.create_task(ask(upstream, target=b"/endless"))
            while len(streams) < 3:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            while streams[1].reset_code is None:
                await asyncio.sleep(0.005)
            assert streams[2].reset_code is None
            assert (await ask(upstream)).payload == b"ok"
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
            assert server.connections == 1

    run(story())


def test_where_there_are_no_streams_nothing_happens() -> None:
    """Another transport, or one whose inside has changed."""
    asyncio.run(reset_orphans(httpx.AsyncBaseTransport()))
    asyncio.run(reset_orphans(httpx.AsyncHTTPTransport(verify=False)))
