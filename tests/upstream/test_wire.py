"""HTTP/1.1 responses as bytes: any chunking, same answer; garbage in, one known error out."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.upstream.wire import (
    ChunkedBody,
    Framing,
    Head,
    HeadReader,
    WireError,
    body_framing,
    parse_head,
)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` in pieces of the given sizes, and the rest."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


sizes = st.lists(st.integers(0, 7), max_size=60)
HEAD = b"HTTP/1.1 207 Sehr \xfcblich\r\nX-A:  b \r\nx-a: \xc3\xa9\r\nX-A: c\r\n\r\n"


def test_a_head_keeps_case_order_repeats_reason_and_bytes() -> None:
    """Only white space before a value is lost."""
    head = parse_head(HEAD)

    assert (head.status, head.reason, head.version) == (207, b"Sehr \xfcblich", "1.1")
    assert head.fields == [(b"X-A", b"b "), (b"x-a", b"\xc3\xa9"), (b"X-A", b"c")]


@given(sizes)
def test_a_head_is_the_same_in_any_pieces(sizes: list[int]) -> None:
    """And what follows it is handed back."""
    reader = HeadReader()
    found = None
    rest = b""
    for piece in cut(HEAD + b"body", sizes):
        if found is None:
            result = reader.feed(piece)
            if result is not None:
                found, rest = result
        else:
            rest += piece

    assert found == parse_head(HEAD)
    assert rest == b"body"


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\nA: b\n\n"],
        [b"HTTP/1.1 200 OK\r\nA: b", b"\n"],
        [b"HTTP/1.1 200 OK\r", b"\nA: b\n"],
    ],
)
def test_a_head_that_could_never_end_is_refused(pieces: list[bytes]) -> None:
    """Lines that end with LF alone: waiting for CRLF would hang the request."""
    reader = HeadReader()
    for piece in pieces[:-1]:
        assert reader.feed(piece) is None
    with pytest.raises(WireError, match="CRLF"):
        reader.feed(pieces[-1])


@given(st.binary(max_size=200), sizes)
def test_garbage_is_a_wire_error_or_incomplete(data: bytes, sizes: list[int]) -> None:
    """No other exception leaves the head reader or the chunk reader."""
    reader = HeadReader()
    with contextlib.suppress(WireError):
        for piece in cut(data, sizes):
            reader.feed(piece)
    chunked = ChunkedBody()
    with contextlib.suppress(WireError):
        for piece in cut(data, sizes):
            chunked.feed(piece)


payloads = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
trailers = st.lists(st.sampled_from([(b"X-Sum", b"1"), (b"Server-Timing", b"a;dur=1")]), max_size=3)


@given(payloads, trailers, sizes)
def test_chunks_come_out_whole_whatever_the_reads(
    payloads: list[bytes], trailers: list[tuple[bytes, bytes]], sizes: list[int]
) -> None:
    """Payload, trailers and the exact end of the message."""
    message = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(p), p) for p in payloads) + b"0\r\n"
    message += b"".join(b"%b: %b\r\n" % field for field in trailers) + b"\r\n"
    body = ChunkedBody()
    payload, consumed = b"", 0
    for piece in cut(message + b"HTTP/1.1 200", sizes):
        part, taken = body.feed(piece)
        payload += part
        consumed += taken

    assert body.complete
    assert b"".join(payloads) == payload
    assert trailers == body.trailers
    assert len(message) == consumed


@pytest.mark.parametrize(
    "message",
    [
        b"5\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"0x5\r\nhello\r\n",
        b"5_0\r\nhello\r\n",
        b"-1\r\n\r\n",
        b"\r\nhello",
        b"5\r\nhelloX\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"a" * 20_000,
        b"0\r\n" + b"A: 1\r\n" * 1001 + b"\r\n",
    ],
)
def test_what_another_reader_could_read_differently_is_refused(message: bytes) -> None:
    """The bytes are passed on as they are, so there must be one way to read them."""
    with pytest.raises(WireError):
        ChunkedBody().feed(message)


def head(status: int, *fields: tuple[bytes, bytes]) -> Head:
    return Head(status, b"", "1.1", list(fields), keep_alive=True)


CL, TE = b"Content-Length", b"Transfer-Encoding"


@pytest.mark.parametrize(
    ("method", "response", "expected"),
    [
        ("GET", head(200, (CL, b"5")), (Framing.LENGTH, 5)),
        ("GET", head(200, (CL, b"5"), (CL, b"5")), (Framing.LENGTH, 5)),
        ("GET", head(200, (TE, b"chunked")), (Framing.CHUNKED, 0)),
        ("GET", head(200, (TE, b"gzip, Chunked"), (CL, b"5")), (Framing.CHUNKED, 0)),
        ("GET", head(200), (Framing.EOF, 0)),
        ("HEAD", head(200, (CL, b"5")), (Framing.NONE, 0)),
        ("GET", head(204), (Framing.NONE, 0)),
        ("GET", head(304, (CL, b"5")), (Framing.NONE, 0)),
    ],
)
def test_where_a_body_ends(method: str, response: Head, expected: tuple[Framing, int]) -> None:
    """RFC 9112, section 6.3."""
    assert expected == body_framing(method, response)


@pytest.mark.parametrize(
    "fields",
    [[(CL, b"5"), (CL, b"6")], [(CL, b"5, 6")], [(CL, b"+5")], [(CL, b"")], [(TE, b"gzip")]],
)
def test_a_length_that_cannot_be_told_is_refused(fields: list[tuple[bytes, bytes]]) -> None:
    """Rather than guessed."""
    with pytest.raises(WireError):
        body_framing("GET", head(200, *fields))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
def test_whether_the_connection_lives_on(data: bytes, expected: bool) -> None:
    """By version and Connection field."""
    assert expected == parse_head(data).keep_alive
