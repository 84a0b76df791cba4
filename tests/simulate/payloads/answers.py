"""Answers for the tests of every wire format."""

from hypothesis import strategies as st

from proxy.simulate.answer import Asked, answer
from proxy.simulate.payloads import Payloads
from proxy.simulate.payloads._api import Answer, Event, Events, Kind
from proxy.simulate.script import Reasoning, Script, ToolCall

SCRIPTS = st.builds(
    Script,
    text=st.lists(st.text(min_size=1), max_size=3).map(tuple),
    tokens=st.none() | st.integers(0, 4),
    reasoning=st.none() | st.builds(Reasoning, n=st.integers(0, 3), hidden=st.booleans()),
    tool_call=st.booleans()
    | st.builds(ToolCall, arguments=st.lists(st.text(min_size=1), max_size=3).map(tuple)),
    refusal=st.booleans(),
    usage=st.sampled_from([True, False, "every"]),
    cached_tokens=st.integers(0, 16),
    opening=st.sampled_from(["standard", "empty_choices", "queued", "none"]),
    finish_reason=st.none() | st.just("length"),
)


def said(payloads: Payloads, script: Script) -> Answer:
    """What a model says to a request that streams."""
    return answer(script, Asked(payloads, "m-1", stream=True))


def stream(payloads: Payloads, saying: Answer) -> list[Event]:
    """All events of a stream, in order."""
    tokens = [payloads.token(saying, index) for index in range(len(saying.tokens))]
    parts: list[Events] = [
        payloads.opening(saying),
        payloads.started(saying),
        *tokens,
        payloads.closing(saying, {"timings": {"prompt_ms": 1.5}}),
    ]
    return [event for part in parts for event in part]


def text(saying: Answer, *kinds: Kind) -> str:
    """What is said in these kinds, names of tools left out."""
    return "".join(saying.joined(kind) for kind in kinds)
