"""Heads, chunks and content codings."""

import zlib

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulate import wire
from proxy.simulate.wire import BodyWriter

CODINGS = ["gzip", "deflate", "br", "zstd"]


def decoded(coding: str, pieces: list[bytes]) -> list[bytes]:
    """What an incremental decoder gives for each piece."""
    if coding == "br":
        brotli_decoder = brotli.Decompressor()
        return [brotli_decoder.process(piece) for piece in pieces]
    if coding == "zstd":
        zstd_decoder = zstandard.ZstdDecompressor().decompressobj()
        return [zstd_decoder.decompress(piece) for piece in pieces]
    decoder = zlib.decompressobj(wbits=31 if coding == "gzip" else 15)
    return [decoder.decompress(piece) for piece in pieces]


def test_a_head_is_exactly_what_was_asked_for() -> None:
    """Names, repeats, order and Latin-1 values stay; a missing reason is the usual one."""
    head = wire.head("1.0", 404, None, [("x-A", "é"), ("X-a", ""), ("x-A", "2")])

    assert head == b"HTTP/1.0 404 Not Found\r\nx-A: \xe9\r\nX-a: \r\nx-A: 2\r\n\r\n"
    assert wire.head("1.1", 299, None, []) == b"HTTP/1.1 299 \r\n\r\n"
    assert wire.head("1.1", 200, "Yes", [("a", "€")]) == (
        b"HTTP/1.1 200 Yes\r\na: \xe2\x82\xac\r\n\r\n"
    )


@pytest.mark.parametrize("coding", CODINGS)
@given(events=st.lists(st.binary(min_size=1)))
def test_every_event_can_be_decoded_as_it_arrives(coding: str, events: list[bytes]) -> None:
    """Each is flushed, whatever the coding."""
    coder = wire.coder(coding)
    pieces = [coder.encode(event) for event in events]

    assert events == decoded(coding, pieces)
    assert b"".join(events) == b"".join(decoded(coding, [*pieces, coder.finish()]))


def test_a_chunked_body() -> None:
    """A chunk per event, none for an empty one, trailers behind the last."""
    writer = BodyWriter(True, None, [("Sum", "7")])

    assert writer.write([b"0123456789", b"", b"x"]) == b"a\r\n0123456789\r\n1\r\nx\r\n"
    assert writer.end() == b"0\r\nSum: 7\r\n\r\n"
    assert BodyWriter(True, None).end() == b"0\r\n\r\n"


def test_a_plain_body() -> None:
    """Just the bytes, and nothing at its end."""
    writer = BodyWriter(False, None)

    assert writer.write([b"a", b"b"]) == b"ab"
    assert writer.end() == b""


def test_a_coded_chunked_body_ends_with_the_end_of_the_coding() -> None:
    """Which is a chunk of its own."""
    writer = BodyWriter(True, "gzip")
    data = writer.write([b"hello"]) + writer.end()

    first, _, rest = data.partition(b"\r\n")
    body = rest[: int(first, 16)]
    last, _, rest = rest[int(first, 16) + 2 :].partition(b"\r\n")
    assert zlib.decompress(body + rest[: int(last, 16)], wbits=31) == b"hello"
    assert rest[int(last, 16) :] == b"\r\n0\r\n\r\n"
