"""The record: one frozen type, the schema of the log, the public contract.

One line of JSON per request. Durations that people read are milliseconds with three decimals; read
as whole microseconds they add up exactly. Marks are whole microseconds after `request_start`.
Unknown is null, with a reason under `nulls` where one is known. No field ever holds a header
value, a key, a query value, a prompt or an answer, except the identifiers listed under identity.
"""

from enum import StrEnum
from typing import Any

import msgspec

SCHEMA_VERSION = 1


class Outcome(StrEnum):
    """How a request ended, apart from its HTTP status."""

    OK = "ok"
    UPSTREAM_ERROR = "upstream_error"
    """The upstream answered with a status of 400 or above."""
    STREAM_ERROR = "stream_error"
    """The upstream reported an error inside a 200."""
    UPSTREAM_ABORTED = "upstream_aborted"
    """The response broke off: a reset, a missing final chunk, a body shorter than its length."""
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    """DNS, TCP or TLS failed, or the connection died before a response head."""
    INCOMPLETE = "incomplete"
    """The stream ended cleanly without the dialect's terminal event."""
    CLIENT_DISCONNECT = "client_disconnect"
    TIMEOUT = "timeout"
    """A limit of the proxy's configuration was reached."""
    BAD_REQUEST = "bad_request"
    """The proxy refused the request: it could not be parsed or must not be relayed."""
    REDIRECT = "redirect"
    """The upstream answered 3xx other than 304; relayed as it is."""
    PROXY_ERROR = "proxy_error"
    PROXY_SHUTDOWN = "proxy_shutdown"


class EndedBy(StrEnum):
    """Whose doing the end was."""

    UPSTREAM = "upstream"
    CLIENT = "client"
    PROXY = "proxy"


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of the upstream's usage statement."""

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    reasoning: int | None = None
    source: str | None = None


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One statement of the upstream, raw and as understood."""

    source: str
    name: str
    kind: str
    raw: str | int | float | None = None
    ms: float | None = None
    segment: str | None = None


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that cannot be true as it stands, kept raw, with the reason."""

    source: str
    name: str
    raw: str | int | float | None = None
    reason: str


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One request. The field groups follow the documentation of the log."""

    schema: int = SCHEMA_VERSION

    # identity
    ts: str
    event: str = "request"
    kind: str = "http"
    level: str = "info"
    msg: str
    request_id: str
    route: str | None = None
    label: str | None = None
    client: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    client_attempt: int | None = None
    trace_id: str | None = None
    upstream_request_id: str | None = None
    instance: str | None = None
    worker: int | None = None
    proxy_version: str

    # request
    method: str | None = None
    path: str | None = None
    upstream: str | None = None
    upstream_path: str | None = None
    dialect: str | None = None
    model: str | None = None
    stream: bool | None = None
    request_bytes: int | None = None
    request_encoding: str | None = None

    # outcome
    status: int | None = None
    outcome: Outcome
    ended_by: EndedBy
    ended_in: str
    error: str | None = None

    # time
    account_of: str
    account_ms: float
    ttft_ms: float | None = None
    first_token_kind: str | None = None
    first_content_ms: float | None = None
    tpot_ms: float | None = None
    duration_ms: float
    relay_delay_ms: float | None = None
    band: str | None = None
    segments_ms: dict[str, float | None]
    grades: dict[str, str]
    bounds_ms: dict[str, dict[str, float]] = {}
    network_ms: dict[str, float]
    marks_us: dict[str, int]
    evidence: list[Evidence] = []
    conflicts: list[Conflict] = []
    nulls: dict[str, str] = {}
    flags: list[str] = []

    # transport
    connection_reused: bool | None = None
    connection_idle_ms: float | None = None
    http_version: str | None = None
    upstream_addr: str | None = None
    local_port: int | None = None
    address_family: str | None = None
    via_proxy: bool | None = None
    rtt_ms: float | None = None
    min_rtt_ms: float | None = None
    retransmits: int | None = None

    # stream
    chunks: int | None = None
    events: int | None = None
    events_per_read: float | None = None
    gap_p50_ms: float | None = None
    gap_p99_ms: float | None = None
    gap_max_ms: float | None = None
    stalls: int | None = None
    response_bytes: int | None = None
    response_encoding: str | None = None

    # tokens
    tokens: Tokens | None = None

    # load
    inflight: int | None = None
    loop_lag_ms: float | None = None
    write_pending_ms: float | None = None
    read_paused_ms: float | None = None
    dropped_records: int = 0


_decode = msgspec.json.Decoder(Record).decode
_encode = msgspec.json.Encoder().encode


def to_json(record: Record) -> bytes:
    """One line of the log, without the newline."""
    return _encode(record)


def from_json(line: bytes | str) -> Record:
    """A record back from its line.

    Raises `ValueError` when the line is not a record of this schema. Unknown fields are ignored,
    so that a newer minor addition stays readable.
    """
    try:
        return _decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of one line (draft 2020-12)."""
    return msgspec.json.schema(Record)


def ms(microseconds: int) -> float:
    """Whole microseconds as milliseconds with three decimals."""
    return microseconds / 1000
