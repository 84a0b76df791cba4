"""One connection: what arrives, in which order it is answered, how it ends. Over real sockets."""

import asyncio
import hashlib
import json
import socket
import struct
from typing import Any

import pytest

from proxy.simulate.server import Simulator

from .client import (
    PATIENCE_S,
    Client,
    ask,
    connected,
    exchange,
    offsets,
    parse,
    request,
    run,
    wait_answered,
)

CHUNKED = b"POST /v1/chat/completions HTTP/1.1\r\nX-Sim: %b\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answer(client: Client) -> Any:
    """The next whole answer with a length."""
    head = await client.until(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = await asyncio.wait_for(client.reader.readexactly(length), PATIENCE_S)
    return json.loads(body)


def test_requests_on_one_connection() -> None:
    """Answered in order; the witness tells that the connection was the same."""

    async def story() -> None:
        async with Simulator() as sim:
            async with connected(sim) as client:
                for model in ("a", "b"):
                    await client.send(request(close=False, body={"model": model}))
                    assert (await answer(client))["model"] == model
            await sim.wait(lambda: sim.open_connections == 0)
            assert [each.connection for each in sim.requests] == [1, 1]
            (connection,) = sim.connections
            assert (connection.requests, connection.open) == (2, False)
            assert all(each.ended_how == "complete" for each in sim.requests)

    run(story)


def test_pipelined_requests_are_answered_in_order() -> None:
    """However many there are, and the slow one first."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            slow = request("prefill=20 stream=false", close=False, body={"model": "0"})
            quick = [request(close=False, body={"model": str(k)}) for k in range(1, 1200)]
            await client.send(slow + b"".join(quick))
            models = [(await answer(client))["model"] for _ in range(1200)]
            assert models == [str(k) for k in range(1200)]

    run(story)


def test_a_request_is_complete_when_its_last_byte_is_here() -> None:
    """The timetable starts then, and the witness has seen the parts."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            await client.send(CHUNKED % b"close=true" + b"3\r\nabc\r\n")
            await sim.wait(lambda: len(sim.requests) == 1)
            await sim.wait(lambda: True)
            while sim.requests[0].first_body_at is None:
                await asyncio.sleep(0.001)
            assert sim.requests[0].complete_at is None
            await client.send(b"2\r\nde\r\n0\r\n\r\n")
            assert parse((await client.rest())[0]).complete

            received = (await wait_answered(sim))[0]
            assert received.first_body_at is not None
            assert received.complete_at is not None
            assert received.head_at <= received.first_body_at < received.complete_at
            assert received.complete_at <= received.instants("head")[0]
            assert (received.body, received.framing) == (b"abcde", "chunked")

    run(story)


@pytest.mark.parametrize("reset", [True, False])
def test_a_client_that_leaves(reset: bool) -> None:
    """Is noticed at once, and it is told how it left."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            await client.send(request("prefill=60000"))
            await client.until(b"\r\n\r\n")
            if reset:
                reset_by(client)
            else:
                client.writer.close()
            closed = await sim.wait_closed(1, PATIENCE_S)
            received = sim.requests[0]
            how = "client_reset" if reset else "client_fin"
            assert (closed.closed_how, received.ended_how) == (how, how)
            assert received.closed_at == closed.closed_at
            assert sim.generating == 0

    run(story)


def reset_by(client: Client) -> None:
    """Close with a RST."""
    connection = client.writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


def test_an_idle_connection_is_closed_after_its_time() -> None:
    """Without a word: the client learns it when it looks."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            await client.send(request("keep_alive=20 stream=false", close=False))
            await answer(client)
            assert await client.rest() == (b"", "fin")
            closed = await sim.wait_closed(1)
            received = sim.requests[0]
            assert received.ended_at is not None
            assert closed.closed_at is not None
            assert closed.closed_at - received.ended_at >= 20_000_000

    run(story)


def test_a_further_request_keeps_an_idle_connection_open() -> None:
    """The time starts anew."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            for _ in range(3):
                await client.send(request("keep_alive=60000 stream=false", close=False))
                await answer(client)
            assert sim.open_connections == 1

    run(story)


def test_expect_100() -> None:
    """100 is sent at once, ignored or refused, as scripted."""
    body = b'{"model":"m"}'
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nX-Sim: expect=%b%b\r\n"
        b"Expect: 100-continue\r\nContent-Length: 13\r\nConnection: close\r\n\r\n"
    )

    async def story() -> None:
        async with Simulator() as sim:
            async with connected(sim) as client:
                await client.send(head % (b"100", b""))
                assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                await client.send(body)
                assert parse((await client.rest())[0]).status == 200
            async with connected(sim) as client:
                await client.send(head % (b"ignore", b"") + body)
                assert (await client.rest())[0].startswith(b"HTTP/1.1 200")
            assert parse((await exchange(sim, head % (b"refuse", b"")))[0]).status == 417
            refused = parse((await exchange(sim, head % (b"refuse", b" status=401")))[0])
            assert (refused.status, refused.values("Connection")) == (401, ["close"])
            assert sim.requests[3].complete_at is None

    run(story)


def test_an_answer_before_the_body() -> None:
    """Then the end of the connection, or life as before when the body has come."""

    async def story() -> None:
        async with Simulator() as sim:
            early = CHUNKED % b"early_reply=true status=413 close=true"
            refused, _ = await exchange(sim, early)
            assert (parse(refused).status, sim.requests[0].complete_at) == (413, None)

            async with connected(sim) as client:
                await client.send(CHUNKED % b"early_reply=true status=413")
                assert "error" in await answer(client)
                await client.send(b"1\r\nx\r\n0\r\n\r\n")
                await client.send(request("status=404", close=False))
                assert "error" in await answer(client)
            assert sim.requests[1].body == b"x"

    run(story)


def test_a_body_that_is_never_read() -> None:
    """The client gets its early answer and cannot get rid of its body."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            size = 50_000_000
            client.writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n"
                b"X-Sim: early_reply=true read=none status=413\r\n\r\n" % size
            )
            assert "error" in await answer(client)
            client.writer.write(b"x" * size)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.writer.drain(), 0.2)
            assert sim.requests[0].body_bytes < size

    run(story)


