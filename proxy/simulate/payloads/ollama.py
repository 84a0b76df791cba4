"""Ollama's own API: NDJSON, a last object with `done: true`, durations in nanoseconds.

Shapes: ollama `api/types.go`. A tool call comes whole, when its arguments are complete.
"""

from ._api import Answer, Event, Events, Evidence, Fault, Json, Kind, Payloads, merged

CREATED_AT = "2023-11-14T22:13:20Z"


class OllamaChat(Payloads):
    """`/api/chat`."""

    name = "ollama"
    suffixes = ("/api/chat",)
    ndjson = True
    streams_by_default = True
    heads_late = True
    default_evidence = ("ollama",)

    def opening(self, answer: Answer) -> Events:
        return ()

    def token(self, answer: Answer, index: int) -> Events:
        token = answer.tokens[index]
        if token.kind is Kind.TOOL_CALL and not token.last:
            return ()
        content = self._content(answer, token.kind, token.text)
        return (Event(_document(answer, False) | content),)

    def closing(self, answer: Answer, evidence: Evidence) -> Events:
        last = _document(answer, True) | self._content(answer, Kind.TEXT, "") | _end(answer)
        return merged([Event(last)], evidence)

    def fault(self, answer: Answer, fault: Fault) -> Events:
        return (Event(self.refusal(500, fault)),)

    def ping(self) -> Event:
        return Event("")

    def whole(self, answer: Answer, evidence: Evidence) -> Json:
        content = self._content(answer, Kind.TEXT, answer.joined(Kind.TEXT))
        for kind in (Kind.REASONING, Kind.TOOL_CALL):
            if answer.has(kind):
                content = _deep_merge(content, self._content(answer, kind, answer.joined(kind)))
        return _document(answer, True) | content | _end(answer) | dict(evidence)

    def refusal(self, status: int, fault: Fault) -> Json:
        return {"error": fault.message}

    def _content(self, answer: Answer, kind: Kind, text: str) -> Json:
        message: Json = {"role": "assistant", "content": ""}
        if kind is Kind.REASONING:
            message["thinking"] = text
        elif kind is Kind.TOOL_CALL:
            function = {"name": answer.tool_name, "arguments": answer.tool_input()}
            message["tool_calls"] = [{"function": function}]
        else:
            message["content"] = text
        return {"message": message}


class OllamaGenerate(OllamaChat):
    """`/api/generate`, which knows no tools."""

    name = "ollama_generate"
    suffixes = ("/api/generate",)

    def _content(self, answer: Answer, kind: Kind, text: str) -> Json:
        return {"response": "", "thinking": text} if kind is Kind.REASONING else {"response": text}


def _document(answer: Answer, done: bool) -> Json:
    return {"model": answer.model, "created_at": CREATED_AT, "done": done}


def _end(answer: Answer) -> Json:
    end: Json = {"done_reason": answer.finish_reason or "stop"}
    if answer.usage:
        end |= {"prompt_eval_count": answer.usage.input, "eval_count": answer.usage.output}
    return end


def _deep_merge(one: Json, other: Json) -> Json:
    if "message" not in one:
        return other | {key: value for key, value in one.items() if value}
    return {"message": other["message"] | {k: v for k, v in one["message"].items() if v}}


ollama_chat = OllamaChat()
ollama_generate = OllamaGenerate()
