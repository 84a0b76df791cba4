"""The claims of one response: each header line, the last of each event claim, and no more."""

import pytest

from proxy.account import Claim, ClaimKind
from proxy.evidence import LLAMACPP
from proxy.serve.claims import CLAIM_LIMIT, MARKERS, Claims


def names(claims: Claims) -> list[str]:
    return [claim.name for claim in claims.all()]


def test_what_a_body_says_in_detail_comes_first() -> None:
    """Order is precedence."""
    claims = Claims()
    claims.head([(b"server-timing", b"total;dur=1"), (b"openai-processing-ms", b"2")])
    claims.document({"metrics": {"queue_time_ms": 3}}, stream=True)

    assert names(claims) == ["queue_time_ms", "total", "openai-processing-ms"]


def test_of_repeated_events_the_last_counts() -> None:
    """llama.cpp can send its timings with every chunk."""
    claims = Claims()
    for ms in (10, 20, 30):
        claims.document({"timings": {"prompt_ms": 5, "predicted_ms": ms}}, stream=True)

    assert [(c.name, c.value_us) for c in claims.all()] == [
        ("prompt_ms", 5_000),
        ("head_at_slot_start", None),
        ("predicted_ms", 30_000),
    ]


def test_every_header_line_is_kept() -> None:
    """Two hops may use the same name."""
    claims = Claims()
    claims.head([(b"server-timing", b"origin;dur=1"), (b"server-timing", b"origin;dur=2")])

    assert [claim.value_us for claim in claims.all()] == [1_000, 2_000]


def test_a_total_in_trailers_is_context() -> None:
    """It covers the whole response, not the wait for its head."""
    claims = Claims()
    claims.trailers([(b"Server-Timing", b"total;dur=900")])

    assert [(c.kind, c.value_us) for c in claims.all()] == [(ClaimKind.CONTEXT, 900_000)]


def test_the_head_of_a_whole_response_ends_no_queue() -> None:
    """It leaves when everything is done."""
    claims = Claims()
    claims.document({"timings": {"prompt_ms": 5}}, stream=False)

    assert names(claims) == ["prompt_ms"]


def test_bounded() -> None:
    """However much is said."""
    claims = Claims()
    for _ in range(9):
        claims.head([(b"server-timing", b"a;dur=1," * 40), (b"openai-processing-ms", b"2")])

    assert len(claims.all()) == CLAIM_LIMIT


def test_a_failing_adapter_is_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fault is counted; the other sources still speak."""

    def fail(self: object, document: object) -> tuple[Claim, ...]:
        raise RuntimeError

    monkeypatch.setattr(type(LLAMACPP), "from_event", fail)
    claims = Claims()
    claims.document({"timings": {}, "metrics": {"queue_time_ms": 3}}, stream=True)

    assert (claims.faults, names(claims)) == (1, ["queue_time_ms"])


def test_markers_are_those_of_the_adapters() -> None:
    """The quick check in front of them must not miss any."""
    assert {"timings", "metrics", "load_duration"} <= MARKERS
