"""Chat Completions beyond the golden streams: the odd shapes of those who speak it."""

from typing import Any

import pytest

from proxy.dialects import NOTHING, OPENAI_CHAT, RequestFacts, TokenKind, Usage


def delta(value: object) -> Any:
    return {"choices": [{"index": 0, "delta": value, "finish_reason": None}]}


def kind(document: object) -> TokenKind | None:
    return OPENAI_CHAT.read_event(b"", b"{}", document).token


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"content": "a"}, TokenKind.TEXT),
        ({"content": " "}, TokenKind.TEXT),
        ({"content": [{"type": "text", "text": "a"}]}, TokenKind.TEXT),
        ({"content": [{"type": "thinking", "thinking": [{"text": "a"}]}]}, TokenKind.REASONING),
        ({"content": [{"type": "image_url", "image_url": {"url": "data:"}}]}, TokenKind.OTHER),
        ({"reasoning_content": "a"}, TokenKind.REASONING),
        ({"reasoning": "a", "content": ""}, TokenKind.REASONING),
        ({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]}, TokenKind.REASONING),
        ({"refusal": "no"}, TokenKind.REFUSAL),
        ({"tool_calls": [{"function": {"name": "f"}}]}, TokenKind.TOOL_CALL),
        ({"tool_calls": [{"function": {"arguments": "{"}}]}, TokenKind.TOOL_CALL),
        ({"tool_calls": [{"type": "custom", "custom": {"input": "x"}}]}, TokenKind.TOOL_CALL),
        ({"function_call": {"name": "f", "arguments": ""}}, TokenKind.TOOL_CALL),
        ({"audio": {"data": "UklG"}}, TokenKind.OTHER),
        ({"audio": {"transcript": "hi"}}, TokenKind.OTHER),
        ({"images": [{"image_url": {"url": "data:image/png;base64,iV"}}]}, TokenKind.OTHER),
    ],
)
def test_generated_material_is_a_token(value: object, expected: TokenKind) -> None:
    """Of any kind, as soon as there is some."""
    assert kind(delta(value)) is expected


@pytest.mark.parametrize(
    "value",
    [
        {},
        None,
        "text",
        {"role": "assistant"},
        {"content": None},
        {"content": ""},
        {"content": []},
        {"content": [{"type": "text", "text": ""}]},
        {"reasoning_content": "", "reasoning": None},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA"}]},
        {"refusal": None},
        {"tool_calls": []},
        {"tool_calls": [{"index": 0, "id": "call_1", "type": "function"}]},
        {"tool_calls": [{"function": {"name": "", "arguments": ""}}]},
        {"function_call": {"arguments": ""}},
        {"audio": {"id": "a1", "expires_at": 1}},
        {"annotations": [{"type": "url_citation"}]},
    ],
)
def test_everything_else_is_none(value: object) -> None:
    """null, "" and missing are the same; ids and roles are not generated."""
    assert OPENAI_CHAT.read_event(b"", b"{}", delta(value)) is NOTHING


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": 7},
    ],
)
def test_choices_of_any_kind(document: object) -> None:
    """Empty, null, missing and wrong ones are events without a token."""
    assert OPENAI_CHAT.read_event(b"", b"{}", document) is NOTHING


def test_any_choice_counts() -> None:
    """The first of several need not be the first that speaks."""
    document = {
        "choices": [{"index": 1, "delta": {}}, {"index": 0, "delta": {"content": "a"}}],
    }

    assert kind(document) is TokenKind.TEXT


def test_several_kinds_in_one_event() -> None:
    """Named after what was generated first; visible when any of it is."""
    seen = OPENAI_CHAT.read_event(b"", b"{}", delta({"content": "a", "reasoning": "b"}))

    assert (seen.token, seen.visible) == (TokenKind.REASONING, True)


@pytest.mark.parametrize("kind_of", ["reasoning", "tool_calls"])
def test_only_answer_text_is_visible(kind_of: str) -> None:
    """Thinking and tool calls are not what the user reads."""
    value = {"reasoning": "a", "tool_calls": [{"function": {"name": "f"}}]}

    assert not OPENAI_CHAT.read_event(b"", b"{}", delta({kind_of: value[kind_of]})).visible


def test_a_whole_answer_in_one_chunk() -> None:
    """Token, finish reason and usage together."""
    document = {
        "model": "m",
        "choices": [{"delta": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
    }
    seen = OPENAI_CHAT.read_event(b"", b"{}", document)

    assert (seen.token, seen.finished, seen.terminal) == (TokenKind.TEXT, True, False)
    assert (seen.usage, seen.model) == (Usage(input=9, output=1), "m")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 1}, Usage(input=1)),
        ({"completion_tokens": 0}, Usage(output=0)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 8}, Usage(input=9, cached=8)),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, Usage(input=9)),
        ({}, None),
        (None, None),
        ({"prompt_tokens": "9"}, None),
        ([1], None),
    ],
)
def test_usage(usage: object, expected: Usage | None) -> None:
    """What is not stated stays unknown."""
    assert OPENAI_CHAT.read_event(b"", b"{}", {"choices": [], "usage": usage}).usage == expected


def test_usage_inside_the_last_choice() -> None:
    """As Moonshot sends it."""
    document = {
        "choices": [{"delta": {}, "finish_reason": "stop", "usage": {"completion_tokens": 5}}]
    }

    assert OPENAI_CHAT.read_event(b"", b"{}", document).usage == Usage(output=5)


@pytest.mark.parametrize("data", [b"[DONE]", b" [DONE]", b"[DONE] "])
def test_done_is_terminal(data: bytes) -> None:
    """With any space that was left around it."""
    assert OPENAI_CHAT.read_event(b"", data, None).terminal


def test_an_error_event_without_json() -> None:
    """The name says so."""
    assert OPENAI_CHAT.read_event(b"error", b"upstream gone", None).error == "error"
    assert OPENAI_CHAT.read_event(b"error", b"{}", {"message": "m"}).error == "error"


def test_an_error_beside_a_choice() -> None:
    """OpenRouter reports a failure in mid-stream this way."""
    document = {
        "error": {"code": 502, "message": "m"},
        "choices": [{"delta": {"content": ""}, "finish_reason": "error"}],
    }

    assert OPENAI_CHAT.read_event(b"", b"{}", document).error == "502"


def test_whole_response() -> None:
    """Counts, model and kind of an unstreamed answer."""
    seen = OPENAI_CHAT.read_response(
        {
            "model": "m",
            "choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 1},
        }
    )

    assert (seen.token, seen.finished, seen.model) == (TokenKind.TEXT, True, "m")
    assert seen.usage == Usage(input=9, output=1)


def test_request() -> None:
    """Not streamed unless asked for."""
    assert OPENAI_CHAT.read_request({"model": "m"}) == RequestFacts("m", stream=False)
    assert OPENAI_CHAT.read_request({"stream": True}) == RequestFacts(None, stream=True)


def test_oversize() -> None:
    """Chunks have no names, so nobody can say."""
    assert OPENAI_CHAT.read_oversize(b"") is None
