"""From what was observed to the record. Everything is a value: no clock, no socket."""

import dataclasses
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.account import Claim, ClaimKind, Mark, Phase, Segment, Trace
from proxy.dialects import TokenKind, Usage
from proxy.record import EndedBy, Outcome, Record, from_json, json_schema, to_json
from proxy.serve.accounting import LAG_SPOILS_NS, Service, to_record
from proxy.serve.config import Joined
from proxy.serve.ending import Ending
from proxy.serve.exchange import Exchange, RequestHead
from proxy.serve.gaps import GapStats
from proxy.serve.observed import Observed
from proxy.serve.tap import TapFacts
from proxy.upstream.client import ConnectionFacts
from proxy.upstream.kernel import KernelSample
from tests.serve.test_exchange import Connection
from tests.support import check

MS = 1_000_000
"""A millisecond in the nanoseconds of marks."""
START = 5_000 * MS
WALL = 1_772_373_787_000_250_000
SERVICE = Service(upstream="https://api.example", instance="here", worker=7, label="before")
OK = Ending(Outcome.OK, EndedBy.UPSTREAM, Phase.DONE)

FACTS = TapFacts(
    dialect="openai_chat",
    is_model_call=True,
    model="m",
    request_encoding=None,
    stream=True,
    readable=True,
    response_encoding=None,
    response_bytes=1000,
    first_token_kind=TokenKind.TEXT,
    chunks=12,
    events=12,
    comments=0,
    token_events=10,
    events_per_read=1.0,
    gaps=GapStats(p50_us=100_000, p99_us=110_000, max_us=110_000, stalls=0),
    first_chunk_tokens=1,
    usage=Usage(input=9, output=40),
    reasoning_hidden=False,
    claims=(),
    error=None,
    error_type=None,
    finished=True,
    terminal=True,
    flags=(),
    nulls={},
)
STREAM = {
    Mark.REQUEST_END: 0,
    Mark.POOL_READY: 0.1,
    Mark.UPSTREAM_TX_START: 0.5,
    Mark.UPSTREAM_TX_END: 0.7,
    Mark.RESPONSE_HEADERS: 100,
    Mark.FIRST_CHUNK: 101,
    Mark.FIRST_EVENT: 101,
    Mark.FIRST_TOKEN: 400,
    Mark.FIRST_CONTENT: 450,
    Mark.LAST_TOKEN: 1300,
    Mark.TERMINAL_EVENT: 1301,
    Mark.UPSTREAM_RX_END: 1302,
}


class FixedTap:
    """A tap that has learned what a test says."""

    def __init__(self, facts: TapFacts) -> None:
        self._facts = facts

    def facts(self) -> TapFacts:
        return self._facts


def observed(
    marks: dict[Mark, float] | None = None,
    *,
    facts: TapFacts | None = FACTS,
    ending: Ending = OK,
    end: float = 1303,
    target: bytes = b"/v1/chat/completions?key=hidden",
    method: str = "POST",
    connection: ConnectionFacts | None = None,
    **changes: Any,
) -> Observed:
    """One finished request; marks in ms after its start."""
    trace = Trace(lambda: 0, START)
    for mark, at in (STREAM if marks is None else marks).items():
        trace.first(mark, START + round(at * MS))
    trace.end(START + round(end * MS))
    exchange = Exchange(
        RequestHead(method, target, "1.1", [], started=START), Connection(), keep=True
    )
    seen = Observed(exchange, trace, Joined(b"/api" + target, None), WALL)
    tap: Any = FixedTap(facts) if facts is not None else None
    seen.tap = tap
    seen.ending = ending
    seen.status = 200
    seen.connection = connection or ConnectionFacts()
    for name, value in changes.items():
        setattr(seen, name, value)
    return seen


def account(*arguments: Any, lag_ns: int = 0, dropped: int = 0, **changes: Any) -> Record:
    """The record of such a request; what holds for every record is checked."""
    seen = observed(*arguments, **changes)
    record = to_record(seen, SERVICE, request_id="r-1", lag_ns=lag_ns, dropped=dropped)
    check(record)
    return record


