"""Ollama's durations."""

from typing import Any

from proxy.account import Claim, ClaimKind, Segment
from proxy.evidence import OLLAMA_DURATIONS

LAST: dict[str, Any] = {
    "done": True,
    "total_duration": 2_420_000_000,
    "load_duration": 1_500_000_000,
    "prompt_eval_duration": 90_000_000,
    "eval_duration": 800_000_000,
}


def test_the_last_object() -> None:
    """Nanoseconds. The load holds the scheduler's queue, the prefill the first token."""
    assert OLLAMA_DURATIONS.from_event(LAST) == (
        Claim(
            "ollama",
            "load_duration",
            ClaimKind.DURATION,
            1_500_000_000,
            1_500_000,
            Segment.INITIALIZATION,
            (Segment.QUEUE,),
        ),
        Claim(
            "ollama",
            "prompt_eval_duration",
            ClaimKind.DURATION,
            90_000_000,
            90_000,
            Segment.PREPROCESSING,
            (Segment.GENERATION,),
        ),
        Claim("ollama", "eval_duration", ClaimKind.CONTEXT, 800_000_000, 800_000),
        Claim("ollama", "total_duration", ClaimKind.CONTEXT, 2_420_000_000, 2_420_000),
    )


def test_only_the_last_object() -> None:
    """Whatever is called like that elsewhere is something else."""
    assert OLLAMA_DURATIONS.from_event({**LAST, "done": False}) == ()
    assert [c.name for c in OLLAMA_DURATIONS.from_event({"done": True, "eval_duration": 1})] == [
        "eval_duration"
    ]
