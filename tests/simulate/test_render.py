"""From steps to bytes on the wire."""

import zlib

import pytest

from .plans import planned, reply, wire


def test_what_is_due_at_one_instant_leaves_in_one_write() -> None:
    """Head and opening; the last token, the closing and the end."""
    wires = [step.wire for step in planned("prefill=10 gap=10 tokens=2").steps if step.wire]

    assert [data.count(b"data: ") for data in wires] == [1, 1, 3]
    assert wires[0].startswith(b"HTTP/1.1 200")
    assert wires[-1].endswith(b"0\r\n\r\n")


def test_a_step_that_tells_measured_times_waits_for_its_moment() -> None:
    """All others are ready."""
    found = planned('gap=10 tokens=2 evidence=["llamacpp"]')

    assert [step.name for step in found.steps if step.wire is None] == ["closing"]
    assert [step.name for step in planned("big=9").steps if step.wire is None] == ["big"]


def test_a_head_that_tells_measured_times_waits_too() -> None:
    """With its body, when it tells the length of that."""
    stream = planned("digest=true tokens=1")
    whole = planned('evidence=["envoy"]', stream=False)

    assert [step.name for step in stream.steps if step.wire is None] == ["head"]
    assert [step.name for step in whole.steps if step.wire is None] == ["body"]


@pytest.mark.parametrize("framing", ["chunked", "length", "eof"])
def test_coded_events_are_flushed_one_by_one(framing: str) -> None:
    """In every framing."""
    answer = reply({"content_encoding": "gzip", "framing": framing})

    assert answer.complete
    assert answer.values("Content-Encoding") == ["gzip"]
    assert zlib.decompress(answer.body, wbits=31) == reply("").body
    if framing == "chunked":
        decoder = zlib.decompressobj(wbits=31)
        events = [decoder.decompress(chunk) for chunk in answer.chunks]
        assert events == [*reply("").chunks, b""]


def test_a_coded_document() -> None:
    """With the length of the coded bytes."""
    answer = reply("content_encoding=deflate", stream=False)

    assert zlib.decompress(answer.body) == reply("", stream=False).body


def test_a_coded_stream_whose_order_is_open_is_coded_when_it_is_sent() -> None:
    """While it may wait for a slot, comments can overtake it."""
    script = '{"content_encoding":"gzip","comments":[[1,"x"]]}'

    assert all(step.wire is None for step in planned(script, slots=True).steps)
    assert wire(script)
