"""OpenAI chat completions: chunks, usage on request, [DONE].

Shapes: openai-python `types/chat`. `empty_choices` is Azure's first chunk, which carries the
prompt filter results and no choice. Reasoning fields are those of DeepSeek and vLLM.
"""

from typing import Any

from ._api import (
    CREATED,
    Answer,
    Event,
    Events,
    Evidence,
    Fault,
    Json,
    Kind,
    Payloads,
    Usage,
    error_type,
    merged,
)

DONE = Event("[DONE]")


class OpenAIChat(Payloads):
    """`/chat/completions`."""

    name = "openai_chat"
    suffixes = ("/chat/completions",)
    usage_on_request = True

    def opening(self, answer: Answer) -> Events:
        if answer.opening == "none":
            return ()
        role = self._chunk(answer, {"role": "assistant", "content": ""}, 0)
        if answer.opening != "empty_choices":
            return (role,)
        filters: Json = {"choices": [], "created": 0, "id": "", "model": "", "object": ""}
        filters["prompt_filter_results"] = [{"prompt_index": 0, "content_filter_results": {}}]
        return (Event(filters), role)

    def token(self, answer: Answer, index: int) -> Events:
        token = answer.tokens[index]
        return (
            self._chunk(answer, _delta(answer, token.kind, token.text, token.first), index + 1),
        )

    def closing(self, answer: Answer, evidence: Evidence) -> Events:
        output = len(answer.tokens)
        events = [self._chunk(answer, {}, output, _finish(answer))]
        if answer.usage:
            last = {**_chunk(answer), "choices": [], "usage": usage_json(answer.usage)}
            events.append(Event(last))
        return merged([*events, DONE], evidence)

    def fault(self, answer: Answer, fault: Fault) -> Events:
        named = None if fault.bare or not fault.type else "error"
        event = Event(self.refusal(500, fault), named)
        return (event, DONE) if fault.done else (event,)

    def ping(self) -> Event:
        return Event("ping", comment=True)

    def whole(self, answer: Answer, evidence: Evidence) -> Json:
        message: Json = {"role": "assistant", "content": answer.joined(Kind.TEXT) or None}
        if answer.has(Kind.REASONING):
            message[answer.reasoning_field] = answer.joined(Kind.REASONING)
        if answer.has(Kind.REFUSAL):
            message["refusal"] = answer.joined(Kind.REFUSAL)
        if answer.has(Kind.TOOL_CALL):
            message["tool_calls"] = [_tool_call(answer.tool_name, answer.joined(Kind.TOOL_CALL))]
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
        document: Json = {**_chunk(answer), "object": "chat.completion", "choices": [choice]}
        if answer.usage:
            document["usage"] = usage_json(answer.usage)
        return {**document, **evidence}

    def refusal(self, status: int, fault: Fault) -> Json:
        kind = error_type(status, fault)
        error = {"message": fault.message, "type": kind, "param": None, "code": fault.code}
        return {"error": error}

    def _chunk(self, answer: Answer, delta: Json, output: int, finish: str | None = None) -> Event:
        chunk = _chunk(answer)
        chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": finish}]
        if answer.usage and answer.usage_in_every_event:
            chunk["usage"] = usage_json(answer.usage._replace(output=output))
        return Event(chunk)


def usage_json(usage: Usage) -> Json:
    """Usage in the words of chat and completions."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _chunk(answer: Answer) -> Json:
    return {
        "id": "chatcmpl-sim",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": answer.model,
    }


def _delta(answer: Answer, kind: Kind, text: str, first: bool) -> Json:
    if kind is Kind.TEXT:
        return {"content": text}
    if kind is Kind.REFUSAL:
        return {"refusal": text}
    if kind is Kind.REASONING:
        beside: dict[str, Any] = {"null": {"content": None}, "empty": {"content": ""}}
        return {answer.reasoning_field: text, **beside.get(answer.reasoning_content, {})}
    if first:
        return {"content": None, "tool_calls": [_tool_call(text, "")]}
    return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}


def _tool_call(name: str, arguments: str) -> Json:
    function = {"name": name, "arguments": arguments}
    return {"index": 0, "id": "call_sim", "type": "function", "function": function}


def _finish(answer: Answer) -> str:
    return answer.finish_reason or ("tool_calls" if answer.ends_in_tool_call else "stop")


openai_chat = OpenAIChat()