def facts(**changes: Any) -> TapFacts:
    return dataclasses.replace(FACTS, **changes)


def without(*marks: Mark) -> dict[Mark, float]:
    return {mark: at for mark, at in STREAM.items() if mark not in marks}


NO_TOKEN = without(Mark.FIRST_TOKEN, Mark.FIRST_CONTENT, Mark.LAST_TOKEN)


# -- what the account covers


def test_a_stream_is_accounted_to_its_first_token() -> None:
    """TTFT is that interval; what comes after it is not part of it."""
    record = account()
    assert (record.account_of, record.account_ms, record.ttft_ms) == ("first_token", 400, 400)
    assert record.first_content_ms == 450
    assert record.duration_ms == 1303
    assert record.first_token_kind == "text"
    assert record.marks_us["first_token"] == 400_000


def test_a_whole_response_is_accounted_to_its_end() -> None:
    """There is no first token in it, so there is no TTFT (R16)."""
    record = account(NO_TOKEN, facts=facts(stream=False, first_token_kind=None, token_events=0))
    assert (record.account_of, record.account_ms) == ("response", 1302)
    assert (record.ttft_ms, record.nulls["ttft_ms"]) == (None, "not_streamed")
    assert (record.tpot_ms, record.nulls["tpot_ms"]) == (None, "not_streamed")
    assert record.band is None


@pytest.mark.parametrize("outcome", [Outcome.CLIENT_DISCONNECT, Outcome.TIMEOUT])
def test_a_request_without_a_token_is_accounted_to_its_cut(outcome: Outcome) -> None:
    """The reason for the missing TTFT is how it ended."""
    ending = Ending(outcome, EndedBy.PROXY, Phase.WAIT, "Class")
    early = {
        Mark.REQUEST_END: 0.0,
        Mark.POOL_READY: 1.0,
        Mark.UPSTREAM_TX_START: 2.0,
        Mark.UPSTREAM_TX_END: 2.0,
    }
    record = account(early, facts=None, ending=ending, end=50, status=None)
    assert (record.account_of, record.account_ms) == ("cut", 50)
    assert record.nulls["ttft_ms"] == outcome.value
    assert record.segments_ms["unattributed"] == 48


def test_a_stream_of_structure_alone_has_no_first_token() -> None:
    """It ended well, and still there is nothing to time (B01)."""
    record = account(NO_TOKEN, facts=facts(first_token_kind=None, token_events=0, gaps=None))
    assert (record.account_of, record.nulls["ttft_ms"]) == ("cut", "no_token")
    assert record.nulls["tpot_ms"] == "no_token"


def test_a_token_seen_after_the_end_is_not_part_of_the_request() -> None:
    """The client had left before it was read: neither a TTFT nor a kind of token."""
    ending = Ending(Outcome.CLIENT_DISCONNECT, EndedBy.CLIENT, Phase.BODY, "ClientDisconnect")
    record = account(ending=ending, end=300)
    assert (record.ttft_ms, record.first_token_kind) == (None, None)
    assert record.account_of == "cut"


def test_the_taps_reason_for_a_missing_ttft_comes_first() -> None:
    """It knows more than how the request ended."""
    record = account(NO_TOKEN, facts=facts(nulls={"ttft_ms": "unsupported_encoding"}))
    assert record.nulls["ttft_ms"] == "unsupported_encoding"


# -- bands and levels


@pytest.mark.parametrize(
    ("ttft", "band"),
    [
        (0.001, "instant"),
        (99.999, "instant"),
        (100, "slight"),
        (299.999, "slight"),
        (300, "noticeable"),
        (1000, "noticeable"),
        (1000.001, "needs_work"),
    ],
)
def test_bands(ttft: float, band: str) -> None:
    """Each threshold and the value next to it."""
    record = account(
        {**STREAM, Mark.FIRST_TOKEN: ttft, Mark.RESPONSE_HEADERS: 0, Mark.FIRST_CHUNK: 0}
    )
    assert record.ttft_ms == ttft
    assert record.band == band


