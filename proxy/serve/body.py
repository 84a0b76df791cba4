"""The response body as the tap sees it: decoded, told apart, cut into events.

How a body is read is decided by the response, not by the request: by its Content-Type, and by its
first bytes where these contradict it. Servers label streams as JSON and JSON as a stream, and the
two cannot be mistaken for one another: a JSON object begins with a brace, which begins no field of
an event stream.
"""

from proxy.evidence import RawHeaders
from proxy.framing import Document, Event, Framing, Ndjson, Sse
from proxy.serve.decode import Decoder, make_decoder
from proxy.serve.headers import first, values

WHOLE_LIMIT = 8 << 20
"""The most bytes of a whole response that are kept, decoded."""
READ_LIMIT = 4 << 20
"""The most bytes that one read of a compressed stream may decode to."""

_SSE = b"text/event-stream"
_NDJSON = frozenset(
    {
        b"application/x-ndjson",
        b"application/ndjson",
        b"application/jsonl",
        b"application/stream+json",
    }
)
_FIELDS = (b"data:", b"event:", b":", b"id:", b"retry:")
# As long as the longest of them, and no longer than the shortest event.
_TELLING = 6
_BOM = b"\xef\xbb\xbf"


class Body:
    """One response body. `stream` says whether it is one; `lost` why it cannot be read, if so."""

    __slots__ = ("_decoder", "_framing", "_held", "lost", "mislabelled", "stream")

    def __init__(self, status: int, headers: RawHeaders, *, known: bool) -> None:
        """Choose by the response head; `known` when the dialect is.

        Of unknown traffic only streams are cut, and only error bodies kept: the rest is counted.
        """
        kind = (first(headers, b"content-type") or b"").split(b";")[0].strip().lower()
        self.stream = kind == _SSE or kind in _NDJSON
        self.mislabelled = False
        self.lost: str | None = None
        self._decoder: Decoder | None = None
        self._framing: Framing | None = None
        if kind == _SSE:
            self._framing = Sse()
        elif kind in _NDJSON:
            self._framing = Ndjson()
        elif (known or status >= 400) and _may_be_json(kind):
            self._framing = Document(WHOLE_LIMIT)
        # The first bytes, while they are too few to tell what the body is.
        self._held = b"" if known and self._framing is not None and kind not in _NDJSON else None

        coding = b",".join(values(headers, b"content-encoding"))
        if coding and self._framing is not None:
            limit = READ_LIMIT if self.stream else WHOLE_LIMIT
            self._decoder = make_decoder(coding, limit, whole=not self.stream)
            if self._decoder is None:
                self.lose("unsupported_encoding")

    @property
    def whole(self) -> bool:
        """Whether the body is one document, given by `close`."""
        return isinstance(self._framing, Document)

    @property
    def between(self) -> bool:
        """Whether the last read ended with an event, so that the next one begins with one."""
        return self._decoder is None and self._framing is not None and self._framing.between

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        framing = self._framing
        if framing is None:
            return []
        if self._decoder is not None:
            data = self._decoder.feed(data)
            if self._decoder.fault is not None:
                self.lose("undecodable_response")
                return []
        if self._held is not None:
            return self._start(framing, self._held + data, ended=False)
        return framing.feed(data)

    def close(self) -> list[Event]:
        """The events that the end of the body completes."""
        framing = self._framing
        if framing is None:
            return []
        events = []
        if self._held is not None:
            events = self._start(framing, self._held, ended=True)
        return events + (self._framing or framing).close()

    def lose(self, why: str) -> None:
        """Give up: from now on there are no events."""
        self.lost = why
        self._framing = self._decoder = self._held = None

    def _start(self, framing: Framing, start: bytes, *, ended: bool) -> list[Event]:
        text = start.removeprefix(_BOM).lstrip()
        if len(text) < _TELLING and not ended:
            # White space alone is let go: some servers send it for minutes.
            self._held = start if text else b""
            return []
        self._held = None
        stream = self.stream
        if text.startswith(b"{"):
            stream = False
        elif text.startswith(_FIELDS):
            stream = True
        if stream != self.stream:
            self.stream = stream
            self.mislabelled = True
            framing = self._framing = Sse() if stream else Document(WHOLE_LIMIT)
        return framing.feed(start)


def _may_be_json(kind: bytes) -> bool:
    return not kind or kind == b"text/plain" or kind.endswith((b"/json", b"+json"))
