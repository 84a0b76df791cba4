"""Chat completions."""

from hypothesis import given, settings

from proxy.simulate.payloads._api import Fault, Kind
from proxy.simulate.payloads.openai_chat import openai_chat
from proxy.simulate.script import Script, read_script

from .answers import SCRIPTS, said, stream, text


def deltas(script: Script) -> list[object]:
    """The deltas of a stream, None for a chunk without a choice."""
    events = stream(openai_chat, said(openai_chat, script))
    chunks = [event.data for event in events if isinstance(event.data, dict)]
    return [chunk["choices"][0]["delta"] if chunk["choices"] else None for chunk in chunks]


@settings(max_examples=60)
@given(script=SCRIPTS)
def test_the_deltas_add_up_to_the_answer(script: Script) -> None:
    """Each kind of token in its own field; the role alone comes first and is empty."""
    saying = said(openai_chat, script)
    found = [delta for delta in deltas(script) if isinstance(delta, dict)]
    if script.opening != "none":
        assert found[0] == {"role": "assistant", "content": ""}

    def joined(field: str) -> str:
        return "".join(delta.get(field) or "" for delta in found)

    calls = [call for delta in found for call in delta.get("tool_calls", ())]
    assert joined("content") == text(saying, Kind.TEXT)
    assert joined("reasoning_content") == text(saying, Kind.REASONING)
    assert joined("refusal") == text(saying, Kind.REFUSAL)
    arguments = "".join(call["function"]["arguments"] for call in calls)
    assert arguments == text(saying, Kind.TOOL_CALL)


def test_azure_sends_a_chunk_without_a_choice_first() -> None:
    """The opening `empty_choices`."""
    assert deltas(Script(opening="empty_choices", text=("Hi",), usage=False)) == [
        None,
        {"role": "assistant", "content": ""},
        {"content": "Hi"},
        {},
    ]


def test_reasoning_has_the_field_and_the_content_that_are_asked_for() -> None:
    """Servers differ in both."""
    for content, beside in (
        ("null", {"content": None}),
        ("empty", {"content": ""}),
        ("absent", {}),
    ):
        reasoning = {"n": 1, "field": "reasoning", "content": content}
        script = {"reasoning": reasoning, "tokens": 0, "opening": "none", "usage": False}
        assert deltas(read_script(script))[0] == {"reasoning": "Let", **beside}


def test_usage_comes_last_once_or_with_every_chunk() -> None:
    """Cumulative when it comes with every chunk."""

    def counts(script: Script) -> list[object]:
        events = stream(openai_chat, said(openai_chat, script))
        chunks = [event.data for event in events if isinstance(event.data, dict)]
        return [chunk.get("usage", {}).get("completion_tokens") for chunk in chunks]

    assert counts(Script(text=("a", "b"), usage=True)) == [None, None, None, None, 2]
    assert counts(Script(text=("a", "b"), usage="every")) == [0, 1, 2, 2, 2]
    assert counts(Script(text=("a", "b"), usage=False)) == [None, None, None, None]


def test_a_stream_ends_with_its_reason_and_the_marker() -> None:
    """`tool_calls` when the last token is part of one."""
    events = stream(openai_chat, said(openai_chat, Script(tool_call=True, usage=False)))

    assert isinstance(events[-2].data, dict)
    assert events[-2].data["choices"][0]["finish_reason"] == "tool_calls"
    assert events[-1].data == "[DONE]"


def test_an_error_inside_a_stream() -> None:
    """Named when it has a type, unless it is to be bare; the marker follows on demand."""
    saying = said(openai_chat, Script())

    assert [event.name for event in openai_chat.fault(saying, Fault("quota", "m"))] == ["error"]
    bare = openai_chat.fault(saying, Fault("quota", "m", bare=True, done=True))
    assert [(event.name, event.data == "[DONE]") for event in bare] == [(None, False), (None, True)]


def test_a_whole_answer() -> None:
    """The same material in one message."""
    script = Script(reasoning=1, tool_call=True, text=("Hi",))
    choice = openai_chat.whole(said(openai_chat, script), {})["choices"][0]

    assert choice["message"]["content"] == "Hi"
    assert choice["message"]["reasoning_content"] == "Let"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city":"Paris"}'
    assert openai_chat.whole(said(openai_chat, Script(refusal=True)), {})["choices"][0]["message"][
        "refusal"
    ].startswith("The time")
