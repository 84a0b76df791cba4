"""Who gets which part of the time, on what grounds."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.account import Claim, ClaimKind, Phase, Segment
from proxy.attribution import PathFacts, attribute

MS = 1000  # µs
PHASES = {
    Phase.POOL: 1 * MS,
    Phase.TCP: 10 * MS,
    Phase.SEND: 1 * MS,
    Phase.WAIT: 400 * MS,
    Phase.HEAD: 10 * MS,
    Phase.BODY: 90 * MS,
}
PATH = PathFacts(rtt_us=9 * MS, min_rtt_us=8 * MS, busy_us=60 * MS, sent_bytes=4000, mss=1448)


def prefill(value_us: int | None, raw: float | str = 1.0) -> Claim:
    return Claim(
        source="llama.cpp",
        name="timings.prompt_ms",
        kind=ClaimKind.DURATION,
        raw=raw,
        value_us=value_us,
        segment=Segment.PREPROCESSING,
        includes=(Segment.GENERATION,),
    )


def lump(value_us: int) -> Claim:
    return Claim("openai", "openai-processing-ms", ClaimKind.LUMP, value_us / 1000, value_us)


AT_HEAD = Claim("llama.cpp", "header_arrival", ClaimKind.QUEUE_ENDS_AT_HEAD, None)


def test_without_evidence_the_wait_is_unattributed() -> None:
    """What nobody said is null with a reason; the time itself stays visible."""
    account = attribute(PHASES, (), None)

    assert account.segments == {
        Segment.NETWORK: 11 * MS,
        Segment.QUEUE: None,
        Segment.PREPROCESSING: None,
        Segment.INITIALIZATION: None,
        Segment.GENERATION: None,
        Segment.PROXY: 1 * MS,
        Segment.UNATTRIBUTED: 500 * MS,
    }
    assert account.nulls["queue_delay"] == "not_reported"
    assert account.nulls["network_ms.round_trip"] == "no_tcp_info"


def test_the_network_share_of_the_wait_is_one_round_trip() -> None:
    """The smallest one seen: the smoothed one holds delayed acknowledgements of a slow model."""
    account = attribute(PHASES, (), PATH)

    assert account.network == {"tcp": 10 * MS, "send": 1 * MS, "round_trip": 8 * MS}
    assert account.grades[Segment.NETWORK] == "inferred:tcp_info"
    assert account.bounds[Segment.NETWORK] == {
        "lower": 19 * MS,
        "estimate": 19 * MS,
        "upper": 20 * MS,
    }


def test_a_body_beyond_the_initial_window_drains_for_longer_than_a_round_trip() -> None:
    """Then the time in which bytes were in flight is the better estimate."""
    large = PathFacts(
        rtt_us=9 * MS, min_rtt_us=8 * MS, busy_us=60 * MS, sent_bytes=400_000, mss=1448
    )

    assert attribute(PHASES, (), large).network["round_trip"] == 60 * MS


def test_a_reported_prefill_contains_the_first_token() -> None:
    """The first token has no number of its own then, and the reason says so."""
    account = attribute(PHASES, (prefill(80 * MS),), PATH)

    assert account.segments[Segment.PREPROCESSING] == 80 * MS
    assert account.grades[Segment.PREPROCESSING] == "reported:llama.cpp"
    assert account.segments[Segment.GENERATION] is None
    assert account.nulls["first_token_generation"] == "inside_prefill"


def test_headers_that_leave_when_the_slot_starts_bound_the_queue() -> None:
    """Wait minus round trip, as long as the reported prefill fits behind the headers."""
    account = attribute(PHASES, (prefill(80 * MS), AT_HEAD), PATH)

    assert account.segments[Segment.QUEUE] == 392 * MS
    assert account.grades[Segment.QUEUE] == "inferred:header_arrival"
    assert account.bounds[Segment.QUEUE]["upper"] == 392 * MS


def test_late_headers_say_nothing_about_the_queue() -> None:
    """A prefill that does not fit behind the headers came before them."""
    account = attribute(PHASES, (prefill(300 * MS), AT_HEAD), PATH)

    assert account.segments[Segment.QUEUE] is None
    assert account.segments[Segment.UNATTRIBUTED] == (500 - 300 - 8) * MS


def test_a_claim_larger_than_the_time_there_was_is_a_conflict() -> None:
    """It stays raw; the segment is null."""
    account = attribute(PHASES, (prefill(900 * MS, raw=900.0),), PATH)

    assert [reason for _, reason in account.conflicts] == ["exceeds_measured_interval"]
    assert account.segments[Segment.PREPROCESSING] is None
    assert account.nulls["preprocessing_time"] == "conflict"


def test_a_server_total_is_never_an_addend() -> None:
    """Within the wait it changes nothing; beyond it, it is a conflict."""
    assert attribute(PHASES, (lump(390 * MS),), PATH) == attribute(PHASES, (), PATH)

    forged = attribute(PHASES, (lump(10_800 * MS),), PATH)
    assert [reason for _, reason in forged.conflicts] == ["exceeds_wait_for_head"]


def test_a_value_within_the_slack_is_trimmed_to_what_was_measured() -> None:
    """Clocks of two machines may differ by a little; the sum may not."""
    account = attribute(PHASES, (prefill(505 * MS),), PATH)

    assert account.segments[Segment.PREPROCESSING] == 500 * MS
    assert account.flags == ("trimmed:preprocessing_time",)
    assert account.segments[Segment.UNATTRIBUTED] == 0


def test_an_upstream_cannot_speak_for_the_way_to_it() -> None:
    """Network and proxy time are ours to measure, whoever claims what about them."""
    claims = [
        Claim("x", "y", ClaimKind.DURATION, 1, 1 * MS, segment)
        for segment in (Segment.NETWORK, Segment.PROXY, Segment.UNATTRIBUTED)
    ]

    assert attribute(PHASES, claims, PATH) == attribute(PHASES, (), PATH)


durations = st.integers(0, 20_000_000)
any_claim = st.builds(
    Claim,
    source=st.just("x"),
    name=st.just("y"),
    kind=st.sampled_from(ClaimKind),
    raw=st.none(),
    value_us=st.none() | durations,
    segment=st.none() | st.sampled_from([s for s in Segment if s is not Segment.UNATTRIBUTED]),
    includes=st.lists(st.sampled_from(Segment), max_size=2).map(tuple),
)
any_path = st.builds(
    PathFacts,
    rtt_us=durations,
    min_rtt_us=durations,
    busy_us=durations,
    sent_bytes=durations,
    mss=st.integers(500, 65535),
)


@given(
    st.dictionaries(st.sampled_from(list(Phase)[:10]), durations),
    st.lists(any_claim, max_size=6),
    st.none() | any_path,
)
def test_the_parts_add_up_whatever_is_claimed(
    phases: dict[Phase, int], claims: list[Claim], path: PathFacts | None
) -> None:
    """No claim can make the sum wrong, or any part negative."""
    account = attribute(phases, claims, path)
    parts = [value for value in account.segments.values() if value is not None]

    assert sum(phases.values()) == sum(parts)
    assert all(part >= 0 for part in parts)
    for segment, value in account.segments.items():
        assert (value is None) == (segment.value in account.nulls)
