"""Anthropic Messages beyond the golden streams."""

from typing import Any

import pytest

from proxy.dialects import ANTHROPIC_MESSAGES, NOTHING, Observation, TokenKind, Usage


def seen(**document: Any) -> Observation:
    return ANTHROPIC_MESSAGES.read_event(b"", b"{}", document)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"type": "text", "text": "Hi"}, TokenKind.TEXT),
        ({"type": "thinking", "thinking": "hm"}, TokenKind.REASONING),
        ({"type": "tool_use", "name": "Bash", "input": {}}, TokenKind.TOOL_CALL),
        ({"type": "server_tool_use", "name": "web_search"}, TokenKind.TOOL_CALL),
        ({"type": "text", "text": ""}, None),
        ({"type": "tool_use", "name": ""}, None),
        ({"type": "redacted_thinking", "data": "Em"}, None),
        ({"type": "web_search_tool_result", "content": [{"title": "t"}]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_starting_blocks(block: object, expected: TokenKind | None) -> None:
    """Usually empty; a tool's name is generated, its result is not."""
    assert seen(type="content_block_start", content_block=block).token is expected


@pytest.mark.parametrize(
    ("delta", "expected"),
    [
        ({"type": "text_delta", "text": "x"}, TokenKind.TEXT),
        ({"type": "thinking_delta", "thinking": "x"}, TokenKind.REASONING),
        ({"type": "input_json_delta", "partial_json": "{"}, TokenKind.TOOL_CALL),
        ({"type": "text_delta", "text": ""}, None),
        ({"type": "text_delta", "text": None}, None),
        ({"type": "text_delta"}, None),
        ({"type": "signature_delta", "signature": "Eq"}, None),
        ({"type": "citations_delta", "citation": {"title": "t"}}, None),
        ({"type": []}, None),
        (None, None),
    ],
)
def test_deltas(delta: object, expected: TokenKind | None) -> None:
    """Non-empty material only."""
    found = seen(type="content_block_delta", delta=delta)

    assert found.token is expected
    assert found.visible == (expected is TokenKind.TEXT)


def test_input_is_the_whole_prompt() -> None:
    """The format counts cache reads and writes apart; the account does not."""
    usage = {
        "input_tokens": 30,
        "cache_read_input_tokens": 2000,
        "cache_creation_input_tokens": 500,
        "output_tokens": 1,
    }

    assert seen(type="message_start", message={"usage": usage}).usage == Usage(
        input=2530, cached=2000
    )
    assert seen(type="message_delta", usage=usage).usage == Usage(input=2530, cached=2000, output=1)


def test_counts_that_are_not_stated_stay_unknown() -> None:
    """A last statement with the output alone says nothing about the prompt."""
    assert seen(type="message_delta", usage={"output_tokens": 9}).usage == Usage(output=9)
    assert seen(type="message_delta", usage={"cache_read_input_tokens": 9}).usage == Usage(cached=9)
    assert seen(type="message_delta", usage={}).usage is None
    assert seen(type="message_start", message=None) is NOTHING


def test_the_stop_reason_is_not_the_end() -> None:
    """`message_stop` is."""
    found = seen(type="message_delta", delta={"stop_reason": "end_turn"})

    assert (found.finished, found.terminal) == (True, False)
    assert seen(type="message_stop").terminal


def test_the_name_stands_in_for_a_missing_type() -> None:
    """Some relays leave the type out of the JSON."""
    assert ANTHROPIC_MESSAGES.read_event(b"message_stop", b"{}", {}).terminal
    assert ANTHROPIC_MESSAGES.read_event(b"error", b"{}", {}).error == "error"
    assert ANTHROPIC_MESSAGES.read_event(b"error", b"overloaded", None).error == "error"


def test_whole_response() -> None:
    """Kind of the first block, counts, model; or an error."""
    found = ANTHROPIC_MESSAGES.read_response(
        {
            "type": "message",
            "model": "claude-x",
            "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 3, "output_tokens": 2},
        }
    )

    assert (found.token, found.visible, found.finished) == (TokenKind.REASONING, True, True)
    assert (found.model, found.usage) == ("claude-x", Usage(input=3, output=2))
    error = {"type": "error", "error": {"type": "not_found_error"}}
    assert ANTHROPIC_MESSAGES.read_response(error).error == "not_found_error"


def test_oversize_by_name() -> None:
    """A delta is generated, of whatever kind; without a name nobody can say."""
    delta = ANTHROPIC_MESSAGES.read_oversize(b"content_block_delta")

    assert delta is not None
    assert delta.token is TokenKind.OTHER
    assert ANTHROPIC_MESSAGES.read_oversize(b"message_start") is NOTHING
    assert ANTHROPIC_MESSAGES.read_oversize(b"") is None
