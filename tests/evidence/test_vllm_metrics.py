"""vLLM's per-request metrics."""

from proxy.account import Claim, ClaimKind, Segment
from proxy.evidence import VLLM_METRICS


def test_the_usage_chunk() -> None:
    """Queue and prefill apart: the first-token time starts when the request is scheduled."""
    metrics = {
        "queue_time_ms": 12.5,
        "time_to_first_token_ms": 140.0,
        "generation_time_ms": 900.0,
        "mean_itl_ms": 9.1,
        "tokens_per_second": 96.0,
    }

    assert VLLM_METRICS.from_event({"choices": [], "metrics": metrics}) == (
        Claim("vllm", "queue_time_ms", ClaimKind.DURATION, 12.5, 12_500, Segment.QUEUE),
        Claim(
            "vllm",
            "time_to_first_token_ms",
            ClaimKind.DURATION,
            140.0,
            140_000,
            Segment.PREPROCESSING,
            (Segment.GENERATION,),
        ),
        Claim("vllm", "generation_time_ms", ClaimKind.CONTEXT, 900.0, 900_000),
        Claim("vllm", "mean_itl_ms", ClaimKind.CONTEXT, 9.1, 9_100),
    )


def test_null_is_not_measured() -> None:
    """And claims nothing."""
    assert VLLM_METRICS.from_event({"metrics": {"queue_time_ms": None}}) == ()
    assert VLLM_METRICS.from_event({"metrics": None}) == ()
