"""The response body: read by what it is, decoded, cut into events."""

import gzip

import pytest

from proxy.framing import Event
from proxy.serve.body import READ_LIMIT, WHOLE_LIMIT, Body

SSE = b'data: {"a":1}\n\n'
JSON = b'{"a":1}'
EVENT = Event(b"", JSON)


def body(
    content_type: bytes | None,
    *chunks: bytes,
    status: int = 200,
    coding: bytes | None = None,
    known: bool = True,
) -> tuple[Body, list[Event]]:
    """A body of these chunks, and all its events."""
    headers = [(b"X-Other", b"1")]
    if content_type is not None:
        headers.append((b"Content-Type", content_type))
    if coding is not None:
        headers.append((b"CONTENT-ENCODING", coding))
    made = Body(status, headers, known=known)
    events = [event for chunk in chunks for event in made.feed(chunk)]
    return made, events + made.close()


@pytest.mark.parametrize(
    "content_type",
    [b"text/event-stream", b"text/event-stream;charset=UTF-8", b" TEXT/Event-Stream ; x=y"],
)
def test_event_stream(content_type: bytes) -> None:
    """In any case, with parameters."""
    made, events = body(content_type, SSE, SSE)

    assert (made.stream, made.mislabelled, events) == (True, False, [EVENT, EVENT])


@pytest.mark.parametrize(
    "content_type", [b"application/x-ndjson", b"application/jsonl", b"application/stream+json"]
)
def test_ndjson(content_type: bytes) -> None:
    """A stream of lines."""
    made, events = body(content_type, JSON + b"\n" + JSON)

    assert (made.stream, events) == (True, [EVENT, EVENT])


@pytest.mark.parametrize(
    "content_type",
    [b"application/json", b"application/json; charset=utf-8", b"application/problem+json", None],
)
def test_document(content_type: bytes | None) -> None:
    """JSON, or nothing said: one event at the end."""
    made, events = body(content_type, JSON[:3], JSON[3:])

    assert (made.stream, made.whole, made.mislabelled) == (False, True, False)
    assert events == [EVENT]


@pytest.mark.parametrize("content_type", [b"text/html", b"image/png", b"application/octet-stream"])
def test_other_bodies_are_not_kept(content_type: bytes) -> None:
    """They are counted elsewhere."""
    made, events = body(content_type, b"<html>" * 100)

    assert (made.stream, events) == (False, [])


@pytest.mark.parametrize(
    ("status", "expected"), [(200, []), (404, [EVENT])], ids=["success", "error"]
)
def test_unknown_traffic(status: int, expected: list[Event]) -> None:
    """Of it only error bodies and streams are looked into."""
    assert body(b"application/json", JSON, status=status, known=False)[1] == expected
    assert body(b"text/event-stream", SSE, status=status, known=False)[1] == [EVENT]


@pytest.mark.parametrize("size", [1, 2, 5, 100])
@pytest.mark.parametrize("content_type", [b"application/json", b"text/plain", None])
def test_a_stream_under_another_name(content_type: bytes | None, size: int) -> None:
    """Its first bytes tell, however few come at a time."""
    wire = b": hi\n\n" + SSE
    made, events = body(content_type, *(wire[n : n + size] for n in range(0, len(wire), size)))

    assert (made.stream, made.mislabelled) == (True, True)
    assert events == [Event(b"", b"hi", comment=True), EVENT]


@pytest.mark.parametrize("start", [b"", b"\n \r\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("size", [1, 100])
def test_a_document_under_the_name_of_a_stream(start: bytes, size: int) -> None:
    """Gateways label whole answers as event streams."""
    wire = start + JSON
    made, events = body(
        b"text/event-stream", *(wire[n : n + size] for n in range(0, len(wire), size))
    )

    assert (made.stream, made.mislabelled, made.whole) == (False, True, True)
    assert [event.data.strip(b"\n \r\xef\xbb\xbf") for event in events] == [JSON]


def test_a_very_short_body() -> None:
    """Shorter than what it takes to tell."""
    assert body(b"application/json", b"{}")[1] == [Event(b"", b"{}")]
    assert body(b"text/event-stream", b":\n\n")[1] == [Event(b"", b"", comment=True)]
    assert body(b"application/json")[1] == []


def test_endless_white_space_is_not_kept() -> None:
    """Some servers send empty lines in front of a document while it waits."""
    made = Body(200, [(b"content-type", b"application/json")], known=True)
    for _ in range(1000):
        made.feed(b"\n" * 100)

    assert made._held == b""
    assert made.feed(JSON) + made.close() == [EVENT]


def test_compressed() -> None:
    """Decoded on the way; one read may hold part of an event, several events, or none."""
    packed = gzip.compress(SSE * 3)
    made, events = body(
        b"text/event-stream", *(packed[n : n + 7] for n in range(0, len(packed), 7)), coding=b"gzip"
    )

    assert (made.lost, events) == (None, [EVENT] * 3)


def test_repeated_coding_headers_are_one_list() -> None:
    """As if they were joined with a comma (RFC 9110 section 5.3)."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-encoding", b"gzip"),
        (b"content-encoding", b"gzip"),
    ]
    made = Body(200, headers, known=True)

    made.feed(gzip.compress(gzip.compress(JSON)))
    assert made.close() == [EVENT]


@pytest.mark.parametrize(
    ("coding", "wire", "why"),
    [
        (b"compress", b"\x1f\x9d", "unsupported_encoding"),
        (b"gzip", b"not gzip at all", "undecodable_response"),
        (b"gzip", gzip.compress(bytes(READ_LIMIT + 1)), "undecodable_response"),
    ],
    ids=["unsupported", "corrupt", "bomb"],
)
def test_what_cannot_be_decoded(coding: bytes, wire: bytes, why: str) -> None:
    """It says why, and gives nothing."""
    made, events = body(b"text/event-stream", wire, SSE, coding=coding)

    assert (made.lost, made.stream, events) == (why, True, [])


def test_a_document_past_the_bound() -> None:
    """Reported without its data."""
    made, events = body(b"application/json", b"[" + bytes(WHOLE_LIMIT))

    assert [(event.oversize, event.data) for event in events] == [(True, b"")]
    assert made.whole
