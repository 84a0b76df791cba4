"""The request parser: any chunking gives the same parts, garbage gives `Bad`, nothing raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulate import request as module
from proxy.simulate.request import Bad, Data, End, Head, Part, RequestParser

POST = b"POST /v1/x?a=%2F HTTP/1.1\r\nHost: h\r\ncontent-LENGTH: 5\r\nX:\t a b \r\n\r\nhello"
CHUNKED = (
    b"PUT http://h/abs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3;note="x"\r\nabc\r\n2\r\nde\r\n0\r\nChecksum: 7\r\nEmpty:\r\n\r\n'
)
GET = b"GET / HTTP/1.0\r\n\r\n"
STREAM = POST + b"\r\n" + CHUNKED + GET


def told(parts: list[Part]) -> list[object]:
    """The parts with body bytes joined, as far as they follow one another."""
    found: list[object] = []
    for part in parts:
        if isinstance(part, Data) and found and isinstance(found[-1], bytes):
            found[-1] += part.data
        else:
            found.append(part.data if isinstance(part, Data) else part)
    return found


def parsed(data: bytes, sizes: list[int]) -> list[object]:
    """What a parser makes of `data` in pieces."""
    parser = RequestParser()
    parts = []
    for size in sizes:
        parts += parser.feed(data[:size])
        data = data[size:]
    return told(parts + parser.feed(data))


def test_three_requests_on_one_connection() -> None:
    """Nothing is normalised: method, target, names and the raw head are as sent."""
    post, body, post_end, put, chunks, put_end, get, get_end = parsed(STREAM, [])

    assert isinstance(post, Head)
    assert post[1:4] == (b"POST", b"/v1/x?a=%2F", b"HTTP/1.1")
    assert post.headers == ((b"Host", b"h"), (b"content-LENGTH", b"5"), (b"X", b"a b"))
    assert post.raw + b"hello" == POST
    assert (b"hello", End(())) == (body, post_end)
    assert isinstance(put, Head)
    assert (put.target, put.framing, chunks) == (b"http://h/abs", "chunked", b"abcde")
    assert End(((b"Checksum", b"7"), (b"Empty", b""))) == put_end
    assert isinstance(get, Head)
    assert ("none", False, End(())) == (get.framing, get.keep_alive, get_end)


@given(st.lists(st.integers(0, 40)))
def test_any_chunking_same_parts(sizes: list[int]) -> None:
    """Also one byte at a time."""
    assert parsed(STREAM, []) == parsed(STREAM, sizes)


@given(st.binary(), st.lists(st.integers(0, 5)), st.booleans())
def test_garbage_never_raises(data: bytes, sizes: list[int], behind_a_head: bool) -> None:
    """Not in the place of a head, nor in the place of a chunk."""
    start = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" if behind_a_head else b""
    parsed(start + data, sizes)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: no name\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 20000, 400),
    ],
)
def test_what_is_no_request_is_bad(data: bytes, status: int) -> None:
    """And everything after it is ignored."""
    parser = RequestParser()
    last = parser.feed(data)[-1]

    assert isinstance(last, Bad)
    assert status == last.status
    assert parser.feed(GET) == []


def test_a_head_that_never_ends_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr(module, "MAX_HEAD", 100)
    last = RequestParser().feed(b"GET / HTTP/1.1\r\n" + b"a" * 100)[-1]

    assert isinstance(last, Bad)
    assert last.status == 431


def test_length_and_chunked_together_are_chunked() -> None:
    """A strict server refuses; the witness shows it."""
    head = RequestParser().feed(
        b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    )[0]

    assert isinstance(head, Head)
    assert (head.framing, head.length, head.fields[b"content-length"]) == ("chunked", 0, b"3")


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: Close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_who_keeps_the_connection(version: bytes, connection: bytes, keeps: bool) -> None:
    """HTTP/1.1 unless it says close, HTTP/1.0 only if it says so."""
    head = RequestParser().feed(b"GET / HTTP/%b\r\n%b\r\n" % (version, connection))[0]

    assert isinstance(head, Head)
    assert keeps is head.keep_alive


def test_expect_is_seen() -> None:
    """In any case."""
    head = RequestParser().feed(b"GET / HTTP/1.1\r\nEXPECT: 100-Continue\r\n\r\n")[0]

    assert isinstance(head, Head)
    assert head.expects_continue
