"""Ollama's native API: `/api/chat` and `/api/generate`, one JSON object per line.

Shapes: ollama `api/types.go` (`ChatResponse`, `GenerateResponse`, `Metrics`). The object with
`done: true` is the last one and carries the counts. Streaming is the default.
"""

from proxy.dialects._api import NOTHING, Observation, RequestFacts, TokenKind, Usage
from proxy.dialects._values import count, error_of, model_name, observed, request_facts, stated


class Ollama:
    """`POST .../api/chat` and `POST .../api/generate`."""

    name = "ollama"

    def matches(self, method: str, path: str) -> bool:
        """By suffix."""
        return method == "POST" and path.rstrip("/").endswith(("/api/chat", "/api/generate"))

    def read_request(self, document: object) -> RequestFacts:
        """Streamed unless `stream` says no."""
        return request_facts(document, streams_by_default=True)

    def read_event(self, name: bytes, data: bytes, document: object) -> Observation:
        """One line of the stream."""
        return self.read_response(document)

    def read_oversize(self, name: bytes) -> Observation | None:
        """Lines have no names."""
        return None

    def read_response(self, document: object) -> Observation:
        """The only object of an unstreamed answer has the shape of the last one of a stream."""
        if not isinstance(document, dict):
            return NOTHING
        message = document.get("message")
        part = message if isinstance(message, dict) else document
        text = part.get("content") if part is message else part.get("response")
        visible = isinstance(text, str) and text != ""
        token = TokenKind.TEXT if visible else None
        thinking = part.get("thinking")
        if isinstance(thinking, str) and thinking:
            token = TokenKind.REASONING
        elif token is None and _calls(part.get("tool_calls")):
            token = TokenKind.TOOL_CALL
        done = document.get("done") is True
        error = error_of(document)
        model = document.get("model")
        if not done and error is None:
            return observed(token, visible, False, model)
        return Observation(
            token=token,
            visible=visible,
            finished=done,
            terminal=done,
            usage=_usage(document) if done else None,
            error=error,
            model=model_name(model),
        )


def _calls(tool_calls: object) -> bool:
    return isinstance(tool_calls, list) and any(isinstance(call, dict) for call in tool_calls)


def _usage(document: dict[str, object]) -> Usage | None:
    """`prompt_eval_count` is the whole prompt; older servers leave out its cached share."""
    prompt, answer = document.get("prompt_eval_count"), document.get("eval_count")
    return stated(Usage(input=count(prompt), output=count(answer)))


OLLAMA = Ollama()
