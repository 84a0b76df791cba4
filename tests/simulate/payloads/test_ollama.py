"""Ollama's own API."""

from hypothesis import given, settings

from proxy.simulate.payloads._api import Json, Kind
from proxy.simulate.payloads.ollama import ollama_chat, ollama_generate
from proxy.simulate.script import Script

from .answers import SCRIPTS, said, stream, text


@settings(max_examples=60)
@given(script=SCRIPTS)
def test_the_objects_add_up_to_the_answer(script: Script) -> None:
    """Only the last one is done."""
    saying = said(ollama_chat, script)
    objects: list[Json] = [
        event.data for event in stream(ollama_chat, saying) if isinstance(event.data, dict)
    ]
    messages = [each["message"] for each in objects]

    assert [each["done"] for each in objects] == [False] * (len(objects) - 1) + [True]
    content = "".join(message["content"] for message in messages)
    assert content == text(saying, Kind.TEXT, Kind.REFUSAL)
    thinking = "".join(message.get("thinking", "") for message in messages)
    assert thinking == text(saying, Kind.REASONING)
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    assert len(calls) == saying.has(Kind.TOOL_CALL)


def test_generate_has_a_response_instead_of_a_message() -> None:
    """And its thinking beside it."""
    saying = said(ollama_generate, Script(reasoning=1, text=("Hi",)))
    objects = [event.data for event in stream(ollama_generate, saying)]

    assert all(isinstance(each, dict) and "message" not in each for each in objects)
    whole = ollama_generate.whole(saying, {})
    assert (whole["response"], whole["thinking"], whole["done"]) == ("Hi", "Let", True)


def test_a_whole_answer() -> None:
    """Everything in one message, with the counts."""
    script = Script(reasoning=1, tool_call=True, text=("Hi",))
    whole = ollama_chat.whole(said(ollama_chat, script), {"total_duration": 7})

    assert whole["message"]["content"] == "Hi"
    assert whole["message"]["thinking"] == "Let"
    assert whole["message"]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
    assert (whole["prompt_eval_count"], whole["eval_count"], whole["total_duration"]) == (16, 5, 7)
