"""Random timetables in every dialect, from a seed. Pure."""

import json
import random
from dataclasses import dataclass

PATHS = {
    "openai_chat": "/v1/chat/completions",
    "openai_completions": "/v1/completions",
    "openai_responses": "/v1/responses",
    "anthropic_messages": "/v1/messages",
    "ollama_chat": "/api/chat",
    "ollama_generate": "/api/generate",
}
NDJSON = ("ollama_chat", "ollama_generate")
THINKS = ("openai_chat", "openai_responses", "anthropic_messages")
"""Where a script may begin with reasoning."""
THOUGHT = b'"Let"'
"""The first reasoning token as it stands in an event."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """One request's answer: what is asked of the simulator."""

    number: int
    dialect: str
    script: dict[str, object]
    reasoning: int
    words: tuple[str, ...]
    after_ms: tuple[float, float]
    """When the proxied and the bare client ask, so that their steps do not always coincide."""

    @property
    def ndjson(self) -> bool:
        """Whether events are lines; else they are SSE."""
        return self.dialect in NDJSON

    @property
    def needles(self) -> dict[str, bytes]:
        """For marks of tokens, text that the event of that token is the first to hold."""
        content = self.words[0].encode()
        return {
            "first_token": THOUGHT if self.reasoning else content,
            "first_content": content,
            "last_token": self.words[-1].encode(),
        }

    def request(self, host: str, client: str) -> bytes:
        """The request as bytes; `client` ("proxied" or "bare") goes into the trace id."""
        return request(
            host,
            PATHS[self.dialect],
            trace_id(self.number, client),
            {"model": "sim", "stream": True},
            self.script,
        )


def request(
    host: str, path: str, trace: str, body: dict[str, object], script: dict[str, object]
) -> bytes:
    """A POST that names its own script and can be found again by its trace id."""
    text = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        f"traceparent: 00-{trace}-00000000000000ff-01\r\nX-Sim: {json.dumps(script)}\r\n"
        f"Content-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


def trace_id(number: int, client: str) -> str:
    """A W3C trace id (32 hexadecimal digits, not all zero)."""
    return f"{client.encode().hex():0<16.16}{number:016x}"


def timetables(count: int, seed: int) -> list[Timetable]:
    """`count` timetables: every dialect, early and late heads, gaps of 1 to 12 ms, some closing."""
    dice = random.Random(seed)
    return [_timetable(number, dice) for number in range(count)]


def _timetable(number: int, dice: random.Random) -> Timetable:
    dialect = dice.choice(tuple(PATHS))
    words = tuple(f"w{index}w" for index in range(dice.randint(2, 6)))
    reasoning = dice.randint(1, 3) if dialect in THINKS and dice.random() < 0.3 else 0
    script: dict[str, object] = {
        "queue": _ms(dice, 0, 4),
        "prefill": _ms(dice, 1, 12),
        "first_token": _ms(dice, 1, 6),
        "gap": [_ms(dice, 1, 12) for _ in range(len(words) + reasoning)],
        "text": words,
        "headers": dice.choice(("early", "late", "queue_end")),
        "closing_delay": _ms(dice, 0, 4),
        "end_delay": _ms(dice, 0, 4),
        "close": dice.random() < 0.2,
        "usage": True,
    }
    if reasoning:
        script["reasoning"] = reasoning
    after = (_ms(dice, 0, 3), _ms(dice, 0, 3))
    return Timetable(number, dialect, script, reasoning, words, after)


def _ms(dice: random.Random, low: float, high: float) -> float:
    return round(dice.uniform(low, high), 3)
