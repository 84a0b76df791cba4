"""What every wire format has in common: one contract."""

import msgspec
import pytest
from hypothesis import given, settings

from proxy.simulate.payloads import BY_NAME, PAYLOADS, Payloads, for_path
from proxy.simulate.payloads._api import Answer, Fault, Kind, Token, error_type
from proxy.simulate.script import Script

from .answers import SCRIPTS, said, stream

formats = pytest.mark.parametrize("payloads", PAYLOADS, ids=lambda each: each.name)


@formats
@settings(max_examples=40)
@given(script=SCRIPTS)
def test_every_event_is_json_or_an_end_marker(payloads: Payloads, script: Script) -> None:
    """And every event after the last token carries what the server says about its times once."""
    events = stream(payloads, said(payloads, script))
    timed = 0
    for event in events:
        assert isinstance(event.data, dict) or event.data == "[DONE]"
        encoded = msgspec.json.encode(event.data)
        assert msgspec.json.decode(encoded) == event.data
        timed += b'"timings":' in encoded
    assert timed == 1


@formats
@settings(max_examples=40)
@given(script=SCRIPTS)
def test_a_whole_answer_is_json(payloads: Payloads, script: Script) -> None:
    """With the model's name and the evidence in it."""
    document = payloads.whole(said(payloads, script), {"timings": {}})

    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    assert document["model"] == "m-1"
    assert document["timings"] == {}


@formats
def test_an_error_says_its_message(payloads: Payloads) -> None:
    """As a body of its own and inside a stream."""
    fault = Fault("overloaded_error", "come back later", "busy")
    body = payloads.refusal(529, fault)
    events = payloads.fault(said(payloads, Script()), fault)

    assert b"come back later" in msgspec.json.encode(body)
    assert b"come back later" in msgspec.json.encode(events[0].data)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "openai_chat"),
        ("/prefix/api/v4/chat/completions", "openai_chat"),
        ("/v1/completions", "openai_completions"),
        ("/v1/responses", "openai_responses"),
        ("/api/v1/messages", "anthropic_messages"),
        ("/api/chat", "ollama"),
        ("/api/generate", "ollama_generate"),
        ("/v1/messages/count_tokens", None),
        ("/v1/models", None),
    ],
)
def test_a_path_has_a_format(path: str, name: str | None) -> None:
    """By its end, so that prefixes do not matter."""
    found = for_path(path)

    assert (found.name if found else None) == name
    assert all(BY_NAME[payloads.name] is payloads for payloads in PAYLOADS)


def test_an_error_without_a_type_gets_the_usual_one() -> None:
    """As vendors call that status."""
    assert error_type(429, Fault(None, "")) == "rate_limit_error"
    assert error_type(503, Fault(None, "")) == "server_error"
    assert error_type(503, Fault("x", "")) == "x"


def test_the_arguments_of_a_tool_are_a_value_where_they_are_json() -> None:
    """Else the text itself is kept."""

    def arguments(text: str) -> object:
        tokens = (Token(Kind.TOOL_CALL, "f", 0, True, False), Token(Kind.TOOL_CALL, text, 0, False))
        return Answer(model="m", tokens=tokens, usage=None).tool_input()

    assert arguments('{"a": 1}') == {"a": 1}
    assert arguments("{") == {"arguments": "{"}
