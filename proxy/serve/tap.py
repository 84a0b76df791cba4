"""The tap: reads copies of what was forwarded and turns them into marks, counts and claims.

Rules of this file:

1. Forward first, then feed. Nothing here may delay, change or break a request.
2. No method raises. A fault ends the reading of this request, with the flag `tap_fault`.
3. Marks are stamped with the instant of the read that completed the event, never with that of its
   parsing.
4. Memory is bounded: bodies by limits, everything else by being counted.
5. What cannot be known is None, with the reason under `nulls`.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from proxy.account import Claim, Mark, Trace
from proxy.dialects import (
    NOTHING,
    OPAQUE,
    Observation,
    RequestFacts,
    TokenKind,
    Usage,
    error_of,
    match,
)
from proxy.evidence import RawHeaders
from proxy.framing import Event
from proxy.serve.alike import Alike
from proxy.serve.body import Body
from proxy.serve.claims import MARKERS, Claims
from proxy.serve.gaps import Gaps, GapStats
from proxy.serve.headers import values
from proxy.serve.upload import Upload

LATE_READS = 32
"""How many small reads may wait in `late`."""
SMALL_READ = 4 << 10
"""A larger read (bytes) does not wait."""
_LENIENT_LIMIT = 64 << 10
_CODING_NAME = re.compile(rb"[a-z0-9-]{1,12}\Z")

# Bound once: looking up a member of an enum costs 0.15 µs in Python 3.11, for every event.
_LAST_TOKEN = Mark.LAST_TOKEN
_REASONING = TokenKind.REASONING

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class TapFacts:
    """What the tap has learned about one request.

    `stream` says what the response was, or without one what the request asked for; `readable` that
    the response could be read to its end. `chunks` counts reads, `events` data events (comments
    apart), `events_per_read` the data events per read that completed any. `terminal` is the
    dialect's last event or, for a whole response, a document that could be read; `finished` a
    stated finish reason. `error` is the type of an error inside a success, `error_type` that of an
    error status. `first_chunk_tokens` is 1 unless upstream stated a count with the first token.
    `gaps` lie between token-carrying reads.
    """

    dialect: str
    is_model_call: bool
    model: str | None
    request_encoding: str | None
    stream: bool | None
    readable: bool
    response_encoding: str | None
    response_bytes: int
    first_token_kind: TokenKind | None
    chunks: int
    events: int
    comments: int
    token_events: int
    events_per_read: float | None
    gaps: GapStats | None
    first_chunk_tokens: int
    usage: Usage | None
    reasoning_hidden: bool
    claims: tuple[Claim, ...]
    error: str | None
    error_type: str | None
    finished: bool
    terminal: bool
    flags: tuple[str, ...]
    nulls: dict[str, str]


class Tap:
    """One request and its response, read beside the relay. `terminal` may be read at any time."""

    __slots__ = (
        "_alike",
        "_at",
        "_body",
        "_bytes",
        "_chunks",
        "_claims",
        "_closed",
        "_comments",
        "_completing_reads",
        "_dialect",
        "_error",
        "_error_type",
        "_events",
        "_facts",
        "_finished",
        "_first_chunk_tokens",
        "_first_kind",
        "_flags",
        "_gaps",
        "_learned",
        "_model",
        "_model_null",
        "_plain",
        "_reasoned",
        "_request",
        "_request_coding",
        "_response_coding",
        "_status",
        "_terminal",
        "_token_events",
        "_trace",
        "_ttft_null",
        "_upload",
        "_usage",
        "late",
    )

    def __init__(
        self, method: str, path: str, *, trace: Trace, request_headers: RawHeaders
    ) -> None:
        self._trace = trace
        self._dialect = match(method, path)
        self._request_coding = b",".join(values(request_headers, b"content-encoding"))
        self._upload = None if self._dialect is OPAQUE else Upload(self._request_coding)
        self._request = RequestFacts()
        self._model_null = "opaque" if self._dialect is OPAQUE else "incomplete_request"
        self._flags: tuple[str, ...] = ()

        self._status: int | None = None
        self._response_coding = b""
        self._body: Body | None = None
        self._at = trace.start
        self._bytes = self._chunks = self._events = self._comments = 0
        self._completing_reads = self._token_events = 0
        self._claims = Claims()
        self._learned = NOTHING

        self._first_kind: TokenKind | None = None
        self._first_chunk_tokens = 1
        self._ttft_null: str | None = None
        self._reasoned = False
        self._gaps = Gaps()
        self._usage: Usage | None = None
        self._model: str | None = None
        self._finished = False
        self._terminal = False
        self.late: list[tuple[bytes, int]] = []
        """Reads (payload, instant) after the first token, left here by the relay. Nothing about
        them is urgent: parsed some at a time they cost a third of parsing each when it comes,
        because code and data are still in the caches then."""
        self._alike = Alike()
        self._closed = False
        self._facts: TapFacts | None = None
        self._plain = False
        self._error: str | None = None
        self._error_type: str | None = None

    # The request.

    def request_body(self, data: bytes) -> None:
        """Take a piece of the request body, after it was forwarded."""
        if self._upload is not None:
            self._upload.add(data)

    def request_complete(self) -> None:
        """Read model and stream flag, after the whole request was forwarded."""
        upload, self._upload = self._upload, None
        if upload is None:
            return
        try:
            self._request, why_not = upload.read(self._dialect)
            self._model_null = why_not or "not_stated"
            if why_not in ("undecodable", "unsupported_encoding"):
                self._flag("undecodable_request")
        except Exception:  # rule 2
            self._fault()

    # The response.

    def response_head(self, status: int, headers: RawHeaders) -> None:
        """Choose how to read the response by its head; read what the head claims."""
        try:
            self._status = status
            self._response_coding = b",".join(values(headers, b"content-encoding"))
            self._body = Body(status, headers, known=self._dialect is not OPAQUE)
            self._claims.head(headers)
        except Exception:  # rule 2
            self._fault()

    def feed(self, data: bytes, at: int) -> None:
        """Take payload bytes that were read at the instant `at` (ns), after they were forwarded."""
        if not data:
            return
        if self._first_kind is None or self._body is None:
            self._count(data, at)
            if self._body is not None:
                self._parse(self._body, data, at)
            return
        self.late.append((data, at))
        self.catch_up()

    @property
    def terminal(self) -> bool:
        """Whether the answer is complete, by all that was fed so far."""
        self.catch_up()
        return self._terminal

    def _count(self, data: bytes, at: int) -> None:
        self._chunks += 1
        self._bytes += len(data)
        self._at = at

    def catch_up(self) -> None:
        """Read what was left in `late`."""
        late = self.late.copy()
        self.late.clear()
        body, alike = self._body, self._alike
        known: list[int] = []
        for data, at in late:
            self._count(data, at)
            if body is None:
                continue
            if data in alike:
                known.append(at)
                continue
            self._tokens_at(known)
            known = []
            before = self._token_events
            self._plain = False
            self._parse(body, data, at)
            if not body.between:
                alike.forget()
            elif self._plain and self._token_events == before + 1:
                alike.learn(data)
        self._tokens_at(known)

    def _tokens_at(self, instants: list[int]) -> None:
        """Reads at these instants were one token each, of the kind of the last one."""
        if not instants:
            return
        self._events += len(instants)
        self._completing_reads += len(instants)
        self._token_events += len(instants)
        self._gaps.mark_all(instants)
        self._trace.last(_LAST_TOKEN, instants[-1])

    def _parse(self, body: Body, data: bytes, at: int) -> None:
        try:
            events = body.feed(data)
            if events:
                self._take(events, at)
        except Exception:  # rule 2
            self._fault()

    def trailers(self, headers: RawHeaders) -> None:
        """Read what the trailers claim."""
        try:
            self._claims.trailers(headers)
        except Exception:  # rule 2
            self._fault()

    def close(self) -> None:
        """The response has ended, whichever way. Closing again does nothing."""
        if self._closed:
            return
        self.catch_up()
        self._closed = True
        if self._body is None:
            return
        try:
            events = self._body.close()
            if not self._body.whole:
                self._take(events, self._at)
            elif events:
                self._read_whole(events[0], self._body)
        except Exception:  # rule 2
            self._fault()

    def _take(self, events: list[Event], at: int) -> None:
        """Account for the events that the read at `at` completed."""
        completed = tokens = 0
        self._plain = len(events) == 1
        for name, data, comment, oversize in events:
            if comment:
                self._comments += 1
                continue
            completed += 1
            seen = self._oversize(name) if oversize else self._read(name, data)
            if seen is None:
                continue
            token = seen.token
            if token is not None and not (seen.repeats and self._token_events):
                tokens += 1
                self._token_events += 1
                if token is _REASONING:
                    self._reasoned = True
                if seen.usage or seen.finished or seen.terminal or seen.error or seen.repeats:
                    self._plain = False
                if self._ttft_null is None:
                    if self._first_kind is None:
                        self._first_kind = token
                        self._trace.first(Mark.FIRST_TOKEN, at)
                    if seen.visible:
                        self._trace.first(Mark.FIRST_CONTENT, at)
            if seen is not self._learned:
                # Frequent observations are shared objects: the same one again says nothing new.
                self._learned = seen
                self._learn(seen, at)
        if completed:
            if not self._events:
                self._trace.first(Mark.FIRST_EVENT, at)
            self._events += completed
            self._completing_reads += 1
        if tokens:
            self._trace.last(_LAST_TOKEN, at)
            self._gaps.mark(at)

    def _read(self, name: bytes, data: bytes) -> Observation | None:
        """What one event means; None when nobody can say."""
        if self._dialect is OPAQUE:
            return None
        document = _json(data) if data[:1] == b"{" or data.lstrip()[:1] == b"{" else None
        seen = self._dialect.read_event(name, data, document)
        if document is not None:
            if not MARKERS.isdisjoint(document):
                self._plain = False
                self._claims.document(document, stream=True)
        elif data and data != b"[DONE]" and not (seen.terminal or seen.error):
            self._flag("parse_fault")
        return seen

    def _oversize(self, name: bytes) -> Observation | None:
        self._flag("oversize_event")
        seen = self._dialect.read_oversize(name)
        if seen is None and not self._token_events:
            # It may have been the first token, so no later event can be called that.
            self._ttft_null = "oversize_event"
        return seen

    def _learn(self, seen: Observation, at: int) -> None:
        if self._model is None:
            self._model = seen.model
        if seen.usage is not None:
            self._usage = seen.usage if self._usage is None else self._usage.merged(seen.usage)
            if seen.token is not None and self._trace.marks.get(Mark.FIRST_TOKEN) == at:
                hidden = 0 if self._reasoned else seen.usage.reasoning or 0
                self._first_chunk_tokens = max(1, (seen.usage.output or 1) - hidden)
        if seen.finished:
            self._finished = True
        if seen.terminal and not self._terminal:
            self._terminal = True
            self._trace.first(Mark.TERMINAL_EVENT, at)
        if self._error is None:
            self._error = seen.error

    def _read_whole(self, event: Event, body: Body) -> None:
        """A whole response: counts and claims, no marks."""
        if event.oversize:
            body.lose("oversize_document")
            self._flag("oversize_document")
            return
        document = _json(event.data)
        if not isinstance(document, dict):
            self._flag("parse_fault")
        elif self._status is not None and self._status >= 400:
            self._error_type = error_of(document)
        else:
            seen = self._dialect.read_response(document)
            self._model, self._usage = seen.model, seen.usage
            self._finished, self._error = seen.finished, seen.error
            self._terminal = True
            self._claims.document(document, stream=False)

    def _flag(self, flag: str) -> None:
        if flag not in self._flags:
            self._flags += (flag,)

    def _fault(self) -> None:
        self._upload = None
        self._flag("tap_fault")
        if self._body is not None:
            self._body.lose("tap_fault")

    # The result.

    def facts(self) -> TapFacts:
        """What is known by now."""
        if self._facts is None:
            self.catch_up()
            facts = self._sum_up()
            if self._closed:
                self._facts = facts
            return facts
        return self._facts

    def _sum_up(self) -> TapFacts:
        usage, body = self._usage, self._body
        hidden = not self._reasoned and usage is not None and bool(usage.reasoning)
        return TapFacts(
            dialect=self._dialect.name,
            is_model_call=self._dialect is not OPAQUE,
            model=self._request.model or self._model,
            request_encoding=_coding_name(self._request_coding),
            stream=body.stream if body is not None else self._request.stream,
            readable=body is not None and body.lost is None,
            response_encoding=_coding_name(self._response_coding),
            response_bytes=self._bytes,
            first_token_kind=self._first_kind,
            chunks=self._chunks,
            events=self._events,
            comments=self._comments,
            token_events=self._token_events,
            events_per_read=(
                self._events / self._completing_reads if self._completing_reads else None
            ),
            gaps=self._gaps.stats(),
            first_chunk_tokens=self._first_chunk_tokens,
            usage=usage,
            reasoning_hidden=hidden and body is not None and body.stream,
            claims=self._claims.all(),
            error=self._error,
            error_type=self._error_type,
            finished=self._finished,
            terminal=self._terminal,
            flags=(*self._flags, *self._late_flags()),
            nulls=self._nulls(),
        )

    def _late_flags(self) -> list[str]:
        flags = []
        if self._claims.faults:
            flags.append("evidence_fault")
        body = self._body
        if body is None:
            return flags
        if body.mislabelled:
            flags.append("mislabelled_response")
        if body.lost in ("undecodable_response", "unsupported_encoding"):
            flags.append("undecodable_response")
        wanted = self._request.stream
        succeeded = self._status is not None and 200 <= self._status < 300
        if succeeded and wanted is not None and wanted is not body.stream:
            flags.append("stream_mismatch")
        return flags

    def _nulls(self) -> dict[str, str]:
        nulls = {}
        marks = self._trace.marks
        if not (self._request.model or self._model):
            nulls["model"] = self._model_null
        if Mark.FIRST_TOKEN not in marks:
            nulls["ttft_ms"] = self._why_no_ttft()
        elif Mark.FIRST_CONTENT not in marks:
            nulls["first_content_ms"] = "no_content"
        if self._usage is None:
            nulls["tokens"] = self._unread() or "no_usage"
        return nulls

    def _why_no_ttft(self) -> str:
        known = self._dialect is not OPAQUE
        if known and self._body is not None and not self._body.stream:
            return "not_streamed"
        return self._unread() or self._ttft_null or "no_token"

    def _unread(self) -> str | None:
        """Why the response was not read, if it was not."""
        if self._dialect is OPAQUE:
            return "opaque"
        return self._body.lost if self._body is not None else "no_response"


def _json(data: bytes) -> Any:
    """The JSON value of `data`, or None. Any: what it holds is for the reader to check."""
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        pass
    if len(data) > _LENIENT_LIMIT:
        return None
    try:
        # Real servers send NaN, halves of surrogate pairs and broken UTF-8: tokens all the same.
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _coding_name(coding: bytes) -> str | None:
    """A Content-Encoding as it can be logged: `other` for what is too long for a name; or None."""
    names = [name.strip().lower() for name in coding.split(b",") if name.strip()]
    shown = [name.decode() if _CODING_NAME.match(name) else "other" for name in names[:4]]
    return ", ".join(shown) or None
