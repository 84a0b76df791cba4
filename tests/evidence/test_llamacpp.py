"""llama.cpp's timings."""

from proxy.account import Claim, ClaimKind, Segment
from proxy.evidence import LLAMACPP

TIMINGS = {
    "cache_n": 900,
    "prompt_n": 120,
    "prompt_ms": 85.3,
    "prompt_per_token_ms": 0.7,
    "predicted_n": 40,
    "predicted_ms": 700.0,
}


def test_timings_of_the_last_chunk() -> None:
    """Prefill with the first token inside; the head ends the queue; the rest is context."""
    assert LLAMACPP.from_event({"choices": [], "timings": TIMINGS}) == (
        Claim(
            "llama.cpp",
            "prompt_ms",
            ClaimKind.DURATION,
            85.3,
            85_300,
            Segment.PREPROCESSING,
            (Segment.GENERATION,),
        ),
        Claim(
            "llama.cpp",
            "head_at_slot_start",
            ClaimKind.QUEUE_ENDS_AT_HEAD,
            None,
            segment=Segment.QUEUE,
        ),
        Claim("llama.cpp", "predicted_ms", ClaimKind.CONTEXT, 700.0, 700_000),
        Claim("llama.cpp", "prompt_n", ClaimKind.CONTEXT, 120),
        Claim("llama.cpp", "cache_n", ClaimKind.CONTEXT, 900),
    )


def test_a_bad_duration_is_kept_raw() -> None:
    """It has no value, and the reader can see why."""
    claim = LLAMACPP.from_event({"timings": {"prompt_ms": -1}})[0]

    assert (claim.raw, claim.value_us) == (-1, None)


def test_other_timings_are_not_llama_cpp() -> None:
    """The word alone is no evidence."""
    assert LLAMACPP.from_event({"timings": {"total": 1}}) == ()
    assert LLAMACPP.from_event({"timings": "fast"}) == ()
