"""From phases and claims to the account: who gets which part of the time, on what grounds.

Pure: values in, values out; whole microseconds throughout. The rules:

1. Measured first. Upload, DNS, TCP, TLS and send are network; pool wait and own work are proxy.
2. The network's share of the wait for the response head is inferred from the socket
   (`tcp_info`): the smallest round trip of the last minutes, or the time in which sent bytes were
   not yet acknowledged when the request was larger than the initial window (RFC 6928). The
   smoothed round trip is an upper bound only: while a model thinks, the peer delays its
   acknowledgements by up to 40 ms (RFC 1122, section 4.2.3.2), and the kernel counts that delay.
3. A reported duration is an addend when it parses, is finite and >= 0, and fits into the time that
   upstream really had, with 5 ms + 2 % of slack. Else it stays raw under `conflicts`.
4. A server total is a cross-check, never an addend.
5. An estimate yields to what was reported. What nobody claims is `unattributed`, printed.
6. A segment that nobody can know is None, with a reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from proxy.account import Claim, ClaimKind, Phase, Segment

SLACK_US = 5_000
SLACK_SHARE = 0.02
INITIAL_WINDOW = 10
"""Segments that TCP sends before the first acknowledgement (RFC 6928)."""

_NETWORK = tuple(
    (phase, phase.value) for phase in (Phase.UPLOAD, Phase.DNS, Phase.TCP, Phase.TLS, Phase.SEND)
)
_PROXY = (Phase.POOL, Phase.OWN)
_SERVER = (Phase.WAIT, Phase.HEAD, Phase.BODY)
_REPORTABLE = frozenset(
    {Segment.QUEUE, Segment.PREPROCESSING, Segment.INITIALIZATION, Segment.GENERATION}
)
"""What an upstream can know. Of the way to it, and of us, it can say nothing."""
_SEGMENTS = tuple(Segment)
_CLAIMABLE = tuple((s, s.value) for s in Segment if s is not Segment.UNATTRIBUTED)
ROUND_TRIP = "round_trip"
"""The name of the inferred share among the parts of network_latency."""


@dataclass(frozen=True, slots=True)
class PathFacts:
    """What the kernel said of the path, for one request.

    `busy_us` is the growth of the busy time from the last byte sent to the response head,
    `sent_bytes` what was sent in it, `mss` the segment size.
    """

    rtt_us: int
    min_rtt_us: int
    busy_us: int
    sent_bytes: int
    mss: int

    def share_us(self) -> int:
        """The estimate of the network's share of the wait."""
        if self.sent_bytes > INITIAL_WINDOW * self.mss:
            return max(self.min_rtt_us, self.busy_us)
        # For a small request the busy time is mostly the peer's delayed acknowledgement.
        return self.min_rtt_us


@dataclass(frozen=True, slots=True)
class Attribution:
    """The account's second level. `segments` that are not None add up to the phases exactly."""

    segments: dict[Segment, int | None]
    grades: dict[Segment, str]
    bounds: dict[Segment, dict[str, int]]
    network: dict[str, int]
    conflicts: tuple[tuple[Claim, str], ...]
    nulls: dict[str, str]
    flags: tuple[str, ...]


