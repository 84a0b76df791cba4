"""What is asked, and what a client saw of it: values that cross a process border as JSON.

Imports nothing but the standard library, because the clients' environment has no `proxy`.
"""

from dataclasses import dataclass, field

DIRECT, PROXY = "direct", "proxy"
KEY = "sk-real-a-fake-key-that-no-output-may-show"
SEED = 7
PROMPT = "Why is the sky blue? Explain it to a child who has never seen the sea, and be brief."
SLOTS = 2


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. `name` is also the tag that finds its record again."""

    name: str
    client: str
    """"openai", "anthropic" or "curl"."""
    route: str
    """"chat", "responses" or "messages"."""
    stream: bool
    prompt: str = PROMPT
    max_tokens: int = 24
    cache: bool = False
    """Let the server reuse the prompt that it has read before. The messages route always does."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request on one way: `DIRECT` or `PROXY`."""

    ask: Ask
    via: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw. Times run from just before the call, in milliseconds."""

    name: str
    via: str
    text: str = ""
    ttft_ms: float | None = None
    """Until the client had the first piece of text. None when not streamed."""
    first_byte_ms: float | None = None
    """curl's own `time_starttransfer`."""
    total_ms: float = 0.0
    output_tokens: int | None = None
    cached_tokens: int | None = None
    timings: dict[str, float] = field(default_factory=dict)
    """The server's own timings, where it sends them."""
    error: str | None = None


PAIRS = (
    Ask("chat-stream", "openai", "chat", stream=True),
    Ask("chat-whole", "openai", "chat", stream=False),
    Ask("responses-stream", "openai", "responses", stream=True),
    Ask("responses-whole", "openai", "responses", stream=False),
    Ask("messages-stream", "anthropic", "messages", stream=True),
    Ask("messages-whole", "anthropic", "messages", stream=False),
    Ask("curl-chat-stream", "curl", "chat", stream=True),
    Ask("curl-chat-whole", "curl", "chat", stream=False),
    Ask("curl-responses-stream", "curl", "responses", stream=True),
    Ask("curl-responses-whole", "curl", "responses", stream=False),
    Ask("curl-messages-stream", "curl", "messages", stream=True),
    Ask("curl-messages-whole", "curl", "messages", stream=False),
)
"""Each is made directly and through the proxy."""

BURST = tuple(
    Ask(f"burst-{number}", "openai", "chat", stream=True, prompt=f"{number}. {PROMPT}")
    for number in range(1, 7)
)
"""All at once through the proxy: more than there are slots."""

_LONG = " ".join(
    f"Paragraph {number}: the keeper climbs the stairs, lights lamp {number * 37 % 101} and "
    f"writes the hour, the wind and the height of the sea into the book of the lighthouse."
    for number in range(1, 41)
)
LONG = Ask("long-cold", "openai", "chat", stream=True, prompt=_LONG, max_tokens=16)
LONG_AGAIN = Ask("long-cached", "openai", "chat", True, prompt=_LONG, max_tokens=16, cache=True)


def steps() -> list[list[Call]]:
    """What to do one after the other; the calls of one step start at the same time.

    A pair starts with a short direct request, so that both of its calls meet the same server (the
    messages route reuses what it has read) and no client counts the loading of its own modules.
    """
    plan = []
    for ask in PAIRS:
        warm = Ask(ask.name, ask.client, ask.route, ask.stream, ask.prompt, max_tokens=1)
        plan += [[Call(warm, DIRECT)], [Call(ask, DIRECT)], [Call(ask, PROXY)]]
    plan.append([Call(ask, PROXY) for ask in BURST])
    plan += [[Call(LONG, DIRECT)], [Call(LONG, PROXY)], [Call(LONG_AGAIN, PROXY)]]
    return plan
