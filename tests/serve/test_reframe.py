"""How a body is framed towards the client."""

import pytest

from proxy.serve.reframe import Reframe, choose, encode, fields_for, last_bytes
from proxy.upstream.wire import Framing

LENGTH = (b"content-length", b"5")
CHUNKED = (b"Transfer-Encoding", b"chunked")


@pytest.mark.parametrize(
    ("framing", "version", "wire", "expected"),
    [
        (Framing.LENGTH, "1.1", True, Reframe.AS_READ),
        (Framing.LENGTH, "1.0", True, Reframe.AS_READ),
        (Framing.NONE, "1.0", True, Reframe.AS_READ),
        (Framing.CHUNKED, "1.1", True, Reframe.AS_READ),
        (Framing.CHUNKED, "1.0", True, Reframe.UNTIL_CLOSE),
        (Framing.EOF, "1.1", True, Reframe.CHUNK),
        (Framing.EOF, "1.0", True, Reframe.UNTIL_CLOSE),
        (Framing.EOF, "1.1", False, Reframe.CHUNK),
    ],
)
def test_upstreams_framing_is_kept_where_the_client_can_see_it(
    framing: Framing, version: str, wire: bool, expected: Reframe
) -> None:
    """Chunked only when upstream gave no length, and never to HTTP/1.0."""
    assert choose(framing, version, wire=wire) is expected


def test_the_fields_say_what_the_body_does() -> None:
    """Length and coding stay as sent, or go, or become chunked."""
    assert fields_for([LENGTH], Framing.LENGTH, Reframe.AS_READ) == [LENGTH]
    assert fields_for([CHUNKED], Framing.CHUNKED, Reframe.AS_READ) == [CHUNKED]
    assert fields_for([CHUNKED, LENGTH], Framing.CHUNKED, Reframe.AS_READ) == [CHUNKED]
    assert fields_for([CHUNKED], Framing.CHUNKED, Reframe.UNTIL_CLOSE) == []
    assert fields_for([], Framing.EOF, Reframe.CHUNK) == [CHUNKED]
    assert fields_for([LENGTH, CHUNKED], Framing.NONE, Reframe.AS_READ) == [LENGTH, CHUNKED]


def test_what_we_frame_ourselves_is_chunked_with_trailers() -> None:
    """One chunk per read; an empty read is no chunk, because an empty chunk is the end."""
    assert encode(Reframe.CHUNK, b"hello") == b"5\r\nhello\r\n"
    assert encode(Reframe.CHUNK, b"") == b""
    assert encode(Reframe.UNTIL_CLOSE, b"hello") == b"hello"
    assert last_bytes(Reframe.CHUNK, [(b"X-Sum", b"1")]) == b"0\r\nX-Sum: 1\r\n\r\n"
    assert last_bytes(Reframe.AS_READ, []) == b""
    assert last_bytes(Reframe.UNTIL_CLOSE, []) == b""
