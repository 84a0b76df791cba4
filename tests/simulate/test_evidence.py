"""What the simulated server says about its times."""

from proxy.simulate import evidence
from proxy.simulate.evidence import Counts, Instants

MS = 1_000_000
COUNTS = Counts(prompt=100, cached=60, output=11)
WHOLE = Instants(
    received=1000 * MS,
    now=1400 * MS,
    started=1030 * MS,
    loaded=1080 * MS,
    first_token=1200 * MS,
    last_token=1300 * MS,
)
"""Queue 30 ms, load 50 ms, prefill 120 ms, decode 100 ms, total 400 ms."""


def test_llamacpp_counts_what_was_computed_and_what_was_cached() -> None:
    """prompt_ms ends with the first token."""
    timings = evidence.members(["llamacpp"], WHOLE, COUNTS, {})["timings"]

    assert timings == {
        "cache_n": 60,
        "prompt_n": 40,
        "prompt_ms": 120.0,
        "prompt_per_token_ms": 3.0,
        "prompt_per_second": 333.333,
        "predicted_n": 11,
        "predicted_ms": 100.0,
        "predicted_per_token_ms": 9.091,
        "predicted_per_second": 110.0,
    }


def test_vllm_leaves_the_queue_out_of_its_first_token_time() -> None:
    """Queue and prefill are addends."""
    metrics = evidence.members(["vllm"], WHOLE, COUNTS, {})["metrics"]

    assert metrics["queue_time_ms"] == 30.0
    assert metrics["time_to_first_token_ms"] == 120.0
    assert metrics["generation_time_ms"] == 100.0
    assert metrics["mean_itl_ms"] == 10.0


def test_ollama_counts_nanoseconds_and_its_load_holds_the_queue() -> None:
    """In members of the last object itself."""
    assert evidence.members(["ollama"], WHOLE, COUNTS, {}) == {
        "total_duration": 400 * MS,
        "load_duration": 80 * MS,
        "prompt_eval_duration": 120 * MS,
        "eval_duration": 100 * MS,
    }


def test_headers_tell_what_is_known_when_they_leave() -> None:
    """Nothing is told before it has happened."""
    sources = ["server_timing", "openai_processing_ms", "envoy", "vllm"]
    early = WHOLE.known_at(1010 * MS)
    early = Instants(received=early.received, now=early.now)

    assert evidence.headers(sources, early, {}) == [
        ("Server-Timing", "total;dur=10.0"),
        ("openai-processing-ms", "10"),
        ("x-envoy-upstream-service-time", "10"),
    ]
    late = evidence.headers(sources, WHOLE, {})
    assert (
        "Server-Timing",
        "queue;dur=30.0, load;dur=50.0, prefill;dur=120.0, total;dur=400.0",
    ) in late


def test_what_lies_ahead_is_not_known() -> None:
    """Nominal instants become known when they have passed."""
    known = WHOLE.known_at(1050 * MS)

    assert (known.started, known.loaded) == (1030 * MS, None)


def test_values_can_be_forged() -> None:
    """A header as one text or several lines; a body member by member, or as a whole."""
    forged = {"server_timing": ["x;dur=", "y"], "envoy": -1, "vllm": {"queue_time_ms": "NaN"}}

    assert evidence.headers(["server_timing", "envoy"], WHOLE, forged) == [
        ("Server-Timing", "x;dur="),
        ("Server-Timing", "y"),
        ("x-envoy-upstream-service-time", "-1"),
    ]
    metrics = evidence.members(["vllm"], WHOLE, COUNTS, forged)["metrics"]
    assert (metrics["queue_time_ms"], metrics["time_to_first_token_ms"]) == ("NaN", 120.0)
    assert evidence.members(["llamacpp"], WHOLE, COUNTS, {"llamacpp": "none"}) == {
        "timings": "none"
    }
    assert evidence.members(["ollama"], WHOLE, COUNTS, {"ollama": "none"}) == {}


def test_nothing_has_happened_yet() -> None:
    """Times are 0 or still running, and no division fails."""
    start = Instants(received=0, now=0)
    members = evidence.members(["llamacpp", "vllm", "ollama"], start, Counts(0, 0, 0), {})

    assert members["timings"]["prompt_ms"] == 0
    assert members["metrics"]["mean_itl_ms"] == 0
    assert members["total_duration"] == 0
