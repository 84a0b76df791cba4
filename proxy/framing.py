"""Bytes to events, incrementally and bounded: SSE, NDJSON, one whole JSON document."""

from typing import NamedTuple


class Event(NamedTuple):
    """One message of a stream.

    `name` is the SSE event type (b"" when none was given), `data` the payload (for SSE the data
    lines joined with LF), `comment` is true for an SSE comment line, whose text is then `data`.
    """

    name: bytes
    data: bytes
    comment: bool = False
