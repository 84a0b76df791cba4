"""Bytes to events, incrementally and bounded: SSE, NDJSON, one whole document.

Rules of this file:

1. Lines are split on bytes. Only CR, LF and CRLF end a line (WHATWG HTML, section 9.2.6), so a
   text decoder, which also splits at U+2028 and others, must not come first.
2. A line that ends in a bare CR is complete at once. Waiting for a possible LF would stamp its
   event with the time of the next read.
3. The cost is linear in the bytes, whatever the chunking: an unfinished line is a list of pieces
   that is joined once and never scanned twice.
4. Memory is bounded: an event past the bound is dropped piece by piece, reported without its data
   as `oversize`, and parsing goes on behind it.
5. Nothing here raises, whatever the bytes.
"""

from typing import NamedTuple, Protocol

EVENT_LIMIT = 1 << 20
"""The most bytes of one event that are kept."""
DOCUMENT_LIMIT = 8 << 20
"""The most bytes of one whole document that are kept."""

_BOM = b"\xef\xbb\xbf"
_CR = 13


class Event(NamedTuple):
    """One message of a stream.

    `name` is the SSE event type (b"" when none was given), `data` the payload (for SSE the data
    lines joined with LF), `comment` is true for an SSE comment line, whose text is then `data`.
    `oversize` is true for an event past the bound: its `data` is b"" and was not kept.
    """

    name: bytes
    data: bytes
    comment: bool = False
    oversize: bool = False


class Framing(Protocol):
    """One way to cut a body into events. One instance per body; no method raises."""

    oversize: int
    """How many events were past the bound."""

    @property
    def between(self) -> bool:
        """Whether nothing is pending: the next byte begins an event."""
        ...

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete, in order."""
        ...

    def close(self) -> list[Event]:
        """The events that the end of the body completes."""
        ...


class _Line:
    """A line that has begun but not ended: its pieces, up to a bound."""

    __slots__ = ("_limit", "_pieces", "_size")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, piece: bytes) -> None:
        """Keep another piece; past the bound all pieces are let go."""
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def end(self, piece: bytes) -> bytes | None:
        """The whole line with its last piece, or None when it was past the bound."""
        self.add(piece)
        line = b"".join(self._pieces) if self._size <= self._limit else None
        self._pieces.clear()
        self._size = 0
        return line


class Sse:
    """Server-sent events by the WHATWG rules (HTML standard, section 9.2.6).

    One byte order mark at the start is skipped; one space after the colon is removed; field names
    are case-sensitive and unknown ones ignored; a block without data dispatches nothing, one with
    an empty `data` field dispatches an empty event; a block that the body ends in is dropped.
    Comments are events of their own here, given as soon as their line ends.
    """

    __slots__ = (
        "_between",
        "_data",
        "_dropped",
        "_limit",
        "_line",
        "_name",
        "_size",
        "_start",
        "_swallow",
        "oversize",
    )

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self.oversize = 0
        self._limit = limit
        self._line = _Line(limit)
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0
        self._dropped = False
        self._start = True
        self._swallow = False
        # True between two blocks, with nothing pending: the next read may take the short way.
        self._between = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete, in order."""
        lines = data.splitlines()
        if self._between and data and not lines[-1] and len(data) <= self._limit:
            # The usual read is one block, `data` alone or behind `event`: the short way.
            if len(lines) == 2 and lines[0].startswith(b"data: "):
                event = Event(b"", lines[0][6:])
            elif (
                len(lines) == 3
                and lines[1].startswith(b"data: ")
                and lines[0].startswith(b"event: ")
            ):
                event = Event(lines[0][7:], lines[1][6:])
            else:
                return self._feed(data, lines)
            if data[-1] == _CR:
                self._swallow, self._between = True, False
            return [event]
        return self._feed(data, lines)

    def _feed(self, data: bytes, lines: list[bytes]) -> list[Event]:
        if not data:
            return []
        if self._swallow:
            self._swallow = False
            if data[0] == 10:
                # Second half of a CRLF whose CR has ended the line already.
                if len(data) == 1:
                    self._between = self._is_between()
                    return []
                data = data[1:]
                lines = data.splitlines()
        out: list[Event] = []
        last = data[-1]
        rest = b"" if last in b"\r\n" else lines.pop()
        for line in lines:
            if self._line:
                whole = self._line.end(line)
            else:
                whole = line if len(line) <= self._limit else None
            self._end_of_line(whole, out)
        if rest:
            self._line.add(rest)
        self._swallow = last == _CR
        self._between = self._is_between()
        return out

    @property
    def between(self) -> bool:
        """Whether the next byte begins a block."""
        return self._between

    def _is_between(self) -> bool:
        return not (
            self._start or self._swallow or self._dropped or self._name or self._data or self._line
        )

    def _end_of_line(self, line: bytes | None, out: list[Event]) -> None:
        if line is None:
            self._start = False
            self._drop()
            return
        if self._start:
            self._start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._end_of_block(out)
            return
        field, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if field == b"data":
            self._size += len(value) + 1
            if self._size <= self._limit:
                self._data.append(value)
            else:
                self._drop()
        elif field == b"event":
            self._name = value
        elif not field:
            out.append(Event(b"", value, comment=True))

    def _end_of_block(self, out: list[Event]) -> None:
        if self._dropped:
            out.append(Event(self._name, b"", oversize=True))
        elif self._data:
            out.append(Event(self._name, b"\n".join(self._data)))
        self._name = b""
        self._data.clear()
        self._size = 0
        self._dropped = False

    def _drop(self) -> None:
        self._data.clear()
        self._size = self._limit
        if not self._dropped:
            self._dropped = True
            self.oversize += 1

    def close(self) -> list[Event]:
        """Nothing: the end of a body does not complete a block."""
        return []


class Ndjson:
    """One event per line (LF or CRLF); blank lines are skipped; a last line needs no line end."""

    __slots__ = ("_limit", "_line", "oversize")

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self.oversize = 0
        self._limit = limit
        self._line = _Line(limit)

    @property
    def between(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._line

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete, in order."""
        pieces = data.split(b"\n")
        out: list[Event] = []
        for piece in pieces[:-1]:
            if self._line:
                self._end_of_line(self._line.end(piece), out)
            else:
                self._end_of_line(piece if len(piece) <= self._limit else None, out)
        if pieces[-1]:
            self._line.add(pieces[-1])
        return out

    def _end_of_line(self, line: bytes | None, out: list[Event]) -> None:
        if line is None:
            self.oversize += 1
            out.append(Event(b"", b"", oversize=True))
        elif line := line.strip():
            out.append(Event(b"", line))

    def close(self) -> list[Event]:
        """The last line, when the body did not end with a line end."""
        out: list[Event] = []
        if self._line:
            self._end_of_line(self._line.end(b""), out)
        return out


class Document:
    """The whole body is one event, complete when the body ends."""

    __slots__ = ("_body", "oversize")

    def __init__(self, limit: int = DOCUMENT_LIMIT) -> None:
        self.oversize = 0
        self._body = _Line(limit)

    @property
    def between(self) -> bool:
        """Never: there is only one event."""
        return False

    def feed(self, data: bytes) -> list[Event]:
        """Nothing yet."""
        self._body.add(data)
        return []

    def close(self) -> list[Event]:
        """The document, unless the body was empty."""
        if not self._body:
            return []
        body = self._body.end(b"")
        if body is None:
            self.oversize += 1
            return [Event(b"", b"", oversize=True)]
        return [Event(b"", body)]
