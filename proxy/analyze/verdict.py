"""One sentence about one record: what was slow, or how it ended. Derived from the record alone."""

from proxy.account import Mark, Phase, Segment
from proxy.record import Outcome, Record

INSTANT_MS = 100
"""Below this nobody waits: there is nothing slow to name."""
SLOW_TPOT_MS = 100
_MOST = 0.5
_WORTH_NAMING = 0.5
_ROUND_TRIP = "round_trip"

_DOING = {
    Segment.NETWORK: "went into the network",
    Segment.QUEUE: "went by in the upstream's queue",
    Segment.PREPROCESSING: "went into the upstream's reading of the prompt (prefill)",
    Segment.INITIALIZATION: "went into loading the model",
    Segment.GENERATION: "went into generating the first token",
    Segment.PROXY: "went into the proxy itself",
    Segment.UNATTRIBUTED: "went by at the upstream, which does not say on what",
}
_NETWORK_PART: dict[str, str] = {
    Phase.UPLOAD: "the client's upload of its request",
    Phase.DNS: "resolving the upstream's name",
    Phase.TCP: "connecting to the upstream",
    Phase.TLS: "the TLS handshake",
    Phase.SEND: "sending the request",
    _ROUND_TRIP: "the way to the upstream and back",
}
_WHILE: dict[str, str] = {
    Phase.REQUEST_HEAD: "before the request was understood",
    Phase.POOL: "while waiting for a connection",
    Phase.DNS: "while the upstream's name was resolved",
    Phase.TCP: "while connecting to the upstream",
    Phase.TLS: "during the TLS handshake",
    Phase.OWN: "before the request was sent",
    Phase.UPLOAD: "during the upload of the request",
    Phase.SEND: "while the request was sent",
    Phase.WAIT: "while waiting for the response head",
    Phase.HEAD: "after the response head, before the first byte of the answer",
    Phase.BODY: "before the first token",
    Phase.STREAM: "in the middle of the answer",
    Phase.DONE: "after the whole answer",
}


def verdict(record: Record) -> str:
    """What was slow about a request that went well, or how it ended otherwise."""
    if record.outcome is not Outcome.OK:
        return _ending(record)
    if record.ttft_ms is None:
        return _without_ttft(record)
    thinking = _thought_first(record)
    if thinking is not None:
        return thinking
    if record.ttft_ms < INSTANT_MS:
        return _quick(record)
    return f"{_slowest(record, 'first token')}."


def _quick(record: Record) -> str:
    first = f"The first token came after {record.ttft_ms:.0f} ms"
    if record.tpot_ms is not None and record.tpot_ms >= SLOW_TPOT_MS:
        return f"{first}, but every further one took {record.tpot_ms:.0f} ms."
    if record.stalls and record.gap_max_ms is not None:
        return f"{first}, but then the stream paused for up to {record.gap_max_ms:.0f} ms."
    return f"{first}: nothing was slow."


def _thought_first(record: Record) -> str | None:
    if record.first_token_kind != "reasoning" or record.ttft_ms is None:
        return None
    if record.first_content_ms is None:
        return f"The model reasoned from {record.ttft_ms:.0f} ms on and showed no visible text."
    hidden = record.first_content_ms - record.ttft_ms
    if hidden < max(record.ttft_ms, INSTANT_MS):
        return None
    return (
        f"Reasoning came first: it began after {record.ttft_ms:.0f} ms, and visible text "
        f"after {record.first_content_ms:.0f} ms."
    )


def _without_ttft(record: Record) -> str:
    if record.account_of != "response":
        return f"The answer held no token; it was complete after {record.duration_ms:.0f} ms."
    if record.account_ms < INSTANT_MS:
        return f"Not streamed; the whole response was here after {record.account_ms:.0f} ms."
    return f"{_slowest(record, 'complete response')} (not streamed)."


def _slowest(record: Record, until: str) -> str:
    """The largest part of the account, as a sentence without its full stop."""
    values = {s: record.segments_ms.get(s.value) or 0.0 for s in Segment}
    segment = max(values, key=lambda one: values[one])
    rest = ""
    if segment is Segment.UNATTRIBUTED:
        unexplained = values.pop(segment)
        named = max(values, key=lambda one: values[one])
        if values[named] >= unexplained * _WORTH_NAMING:
            segment, rest = named, f"; {unexplained:.0f} ms stay unexplained"
        else:
            values[segment] = unexplained
    value = values[segment]
    share = 100 * value / record.account_ms if record.account_ms else 0.0
    grade, _, source = record.grades.get(segment.value, "").partition(":")
    about = "About " if grade == "inferred" else ""
    said = f", as {source} reports" if grade == "reported" else ""
    total = f"{record.account_ms:.0f} ms to the {until}"
    return f"{about}{value:.0f} of the {total} ({share:.0f} %) {_what(record, segment)}{said}{rest}"


def _what(record: Record, segment: Segment) -> str:
    value = record.segments_ms.get(segment.value) or 0.0
    if segment is Segment.NETWORK and record.network_ms:
        part = max(record.network_ms, key=lambda name: record.network_ms[name])
        name, ms = _NETWORK_PART.get(part, part), record.network_ms[part]
        return f"went into the network, most of them ({ms:.0f} ms) into {name}"
    if segment is Segment.PROXY and record.marks_us.get(Mark.POOL_READY, 0) / 1000 > value * _MOST:
        return "went by waiting for a free connection in the proxy's pool"
    if segment is Segment.UNATTRIBUTED:
        upper = record.bounds_ms.get(Segment.QUEUE.value, {}).get("upper")
        if upper and not record.segments_ms.get(Segment.QUEUE.value):
            return f"went by at the upstream, at most {upper:.0f} ms of them in its queue"
        if f"network_ms.{_ROUND_TRIP}" in record.nulls:
            return "went by at the upstream or on the way to it; nobody tells them apart"
    return _DOING[segment]


def _ending(record: Record) -> str:
    after = f"after {record.duration_ms:.0f} ms"
    error = f": {record.error}" if record.error else ""
    during = _WHILE.get(record.ended_in, f"in {record.ended_in}")
    match record.outcome:
        case Outcome.UPSTREAM_ERROR:
            return f"The upstream answered with status {record.status} {after}{error}."
        case Outcome.REDIRECT:
            return f"The upstream redirected the request (status {record.status}) {after}."
        case Outcome.STREAM_ERROR:
            return f"The upstream reported an error inside a {record.status} {after}{error}."
        case Outcome.UPSTREAM_ABORTED:
            return f"The upstream broke the response off {after}, {during}{error}."
        case Outcome.UPSTREAM_UNREACHABLE:
            return f"The upstream could not be reached {after}, {during}{error}."
        case Outcome.INCOMPLETE:
            return f"The stream ended {after} without its closing event; it may be cut short."
        case Outcome.CLIENT_DISCONNECT:
            return f"The client left {after}, {during}."
        case Outcome.TIMEOUT:
            return f"A time limit of the proxy ended it {after}, {during}{error}."
        case Outcome.BAD_REQUEST:
            return f"The proxy refused the request{error}."
        case Outcome.PROXY_SHUTDOWN:
            return f"The proxy was stopped {after}, {during}."
        case _:
            return f"The proxy failed {after}, {during}{error}."
