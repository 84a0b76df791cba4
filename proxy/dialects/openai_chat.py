"""OpenAI Chat Completions and legacy Completions, and everything that speaks them.

Shapes: openai-python `types/chat/chat_completion_chunk.py`, `types/completion.py`,
`types/completion_usage.py`. Beyond these: `reasoning_content` (DeepSeek, vLLM), `reasoning` and
`reasoning_details` (OpenRouter), `images` (OpenRouter), content as a list of parts (Mistral),
`prompt_cache_hit_tokens` (DeepSeek), usage inside a choice (Moonshot).

A tool call counts from its name on: the name is generated, its id is not. Encrypted reasoning is
opaque state and no token. The stream ends with `[DONE]`; a finish reason alone is not the end,
because usage may follow.
"""

from collections.abc import Callable

from proxy.dialects._api import NOTHING, Observation, RequestFacts, TokenKind, Usage
from proxy.dialects._values import (
    UNNAMED_ERROR,
    count,
    error_of,
    model_name,
    nested_count,
    observed,
    request_facts,
    stated,
)

Kinds = tuple[TokenKind, ...]

_TEXT: dict[str, Kinds] = {
    "content": (TokenKind.TEXT,),
    "text": (TokenKind.TEXT,),
    "reasoning_content": (TokenKind.REASONING,),
    "reasoning": (TokenKind.REASONING,),
    "refusal": (TokenKind.REFUSAL,),
}
# When one event carries several kinds, it is named after the one that is generated first.
_ORDER = {
    TokenKind.REASONING: 0,
    TokenKind.TEXT: 1,
    TokenKind.REFUSAL: 2,
    TokenKind.TOOL_CALL: 3,
    TokenKind.OTHER: 4,
}
_VISIBLE = frozenset({TokenKind.TEXT, TokenKind.REFUSAL})

_DONE = Observation(terminal=True)
_ERROR = Observation(error=UNNAMED_ERROR)


class OpenAiChat:
    """`POST .../chat/completions` and `POST .../completions`, Azure deployments included."""

    name = "openai_chat"

    def matches(self, method: str, path: str) -> bool:
        """By suffix: bases such as `/api/v1` and `/openai/deployments/x` come before it."""
        return method == "POST" and path.rstrip("/").endswith("/completions")

    def read_request(self, document: object) -> RequestFacts:
        """Not streamed unless `stream` says so."""
        return request_facts(document, streams_by_default=False)

    def read_event(self, name: bytes, data: bytes, document: object) -> Observation:
        """One chunk, `[DONE]`, or an error in place of a chunk."""
        if isinstance(document, dict):
            return _read(document, "delta", error_event=name == b"error")
        if data.strip() == b"[DONE]":
            return _DONE
        return _ERROR if name == b"error" else NOTHING

    def read_oversize(self, name: bytes) -> Observation | None:
        """Chunks have no names."""
        return None

    def read_response(self, document: object) -> Observation:
        """A whole completion or an error."""
        return _read(document, "message") if isinstance(document, dict) else NOTHING


def _read(document: dict[str, object], part: str, *, error_event: bool = False) -> Observation:
    token: TokenKind | None = None
    visible = finished = False
    usage = document.get("usage")
    choices = document.get("choices")
    if isinstance(choices, list):
        for choice in choices:
            if not isinstance(choice, dict):
                continue
            if choice.get("finish_reason"):
                finished = True
                usage = usage or choice.get("usage")
            material = choice.get(part)
            for kind in _material(material if isinstance(material, dict) else choice):
                visible = visible or kind in _VISIBLE
                if token is None or _ORDER[kind] < _ORDER[token]:
                    token = kind
    error = UNNAMED_ERROR if error_event else None
    if error_event or "error" in document or not choices:
        error = error_of(document) or error
    model = document.get("model")
    counts = _usage(usage) if usage else None
    if counts is None and error is None:
        return observed(token, visible, finished, model)
    return Observation(
        token=token,
        visible=visible,
        finished=finished,
        usage=counts,
        error=error,
        model=model_name(model),
    )


def _material(part: dict[str, object]) -> Kinds:
    """The kinds of generated, non-empty material in a delta, a message or a legacy choice."""
    found: Kinds = ()
    for key, value in part.items():
        if not value:
            continue
        if isinstance(value, str):
            found += _TEXT.get(key, ())
        elif key in _NESTED:
            found += _NESTED[key](value)
    return found


def _holds(value: object, *keys: str) -> bool:
    """Whether one of `keys` of a JSON object is a non-empty string."""
    return isinstance(value, dict) and any(
        isinstance(value.get(key), str) and value[key] for key in keys
    )


def _objects(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _content_parts(value: object) -> Kinds:
    found: Kinds = ()
    for part in _objects(value):
        thinking = part.get("thinking")
        if _holds(part, "thinking") or any(_holds(item, "text") for item in _objects(thinking)):
            found += (TokenKind.REASONING,)
        elif _holds(part, "text"):
            found += (TokenKind.TEXT,)
        elif _is_image(part):
            found += (TokenKind.OTHER,)
    return found


def _tool_calls(value: object) -> Kinds:
    called = any(
        _holds(call.get("function"), "name", "arguments")
        or _holds(call.get("custom"), "name", "input")
        for call in _objects(value)
    )
    return (TokenKind.TOOL_CALL,) if called else ()


def _function_call(value: object) -> Kinds:
    return (TokenKind.TOOL_CALL,) if _holds(value, "name", "arguments") else ()


def _reasoning_details(value: object) -> Kinds:
    readable = any(_holds(detail, "text", "summary") for detail in _objects(value))
    return (TokenKind.REASONING,) if readable else ()


def _audio(value: object) -> Kinds:
    return (TokenKind.OTHER,) if _holds(value, "data", "transcript") else ()


def _images(value: object) -> Kinds:
    return (TokenKind.OTHER,) if any(map(_is_image, _objects(value))) else ()


def _is_image(part: dict[str, object]) -> bool:
    return _holds(part, "url", "b64_json") or _holds(part.get("image_url"), "url")


_NESTED: dict[str, Callable[[object], Kinds]] = {
    "content": _content_parts,
    "reasoning_details": _reasoning_details,
    "tool_calls": _tool_calls,
    "function_call": _function_call,
    "audio": _audio,
    "images": _images,
}


def _usage(usage: object) -> Usage | None:
    """`prompt_tokens` is the whole prompt, its cached share included."""
    if not isinstance(usage, dict):
        return None
    cached = nested_count(usage, "prompt_tokens_details", "cached_tokens")
    if cached is None:
        cached = count(usage.get("prompt_cache_hit_tokens"))
    return stated(
        Usage(
            input=count(usage.get("prompt_tokens")),
            cached=cached,
            output=count(usage.get("completion_tokens")),
            reasoning=nested_count(usage, "completion_tokens_details", "reasoning_tokens"),
        )
    )


OPENAI_CHAT = OpenAiChat()
