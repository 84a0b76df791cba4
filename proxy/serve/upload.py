"""The request body as the tap sees it: a bounded copy, to read model and stream flag from."""

from typing import Any, NamedTuple

import msgspec

from proxy.dialects import Dialect, RequestFacts
from proxy.framing import Document
from proxy.serve.decode import TOO_LARGE, make_decoder

REQUEST_LIMIT = 8 << 20
"""The most bytes of an upload, compressed or not, that are kept."""


class _Head(msgspec.Struct, gc=False):
    """The fields that are read. A typed decoder skips all others: 1 MB costs less than 1 ms."""

    model: Any = None
    stream: Any = None


_decode = msgspec.json.Decoder(_Head).decode


class Reading(NamedTuple):
    """What a request body says, or the reason why it cannot be told."""

    facts: RequestFacts
    reason: str | None = None


class Upload:
    """The copy of one request body; `coding` is its Content-Encoding."""

    __slots__ = ("_body", "_coding")

    def __init__(self, coding: bytes) -> None:
        self._coding = coding
        self._body = Document(REQUEST_LIMIT)

    def add(self, data: bytes) -> None:
        """Keep another piece, unless there are too many already."""
        self._body.feed(data)

    def read(self, dialect: Dialect) -> Reading:
        """Read the whole body, and let it go.

        Reasons: `no_body`, `body_too_large`, `unsupported_encoding`, `undecodable`, `not_json`.
        """
        kept = self._body.close()
        if not kept:
            return Reading(RequestFacts(), "no_body")
        if kept[0].oversize:
            return Reading(RequestFacts(), "body_too_large")
        body = kept[0].data
        if self._coding:
            decoder = make_decoder(self._coding, REQUEST_LIMIT)
            if decoder is None:
                return Reading(RequestFacts(), "unsupported_encoding")
            body = decoder.feed(body)
            if decoder.fault == TOO_LARGE:
                return Reading(RequestFacts(), "body_too_large")
            if decoder.fault is not None or not body:
                return Reading(RequestFacts(), "undecodable")
        try:
            head = _decode(body)
        except (ValueError, RecursionError):
            return Reading(RequestFacts(), "not_json")
        return Reading(dialect.read_request({"model": head.model, "stream": head.stream}))
