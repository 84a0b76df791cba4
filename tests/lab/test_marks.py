"""Marks from timelines and from reads."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.marks import dechunked, observed, scripted, wire_end

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = (b"data: open\n\n", b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n")


def chunk(data: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


WIRE = HEAD + b"".join(map(chunk, EVENTS)) + b"0\r\n\r\n"
ENDS = {
    "response_headers": len(HEAD),
    "first_chunk": WIRE.index(b"data: open") + 1,
    "first_event": WIRE.index(b"open") + 6,
    "first_token": WIRE.index(b"one") + 5,
    "last_token": WIRE.index(b"two") + 5,
    "terminal_event": WIRE.index(b"[DONE]") + 8,
    "upstream_rx_end": len(WIRE),
}
"""Which bytes have to be there for each mark."""


@given(st.sets(st.integers(1, len(WIRE) - 1)))
def test_a_mark_is_the_read_that_completed_it(cuts: set[int]) -> None:
    """However the bytes were cut into reads."""
    places = [0, *sorted(cuts), len(WIRE)]
    reads = [(index, end - start) for index, (start, end) in enumerate(pairwise(places))]
    needles = {"first_token": b"one", "last_token": b"two"}
    marks = observed(reads, WIRE, needles, ndjson=False)
    read_to = list(accumulate(size for _, size in reads))
    assert marks == {
        name: next(index for index, end in enumerate(read_to) if end >= wanted)
        for name, wanted in ENDS.items()
    }


def test_lines_are_events_where_the_format_says_so() -> None:
    """NDJSON: the first line end ends the first event."""
    wire = HEAD + chunk(b'{"a":1}\n{"b":2}\n') + b"0\r\n\r\n"
    marks = observed([(7, len(wire))], wire, {"first_token": b'"b"'}, ndjson=True)
    assert set(marks.values()) == {7}


def test_a_cut_body_is_an_error() -> None:
    """No marks from half an answer."""
    with pytest.raises(ValueError, match=r"substring not found|cut"):
        dechunked(WIRE[:-20], len(HEAD))


@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=6))
def test_every_payload_byte_has_its_place_on_the_wire(pieces: list[bytes]) -> None:
    """Payload and wire agree byte by byte."""
    wire = b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    payload, places = dechunked(wire, 0)
    assert payload == b"".join(pieces)
    for end in range(1, len(payload) + 1):
        assert wire[wire_end(places, end) - 1] == payload[end - 1]


def test_marks_of_a_timeline() -> None:
    """Reasoning tokens come before the first visible one."""
    steps = ("head", "opening", "started", "token", "token", "token", "closing", "end")
    marks = scripted([(name, at) for at, name in enumerate(steps)], reasoning=2)
    assert marks == {
        "response_headers": 0,
        "first_chunk": 1,
        "first_event": 1,
        "first_token": 3,
        "first_content": 5,
        "last_token": 5,
        "terminal_event": 6,
        "upstream_rx_end": 7,
    }
