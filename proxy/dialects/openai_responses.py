"""OpenAI Responses.

Shapes: openai-python `types/responses/*_event.py`. Every event names its type, in the SSE `event`
field and in the JSON, and most of the types are structure.

A function call that is added with its name counts as a token at that moment, as a name does in
Chat Completions: the name is generated. `.done` events, and the output inside the last event, say
again what the deltas said. Encrypted reasoning is opaque state and no token. `response.incomplete`
is an ordinary end, for example at `max_output_tokens`, and no error.
"""

from proxy.dialects._api import NOTHING, Observation, RequestFacts, TokenKind, Usage
from proxy.dialects._values import (
    UNNAMED_ERROR,
    count,
    error_name,
    error_of,
    model_name,
    nested_count,
    request_facts,
    stated,
)

_TEXT = Observation(token=TokenKind.TEXT, visible=True)
_REASONING = Observation(token=TokenKind.REASONING)
_TOOL_CALL = Observation(token=TokenKind.TOOL_CALL)
_REFUSAL = Observation(token=TokenKind.REFUSAL, visible=True)
_OTHER = Observation(token=TokenKind.OTHER)

_DELTAS = {
    "response.output_text.delta": _TEXT,
    "response.refusal.delta": _REFUSAL,
    "response.reasoning_text.delta": _REASONING,
    "response.reasoning_summary_text.delta": _REASONING,
    "response.function_call_arguments.delta": _TOOL_CALL,
    "response.custom_tool_call_input.delta": _TOOL_CALL,
    "response.mcp_call_arguments.delta": _TOOL_CALL,
    "response.code_interpreter_call_code.delta": _TOOL_CALL,
    "response.audio.delta": _OTHER,
    "response.audio.transcript.delta": _OTHER,
}
_IMAGE = "response.image_generation_call.partial_image"
_TERMINAL = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "response.cancelled"}
)
_CALLS = frozenset({"function_call", "custom_tool_call", "mcp_call"})
_PARTS = {
    "output_text": (TokenKind.TEXT, "text"),
    "refusal": (TokenKind.REFUSAL, "refusal"),
    "summary_text": (TokenKind.REASONING, "text"),
    "reasoning_text": (TokenKind.REASONING, "text"),
}
_VISIBLE = frozenset({TokenKind.TEXT, TokenKind.REFUSAL})


class OpenAiResponses:
    """`POST .../responses`; sub-paths such as `/responses/compact` are other calls."""

    name = "openai_responses"

    def matches(self, method: str, path: str) -> bool:
        """By suffix: bases such as `/api/v1` and `/backend-api/codex` come before it."""
        return method == "POST" and path.rstrip("/").endswith("/responses")

    def read_request(self, document: object) -> RequestFacts:
        """Not streamed unless `stream` says so."""
        return request_facts(document, streams_by_default=False)

    def read_event(self, name: bytes, data: bytes, document: object) -> Observation:
        """One event, known by the `type` in its JSON, or by its name when that has none."""
        if not isinstance(document, dict):
            return Observation(error=UNNAMED_ERROR) if name == b"error" else NOTHING
        kind = document.get("type")
        if not isinstance(kind, str):
            kind = name.decode("latin-1")
        delta = document.get("delta")
        if delta is not None:
            return _delta(kind) if isinstance(delta, str) and delta else NOTHING
        if kind in _TERMINAL:
            return _end(kind, document.get("response"))
        if kind in ("response.output_item.added", "response.output_item.done"):
            return _item(document.get("item"), done=kind.endswith("done"))
        if kind == _IMAGE:
            return _OTHER if document.get("partial_image_b64") else NOTHING
        if kind == "response.created":
            return _stated(document.get("response"))
        error = error_of(document) or (UNNAMED_ERROR if kind == "error" else None)
        return Observation(error=error) if error else NOTHING

    def read_oversize(self, name: bytes) -> Observation | None:
        """The name says it all, when there is one."""
        if not name:
            return None
        kind = name.decode("latin-1")
        if kind in _TERMINAL:
            # Too large to tell which parts of the answer it repeats, or the usage.
            return Observation(terminal=True)
        return _OTHER if kind == _IMAGE else _delta(kind)

    def read_response(self, document: object) -> Observation:
        """A whole response object, or an error."""
        error = error_of(document)
        if error is not None:
            return Observation(error=error)
        if not isinstance(document, dict):
            return NOTHING
        return _end(f"response.{document.get('status')}", document)


def _delta(kind: str) -> Observation:
    """A non-empty delta; types that are not listed are generated material all the same."""
    known = _DELTAS.get(kind)
    if known is not None:
        return known
    return _OTHER if kind.startswith("response.") and kind.endswith(".delta") else NOTHING


def _item(item: object, *, done: bool) -> Observation:
    kind = _material(item)
    if kind is None:
        return NOTHING
    return Observation(token=kind, visible=kind in _VISIBLE, repeats=done)


def _material(item: object) -> TokenKind | None:
    """The kind of generated material in one output item, if there is any."""
    if not isinstance(item, dict):
        return None
    if _type_of(item) in _CALLS:
        filled = item.get("name") or item.get("arguments") or item.get("input")
        return TokenKind.TOOL_CALL if isinstance(filled, str) else None
    if _type_of(item) == "image_generation_call":
        return TokenKind.OTHER if item.get("result") else None
    for key in ("summary", "content"):
        parts = item.get(key)
        for part in parts if isinstance(parts, list) else ():
            kind, field = _PARTS.get(_type_of(part), (None, ""))
            value = part.get(field) if kind is not None else None
            if isinstance(value, str) and value:
                return kind
    return None


def _type_of(part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    return kind if isinstance(kind, str) else ""


def _stated(response: object) -> Observation:
    model = model_name(response.get("model")) if isinstance(response, dict) else None
    return Observation(model=model) if model else NOTHING


def _end(kind: str, response: object) -> Observation:
    if not isinstance(response, dict):
        response = {}
    output = response.get("output")
    items = output if isinstance(output, list) else []
    kinds = [found for found in map(_material, items) if found is not None]
    error = response.get("error")
    return Observation(
        token=kinds[0] if kinds else None,
        visible=not _VISIBLE.isdisjoint(kinds),
        repeats=True,
        finished=kind in _TERMINAL,
        terminal=kind in _TERMINAL,
        usage=_usage(response.get("usage")),
        error=error_name(error) if error or kind == "response.failed" else None,
        model=model_name(response.get("model")),
    )


def _usage(usage: object) -> Usage | None:
    """`input_tokens` is the whole prompt, its cached share included."""
    if not isinstance(usage, dict):
        return None
    return stated(
        Usage(
            input=count(usage.get("input_tokens")),
            cached=nested_count(usage, "input_tokens_details", "cached_tokens"),
            output=count(usage.get("output_tokens")),
            reasoning=nested_count(usage, "output_tokens_details", "reasoning_tokens"),
        )
    )


OPENAI_RESPONSES = OpenAiResponses()
