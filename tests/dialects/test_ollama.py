"""Ollama's native API beyond the golden streams."""

from typing import Any

import pytest

from proxy.dialects import NOTHING, OLLAMA, RequestFacts, TokenKind, Usage


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"message": {"content": "Hi"}}, TokenKind.TEXT),
        ({"message": {"thinking": "hm", "content": ""}}, TokenKind.REASONING),
        ({"message": {"content": "", "tool_calls": [{"function": {}}]}}, TokenKind.TOOL_CALL),
        ({"response": "Hi"}, TokenKind.TEXT),
        ({"response": "", "thinking": "hm"}, TokenKind.REASONING),
        ({"message": {"content": ""}}, None),
        ({"message": {"content": "", "tool_calls": []}}, None),
        ({"message": None, "response": None}, None),
        ({}, None),
    ],
)
def test_tokens(document: Any, expected: TokenKind | None) -> None:
    """Chat and generate alike."""
    assert OLLAMA.read_event(b"", b"{}", document).token is expected


def test_the_last_object() -> None:
    """Counts and the end; a whole response has the same shape."""
    last = {"model": "m", "response": "Hi", "done": True, "prompt_eval_count": 3, "eval_count": 2}
    found = OLLAMA.read_event(b"", b"{}", last)

    assert (found.token, found.terminal, found.model) == (TokenKind.TEXT, True, "m")
    assert found.usage == Usage(input=3, output=2)
    assert OLLAMA.read_response(last) == found


def test_done_must_be_true() -> None:
    """Nothing else ends a stream."""
    assert OLLAMA.read_event(b"", b"{}", {"done": "true"}) is NOTHING


def test_error_line() -> None:
    """Free text, so it has no name."""
    assert OLLAMA.read_event(b"", b"{}", {"error": "model requires more memory"}).error == "error"


def test_request() -> None:
    """Streaming is the default."""
    assert OLLAMA.read_request({"model": "m"}) == RequestFacts("m", stream=True)
    assert OLLAMA.read_request({"stream": False}).stream is False
