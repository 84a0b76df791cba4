"""Which requests are not relayed, and with which status."""

import httptools
import pytest

from proxy.serve.exchange import RequestHead
from proxy.serve.refusal import Refusal, refusal_for, upgrade_refusal


class Deaf:
    """Hears nothing of what is parsed."""


def refused(data: bytes) -> Refusal:
    """What the parser's refusal of `data` becomes."""
    with pytest.raises(httptools.HttpParserError) as caught:
        httptools.HttpRequestParser(Deaf()).feed_data(data)
    return refusal_for(caught.value)


@pytest.mark.parametrize(
    ("data", "status", "error"),
    [
        (b"BREW /pot HTTP/1.1\r\n\r\n", 501, "UnknownMethod"),
        (b"\x16\x03\x01", 501, "UnknownMethod"),
        (b"GET x HTTP/1.1\r\n\r\n", 400, "InvalidRequest"),
        (b"GET / HTTP/9.9\r\n\r\n", 400, "InvalidRequest"),
        (b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", 400, "InvalidRequest"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "InvalidRequest"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
         400, "InvalidRequest"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
         400, "InvalidRequest"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400, "InvalidRequest"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "InvalidRequest"),
        (b"GET / HTTP/1.1\r\nX : a\r\n\r\n", 400, "InvalidRequest"),
    ],
)  # fmt: skip
def test_what_the_parser_refuses(data: bytes, status: int, error: str) -> None:
    """An unknown method is 501, whatever could be read in two ways is 400."""
    refusal = refused(data)
    assert (refusal.status, refusal.error) == (status, error)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /?key=hidden\x01 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nAuthorization hidden\r\n\r\n",
        b"GET / HTTP/1.1\r\nAuthorization: hid\x00den\r\n\r\n",
        b"hidden / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: hidden\r\n\r\n",
    ],
)
def test_a_refusal_never_quotes_what_it_refuses(data: bytes) -> None:
    """Its sentences are fixed."""
    assert "hid" not in refused(data).detail


def head(method: str, *fields: tuple[bytes, bytes]) -> RequestHead:
    return RequestHead(method, b"/", "1.1", list(fields), started=0)


def test_upgrades() -> None:
    """CONNECT never, WebSocket not yet, anything else is ignored."""
    connect = upgrade_refusal(head("CONNECT"))
    socket = upgrade_refusal(head("GET", (b"uPgrade", b" WebSocket ")))
    assert connect is not None
    assert socket is not None
    assert (connect.status, socket.status) == (501, 426)
    assert upgrade_refusal(head("GET", (b"Upgrade", b"h2c"))) is None
    assert upgrade_refusal(head("GET", (b"Upgrade", b"TLS/1.0"))) is None


def test_a_head_too_large_says_the_limit() -> None:
    """So that somebody can raise it."""
    refusal = Refusal.head_too_large(1234)
    assert refusal.status == 431
    assert "1234 bytes" in refusal.detail
