"""Anthropic messages."""

from hypothesis import given, settings

from proxy.simulate.payloads._api import Fault, Json, Kind
from proxy.simulate.payloads.anthropic_messages import anthropic_messages
from proxy.simulate.script import Script

from .answers import SCRIPTS, said, stream, text


def events(script: Script) -> list[Json]:
    """The data of a stream; every event is named after its type."""
    found = []
    for event in stream(anthropic_messages, said(anthropic_messages, script)):
        assert isinstance(event.data, dict)
        assert event.name == event.data["type"]
        found.append(event.data)
    return found


@settings(max_examples=60)
@given(script=SCRIPTS)
def test_blocks_start_before_their_deltas_and_stop_after_them(script: Script) -> None:
    """The deltas add up to the answer, and no block is left open."""
    saying = said(anthropic_messages, script)
    texts = {"text": "", "thinking": "", "partial_json": ""}
    block = -1
    stands = False
    for event in events(script):
        kind = event["type"]
        if kind == "content_block_start":
            assert not stands
            assert event["index"] == block + 1
            block, stands = event["index"], True
        elif kind == "content_block_delta":
            assert stands
            assert event["index"] == block
            for field in texts:
                texts[field] += event["delta"].get(field, "")
        elif kind == "content_block_stop":
            assert stands
            stands = False
    assert not stands
    assert texts == {
        "text": text(saying, Kind.TEXT, Kind.REFUSAL),
        "thinking": text(saying, Kind.REASONING),
        "partial_json": text(saying, Kind.TOOL_CALL),
    }


def test_the_opening_is_structure_only() -> None:
    """Message, first block, ping: all at once, before any token."""
    saying = said(anthropic_messages, Script(cached_tokens=6))
    opening = anthropic_messages.opening(saying)

    assert [event.name for event in opening] == ["message_start", "content_block_start", "ping"]
    assert isinstance(opening[0].data, dict)
    usage = opening[0].data["message"]["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (10, 6)


def test_the_name_of_a_tool_is_a_token() -> None:
    """So its block does not start early."""
    saying = said(anthropic_messages, Script(tool_call=True))

    assert [event.name for event in anthropic_messages.opening(saying)] == ["message_start"]
    (first,) = anthropic_messages.token(saying, 0)
    assert isinstance(first.data, dict)
    assert first.data["content_block"]["name"] == "get_weather"
    assert events(Script(tool_call=True))[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_error_inside_a_stream() -> None:
    """Under its own event name, or bare; the last event follows on demand."""
    saying = said(anthropic_messages, Script())
    fault = Fault("overloaded_error", "m")

    assert [event.name for event in anthropic_messages.fault(saying, fault)] == ["error"]
    bare = anthropic_messages.fault(saying, fault._replace(bare=True, done=True))
    assert [event.name for event in bare] == [None, "message_stop"]
    assert anthropic_messages.refusal(500, Fault(None, "m"))["error"]["type"] == "api_error"


def test_a_whole_answer() -> None:
    """The same blocks, complete."""
    script = Script(reasoning=1, tool_call=True, text=("Hi",))
    content = anthropic_messages.whole(said(anthropic_messages, script), {})["content"]

    assert [block["type"] for block in content] == ["thinking", "tool_use", "text"]
    assert content[1]["input"] == {"city": "Paris"}
    assert content[2]["text"] == "Hi"