@pytest.mark.parametrize(
    ("ttft", "level"),
    [(999.999, "info"), (1000, "warning"), (1999.999, "warning"), (2000, "critical")],
)
def test_levels_by_ttft(ttft: float, level: str) -> None:
    """1 s warns, 2 s is critical."""
    late = {**STREAM, Mark.FIRST_TOKEN: ttft, Mark.LAST_TOKEN: 2001.0}
    assert account(late, end=2002).level == level


@pytest.mark.parametrize(
    ("tpot", "level"),
    [(99.999, "info"), (100, "warning"), (199.999, "warning"), (200, "critical")],
)
def test_levels_by_tpot(tpot: float, level: str) -> None:
    """100 ms per token warns, 200 ms is critical."""
    slow = {**STREAM, Mark.LAST_TOKEN: 400 + 39 * tpot}
    record = account(slow, end=20_000)
    assert (record.tpot_ms, record.level) == (tpot, level)


@pytest.mark.parametrize("outcome", Outcome)
def test_levels_by_outcome(outcome: Outcome) -> None:
    """A failure is an error; a redirect and a client that left are none."""
    record = account(ending=Ending(outcome, EndedBy.UPSTREAM, Phase.DONE, None))
    harmless = outcome in (Outcome.OK, Outcome.REDIRECT, Outcome.CLIENT_DISCONNECT)
    assert record.level == ("info" if harmless else "error")


# -- TPOT


def test_tpot_counts_tokens_not_chunks() -> None:
    """Ten chunks carried forty tokens: 0.9 s / 39 = 23 ms; chunk gaps have another name (B33)."""
    record = account()
    assert record.tpot_ms == round(900_000 / 39) / 1000
    assert record.gap_p50_ms == 100


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"usage": None}, "no_usage"),
        ({"usage": Usage(input=9)}, "no_usage"),
        ({"usage": Usage(output=0)}, "too_few_tokens"),
        ({"usage": Usage(output=1)}, "too_few_tokens"),
        ({"token_events": 1}, "single_token_event"),
        ({"first_chunk_tokens": 40}, "too_few_tokens"),
        ({"usage": Usage(output=40, reasoning=40), "reasoning_hidden": True}, "too_few_tokens"),
        ({"usage": Usage(output=4, reasoning=9), "reasoning_hidden": True}, "too_few_tokens"),
    ],
)
def test_tpot_is_null_with_a_reason(changes: dict[str, Any], reason: str) -> None:
    """Never zero, never infinite (B16, B35)."""
    record = account(facts=facts(**changes))
    assert (record.tpot_ms, record.nulls["tpot_ms"]) == (None, reason)


def test_hidden_reasoning_is_not_in_the_visible_window() -> None:
    """600 of 650 tokens were thought in silence: 50 tokens in the window that was seen (B36)."""
    usage = Usage(output=650, reasoning=600)
    hidden = account(facts=facts(usage=usage, reasoning_hidden=True))
    streamed = account(facts=facts(usage=usage))
    assert hidden.tpot_ms == round(900_000 / 49) / 1000
    assert streamed.tpot_ms == round(900_000 / 649) / 1000


def test_a_stated_size_of_the_first_chunk_is_used() -> None:
    """Its tokens took no time after the first."""
    assert account(facts=facts(first_chunk_tokens=4)).tpot_ms == 25


def test_a_whole_answer_in_one_chunk_has_no_tpot() -> None:
    """A late usage chunk moves neither the first token nor the last (B37)."""
    one = {**STREAM, Mark.FIRST_TOKEN: 300, Mark.FIRST_CONTENT: 300, Mark.LAST_TOKEN: 300}
    record = account(one, facts=facts(token_events=1, gaps=None))
    assert record.ttft_ms == 300
    assert record.marks_us["last_token"] == 300_000
    assert record.nulls["tpot_ms"] == "single_token_event"


# -- a slow reader


def paused(at_ms: float, for_ms: float = 70) -> ConnectionFacts:
    return ConnectionFacts(
        first_paused_at=START + round(at_ms * MS), read_paused_ns=round(for_ms * MS)
    )


