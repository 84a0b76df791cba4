"""HTTP/1.1 responses as bytes: the head, and where the body ends. Pure: no socket, no clock.

Sources: RFC 9112 sections 4 (status line), 6.3 (body length), 7.1 (chunked coding).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import httptools

MAX_HEAD = 512 * 1024
"""Bytes of one response head."""
_MAX_LINE = 16 * 1024
_MAX_TRAILERS = 1000


class WireError(Exception):
    """The upstream's bytes are not HTTP/1.1. The text names the rule, never the bytes."""


class Framing(Enum):
    """How the end of a body is known."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    EOF = "eof"


@dataclass(frozen=True, slots=True)
class Head:
    """A response head, fields as received."""

    status: int
    reason: bytes
    version: str
    fields: list[tuple[bytes, bytes]]
    keep_alive: bool


class _HeadEvents:
    """What httptools calls while it reads a head."""

    __slots__ = ("fields", "reason")

    def __init__(self) -> None:
        self.reason = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_status(self, status: bytes) -> None:
        self.reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value))


def parse_head(data: bytes) -> Head:
    """The head in `data`, which ends with the empty line.

    Raises `WireError` when it is not an HTTP/1.x response head.
    """
    events = _HeadEvents()
    parser: Any = httptools.HttpResponseParser(events)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError as error:
        raise WireError(f"not an HTTP/1.1 response head ({type(error).__name__})") from None
    return Head(
        status=parser.get_status_code(),
        reason=events.reason,
        version=parser.get_http_version(),
        fields=events.fields,
        keep_alive=_keep_alive(parser.get_http_version(), events.fields),
    )


def _keep_alive(version: str, fields: Sequence[tuple[bytes, bytes]]) -> bool:
    listed = {
        token.strip().lower()
        for name, value in fields
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    if version == "1.1":
        return b"close" not in listed
    return b"keep-alive" in listed


_BARE_LF = re.compile(rb"(?<!\r)\n")


class HeadReader:
    """Collects bytes until a response head is complete; bounded by `MAX_HEAD`."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def empty(self) -> bool:
        """Whether no byte of a head has arrived."""
        return not self._buffer

    def feed(self, data: bytes) -> tuple[Head, bytes] | None:
        """The head and the bytes after it, or None while it is incomplete.

        Raises `WireError` for a head that is not HTTP or larger than `MAX_HEAD`.
        """
        if not self._buffer and (end := data.find(b"\r\n\r\n")) >= 0:
            return parse_head(data[: end + 4]), data[end + 4 :]
        start = max(0, len(self._buffer) - 3)
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n", start)
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise WireError(f"response head larger than {MAX_HEAD} bytes")
            if not self._buffer.startswith(b"HTTP/"[: len(self._buffer)]):
                raise WireError("not an HTTP/1.1 response head")
            if _BARE_LF.search(self._buffer, start):
                # Nobody would ever see the end of this head.
                raise WireError("response head with lines not ended by CRLF")
            return None
        whole, self._buffer = bytes(self._buffer), bytearray()
        return parse_head(whole[: end + 4]), whole[end + 4 :]


def body_framing(method: str, head: Head) -> tuple[Framing, int]:
    """How the body of `head` ends, and its length when that is stated (else 0).

    Raises `WireError` for lengths that contradict each other or are not numbers.
    """
    if method == "HEAD" or head.status in (204, 304) or head.status < 200:
        return Framing.NONE, 0
    codings = b",".join(v for n, v in head.fields if n.lower() == b"transfer-encoding").lower()
    if codings:
        if codings.rsplit(b",", 1)[-1].strip() != b"chunked":
            raise WireError("a transfer coding that does not end with chunked")
        return Framing.CHUNKED, 0
    lengths = {
        part.strip()
        for name, value in head.fields
        if name.lower() == b"content-length"
        for part in value.split(b",")
    }
    if not lengths:
        return Framing.EOF, 0
    length = lengths.pop()
    if lengths or not length.isdigit() or len(length) > 19:
        raise WireError("contradictory or malformed Content-Length")
    return Framing.LENGTH, int(length)


_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\Z")


CHUNK_SIZES = {b"%x" % size: size for size in range(1, 4096)}
"""Chunk sizes of streamed events as servers write them: a read of one whole chunk needs no more."""


class ChunkedBody:
    """The chunked coding, read incrementally: payload out, and where the message ends.

    Strict about line ends (CRLF only): bytes that this reader accepts may be passed on as they
    are, because no other reader can see another message in them.
    """

    __slots__ = ("_held", "_left", "_state", "between", "complete", "trailers")

    _SIZE, _DATA, _DATA_END, _TRAILER = range(4)

    def __init__(self) -> None:
        self.complete = False
        self.between = True
        """Whether the next byte begins a chunk."""
        self.trailers: list[tuple[bytes, bytes]] = []
        self._state = self._SIZE
        self._left = 0
        self._held = bytearray()

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """The payload in `data`, and how many of its bytes belong to this message.

        All of them unless the message ends here (`complete`). Raises `WireError` on anything that
        is not the chunked coding.
        """
        parts: list[bytes] = []
        position = 0
        size = len(data)
        while position < size and not self.complete:
            if self._state == self._DATA:
                taken = data[position : position + self._left]
                parts.append(taken)
                position += len(taken)
                self._left -= len(taken)
                if not self._left:
                    self._state = self._DATA_END
                continue
            end = data.find(b"\n", position)
            if end < 0:
                self._held += data[position:]
                if len(self._held) > _MAX_LINE:
                    raise WireError("chunk line or trailer field too long")
                position = size
                break
            line = data[position:end]
            if self._held:
                line = bytes(self._held) + line
                self._held.clear()
            position = end + 1
            self._line(line)
        self.between = self._state == self._SIZE and not self._held
        return (parts[0] if len(parts) == 1 else b"".join(parts)), position

    def _line(self, line: bytes) -> None:
        if line[-1:] != b"\r":
            raise WireError("chunked line not ended by CRLF")
        line = line[:-1]
        if self._state == self._SIZE:
            match = _CHUNK_LINE.match(line)
            if match is None:
                raise WireError("malformed chunk size")
            self._left = int(match[1], 16)
            self._state = self._DATA if self._left else self._TRAILER
        elif self._state == self._DATA_END:
            if line:
                raise WireError("chunk longer than its size")
            self._state = self._SIZE
        elif line:
            name, colon, value = line.partition(b":")
            if not colon or not name or len(self.trailers) >= _MAX_TRAILERS:
                raise WireError("malformed trailer field")
            self.trailers.append((name, value.strip(b" \t")))
        else:
            self.complete = True
