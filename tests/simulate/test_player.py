"""Answers on their way: the timetable, the slots, the pings, the cuts. Over real sockets."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from proxy.simulate.server import Simulator
from proxy.simulate.witness import Received

from .client import MS, ask, connected, exchange, offsets, parse, request, run, wait_answered


def answered(script: Any, **options: Any) -> Received:
    """What the witness says about one request, after it was answered on both loops."""
    found: list[Received] = []

    async def story() -> None:
        async with Simulator() as sim:
            await exchange(sim, request(script, **options))
            found.extend(await wait_answered(sim))

    run(story)
    return found[-1]


def test_no_step_is_early_and_none_delays_the_next() -> None:
    """Instants are absolute: they add up to the timetable, not to more."""
    received = answered("queue=5 load=5 prefill=10 first_token=2 gap=3 tokens=10")

    tokens = offsets(received, "token")
    assert offsets(received, "head")[0] < 22
    assert all(at >= 22 + 3 * index for index, at in enumerate(tokens))
    assert offsets(received, "end") == offsets(received, "closing")
    assert [name for name, _ in received.timeline] == [
        *("head", "opening"),
        *["token"] * 10,
        *("closing", "end"),
    ]


def test_each_step_can_be_read_when_it_is_due() -> None:
    """Nothing is held back for the next one, which here would be a minute."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            await client.send(request("prefill=60000"))
            assert (await client.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
            await client.until(b'"content":""},"finish_reason":null}]}\n\n')
            assert sim.requests[0].instants("token") == ()
        async with Simulator() as sim, connected(sim) as client:
            await client.send(request("gap=60000"))
            await client.until(b'"content":"The"},"finish_reason":null}]}\n\n')
            assert len(sim.requests[0].instants("token")) == 1

    run(story)


def test_llamacpp_timings_agree_with_the_instants_that_were_kept() -> None:
    """Prefill ends with the first token, decoding with the last."""

    async def story() -> None:
        async with Simulator() as sim:
            script = {"load": 5, "prefill": 20, "gap": 5, "tokens": 4, "evidence": ["llamacpp"]}
            answer = await ask(sim, script)
            received = (await wait_answered(sim))[0]
            timings = answer.objects[-1]["timings"]

            first, *_, last = received.instants("token")
            assert received.complete_at is not None
            prompt = first - received.complete_at - 5 * MS
            assert timings["prompt_ms"] == pytest.approx(prompt / MS, abs=0.001)
            assert timings["prompt_ms"] >= 20
            assert timings["predicted_ms"] == pytest.approx((last - first) / MS, abs=0.001)
            assert (timings["prompt_n"], timings["predicted_n"]) == (16, 4)

    run(story)


def test_llamacpp_timings_with_every_token() -> None:
    """As with timings_per_token: prompt_ms is known with the first."""

    async def story() -> None:
        async with Simulator() as sim:
            answer = await ask(
                sim, '{"prefill":5,"gap":2,"tokens":3,"evidence":["llamacpp_per_token"]}'
            )
            told = [each["timings"] for each in answer.objects if "timings" in each]
            assert len(told) == 4
            assert len({timings["prompt_ms"] for timings in told}) == 1
            predicted = [timings["predicted_ms"] for timings in told]
            assert predicted[0] == 0
            assert predicted == sorted(predicted)

    run(story)


def test_ollama_tells_its_durations_unasked() -> None:
    """Nanoseconds that add up to no more than the total."""

    async def story() -> None:
        async with Simulator() as sim:
            script = "queue=10 load=20 prefill=10 gap=5 tokens=3"
            answer = await ask(sim, script, target="/api/chat")
            last = json.loads(answer.body.splitlines()[-1])

            assert last["load_duration"] == 30 * MS
            assert last["prompt_eval_duration"] >= 10 * MS
            assert last["eval_duration"] > 0
            parts = ("load_duration", "prompt_eval_duration", "eval_duration")
            assert sum(last[part] for part in parts) <= last["total_duration"]

    run(story)


def test_vllm_metrics_come_with_the_usage_or_not_at_all() -> None:
    """As its stream options have it."""

    async def story() -> None:
        async with Simulator() as sim:
            script = '{"queue":5,"prefill":5,"evidence":["vllm"],"usage":true}'
            with_usage = await ask(sim, script)
            without = await ask(sim, script.replace("true", "false"))

            metrics = with_usage.objects[-1]["metrics"]
            assert metrics["queue_time_ms"] == 5
            assert metrics["time_to_first_token_ms"] >= 5
            assert "metrics" not in without.objects[-1]

    run(story)


def test_header_evidence_holds_what_was_known_when_the_head_left() -> None:
    """Early: hardly anything; late: everything up to the first token."""

    async def story() -> None:
        async with Simulator() as sim:
            script = {
                "queue": 5,
                "prefill": 10,
                "evidence": ["server_timing", "openai_processing_ms", "envoy"],
            }
            early = await ask(sim, script)
            late = await ask(sim, {**script, "headers": "late"})

            (timing,) = early.values("Server-Timing")
            assert "prefill" not in timing
            (timing,) = late.values("Server-Timing")
            assert [part.split(";")[0] for part in timing.split(", ")] == [
                "queue",
                "load",
                "prefill",
                "total",
            ]
            assert int(late.values("openai-processing-ms")[0]) >= 15
            assert int(late.values("x-envoy-upstream-service-time")[0]) >= 15

    run(story)


def test_forged_evidence() -> None:
    """Whatever the script wants to be told."""

    async def story() -> None:
        async with Simulator() as sim:
            script = {
                "evidence": ["server_timing", "llamacpp"],
                "evidence_override": {
                    "server_timing": ["x-originResponse;dur=", "inner"],
                    "llamacpp": {"prompt_ms": -5},
                },
            }
            answer = await ask(sim, script)

            assert answer.values("Server-Timing") == ["x-originResponse;dur=", "inner"]
            assert answer.objects[-1]["timings"]["prompt_ms"] == -5

    run(story)


def test_a_further_request_really_waits_for_a_slot() -> None:
    """Its wait is the queue that the evidence tells; its early head does not wait."""

    async def story() -> None:
        async with Simulator(slots=1) as sim:
            script = {"prefill": 40, "tokens": 1, "evidence": ["vllm"], "usage": True}
            async with connected(sim) as first, connected(sim) as second:
                await first.send(request(script))
                await sim.wait(lambda: len(sim.requests) == 1)
                await second.send(request(script))
                assert (await second.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                assert (sim.generating, sim.waiting) == (1, 1)
                one, two = parse((await first.rest())[0]), (await second.rest())[0]
                assert b"[DONE]" in two
            a, b = await wait_answered(sim, 2)

            assert b.instants("token")[0] >= a.instants("end")[0] + 40 * MS
            assert one.objects[-1]["metrics"]["queue_time_ms"] < 40
            assert b.complete_at is not None
            waited = (a.instants("end")[0] - b.complete_at) / MS
            metrics = json.loads(two.split(b"data: ")[-2].split(b"\n")[0])["metrics"]
            assert metrics["queue_time_ms"] >= waited
            assert (sim.generating, sim.waiting) == (0, 0)

    run(story)


def test_who_leaves_the_queue_is_passed_over() -> None:
    """And whoever generates frees the slot by leaving."""

    async def story() -> None:
        async with Simulator(slots=1) as sim:
            async with connected(sim) as first:
                await first.send(request("prefill=60000"))
                await sim.wait(lambda: sim.generating == 1)
                async with connected(sim) as second:
                    await second.send(request("prefill=60000 headers=late"))
                    await sim.wait(lambda: sim.waiting == 1)
                await sim.wait(lambda: sim.waiting == 0)
                assert sim.generating == 1
            await sim.wait(lambda: sim.generating == 0)
            assert (await ask(sim)).complete

    run(story)


def test_pings_and_comments_go_on_while_a_request_waits_for_its_slot() -> None:
    """They have their own times; a ping makes a late head leave."""

    async def story() -> None:
        async with Simulator(slots=1) as sim, connected(sim) as first:
            await first.send(request("prefill=60000"))
            await sim.wait(lambda: sim.generating == 1)
            script = '{"headers":"late","pings":5,"comments":[[12,"still waiting"]],"tokens":1}'
            async with connected(sim) as second:
                await second.send(request(script))
                seen = await second.until(b": still waiting\n\n")
                seen += await second.until(b": ping\n\n")
                assert seen.count(b"HTTP/1.1 200") == 1
                first.writer.transport.abort()
                rest, how = await second.rest()
                assert (rest.count(b"HTTP/1.1"), how) == (0, "fin")
                assert rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
            received = (await wait_answered(sim, 2))[1]
            assert all(at >= 5 for at in offsets(received, "ping"))

    run(story)


def test_pings_are_sent_while_nothing_else_is() -> None:
    """In the words of the dialect, and none after the end."""

    async def story() -> None:
        async with Simulator() as sim:
            async with connected(sim) as client:
                await client.send(request("pings=5 gap=60000", target="/v1/responses"))
                for _ in range(3):
                    await client.until(b'data: {"type":"keepalive"}\n\n')
            script = "pings=1 prefill=10 end_delay=5 fragment=50 fragment_delay=1"
            assert (await ask(sim, script, target="/v1/messages")).complete

    run(story)


@pytest.mark.parametrize("how", ["fin", "rst"])
def test_a_cut_connection(how: str) -> None:
    """Everything before the cut arrives, nothing after it, and the end is as scripted."""

    async def story() -> None:
        async with Simulator() as sim:
            data, ending = await exchange(
                sim, request(f"gap=2 tokens=5 cut.after_tokens=3 cut.how={how}", close=False)
            )
            answer = parse(data)
            assert (len(answer.objects), answer.complete, ending) == (4, False, how)
            received = (await wait_answered(sim))[0]
            assert (received.ended_how, received.timeline[-1][0]) == ("cut", "cut")
            assert (await sim.wait_closed(received.connection)).closed_how == "server"

    run(story)


def test_a_hanging_connection() -> None:
    """Nothing more comes, and it stays open until the client leaves."""

    async def story() -> None:
        async with Simulator() as sim, connected(sim) as client:
            await client.send(request("gap=2 cut.after_tokens=1 cut.how=hang"))
            await client.until(b'"content":"The"},"finish_reason":null}]}\n\n\r\n')
            received = (await wait_answered(sim))[0]
            assert (received.ended_how, sim.open_connections) == ("cut", 1)
            client.writer.close()
            closed = await sim.wait_closed(received.connection)
            assert closed.closed_how == "client_fin"

    run(story)


@pytest.mark.parametrize("size", [0, 1, 20, 90, 150, 400])
def test_a_cut_after_any_number_of_bytes(size: int) -> None:
    """Before the head, in it, in a chunk header, in an event."""

    async def story() -> None:
        async with Simulator() as sim:
            whole, _ = await exchange(sim, request("tokens=2 gap=1"))
            cut, how = await exchange(sim, request(f"tokens=2 gap=1 cut.after_bytes={size}"))
            assert (cut, how) == (whole[:size], "fin")

    run(story)


def test_a_cut_at_a_time() -> None:
    """Here before the head."""

    async def story() -> None:
        async with Simulator() as sim:
            cut = await exchange(sim, request("headers=late prefill=60000 cut.at_ms=5 cut.how=rst"))
            assert cut == (b"", "rst")
            received = (await wait_answered(sim))[0]
            assert offsets(received, "cut")[0] >= 5

    run(story)


def test_a_big_body_comes_whole_at_the_speed_of_the_client() -> None:
    """With a length or in chunks, and it waits while nobody reads."""

    async def story() -> None:
        size = 5_000_001
        block = bytes(range(256)) * (size // 256 + 1)
        digest = hashlib.sha256(block[:size]).hexdigest()
        async with Simulator() as sim:
            for framing in ("length", "chunked"):
                answer = await ask(sim, f"big={size} framing={framing}")
                assert hashlib.sha256(answer.body).hexdigest() == digest
                assert answer.complete
            async with connected(sim) as client:
                client.writer.transport.pause_reading()  # type: ignore[attr-defined] # a read transport
                await client.send(request(f"big={size}"))
                await sim.wait(lambda: len(sim.requests) == 3)
                await asyncio.sleep(0.05)
                assert sim.requests[2].ended_how is None
                client.writer.transport.resume_reading()  # type: ignore[attr-defined] # as above
                assert len(parse((await client.rest())[0]).body) == size

    run(story)


def test_one_event_of_any_size() -> None:
    """In one line."""

    async def story() -> None:
        async with Simulator() as sim:
            answer = await ask(sim, "one_event_bytes=3000000")
            assert len(answer.objects[1]["choices"][0]["delta"]["content"]) == 3_000_000

    run(story)


def test_the_echo_is_what_arrived() -> None:
    """Method, target, pairs in order, digest, framing, trailers."""

    async def story() -> None:
        async with Simulator() as sim:
            head = (
                b"PUT /any/../path%2F?q=%22 HTTP/1.1\r\nX-Sim: echo=true\r\nx-B: \xe9\r\nX-b: 2\r\n"
                b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
            )
            data, _ = await exchange(sim, head + b"5\r\nhello\r\n0\r\nSum: 7\r\n\r\n")
            assert parse(data).json == {
                "method": "PUT",
                "target": "/any/../path%2F?q=%22",
                "http_version": "1.1",
                "headers": [
                    ["X-Sim", "echo=true"],
                    ["x-B", "é"],
                    ["X-b", "2"],
                    ["Transfer-Encoding", "chunked"],
                    ["Connection", "close"],
                ],
                "framing": "chunked",
                "trailers": [["Sum", "7"]],
                "body_bytes": 5,
                "body_sha256": hashlib.sha256(b"hello").hexdigest(),
            }

    run(story)


def test_the_digest_of_the_body_in_the_head() -> None:
    """Beside a usual answer."""

    async def story() -> None:
        async with Simulator() as sim:
            answer = await ask(sim, "digest=true", body=b"0123456789")
            assert answer.values("X-Sim-Body-Bytes") == ["10"]
            assert answer.values("X-Sim-Body-Sha256") == [hashlib.sha256(b"0123456789").hexdigest()]

    run(story)