def test_once_reading_paused_stamps_are_no_arrivals() -> None:
    """TPOT and gaps would be the reader's; TTFT was before it (B58)."""
    record = account(connection=paused(500))
    assert (record.ttft_ms, record.read_paused_ms) == (400, 70)
    for name in ("tpot_ms", "gap_p50_ms", "gap_p99_ms", "gap_max_ms", "stalls"):
        assert getattr(record, name) is None
        assert record.nulls[name] == "slow_reader"


def test_a_pause_behind_the_last_token_changes_nothing() -> None:
    """All tokens were stamped by then."""
    record = account(connection=paused(1301))
    assert record.tpot_ms is not None
    assert record.gap_p50_ms == 100
    assert record.read_paused_ms == 70


# -- the path


def sample(**changes: int) -> KernelSample:
    values = {"rtt_us": 9000, "min_rtt_us": 8000, "busy_us": 0, "retransmits": 0, "mss": 1448}
    return KernelSample(**{**values, **changes})


def test_path_facts_come_from_the_very_socket() -> None:
    """Round trip as the network's share; only growth of counters belongs to this request."""
    connection = ConnectionFacts(
        reused=True,
        idle_ns=3 * MS,
        http_version="1.1",
        address="10.0.0.1:443",
        local_port=5000,
        family="ipv4",
        kernel_before=sample(retransmits=3, busy_us=900_000),
        kernel_at_head=sample(retransmits=4, busy_us=960_000),
        kernel_at_end=sample(retransmits=5, rtt_us=11_000),
    )
    record = account(connection=connection)
    assert record.network_ms["round_trip"] == 8
    assert record.grades["network_latency"] == "inferred:tcp_info"
    assert record.retransmits == 2
    assert (record.rtt_ms, record.min_rtt_ms) == (11, 8)
    assert (record.connection_reused, record.connection_idle_ms) == (True, 3)
    assert record.upstream_addr == "10.0.0.1:443"


def test_a_large_request_drains_for_longer_than_a_round_trip() -> None:
    """Beyond the initial window the busy time after the last byte was handed over counts.

    What was busy before that, a TLS handshake or the upload itself, is measured already.
    """
    connection = ConnectionFacts(
        kernel_before=sample(busy_us=100_000),
        kernel_when_sent=sample(busy_us=900_000),
        kernel_at_head=sample(busy_us=960_000),
    )
    seen = observed(connection=connection)
    seen.exchange.request_bytes = 1_000_000
    record = to_record(seen, SERVICE, request_id="r", lag_ns=0, dropped=0)
    assert record.network_ms["round_trip"] == 60


def test_a_new_connection_counts_from_zero() -> None:
    """Nothing was sampled before it."""
    connection = ConnectionFacts(reused=False, kernel_at_head=sample(retransmits=2))
    record = account(connection=connection)
    assert record.retransmits == 2
    assert record.connection_idle_ms is None


def test_counters_never_shrink() -> None:
    """A baseline that is larger than the reading is no negative growth."""
    connection = ConnectionFacts(kernel_before=sample(retransmits=9), kernel_at_head=sample())
    assert account(connection=connection).retransmits == 0


def test_without_kernel_facts_they_are_null() -> None:
    """Not zero; the reason is there."""
    record = account()
    assert (record.rtt_ms, record.min_rtt_ms, record.retransmits) == (None, None, None)
    assert record.nulls["network_ms.round_trip"] == "no_tcp_info"


# -- flags, counts, identity, words


def test_a_late_loop_is_flagged() -> None:
    """From 5 ms on; the worst lag is in the record in any case."""
    assert account(lag_ns=LAG_SPOILS_NS - 1000).flags == []
    late = account(lag_ns=LAG_SPOILS_NS)
    assert late.flags == ["loop_lag"]
    assert late.loop_lag_ms == 5


