"""Bytes of an HTTP/1 response: heads, chunks, content codings. Pure."""

import zlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Protocol

import brotli
import zstandard

HeaderPairs = Sequence[tuple[str, str]]

FINAL_CHUNK = b"0\r\n\r\n"


def head(version: str, status: int, reason: str | None, headers: HeaderPairs) -> bytes:
    """Status line, fields and the empty line. Texts are sent as Latin-1, as they are.

    A character outside Latin-1 is sent as UTF-8, which is what such servers do.
    """
    phrase = _phrase(status) if reason is None else reason
    lines = [f"HTTP/{version} {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    return b"".join(latin(line) + b"\r\n" for line in lines) + b"\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked transfer coding (RFC 9112, section 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def final_chunk(trailers: HeaderPairs) -> bytes:
    """The end of a chunked body."""
    if not trailers:
        return FINAL_CHUNK
    return b"0\r\n" + b"".join(latin(f"{n}: {v}") + b"\r\n" for n, v in trailers) + b"\r\n"


def latin(text: str) -> bytes:
    """Header text as bytes."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


class Coder(Protocol):
    """A content coding. Every `encode` flushes, so a reader can decode up to that byte."""

    def encode(self, data: bytes) -> bytes:
        """The coded bytes of `data`, complete."""
        ...

    def finish(self) -> bytes:
        """The bytes that end the coded stream."""
        ...


def coder(name: str) -> Coder:
    """A fresh coder for "gzip", "deflate" (the zlib format, RFC 9110), "br" or "zstd"."""
    if name == "gzip":
        return _Zlib(31)
    if name == "deflate":
        return _Zlib(15)
    if name == "br":
        return _Brotli()
    return _Zstd()


class _Zlib:
    def __init__(self, window: int) -> None:
        self._object = zlib.compressobj(wbits=window)

    def encode(self, data: bytes) -> bytes:
        return self._object.compress(data) + self._object.flush(zlib.Z_SYNC_FLUSH)

    def finish(self) -> bytes:
        return self._object.flush()


class _Brotli:
    def __init__(self) -> None:
        self._object = brotli.Compressor()

    def encode(self, data: bytes) -> bytes:
        coded: bytes = self._object.process(data) + self._object.flush()
        return coded

    def finish(self) -> bytes:
        end: bytes = self._object.finish()
        return end


class _Zstd:
    def __init__(self) -> None:
        self._object = zstandard.ZstdCompressor().compressobj()

    def encode(self, data: bytes) -> bytes:
        coded = self._object.compress(data)
        return coded + self._object.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def finish(self) -> bytes:
        return self._object.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


class BodyWriter:
    """The body of one response: content coding inside, transfer coding outside."""

    def __init__(self, chunked: bool, coding: str | None, trailers: HeaderPairs = ()) -> None:
        self._chunked = chunked
        self._coder = coder(coding) if coding else None
        self._trailers = trailers

    def write(self, pieces: Sequence[bytes]) -> bytes:
        """The wire bytes of some events, each flushed and in a chunk of its own."""
        if self._coder:
            pieces = [self._coder.encode(piece) for piece in pieces]
        if self._chunked:
            pieces = [chunk(piece) for piece in pieces if piece]
        return b"".join(pieces)

    def end(self) -> bytes:
        """The wire bytes that end the body."""
        rest = self._coder.finish() if self._coder else b""
        if not self._chunked:
            return rest
        return (chunk(rest) if rest else b"") + final_chunk(self._trailers)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
