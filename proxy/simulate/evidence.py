"""What the simulated server says about its own times. Pure.

Every statement is made of instants that were really kept, and holds only what was known when it
was made: a head that leaves before the first token cannot tell how long prefill took.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

Json = dict[str, Any]

HEADER_SOURCES = frozenset({"server_timing", "openai_processing_ms", "envoy"})
HEADER_NAMES = {
    "server_timing": "Server-Timing",
    "openai_processing_ms": "openai-processing-ms",
    "envoy": "x-envoy-upstream-service-time",
}


@dataclass(frozen=True, slots=True)
class Instants:
    """When things happened, in ns of the simulator's clock; None is "not yet"."""

    received: int
    """The request was complete."""
    now: int
    started: int | None = None
    """Queueing ended: a slot was free."""
    loaded: int | None = None
    """The model was loaded; prefill began."""
    first_token: int | None = None
    last_token: int | None = None

    def known_at(self, now: int) -> "Instants":
        """The same, without what lies after `now`."""
        started = self.started if self.started is not None and self.started <= now else None
        loaded = self.loaded if self.loaded is not None and self.loaded <= now else None
        return replace(self, now=now, started=started, loaded=loaded)


@dataclass(frozen=True, slots=True)
class Counts:
    """The token counts beside the times."""

    prompt: int
    cached: int
    output: int


def headers(
    sources: Collection[str], instants: Instants, override: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """The header statements; an override is a value to send, or a list of them, one line each."""
    pairs: list[tuple[str, str]] = []
    for source in sources:
        if source not in HEADER_SOURCES:
            continue
        values = override.get(source, _header(source, instants))
        lines = values if isinstance(values, list) else [values]
        pairs += ((HEADER_NAMES[source], str(value)) for value in lines)
    return pairs


def members(
    sources: Collection[str], instants: Instants, counts: Counts, override: Mapping[str, Any]
) -> Json:
    """The members of the last JSON object. An override replaces single members or everything."""
    found: Json = {}
    for source in sources:
        if source in ("llamacpp", "llamacpp_per_token"):
            found["timings"] = _override(_llamacpp(instants, counts), override.get(source))
        elif source == "vllm":
            found["metrics"] = _override(_vllm(instants, counts), override.get(source))
        elif source == "ollama":
            ollama = _override(_ollama(instants), override.get(source))
            found |= ollama if isinstance(ollama, dict) else {}
    return found


def _override(value: Json, override: object) -> object:
    if isinstance(override, dict):
        return value | override
    return value if override is None else override


def _header(source: str, instants: Instants) -> str:
    total = instants.now - instants.received
    if source != "server_timing":
        return str(total // 1_000_000)
    spans = [
        ("queue", instants.received, instants.started),
        ("load", instants.started, instants.loaded),
        ("prefill", instants.loaded, instants.first_token),
    ]
    parts = [
        f"{name};dur={_ms(end - begin)}"
        for name, begin, end in spans
        if begin is not None and end is not None
    ]
    return ", ".join([*parts, f"total;dur={_ms(total)}"])


def _llamacpp(instants: Instants, counts: Counts) -> Json:
    """Source: llama.cpp tools/server, `result_timings`: prompt_ms ends with the first token."""
    prompt_ms, predicted_ms = _ms(_prefill(instants)), _ms(_decode(instants))
    prompt_n = counts.prompt - counts.cached
    return {
        "cache_n": counts.cached,
        "prompt_n": prompt_n,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _ratio(prompt_ms, prompt_n),
        "prompt_per_second": _ratio(1000 * prompt_n, prompt_ms),
        "predicted_n": counts.output,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": _ratio(predicted_ms, counts.output),
        "predicted_per_second": _ratio(1000 * counts.output, predicted_ms),
    }


def _vllm(instants: Instants, counts: Counts) -> Json:
    """Source: vLLM's per-request metrics (PR 46768): time to first token without the queue."""
    decode_ms = _ms(_decode(instants))
    return {
        "queue_time_ms": _ms(_queue(instants)),
        "time_to_first_token_ms": _ms(_prefill(instants)),
        "generation_time_ms": decode_ms,
        "mean_itl_ms": _ratio(decode_ms, counts.output - 1),
        "tokens_per_second": _ratio(1000 * counts.output, _ms(_prefill(instants)) + decode_ms),
    }


def _ollama(instants: Instants) -> Json:
    """Source: ollama server/routes.go: load_duration holds the scheduler's queue too."""
    return {
        "total_duration": instants.now - instants.received,
        "load_duration": _since(instants.received, instants.loaded, instants.now),
        "prompt_eval_duration": _prefill(instants),
        "eval_duration": _decode(instants),
    }


def _queue(instants: Instants) -> int:
    return _since(instants.received, instants.started, instants.now)


def _prefill(instants: Instants) -> int:
    return _since(instants.loaded, instants.first_token, instants.now)


def _decode(instants: Instants) -> int:
    return _since(instants.first_token, instants.last_token, instants.now)


def _since(begin: int | None, end: int | None, now: int) -> int:
    """How long something took, or takes so far."""
    if begin is None:
        return 0
    return (now if end is None else end) - begin


def _ms(ns: int) -> float:
    return round(ns / 1_000_000, 3)


def _ratio(value: float, by: float) -> float:
    return round(value / by, 3) if by > 0 else 0.0
