"""Responses."""

from hypothesis import given, settings

from proxy.simulate.payloads._api import Fault, Json, Kind
from proxy.simulate.payloads.openai_responses import openai_responses
from proxy.simulate.script import Script

from .answers import SCRIPTS, said, stream, text


def events(script: Script) -> list[Json]:
    """The data of a stream; every event is named after its type."""
    found = []
    for event in stream(openai_responses, said(openai_responses, script)):
        assert isinstance(event.data, dict)
        assert event.name == event.data["type"]
        found.append(event.data)
    return found


@settings(max_examples=60)
@given(script=SCRIPTS)
def test_items_are_added_before_their_deltas_and_done_after_them(script: Script) -> None:
    """The deltas add up to the answer, and so does the response of the last event."""
    saying = said(openai_responses, script)
    deltas = {"output_text": "", "reasoning_summary_text": "", "function_call_arguments": ""}
    deltas["refusal"] = ""
    standing: set[int] = set()
    for event in events(script):
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            standing.add(event["output_index"])
        elif kind == "output_item.done":
            standing.remove(event["output_index"])
        elif kind.endswith(".delta"):
            assert event["output_index"] in standing
            deltas[kind.removesuffix(".delta")] += event["delta"]
    assert not standing
    assert deltas == {
        "output_text": text(saying, Kind.TEXT),
        "refusal": text(saying, Kind.REFUSAL),
        "reasoning_summary_text": text(saying, Kind.REASONING),
        "function_call_arguments": text(saying, Kind.TOOL_CALL),
    }
    last = events(script)[-1]
    assert len(last["response"]["output"]) == len({token.run for token in saying.tokens})


def test_a_queued_response_is_in_progress_when_generation_starts() -> None:
    """The opening `queued`."""
    queued = [event["type"] for event in events(Script(opening="queued", text=("Hi",)))]
    usual = [event["type"] for event in events(Script(text=("Hi",)))]

    assert queued[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert usual[:2] == ["response.created", "response.in_progress"]
    assert usual[-1] == "response.completed"


def test_an_answer_that_is_too_long_is_incomplete() -> None:
    """With the reason."""
    last = events(Script(finish_reason="length"))[-1]

    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_an_error_inside_a_stream() -> None:
    """response.failed, or the bare event of type error."""
    saying = said(openai_responses, Script())
    (failed,) = openai_responses.fault(saying, Fault("server_error", "m"))
    (bare,) = openai_responses.fault(saying, Fault("server_error", "m", bare=True))

    assert failed.name == "response.failed"
    assert isinstance(bare.data, dict)
    assert (bare.name, bare.data["type"]) == (None, "error")
