"""Reading values out of JSON of any shape: every function answers for any input."""

import re
from functools import lru_cache

from proxy.dialects._api import NOTHING, Observation, RequestFacts, TokenKind, Usage

MODEL_LIMIT = 128
"""Characters of a model name that are believed to be a model name."""
UNNAMED_ERROR = "error"
"""An error whose type is not stated, or is not a plain name."""

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}", re.ASCII)
_COUNT_LIMIT = 1 << 53
_NO_USAGE = Usage()


def count(value: object) -> int | None:
    """A count of tokens: a whole number from 0 to 2**53; anything else is None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_LIMIT:
        return value
    return None


def nested_count(document: dict[str, object], outer: str, inner: str) -> int | None:
    """The count at `document[outer][inner]`, if there is one."""
    details = document.get(outer)
    return count(details.get(inner)) if isinstance(details, dict) else None


def stated(usage: Usage) -> Usage | None:
    """`usage`, or None when it states nothing."""
    return None if usage == _NO_USAGE else usage


def model_name(value: object) -> str | None:
    """A model name: short and printable; anything else, and "", is None."""
    if isinstance(value, str) and 0 < len(value) <= MODEL_LIMIT and value.isprintable():
        return value
    return None


def request_facts(document: object, *, streams_by_default: bool) -> RequestFacts:
    """`model` and `stream` of a request body; a missing or null `stream` means the default."""
    if not isinstance(document, dict):
        return RequestFacts()
    stream = document.get("stream")
    if stream is None:
        stream = streams_by_default
    return RequestFacts(
        model=model_name(document.get("model")),
        stream=stream if isinstance(stream, bool) else None,
    )


def error_name(error: object) -> str:
    """The type of an error value, never its message.

    Only a plain name is passed on; free text, which may quote the request, is not.
    """
    if isinstance(error, dict):
        for key in ("type", "code", "status"):
            value = error.get(key)
            if isinstance(value, str) and _NAME.fullmatch(value):
                return value
        code = count(error.get("code"))
        if code is not None:
            return str(code)
    return UNNAMED_ERROR


def error_of(document: object) -> str | None:
    """The type of the error that a document reports, or None when it reports none.

    Forms: `{"error": {...}}`, `{"error": "text"}`, `{"object": "error", "type": ...}`.
    """
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if error:
        return error_name(error)
    if document.get("object") == "error" or document.get("type") == "error":
        named = {key: value for key, value in document.items() if value != "error"}
        return error_name(named)
    return None


@lru_cache(maxsize=512)
def _shared(
    token: TokenKind | None, visible: bool, finished: bool, model: str | None
) -> Observation:
    name = model_name(model)
    if token is None and not finished and name is None:
        return NOTHING
    return Observation(token=token, visible=visible, finished=finished, model=name)


def observed(token: TokenKind | None, visible: bool, finished: bool, model: object) -> Observation:
    """An observation of the frequent kind, one object for all events that say the same.

    A stream says the same few things thousands of times: building each anew would cost more than
    reading the event.
    """
    # The length is checked first: a shared table must not keep long strings.
    if not isinstance(model, str) or len(model) > MODEL_LIMIT:
        return _shared(token, visible, finished, None)
    return _shared(token, visible, finished, model)