def test_flags_come_from_the_ending_the_account_and_the_tap() -> None:
    """All of them, none twice."""
    ending = dataclasses.replace(OK, flags=("client_closed_early",))
    record = account(ending=ending, facts=facts(flags=("parse_fault",)))
    assert record.flags == ["client_closed_early", "parse_fault"]


def test_waiting_of_the_client_stands_beside_the_account() -> None:
    """Relay delay, pending writes and drops are context, not parts of TTFT."""
    seen = observed(relay_delay_ns=40_500, inflight=3)
    seen.exchange.write_pending_ns = 7 * MS
    record = to_record(seen, SERVICE, request_id="r", lag_ns=0, dropped=2)
    assert (record.relay_delay_ms, record.write_pending_ms) == (0.04, 7)
    assert (record.inflight, record.dropped_records) == (3, 2)
    assert record.account_ms == 400


def test_claims_are_kept_raw_and_conflicts_with_their_reason() -> None:
    """What cannot be true is no part of the account, and not hidden either."""
    claims = (
        Claim("engine", "queue", ClaimKind.DURATION, 50, 50_000, Segment.QUEUE),
        Claim("engine", "load", ClaimKind.DURATION, "9 h", 32_400_000_000, Segment.INITIALIZATION),
        Claim("gateway", "total", ClaimKind.LUMP, "x", None),
    )
    record = account(facts=facts(claims=claims))
    assert record.segments_ms["queue_delay"] == 50
    assert record.grades["queue_delay"] == "reported:engine"
    assert record.segments_ms["model_initialization"] is None
    assert record.nulls["model_initialization"] == "conflict"
    assert [(one.name, one.raw, one.reason) for one in record.conflicts] == [
        ("load", "9 h", "exceeds_measured_interval"),
        ("total", "x", "malformed"),
    ]
    assert [one.ms for one in record.evidence] == [50, 32_400_000, None]


def test_the_end_of_the_upload_is_a_mark_of_the_request() -> None:
    """Unless the request had ended by then."""
    seen = observed(without(Mark.REQUEST_END))
    seen.exchange.request_ended_at = START + 2 * MS
    record = to_record(seen, SERVICE, request_id="r", lag_ns=0, dropped=0)
    assert record.marks_us["request_end"] == 2000
    check(record)


def test_paths_are_bounded_printable_and_without_secrets() -> None:
    """No query, no user information, no control characters, at most 512 characters."""
    record = account()
    assert (record.path, record.upstream_path) == (
        "/v1/chat/completions",
        "/api/v1/chat/completions",
    )
    odd = account(target=b"/\xe9\x9b" + b"a" * 600)
    assert odd.path is not None
    assert odd.path[:3] == "/\xe9?"
    assert len(odd.path) == 512
    absolute = account(target=b"http://me:hidden@h/x?hidden")
    assert absolute.path == "/x"
    connect = account(method="CONNECT", target=b"me:hidden@h:443", facts=None)
    assert (connect.path, connect.upstream_path) == (None, None)


def test_a_tag_of_the_path_wins_over_the_label_of_the_process() -> None:
    """It is closer to the request."""
    assert account().label == "before"
    assert account(joined=Joined(b"/x", "after")).label == "after"


def test_one_wall_clock_anchor() -> None:
    """RFC 3339 in UTC, with microseconds."""
    assert account().ts == "2026-03-01T14:03:07.000250Z"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "first token after 400 ms, most of it unattributed"),
        ({"marks": NO_TOKEN, "facts": facts(stream=False)}, "complete"),
        (
            {"ending": Ending(Outcome.UPSTREAM_ERROR, EndedBy.UPSTREAM, Phase.DONE, "E")},
            "upstream_error in done, ended by upstream, status 200",
        ),
        (
            {
                "ending": Ending(Outcome.CLIENT_DISCONNECT, EndedBy.CLIENT, Phase.WAIT, "E"),
                "status": None,
            },
            "client_disconnect in wait, ended by client",
        ),
    ],
)
def test_a_sentence_for_people(changes: dict[str, Any], says: str) -> None:
    """For whoever reads raw lines."""
    assert account(**changes).msg == says


