"""The vocabulary of the time account: marks, phases, segments, claims.

Rules of this file:

1. Nothing here reads a clock. Instants are integer nanoseconds of one monotonic clock, handed in;
   marks are integer microseconds after `request_start`.
2. A mark that was not observed is absent: never 0, never -1, never the end time.
3. First wins: a mark that was set is not moved, except `last_token`, which always moves forward.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Clock = Callable[[], int]
"""A monotonic clock in nanoseconds, such as `time.monotonic_ns`."""


class Mark(StrEnum):
    """Instants of one request, in the order in which they usually happen.

    chunk = bytes as read from upstream; event = one SSE or NDJSON message; token = generated
    material (text, reasoning, tool call, refusal, media), never empty.
    """

    REQUEST_END = "request_end"
    """The read that completed the client's request."""
    POOL_READY = "pool_ready"
    """The pool gave a connection or the right to open one."""
    DNS_END = "dns_end"
    CONNECT_END = "connect_end"
    TLS_END = "tls_end"
    UPSTREAM_TX_START = "upstream_tx_start"
    """The first request byte was about to be handed to the kernel."""
    UPSTREAM_TX_END = "upstream_tx_end"
    """The last request byte was handed to the kernel."""
    RESPONSE_HEADERS = "response_headers"
    FIRST_CHUNK = "first_chunk"
    FIRST_EVENT = "first_event"
    FIRST_TOKEN = "first_token"
    FIRST_CONTENT = "first_content"
    LAST_TOKEN = "last_token"
    TERMINAL_EVENT = "terminal_event"
    UPSTREAM_RX_END = "upstream_rx_end"
    """The read that completed the upstream's response."""
    END = "end"


_IN_ORDER = tuple(Mark)


class Phase(StrEnum):
    """What a request is doing. The first ten tile the account; the rest only say where it ended."""

    POOL = "pool"
    DNS = "dns"
    TCP = "tcp"
    TLS = "tls"
    OWN = "own"
    """Our own work between a usable connection and the first byte sent."""
    UPLOAD = "upload"
    """The client is still sending its request."""
    SEND = "send"
    WAIT = "wait"
    """The request is sent, no response head yet."""
    HEAD = "head"
    """The response head is here, no body byte yet."""
    BODY = "body"
    """From the first body byte to the first token (or to the end of the account)."""
    STREAM = "stream"
    """After the first token."""
    REQUEST_HEAD = "request_head"
    """The request was refused before it was relayed."""
    DONE = "done"
    """The response was complete."""


class Segment(StrEnum):
    """The addends of TTFT that users reason with."""

    NETWORK = "network_latency"
    QUEUE = "queue_delay"
    PREPROCESSING = "preprocessing_time"
    INITIALIZATION = "model_initialization"
    GENERATION = "first_token_generation"
    PROXY = "proxy_time"
    UNATTRIBUTED = "unattributed"


class AccountOf(StrEnum):
    """What the account's interval ends with."""

    FIRST_TOKEN = "first_token"
    RESPONSE = "response"
    """Not streamed: the complete response."""
    CUT = "cut"
    """The request ended without a token."""


class ClaimKind(StrEnum):
    """What an upstream's statement about its own time is good for."""

    DURATION = "duration"
    """The duration of one segment: an addend."""
    LUMP = "lump"
    """A server total: a cross-check against the wait for the response head, never an addend."""
    QUEUE_ENDS_AT_HEAD = "queue_ends_at_head"
    """This server is known to send its response head when queueing ends (an upper bound)."""
    CONTEXT = "context"
    """Worth keeping, not a part of TTFT (decode time, counts)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the upstream about its own time, as a value.

    `value_us` is None when the raw value did not parse, was not finite or was negative; such a
    claim is kept raw under `conflicts`. `includes` names segments that the value also covers.
    """

    source: str
    name: str
    kind: ClaimKind
    raw: str | int | float | None
    value_us: int | None = None
    segment: Segment | None = None
    includes: tuple[Segment, ...] = ()


class Trace:
    """The marks of one request while it runs: mutable, one owner, one clock."""

    __slots__ = ("clock", "entered", "marks", "start")

    def __init__(self, clock: Clock, start: int) -> None:
        self.clock = clock
        self.start = start
        self.entered = Phase.POOL
        self.marks: dict[Mark, int] = {}

    def first(self, mark: Mark, at: int) -> None:
        """Set `mark` to the instant `at` (ns of the clock) unless it was set before."""
        if mark not in self.marks:
            self.marks[mark] = at

    def last(self, mark: Mark, at: int) -> None:
        """Move `mark` to the instant `at` (ns of the clock)."""
        self.marks[mark] = at

    def end(self, at: int) -> None:
        """The request ended at the instant `at`; what was observed later is not part of it."""
        self.marks = {mark: seen for mark, seen in self.marks.items() if seen <= at}
        self.marks[Mark.END] = at

    @property
    def phase(self) -> Phase:
        """What the request is doing now."""
        marks = self.marks
        if Mark.UPSTREAM_RX_END in marks:
            return Phase.DONE
        if Mark.FIRST_TOKEN in marks:
            return Phase.STREAM
        if Mark.FIRST_CHUNK in marks:
            return Phase.BODY
        if Mark.RESPONSE_HEADERS in marks:
            return Phase.HEAD
        return self.entered

    def offsets_us(self) -> dict[Mark, int]:
        """The marks as whole microseconds after `start`, in the order of `Mark`.

        Rounding is downwards for every mark alike, so their order is kept.
        """
        start = self.start
        marks = self.marks
        return {mark: (marks[mark] - start) // 1000 for mark in _IN_ORDER if mark in marks}


_UNTIL_REPLY = (
    (Phase.POOL, Mark.POOL_READY),
    (Phase.DNS, Mark.DNS_END),
    (Phase.TCP, Mark.CONNECT_END),
    (Phase.TLS, Mark.TLS_END),
    (Phase.OWN, Mark.UPSTREAM_TX_START),
    (Phase.UPLOAD, Mark.REQUEST_END),
    (Phase.SEND, Mark.UPSTREAM_TX_END),
)
_OPTIONAL_STEPS = (Phase.DNS, Phase.TCP, Phase.TLS)


def tile(marks: Mapping[Mark, int], end: int, running: Phase) -> dict[Phase, int]:
    """Cut `[0, end]` into wire phases, each instant in exactly one of them.

    `marks` and `end` are microseconds after `request_start`; `running` is the connection step that
    was under way when the request ended, for requests that never got as far as sending. An early
    reply cuts whatever was running. The values are >= 0 and sum to `end` exactly.
    """
    reply = min(marks.get(Mark.RESPONSE_HEADERS, end), end)
    tiles: dict[Phase, int] = {}
    cursor = 0
    for phase, mark in _UNTIL_REPLY:
        at = marks.get(mark)
        if at is None:
            if phase in _OPTIONAL_STEPS and (
                phase is not running or Mark.UPSTREAM_TX_START in marks
            ):
                continue
            at = reply
        until = min(max(at, cursor), reply)
        if until > cursor:
            tiles[phase] = until - cursor
            cursor = until
    if reply > cursor:
        tiles[Phase.WAIT] = reply - cursor
    chunk = min(max(marks.get(Mark.FIRST_CHUNK, end), reply), end)
    if chunk > reply:
        tiles[Phase.HEAD] = chunk - reply
    if end > chunk:
        tiles[Phase.BODY] = end - chunk
    return tiles