def test_a_body_that_is_read_slowly() -> None:
    """At the rate of the script, as the instants show."""

    async def story() -> None:
        async with Simulator() as sim:
            body = b"x" * 600_000
            data, _ = await exchange(sim, request("read.rate=4000000 status=400", body=body))
            assert parse(data).status == 400
            received = (await wait_answered(sim))[0]
            assert received.complete_at is not None
            assert received.body_sha256 == hashlib.sha256(body).hexdigest()
            # What the last read brought was not waited for.
            took = (received.complete_at - received.head_at) / 1e9
            assert took >= (600_000 - 262_144) / 4_000_000

    run(story)


def test_a_script_that_cannot_be_played() -> None:
    """400 with the reason, then the end."""

    async def story() -> None:
        async with Simulator() as sim:
            refused = await ask(sim, "gap=x")
            assert refused.status == 400
            assert "$.gap" in refused.json["error"]["message"]
            nameless = await ask(sim, body={"model": "sim-what"})
            assert "no script is named 'what'" in nameless.json["error"]["message"]

    run(story)


def test_bytes_that_are_no_request() -> None:
    """400 and the end; a broken body ends its request too."""

    async def story() -> None:
        async with Simulator() as sim:
            assert (await exchange(sim, b"hello\r\n\r\n"))[0].startswith(b"HTTP/1.1 400 not a req")
            broken, _ = await exchange(sim, CHUNKED % b"" + b"nonsense\r\n")
            assert broken.startswith(b"HTTP/1.1 400")
            assert sim.requests[0].ended_how == "bad_request"

    run(story)


def test_an_old_client() -> None:
    """Its answer ends with the connection."""

    async def story() -> None:
        async with Simulator() as sim:
            data, how = await exchange(
                sim, b"POST /v1/messages HTTP/1.0\r\nX-Sim: stream=true\r\n\r\n"
            )
            answer = parse(data)
            assert (answer.events[-1][0], how) == ("message_stop", "fin")
            assert sim.requests[0].http_version == "1.0"

    run(story)


def test_an_early_hint_and_its_answer() -> None:
    """At their times."""

    async def story() -> None:
        async with Simulator() as sim:
            script = {"informational": [[5, 103, [["Link", "</x>"]]]], "headers": "late"}
            answer = await ask(sim, {**script, "prefill": 10})
            assert answer.informational == [b"HTTP/1.1 103 Early Hints\r\nLink: </x>"]
            received = (await wait_answered(sim))[0]
            assert offsets(received, "informational")[0] >= 5

    run(story)


def test_a_slow_reader_of_many_answers() -> None:
    """A full buffer holds the next answer back, and nothing is lost."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined] # a read transport
            for _ in range(3):
                await client.send(request("one_event_bytes=9000000 stream=false", close=False))
            await asyncio.sleep(0.05)
            client.writer.transport.resume_reading()  # type: ignore[attr-defined] # as above
            for _ in range(3):
                message = (await answer(client))["choices"][0]["message"]
                assert len(message["content"]) == 9_000_000

    run(story)