# -- anything


instants = st.floats(0, 100_000).map(lambda value: round(value, 6))
microseconds = st.integers(0, 10**10)
kernel = st.none() | st.builds(
    KernelSample, microseconds, microseconds, microseconds, st.integers(0, 9), st.integers(1, 9000)
)
claims = st.builds(
    Claim,
    source=st.sampled_from(["a", "b"]),
    name=st.just("n"),
    kind=st.sampled_from(ClaimKind),
    raw=st.none() | st.integers(-5, 5) | st.just("x"),
    value_us=st.none() | microseconds,
    segment=st.none() | st.sampled_from(Segment),
    includes=st.sampled_from([(), (Segment.GENERATION,)]),
)
usages = st.none() | st.builds(
    Usage, *[st.none() | st.integers(0, 2**40) for _ in dataclasses.fields(Usage)]
)
any_facts = st.builds(
    facts,
    stream=st.none() | st.booleans(),
    first_token_kind=st.none() | st.sampled_from(TokenKind),
    token_events=st.integers(0, 20),
    events_per_read=st.none() | st.floats(0, 1e6),
    gaps=st.none() | st.builds(GapStats, *[microseconds] * 4),
    first_chunk_tokens=st.integers(1, 2**40),
    usage=usages,
    reasoning_hidden=st.booleans(),
    claims=st.lists(claims, max_size=4).map(tuple),
    model=st.none() | st.text(max_size=5),
    nulls=st.sampled_from([{}, {"ttft_ms": "oversize_event"}]),
)
endings = st.builds(
    Ending,
    st.sampled_from(Outcome),
    st.sampled_from(EndedBy),
    st.sampled_from(Phase),
    st.none() | st.just("Class"),
)
connections = st.builds(
    ConnectionFacts,
    reused=st.none() | st.booleans(),
    idle_ns=st.none() | microseconds,
    kernel_before=kernel,
    kernel_at_head=kernel,
    kernel_at_end=kernel,
    read_paused_ns=microseconds,
    first_paused_at=st.none() | instants.map(lambda at: START + round(at * MS)),
)
VALIDATOR = jsonschema.Draft202012Validator(json_schema())


def no_constant(name: str) -> float:
    raise AssertionError(f"{name} is not JSON")


@settings(max_examples=150, deadline=None)
@given(
    marks=st.dictionaries(st.sampled_from(Mark), instants),
    end=instants,
    entered=st.sampled_from(Phase),
    seen_facts=st.none() | any_facts,
    ending=endings,
    connection=connections,
    request_end=st.none() | instants,
    target=st.binary(max_size=20),
    status=st.none() | st.integers(100, 599),
    lag_ns=microseconds,
)
def test_whatever_was_observed_makes_a_valid_record(
    marks: dict[Mark, float],
    end: float,
    entered: Phase,
    seen_facts: TapFacts | None,
    ending: Ending,
    connection: ConnectionFacts,
    request_end: float | None,
    target: bytes,
    status: int | None,
    lag_ns: int,
) -> None:
    """Marks in any order, claims of any size: valid, adding up exactly, without NaN."""
    marks.pop(Mark.END, None)
    seen = observed(
        marks,
        end=end,
        facts=seen_facts,
        ending=ending,
        connection=connection,
        target=target,
        status=status,
    )
    seen.trace.entered = entered
    if request_end is not None:
        seen.exchange.request_ended_at = START + round(request_end * MS)
    record = to_record(seen, SERVICE, request_id="r", lag_ns=lag_ns, dropped=0)

    check(record)
    line = to_json(record)
    VALIDATOR.validate(json.loads(line, parse_constant=no_constant))
    assert b"\n" not in line
    assert from_json(line) == record
    network = sum(round(part * 1000) for part in record.network_ms.values())
    assert network == round((record.segments_ms["network_latency"] or 0) * 1000)
    for name in ("tpot_ms", "ttft_ms"):
        assert (getattr(record, name) is None) == (name in record.nulls)
    assert (record.first_token_kind is None) or record.ttft_ms is not None
