"""Bytes to requests, incrementally. Pure.

Rules of this file:

1. Nothing is normalised: the witness must show what arrived, so the raw head is kept and methods,
   targets and field names are passed on as they are, also those that a strict server refuses.
2. Nothing raises: what cannot be read becomes one `Bad` and the parser stays broken.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

MAX_HEAD = 4 * 1024 * 1024
MAX_CHUNK_LINE = 16 * 1024

Pairs = tuple[tuple[bytes, bytes], ...]

_REQUEST_LINE = re.compile(rb"([^\s]+) ([^\s]+) (HTTP/1\.[01])")
_DIGITS = re.compile(rb"[0-9]{1,18}")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,15}")


class Head(NamedTuple):
    """A complete request head.

    `raw` is the head with its empty line. `headers` are the pairs in order, names as sent, values
    without the white space around them. `framing` is "none", "length" or "chunked"; when both
    are stated the request is chunked (RFC 9112, section 6.3).
    """

    raw: bytes
    method: bytes
    target: bytes
    version: bytes
    headers: Pairs
    fields: Mapping[bytes, bytes]
    """The first value of each field, by its lower-case name."""
    framing: str
    length: int

    @property
    def keep_alive(self) -> bool:
        """Whether the client lets the connection live on."""
        options = self.fields.get(b"connection", b"").lower()
        if self.version == b"HTTP/1.0":
            return b"keep-alive" in options
        return b"close" not in options

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for 100 before it sends the body."""
        return self.fields.get(b"expect", b"").lower() == b"100-continue"


class Data(NamedTuple):
    """Body bytes, without framing."""

    data: bytes


class End(NamedTuple):
    """The request is complete."""

    trailers: Pairs


class Bad(NamedTuple):
    """The bytes are not a request. The status is the answer to give."""

    status: int
    reason: str


Part = Head | Data | End | Bad


class RequestParser:
    """Feed bytes, get parts. Pipelined requests simply follow one another."""

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0
        self._state: Callable[[list[Part]], bool] = self._head
        self._left = 0
        self._trailers: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> list[Part]:
        """The parts that `data` completes."""
        self._buffer = self._buffer + data if self._buffer else data
        parts: list[Part] = []
        while self._at < len(self._buffer) and self._state(parts):
            pass
        self._buffer = self._buffer[self._at :]
        self._at = 0
        return parts

    # Each state consumes from the buffer and answers whether it got on.

    def _head(self, parts: list[Part]) -> bool:
        buffer, at = self._buffer, self._at
        if buffer[at] in b"\r\n":
            # A server should ignore empty lines before a request (RFC 9112, section 2.2).
            self._at += 1
            return True
        end = buffer.find(b"\r\n\r\n", at)
        if end < 0:
            if len(buffer) - at > MAX_HEAD:
                return self._broken(parts, 431, "the request head is too large")
            return False
        self._at = end + 4
        head = _read_head(buffer[at : end + 4])
        parts.append(head)
        if isinstance(head, Bad):
            self._state = self._ignore
        elif head.framing == "chunked":
            self._state = self._chunk_size
        elif head.length:
            self._left = head.length
            self._state = self._length_body
        else:
            parts.append(End(()))
        return True

    def _length_body(self, parts: list[Part]) -> bool:
        if self._take(parts):
            parts.append(End(()))
            self._state = self._head
        return True

    def _chunk_size(self, parts: list[Part]) -> bool:
        line = self._line(parts)
        if line is None:
            return False
        size = line.partition(b";")[0].strip()
        if not _HEX.fullmatch(size):
            return self._broken(parts, 400, "not a chunk size")
        self._left = int(size, 16)
        self._trailers = []
        self._state = self._chunk_data if self._left else self._trailer
        return True

    def _chunk_data(self, parts: list[Part]) -> bool:
        if self._take(parts):
            self._state = self._chunk_end
        return True

    def _chunk_end(self, parts: list[Part]) -> bool:
        end = self._buffer[self._at : self._at + 2]
        if len(end) < 2:
            return False
        if end != b"\r\n":
            return self._broken(parts, 400, "a chunk is longer than its size")
        self._at += 2
        self._state = self._chunk_size
        return True

    def _trailer(self, parts: list[Part]) -> bool:
        line = self._line(parts)
        if line is None:
            return False
        if line:
            name, colon, value = line.partition(b":")
            if not colon:
                return self._broken(parts, 400, "a trailer without a colon")
            self._trailers.append((name, value.strip(b" \t")))
        else:
            parts.append(End(tuple(self._trailers)))
            self._state = self._head
        return True

    def _ignore(self, parts: list[Part]) -> bool:
        self._at = len(self._buffer)
        return False

    def _take(self, parts: list[Part]) -> bool:
        """Pass on what is here of the bytes announced; whether that was the last of them."""
        data = self._buffer[self._at : self._at + self._left]
        self._at += len(data)
        self._left -= len(data)
        parts.append(Data(data))
        return not self._left

    def _line(self, parts: list[Part]) -> bytes | None:
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            if len(self._buffer) - self._at > MAX_CHUNK_LINE:
                self._broken(parts, 400, "a chunk line is too long")
            return None
        line = self._buffer[self._at : end]
        self._at = end + 2
        return line

    def _broken(self, parts: list[Part], status: int, reason: str) -> bool:
        parts.append(Bad(status, reason))
        self._state = self._ignore
        return True


def _read_head(raw: bytes) -> Head | Bad:
    line, *lines = raw[:-4].split(b"\r\n")
    match = _REQUEST_LINE.fullmatch(line)
    if match is None:
        return Bad(400, "not a request line")
    headers = []
    fields: dict[bytes, bytes] = {}
    for field in lines:
        name, colon, value = field.partition(b":")
        if not colon or not name:
            return Bad(400, "a header line without a name and a colon")
        value = value.strip(b" \t")
        headers.append((name, value))
        fields.setdefault(name.lower(), value)
    method, target, version = match.groups()
    framing, length = "none", 0
    if (stated := fields.get(b"content-length")) is not None:
        if not _DIGITS.fullmatch(stated):
            return Bad(400, "not a content length")
        framing, length = "length", int(stated)
    if (coding := fields.get(b"transfer-encoding")) is not None:
        if coding.lower() != b"chunked":
            return Bad(501, "a transfer coding other than chunked")
        framing, length = "chunked", 0
    return Head(raw, method, target, version, tuple(headers), fields, framing, length)
