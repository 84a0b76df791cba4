"""Content codings undone on a copy: gzip, deflate, br, zstd, and several on top of one another.

Rules of this file:

1. It works beside the relay, never in it: what is forwarded is not touched.
2. Output is bounded before it is made. A small input can expand a thousandfold (gzip, RFC 1952) or
   without practical limit (br, zstd), so no step may ask a library for all there is.
3. A fault ends it: from then on nothing comes out, and `fault` says why.

Codings: RFC 9110 section 8.4.1 (gzip, x-gzip, deflate), RFC 7932 (br), RFC 8878 and RFC 9659
(zstd, window of at most 8 MiB). br and zstd are imported when first met, for a quick start.
"""

import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

CORRUPT = "corrupt"
TOO_LARGE = "too_large"

_MOST_CODINGS = 3
_ZSTD_WINDOW = 8 << 20
# zstandard's incremental decoder has no output limit of its own. A block of 128 KiB takes at least
# 4 bytes, so a step of this many bytes cannot make more than 4 MiB.
_ZSTD_STEP = 128


class _Coding(Protocol):
    """One coding. `decode` may give a little more than `room` and raises on corrupt input."""

    def decode(self, data: bytes, room: int) -> bytes: ...


class _Gzip:
    """Members that follow one another are one body (RFC 1952 section 2.2)."""

    __slots__ = ("_member",)

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def decode(self, data: bytes, room: int) -> bytes:
        out = []
        while data and room >= 0:
            if self._member.eof:
                # Zeros behind a member are padding, as for the gzip command.
                data = data.lstrip(b"\0")
                if not data:
                    break
                self._member = zlib.decompressobj(wbits=31)
            out.append(self._member.decompress(data, room + 1))
            room -= len(out[-1])
            data = self._member.unused_data
        return out[0] if len(out) == 1 else b"".join(out)


class _Deflate:
    """zlib as the specification says, raw deflate as some servers send it."""

    __slots__ = ("_head", "_stream")

    def __init__(self) -> None:
        self._head = b""
        self._stream: zlib._Decompress | None = None

    def decode(self, data: bytes, room: int) -> bytes:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return b""
            # RFC 1950 section 2.2: method 8, and the first two bytes are a multiple of 31.
            wrapped = self._head[0] & 15 == 8 and int.from_bytes(self._head[:2], "big") % 31 == 0
            self._stream = zlib.decompressobj(wbits=15 if wrapped else -15)
            data, self._head = self._head, b""
        return b"" if self._stream.eof else self._stream.decompress(data, room + 1)


class _Brotli:
    __slots__ = ("_stream",)

    def __init__(self) -> None:
        import brotli

        self._stream = brotli.Decompressor()

    def decode(self, data: bytes, room: int) -> bytes:
        if self._stream.is_finished():
            return b""
        out: bytes = self._stream.process(data, output_buffer_limit=room + 1)
        return out


class _Zstd:
    __slots__ = ("_stream",)

    def __init__(self) -> None:
        import zstandard

        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._stream = decompressor.decompressobj(read_across_frames=True)

    def decode(self, data: bytes, room: int) -> bytes:
        out = []
        for start in range(0, len(data), _ZSTD_STEP):
            out.append(self._stream.decompress(data[start : start + _ZSTD_STEP]))
            room -= len(out[-1])
            if room < 0:
                break
        return b"".join(out)


_CODINGS: dict[bytes, Callable[[], _Coding]] = {
    b"gzip": _Gzip,
    b"x-gzip": _Gzip,
    b"deflate": _Deflate,
    b"br": _Brotli,
    b"zstd": _Zstd,
}


class Decoder:
    """Undoes a list of codings, last one first, within a bound. Never raises."""

    __slots__ = ("_codings", "_limit", "_room", "_whole", "fault")

    def __init__(self, codings: list[_Coding], limit: int, *, whole: bool) -> None:
        self.fault: str | None = None
        self._codings = codings
        self._limit = limit
        self._room = limit
        self._whole = whole

    def feed(self, data: bytes) -> bytes:
        """What these bytes decode to so far; b"" for ever after a fault.

        The feed that meets the fault gives nothing either: where corrupt input turned bad cannot
        be told.
        """
        if self.fault is not None:
            return b""
        room = self._room
        try:
            for coding in self._codings:
                if not data:
                    return b""
                data = coding.decode(data, room)
                if len(data) > room:
                    return self._end(TOO_LARGE)
        except Exception:  # each library has its own error type, and corrupt input is no news
            return self._end(CORRUPT)
        if self._whole:
            self._room -= len(data)
        return data

    def _end(self, fault: str) -> bytes:
        self.fault = fault
        self._codings = []
        return b""


def warm_up() -> None:
    """Import what decoding needs, at a time when nobody waits for it."""
    for coding in _CODINGS.values():
        with suppress(ImportError):
            coding()


def make_decoder(content_encoding: bytes, limit: int, *, whole: bool = True) -> Decoder | None:
    """A decoder for a Content-Encoding value, or None when it is not supported.

    `limit` bounds the bytes of the whole output, or, unless `whole`, of each feed: a stream may
    run for hours. An empty value and `identity` give a decoder that passes everything on.
    """
    names = [name.strip().lower() for name in content_encoding.split(b",")]
    names = [name for name in names if name not in (b"", b"identity")]
    if len(names) > _MOST_CODINGS or not all(name in _CODINGS for name in names):
        return None
    try:
        codings = [_CODINGS[name]() for name in reversed(names)]
    except ImportError:
        return None
    return Decoder(codings, limit, whole=whole)
