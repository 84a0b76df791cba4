"""Reading values of any shape: a plain value, or None."""

import math

import pytest

from proxy.dialects import NOTHING, RequestFacts, TokenKind
from proxy.dialects._values import count, error_of, model_name, observed, request_facts


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (12, 12),
        (12.0, 12),
        (12.5, None),
        (-1, None),
        (True, None),
        ("12", None),
        (None, None),
        (math.inf, None),
        (math.nan, None),
        (10**30, None),
        ([], None),
    ],
)
def test_count(value: object, expected: int | None) -> None:
    """Whole numbers that fit a record; unknown is None, not 0."""
    assert count(value) == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"error": {"type": "a_b", "code": "c"}}, "a_b"),
        ({"error": {"type": None, "code": "c"}}, "c"),
        ({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}, "RESOURCE_EXHAUSTED"),
        ({"error": {"code": 429}}, "429"),
        ({"error": {"message": "quota"}}, "error"),
        ({"error": "model not found"}, "error"),
        ({"type": "error", "error": {"type": "overloaded_error"}}, "overloaded_error"),
        ({"type": "error", "code": "ERR_X", "message": "m"}, "ERR_X"),
        ({"object": "error", "type": "BadRequestError", "code": 400}, "BadRequestError"),
        ({"error": None}, None),
        ({"error": {}}, None),
        ({"type": "message"}, None),
        ([], None),
        (None, None),
    ],
)
def test_error_of(document: object, expected: str | None) -> None:
    """The forms in use; the message is never read."""
    assert error_of(document) == expected


def test_model_name() -> None:
    """Short and printable."""
    assert model_name("org/model:free") == "org/model:free"
    assert [model_name(value) for value in ("", "a\nb", "x" * 129, 7, None)] == [None] * 5


def test_request_facts() -> None:
    """A missing or null `stream` means the default; another type means nothing."""
    assert request_facts({"model": "m"}, streams_by_default=True) == RequestFacts("m", stream=True)
    assert request_facts({"stream": None}, streams_by_default=False).stream is False
    assert request_facts({"stream": "yes"}, streams_by_default=True).stream is None
    assert request_facts("x", streams_by_default=True) == RequestFacts()


def test_observed_is_shared() -> None:
    """The same meaning is the same object; nothing is NOTHING; long names are not kept."""
    text = observed(TokenKind.TEXT, True, False, "m")

    assert text is observed(TokenKind.TEXT, True, False, "m")
    assert observed(None, False, False, None) is NOTHING
    assert observed(None, False, False, "") is NOTHING
    assert observed(None, False, False, "x" * 1000) is NOTHING
