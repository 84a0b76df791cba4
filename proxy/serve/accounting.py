"""From what was observed to the record. Pure: no clock, no socket; instants come in `Observed`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

from proxy import __version__
from proxy.account import AccountOf, Claim, Mark, Segment, tile
from proxy.attribution import Attribution, PathFacts, attribute
from proxy.record import Conflict, Evidence, Outcome, Record, Tokens, ms
from proxy.serve.ending import Ending
from proxy.serve.identity import identify, upstream_request_id
from proxy.serve.judgement import Thresholds
from proxy.serve.observed import Observed, bare_path
from proxy.serve.tap import TapFacts
from proxy.upstream.client import ConnectionFacts

_NAMES: dict[str, str] = {member: member.value for kind in (Mark, Segment) for member in kind}
"""Plain strings for members: asking an enum for its value costs 0.5 µs in Python 3.11."""
_GAPS = ("gap_p50_ms", "gap_p99_ms", "gap_max_ms", "stalls")
LAG_SPOILS_NS = 5_000_000
"""A loop lag of this much may have moved a stamp visibly."""


DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True)
class Service:
    """What every record of one proxy process says alike."""

    upstream: str
    instance: str
    worker: int
    label: str | None = None
    route: str | None = None
    via_proxy: bool = False
    thresholds: Thresholds = DEFAULTS


def to_record(
    observed: Observed,
    service: Service,
    *,
    request_id: str,
    lag_ns: int,
    dropped: int,
) -> Record:
    """The record of one request.

    `lag_ns` is the worst loop lag while the request ran, `dropped` the records lost so far.
    """
    exchange, trace, ending = observed.exchange, observed.trace, observed.ending
    if exchange.request_ended_at is not None:
        trace.first(Mark.REQUEST_END, exchange.request_ended_at)
        trace.end(trace.marks[Mark.END])
    facts = observed.tap.facts() if observed.tap is not None else None
    marks = trace.offsets_us()
    end = marks[Mark.END]
    kind, until = _account_of(marks, facts, end)
    path = _path(observed.connection, exchange.request_bytes)
    account = attribute(
        tile(marks, until, trace.entered), facts.claims if facts is not None else (), path
    )
    nulls = dict(facts.nulls) if facts is not None else {}
    nulls.update(account.nulls)
    flags = [*ending.flags, *account.flags, *(facts.flags if facts is not None else ())]
    paused = _paused_before_last_token(observed)
    if lag_ns >= LAG_SPOILS_NS:
        flags.append("loop_lag")

    ttft = until if kind is AccountOf.FIRST_TOKEN else None
    if ttft is not None:
        nulls.pop("ttft_ms", None)
    else:
        nulls.setdefault("ttft_ms", _why_no_ttft(kind, ending))
    tpot, why_not = _tpot_us(marks, facts, slow_reader=paused)
    if why_not is not None:
        nulls["tpot_ms"] = why_not
    gaps = facts.gaps if facts is not None and not paused else None
    if paused:
        nulls.update(dict.fromkeys(_GAPS, "slow_reader"))

    absent = {
        "band": ttft,
        "first_content_ms": marks.get(Mark.FIRST_CONTENT),
        "first_token_kind": ttft,
        "relay_delay_ms": observed.relay_delay_ns,
    }
    if ttft is None:
        nulls.update({name: nulls["ttft_ms"] for name, value in absent.items() if value is None})
    if gaps is None:
        for name in _GAPS:
            nulls.setdefault(name, nulls.get("ttft_ms", "single_token_read"))

    identity = identify(exchange.head.fields)
    connection = observed.connection
    kernel = connection.kernel_at_end or connection.kernel_at_head
    first_token_kind = facts.first_token_kind if facts is not None and ttft is not None else None
    # The target of CONNECT is an authority, which may hold credentials.
    has_path = exchange.head.method != "CONNECT"
    return Record(
        ts=_rfc3339(observed.started_wall_ns),
        level=service.thresholds.level(ttft, tpot, ending.outcome),
        msg=_message(ttft, account, ending, observed.status),
        request_id=request_id,
        route=service.route,
        label=observed.joined.label or service.label,
        client=identity.client,
        session_id=identity.session_id,
        turn_id=identity.turn_id,
        client_attempt=identity.client_attempt,
        trace_id=identity.trace_id,
        upstream_request_id=upstream_request_id(observed.response_fields),
        instance=service.instance,
        worker=service.worker,
        proxy_version=__version__,
        method=exchange.head.method or None,
        path=_bounded(bare_path(exchange.head.target)) if has_path else None,
        upstream=service.upstream,
        upstream_path=_bounded(observed.path) if has_path else None,
        dialect=facts.dialect if facts is not None else None,
        model=facts.model if facts is not None else None,
        stream=facts.stream if facts is not None else None,
        request_bytes=exchange.request_bytes,
        request_encoding=facts.request_encoding if facts is not None else None,
        status=observed.status,
        outcome=ending.outcome,
        ended_by=ending.by,
        ended_in=ending.phase.value,
        error=ending.error,
        account_of=kind.value,
        account_ms=ms(until),
        ttft_ms=_ms(ttft),
        first_token_kind=first_token_kind.value if first_token_kind is not None else None,
        first_content_ms=_ms(marks.get(Mark.FIRST_CONTENT)),
        tpot_ms=_ms(tpot),
        duration_ms=ms(end),
        relay_delay_ms=_ms(_us(observed.relay_delay_ns)),
        band=service.thresholds.band(ttft),
        segments_ms={_NAMES[segment]: _ms(us) for segment, us in account.segments.items()},
        grades={_NAMES[segment]: grade for segment, grade in account.grades.items()},
        bounds_ms={
            _NAMES[segment]: {name: us / 1000 for name, us in bounds.items()}
            for segment, bounds in account.bounds.items()
        },
        network_ms={part: us / 1000 for part, us in account.network.items()},
        marks_us={_NAMES[mark]: us for mark, us in marks.items()},
        evidence=[_evidence(claim) for claim in facts.claims] if facts is not None else [],
        conflicts=[
            Conflict(source=claim.source, name=claim.name, raw=claim.raw, reason=reason)
            for claim, reason in account.conflicts
        ],
        nulls=nulls,
        flags=flags,
        connection_reused=connection.reused,
        connection_idle_ms=_ms(_us(connection.idle_ns)),
        http_version=connection.http_version,
        upstream_addr=connection.address,
        local_port=connection.local_port,
        address_family=connection.family,
        via_proxy=service.via_proxy,
        rtt_ms=_ms(kernel.rtt_us if kernel is not None else None),
        min_rtt_ms=_ms(kernel.min_rtt_us if kernel is not None else None),
        retransmits=_retransmits(connection),
        chunks=facts.chunks if facts is not None else None,
        events=facts.events if facts is not None else None,
        events_per_read=_rounded(facts.events_per_read if facts is not None else None),
        gap_p50_ms=_ms(gaps.p50_us if gaps is not None else None),
        gap_p99_ms=_ms(gaps.p99_us if gaps is not None else None),
        gap_max_ms=_ms(gaps.max_us if gaps is not None else None),
        stalls=gaps.stalls if gaps is not None else None,
        response_bytes=facts.response_bytes if facts is not None else None,
        response_encoding=facts.response_encoding if facts is not None else None,
        tokens=_tokens(facts),
        inflight=observed.inflight,
        loop_lag_ms=ms(lag_ns // 1000),
        write_pending_ms=ms(exchange.write_pending_ns // 1000),
        read_paused_ms=ms(connection.read_paused_ns // 1000),
        dropped_records=dropped,
    )


def _account_of(
    marks: Mapping[Mark, int], facts: TapFacts | None, end: int
) -> tuple[AccountOf, int]:
    """What the account covers, and where it ends (µs)."""
    if Mark.FIRST_TOKEN in marks:
        return AccountOf.FIRST_TOKEN, marks[Mark.FIRST_TOKEN]
    complete = Mark.UPSTREAM_RX_END in marks
    if complete and (facts is None or not facts.stream):
        return AccountOf.RESPONSE, marks[Mark.UPSTREAM_RX_END]
    return AccountOf.CUT, end


def _why_no_ttft(kind: AccountOf, ending: Ending) -> str:
    if kind is AccountOf.RESPONSE:
        return "not_streamed"
    return "no_token" if ending.outcome is Outcome.OK else ending.outcome.value


def _path(connection: ConnectionFacts, request_bytes: int) -> PathFacts | None:
    at_head = connection.kernel_at_head
    if at_head is None:
        return None
    sent = connection.kernel_when_sent
    return PathFacts(
        rtt_us=at_head.rtt_us,
        min_rtt_us=at_head.min_rtt_us,
        busy_us=max(0, at_head.busy_us - sent.busy_us) if sent is not None else 0,
        sent_bytes=request_bytes,
        mss=at_head.mss,
    )


def _retransmits(connection: ConnectionFacts) -> int | None:
    at_end = connection.kernel_at_end or connection.kernel_at_head
    if at_end is None:
        return None
    before = connection.kernel_before
    return max(0, at_end.retransmits - (before.retransmits if before is not None else 0))


def _paused_before_last_token(observed: Observed) -> bool:
    """Whether stamps stopped being arrivals because the client read slowly."""
    paused_at = observed.connection.first_paused_at
    last_token = observed.trace.marks.get(Mark.LAST_TOKEN)
    return paused_at is not None and last_token is not None and paused_at < last_token


def _tpot_us(
    marks: Mapping[Mark, int], facts: TapFacts | None, *, slow_reader: bool
) -> tuple[int | None, str | None]:
    """Time per output token after the first (µs), or the reason why there is none."""
    if facts is None or Mark.FIRST_TOKEN not in marks or Mark.LAST_TOKEN not in marks:
        return None, "not_streamed" if facts is not None and facts.stream is False else "no_token"
    if slow_reader:
        return None, "slow_reader"
    if facts.usage is None or facts.usage.output is None:
        return None, "no_usage"
    if facts.token_events < 2:
        return None, "single_token_event"
    streamed = facts.usage.output
    if facts.reasoning_hidden:
        streamed -= facts.usage.reasoning or 0
    after_first = streamed - facts.first_chunk_tokens
    if after_first < 1:
        return None, "too_few_tokens"
    return round((marks[Mark.LAST_TOKEN] - marks[Mark.FIRST_TOKEN]) / after_first), None


def _message(ttft_us: int | None, account: Attribution, ending: Ending, status: int | None) -> str:
    """One short sentence for a person who reads raw lines."""
    if ending.outcome is not Outcome.OK:
        said = f", status {status}" if status is not None else ""
        return f"{ending.outcome.value} in {ending.phase.value}, ended by {ending.by.value}{said}"
    if ttft_us is None:
        return "complete"
    known = {segment: us for segment, us in account.segments.items() if us}
    largest = max(known, key=lambda segment: known[segment], default=Segment.UNATTRIBUTED)
    return f"first token after {ttft_us / 1000:.0f} ms, most of it {largest.value}"


def _evidence(claim: Claim) -> Evidence:
    return Evidence(
        source=claim.source,
        name=claim.name,
        kind=claim.kind.value,
        raw=claim.raw,
        ms=_ms(claim.value_us),
        segment=claim.segment.value if claim.segment is not None else None,
    )


def _tokens(facts: TapFacts | None) -> Tokens | None:
    if facts is None or facts.usage is None:
        return None
    usage = facts.usage
    return Tokens(
        input=usage.input,
        cached=usage.cached,
        output=usage.output,
        reasoning=usage.reasoning,
        source="usage",
    )


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if value is not None else None


def _bounded(path: str) -> str:
    path = path[:512]
    return path if path.isprintable() else "".join(c if c.isprintable() else "?" for c in path)


def _rfc3339(wall_ns: int) -> str:
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _us(nanoseconds: int | None) -> int | None:
    return nanoseconds // 1000 if nanoseconds is not None else None


def _ms(microseconds: int | None) -> float | None:
    return ms(microseconds) if microseconds is not None else None
