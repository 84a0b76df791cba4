"""Records for tests: one ordinary request, and whatever a test wants to be different about it."""

from typing import Any

import msgspec

from proxy.account import Segment
from proxy.record import EndedBy, Outcome, Record, Tokens

ORDINARY = Record(
    ts="2026-03-01T14:03:07.000250Z",
    msg="first token after 812 ms, most of it queue_delay",
    request_id="ab12cd34-1",
    client="codex",
    proxy_version="0.1.0",
    method="POST",
    path="/v1/responses",
    upstream="https://api.example",
    upstream_path="/v1/responses",
    dialect="openai_responses",
    model="gpt-5.1-codex",
    stream=True,
    status=200,
    outcome=Outcome.OK,
    ended_by=EndedBy.UPSTREAM,
    ended_in="done",
    account_of="first_token",
    account_ms=812.345,
    ttft_ms=812.345,
    first_token_kind="text",
    first_content_ms=812.345,
    tpot_ms=21.43,
    duration_ms=6500.123,
    band="noticeable",
    segments_ms={
        "network_latency": 12.0,
        "queue_delay": 640.2,
        "preprocessing_time": 85.0,
        "model_initialization": None,
        "first_token_generation": None,
        "proxy_time": 0.345,
        "unattributed": 74.8,
    },
    grades={
        "network_latency": "inferred:tcp_info",
        "queue_delay": "reported:llama.cpp",
        "preprocessing_time": "reported:llama.cpp",
        "proxy_time": "measured",
        "unattributed": "measured",
    },
    bounds_ms={"network_latency": {"lower": 10.0, "estimate": 12.0}},
    network_ms={"send": 0.1, "round_trip": 11.9},
    marks_us={"pool_ready": 20, "upstream_tx_start": 345, "first_token": 812345, "end": 6500123},
    nulls={
        "model_initialization": "not_reported",
        "first_token_generation": "inside_prefill",
    },
    tokens=Tokens(input=4012, output=256, source="usage"),
)


def record(**changes: Any) -> Record:
    """The ordinary record with `changes`."""
    return msgspec.structs.replace(ORDINARY, **changes)


def segments(**milliseconds: float) -> dict[str, float | None]:
    """Segments by the names of `Segment` in lower case; the others are unknown."""
    return {segment.value: milliseconds.get(segment.name.lower()) for segment in Segment}