def attribute(
    phases: Mapping[Phase, int], claims: Iterable[Claim], path: PathFacts | None
) -> Attribution:
    """The account of one request.

    `phases` tile the account (`account.tile`); `claims` come in order of precedence: of two for
    one segment the first counts.
    """
    conflicts: list[tuple[Claim, str]] = []
    nulls: dict[str, str] = {}
    flags: list[str] = []
    bounds: dict[Segment, dict[str, int]] = {}
    grades: dict[Segment, str] = {}
    wait = phases.get(Phase.WAIT, 0)
    server = sum(phases.get(phase, 0) for phase in _SERVER)

    # 1. What was measured.
    network = {name: phases[phase] for phase, name in _NETWORK if phases.get(phase)}
    proxy = sum(phases.get(phase, 0) for phase in _PROXY)
    grades[Segment.NETWORK] = grades[Segment.PROXY] = "measured"

    # 2. What upstream reported and what passes the guards.
    reported: dict[Segment, Claim] = {}
    inside: dict[Segment, Segment] = {}
    queue_ends_at_head = False
    for claim in claims:
        if claim.kind is ClaimKind.QUEUE_ENDS_AT_HEAD:
            queue_ends_at_head = True
        elif claim.kind is not ClaimKind.CONTEXT and claim.value_us is None:
            conflicts.append((claim, "malformed"))
        elif claim.kind is ClaimKind.LUMP:
            if _exceeds(claim.value_us, wait):
                conflicts.append((claim, "exceeds_wait_for_head"))
        elif claim.kind is ClaimKind.DURATION and claim.segment in _REPORTABLE:
            if _exceeds(claim.value_us, server):
                conflicts.append((claim, "exceeds_measured_interval"))
            elif claim.segment not in reported:
                reported[claim.segment] = claim
    if _exceeds(sum(claim.value_us or 0 for claim in reported.values()), server):
        conflicts += [(claim, "sum_exceeds_measured_interval") for claim in reported.values()]
        reported = {}
    values = {segment: claim.value_us or 0 for segment, claim in reported.items()}
    for segment, claim in reported.items():
        grades[segment] = f"reported:{claim.source}"
        inside.update(dict.fromkeys(claim.includes, segment))

    # 3. What can be inferred, and yields to what was reported.
    free = max(0, server - sum(values.values()))
    share = 0
    if path is not None:
        share = min(path.share_us(), wait, free)
        lower = min(path.min_rtt_us, share)
        measured = sum(network.values())
        upper = min(max(path.rtt_us, share), wait)
        bounds[Segment.NETWORK] = {
            "lower": measured + lower,
            "estimate": measured + share,
            "upper": measured + upper,
        }
        if share:
            network[ROUND_TRIP] = share
            grades[Segment.NETWORK] = "inferred:tcp_info"
    elif wait:
        nulls[f"network_ms.{ROUND_TRIP}"] = "no_tcp_info"
    prefill = values.get(Segment.PREPROCESSING)
    if queue_ends_at_head and prefill is not None and Segment.QUEUE not in reported:
        after_head = server - wait
        if not _exceeds(prefill, after_head):
            queue = min(wait - min(share, wait), free - share)
            values[Segment.QUEUE] = queue
            grades[Segment.QUEUE] = "inferred:header_arrival"
            bounds[Segment.QUEUE] = {"lower": 0, "estimate": queue, "upper": queue}

    # 4. Reported values within the slack of what was measured are trimmed to it.
    excess = sum(values.values()) + share - server
    while excess > 0:
        largest = max(values, key=lambda segment: values[segment])
        taken = min(excess, values[largest])
        values[largest] -= taken
        excess -= taken
        flags.append(f"trimmed:{largest.value}")

    # 5. The sum, and what is left.
    segments: dict[Segment, int | None] = dict.fromkeys(_SEGMENTS)
    segments[Segment.NETWORK] = sum(network.values())
    segments[Segment.PROXY] = proxy
    segments.update(values)
    for segment, name in _CLAIMABLE:
        if segments[segment] is None:
            nulls[name] = _reason(segment, inside, conflicts, server)
    known = sum(value for value in segments.values() if value is not None)
    segments[Segment.UNATTRIBUTED] = sum(phases.values()) - known
    grades[Segment.UNATTRIBUTED] = "measured"
    return Attribution(
        segments=segments,
        grades=grades,
        bounds=bounds,
        network=network,
        conflicts=tuple(conflicts),
        nulls=nulls,
        flags=tuple(flags),
    )


def _exceeds(value: int | None, interval: int) -> bool:
    """Whether `value` is larger than `interval` can hold, slack included."""
    return value is not None and value > interval + SLACK_US + int(interval * SLACK_SHARE)


def _reason(
    segment: Segment,
    inside: Mapping[Segment, Segment],
    conflicts: Iterable[tuple[Claim, str]],
    server: int,
) -> str:
    if segment in inside:
        outer = inside[segment]
        return "inside_prefill" if outer is Segment.PREPROCESSING else f"inside_{outer.value}"
    if any(claim.segment is segment for claim, _ in conflicts):
        return "conflict"
    return "not_reported" if server else "not_reached"
