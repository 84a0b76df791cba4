"""Responses beyond the golden streams."""

from typing import Any

import pytest

from proxy.dialects import NOTHING, OPENAI_RESPONSES, Observation, TokenKind, Usage


def seen(**document: Any) -> Observation:
    return OPENAI_RESPONSES.read_event(b"", b"{}", document)


@pytest.mark.parametrize(
    ("kind", "expected", "visible"),
    [
        ("response.output_text.delta", TokenKind.TEXT, True),
        ("response.refusal.delta", TokenKind.REFUSAL, True),
        ("response.reasoning_text.delta", TokenKind.REASONING, False),
        ("response.reasoning_summary_text.delta", TokenKind.REASONING, False),
        ("response.function_call_arguments.delta", TokenKind.TOOL_CALL, False),
        ("response.custom_tool_call_input.delta", TokenKind.TOOL_CALL, False),
        ("response.audio.delta", TokenKind.OTHER, False),
        ("response.something_new.delta", TokenKind.OTHER, False),
    ],
)
def test_deltas(kind: str, expected: TokenKind, visible: bool) -> None:
    """A non-empty delta is a token; types yet unknown are generated material too."""
    found = seen(type=kind, delta="x")

    assert (found.token, found.visible) == (expected, visible)
    for empty in ("", None, {"text": "x"}, 7):
        assert seen(type=kind, delta=empty) is NOTHING


def test_the_name_stands_in_for_a_missing_type() -> None:
    """Some relays leave the type out of the JSON."""
    found = OPENAI_RESPONSES.read_event(b"response.output_text.delta", b"{}", {"delta": "x"})

    assert found.token is TokenKind.TEXT


def test_partial_image() -> None:
    """Image data, if there is any."""
    kind = "response.image_generation_call.partial_image"

    assert seen(type=kind, partial_image_b64="iVBO").token is TokenKind.OTHER
    assert seen(type=kind, partial_image_b64="") is NOTHING


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "function_call", "name": "f"}, TokenKind.TOOL_CALL),
        ({"type": "custom_tool_call", "name": "f"}, TokenKind.TOOL_CALL),
        ({"type": "function_call", "name": ""}, None),
        ({"type": "function_call", "call_id": "c"}, None),
        ({"type": "message", "content": []}, None),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}, None),
        ({"type": "web_search_call", "status": "in_progress"}, None),
        ({"type": ["function_call"], "name": "f"}, None),
        (None, None),
    ],
)
def test_added_items(item: object, expected: TokenKind | None) -> None:
    """A call's name is generated; an empty message and encrypted state are not tokens."""
    assert seen(type="response.output_item.added", item=item).token is expected


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "message", "content": [{"type": "output_text", "text": "a"}]}, TokenKind.TEXT),
        ({"type": "message", "content": [{"type": "refusal", "refusal": "a"}]}, TokenKind.REFUSAL),
        (
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}]},
            TokenKind.REASONING,
        ),
        ({"type": "image_generation_call", "result": "iV"}, TokenKind.OTHER),
        ({"type": "message", "content": [{"type": "output_text", "text": ""}]}, None),
        ({"type": "message", "content": [{"type": "output_text"}, None, 7]}, None),
    ],
)
def test_done_items_repeat(item: object, expected: TokenKind | None) -> None:
    """Servers that send no deltas send the material here, and only then it is news."""
    found = seen(type="response.output_item.done", item=item)

    assert (found.token, found.repeats) == (expected, expected is not None)


@pytest.mark.parametrize("end", ["completed", "failed", "incomplete", "cancelled"])
def test_ends(end: str) -> None:
    """Only a failure is an error; its code names it."""
    error = {"code": "server_error", "message": "m"} if end == "failed" else None
    found = seen(type=f"response.{end}", response={"error": error})

    assert (found.terminal, found.finished) == (True, True)
    assert found.error == ("server_error" if end == "failed" else None)


def test_an_end_without_a_response() -> None:
    """Still the end."""
    assert seen(type="response.completed").terminal
    assert seen(type="response.failed").error == "error"


@pytest.mark.parametrize(
    "document",
    [
        {"type": "error", "code": "rate_limit", "message": "m"},
        {"type": "error", "error": {"type": "rate_limit"}},
        {"error": {"code": "rate_limit"}},
    ],
)
def test_error_events(document: Any) -> None:
    """Both forms, and an error without a type."""
    assert OPENAI_RESPONSES.read_event(b"", b"{}", document).error == "rate_limit"


def test_whole_response() -> None:
    """A complete one is the end; one that goes on in the background is not."""
    body: dict[str, Any] = {
        "object": "response",
        "status": "completed",
        "error": None,
        "model": "m",
        "output": [],
    }
    found = OPENAI_RESPONSES.read_response({**body, "usage": {"input_tokens": 3}})

    assert (found.terminal, found.model, found.usage) == (True, "m", Usage(input=3))
    assert not OPENAI_RESPONSES.read_response({**body, "status": "queued"}).terminal
    assert OPENAI_RESPONSES.read_response({"error": {"code": "x"}}).error == "x"


@pytest.mark.parametrize(
    ("name", "token", "terminal"),
    [
        (b"response.output_text.delta", TokenKind.TEXT, False),
        (b"response.image_generation_call.partial_image", TokenKind.OTHER, False),
        (b"response.created", None, False),
        (b"response.completed", None, True),
    ],
)
def test_oversize_by_name(name: bytes, token: TokenKind | None, terminal: bool) -> None:
    """Names are enough, when there is one."""
    found = OPENAI_RESPONSES.read_oversize(name)

    assert found is not None
    assert (found.token, found.terminal) == (token, terminal)
    assert OPENAI_RESPONSES.read_oversize(b"") is None
