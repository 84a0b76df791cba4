"""What every evidence adapter keeps to, on good and on hostile input."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.account import Claim, ClaimKind
from proxy.evidence import ADAPTERS, EvidenceAdapter

EACH = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)

HEADER_NAMES = [
    b"Server-Timing",
    b"openai-processing-ms",
    b"X-Envoy-Upstream-Service-Time",
    b"date",
]
VALUES = [
    b"12",
    b"",
    b"-1",
    b"nan",
    b"1e999",
    b"x;dur=1",
    b'total;dur="3.5"',
    b"a;dur=, total;dur=9",
]
HEADERS = st.lists(
    st.tuples(st.sampled_from(HEADER_NAMES), st.sampled_from(VALUES) | st.binary(max_size=40)),
    max_size=6,
)

KEYS = sorted(
    {marker for adapter in ADAPTERS for marker in adapter.markers}
    | {"prompt_ms", "predicted_ms", "prompt_n", "cache_n", "done", "queue_time_ms"}
    | {"time_to_first_token_ms", "generation_time_ms", "mean_itl_ms"}
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=70),
    st.sampled_from([10**400, -1, 0, 85.3, "85.3", "1_000", float("inf"), float("nan"), []]),
)
DOCUMENTS = _LEAVES | st.dictionaries(
    st.sampled_from(KEYS),
    _LEAVES | st.dictionaries(st.sampled_from(KEYS), _LEAVES, max_size=6),
    max_size=6,
)


def check(adapter: EvidenceAdapter, claims: tuple[Claim, ...]) -> None:
    """A claim is bounded, printable, JSON, and its value is a duration or absent."""
    for claim in claims:
        assert claim.source == adapter.name
        assert claim.name
        assert len(claim.name) <= 64
        assert claim.value_us is None or (
            type(claim.value_us) is int and 0 <= claim.value_us < 2**53
        )
        assert isinstance(claim.raw, str | int | float | None)
        if isinstance(claim.raw, str):
            assert len(claim.raw) <= 64
            assert claim.raw.isprintable()
        json.dumps(claim.raw, allow_nan=False)
        if claim.kind is ClaimKind.DURATION:
            assert claim.segment is not None
            assert claim.segment not in claim.includes


@EACH
@given(headers=HEADERS)
def test_any_headers(adapter: EvidenceAdapter, headers: list[tuple[bytes, bytes]]) -> None:
    """No header raises or makes a claim that could not be logged."""
    check(adapter, adapter.from_headers(headers))


@EACH
@given(document=DOCUMENTS)
def test_any_document(adapter: EvidenceAdapter, document: Any) -> None:
    """No event either; and whoever makes a claim has its marker in the document."""
    claims = adapter.from_event(document)

    check(adapter, claims)
    if claims:
        assert any(marker in document for marker in adapter.markers)


@EACH
def test_silence_claims_nothing(adapter: EvidenceAdapter) -> None:
    """No statement, no claim."""
    assert adapter.from_headers([(b"content-type", b"text/event-stream")]) == ()
    assert adapter.from_event({"choices": [{"delta": {"content": "timings metrics"}}]}) == ()


def test_names_are_unique() -> None:
    """A claim's source says where it came from."""
    assert len({adapter.name for adapter in ADAPTERS}) == len(ADAPTERS)


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)
@given(headers=HEADERS)
def test_an_adapter_finds_nothing_in_headers_that_it_does_not_name(
    adapter: EvidenceAdapter, headers: list[tuple[bytes, bytes]]
) -> None:
    """So it need not be asked when none of its fields is there."""
    others = [(name, value) for name, value in headers if name.lower() not in adapter.fields]

    assert adapter.from_headers(others) == ()
