"""The relay's view of upstream: what a call says of itself, whatever became of it."""

import asyncio
import sys

import pytest

from proxy.account import Mark, Phase
from proxy.upstream.client import Blame, Call, ConnectionFacts, UpstreamFault
from proxy.upstream.wire import Framing
from tests.support import Peer, run
from tests.upstream.calls import HOST, OK, Whole, always, ask, closed_port, listening, new_trace, to


def test_a_response_head_is_as_received() -> None:
    """Status, reason, fields with case, order, repeats and bytes; upstream's version."""
    head = b"HTTP/1.0 207 Sehr \xfcblich\r\nX-A: 1\r\nx-a: \xff\r\nContent-Length: 2\r\n\r\nok"

    async def story() -> None:
        async with listening(always(head)) as server, to(server.port) as upstream:
            answer = await ask(upstream)
        assert (answer.head.status, answer.head.reason) == (207, b"Sehr \xfcblich")
        assert answer.head.fields == [
            (b"X-A", b"1"),
            (b"x-a", b"\xff"),
            (b"Content-Length", b"2"),
        ]
        assert answer.head.framing is Framing.LENGTH
        assert answer.facts.http_version == "1.0"

    run(story())


def test_of_a_connection_that_never_was_nothing_is_known() -> None:
    """Every fact is absent, none is zero or false."""

    async def story() -> None:
        async with to(closed_port()) as upstream:
            call = Call(upstream, new_trace())
            with pytest.raises(UpstreamFault):
                await call.send("GET", b"/", HOST, Whole(b""))
            await call.aclose()
        assert call.facts() == ConnectionFacts()
        assert call.facts().reused is None

    run(story())


def test_facts_outlive_the_connection() -> None:
    """A reset in the body: address, port and family stay known, and do not change any more."""

    async def resets(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1")
        await asyncio.sleep(0.02)
        peer.reset()

    async def story() -> None:
        async with listening(resets) as server, to(server.port) as upstream:
            call = Call(upstream, new_trace())
            await call.send("GET", b"/", HOST, Whole(b""))
            port = call.facts().local_port
            with pytest.raises(UpstreamFault) as caught:
                await call.pump(lambda *_: True)
            assert caught.value.blame is Blame.ABORTED
            await call.aclose()
            await call.aclose()
        facts = call.facts()
        assert port
        assert (facts.address, facts.local_port) == (f"127.0.0.1:{server.port}", port)
        assert facts.family == "ipv4"
        assert (facts.kernel_at_head is not None) == (sys.platform == "linux")
        assert facts.kernel_at_end is None
        assert call.facts() is facts

    run(story())


def test_the_facts_of_one_call_are_not_those_of_the_next() -> None:
    """The connection goes on; what was said of the first call stays as it was."""

    async def story() -> None:
        async with listening(always(OK)) as server, to(server.port) as upstream:
            first = Call(upstream, new_trace())
            await first.send("GET", b"/", HOST, Whole(b""))
            await first.pump(lambda *_: True)
            await first.aclose()
            before = first.facts()
            await ask(upstream)
            assert first.facts() is before
            assert before.reused is False

    run(story())


def test_the_phase_says_where_a_call_is() -> None:
    """Waiting for the head, waiting for the body, in the body, done."""

    async def story() -> None:
        go = asyncio.Queue[None]()

        async def steps(peer: Peer) -> None:
            await peer.head()
            for data in (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", b"o", b"k"):
                await go.get()
                await peer.send(data)
            await peer.rest()

        async with listening(steps) as server, to(server.port) as upstream:
            trace = new_trace()
            call = asyncio.create_task(ask(upstream, trace=trace))
            for phase, mark in (
                (Phase.WAIT, Mark.RESPONSE_HEADERS),
                (Phase.HEAD, Mark.FIRST_CHUNK),
                (Phase.BODY, Mark.UPSTREAM_RX_END),
            ):
                while trace.phase is not phase:
                    await asyncio.sleep(0.002)
                assert mark not in trace.marks
                go.put_nowait(None)
            await call
            assert trace.phase is Phase.DONE

    run(story())
