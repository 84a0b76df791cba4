"""Anthropic messages: message_start, content blocks with deltas, message_delta, message_stop.

Shapes: the streaming page of Anthropic's documentation and anthropic-sdk-python `types`. The name
of a tool arrives in its `content_block_start`.
"""

from ._api import (
    Answer,
    Event,
    Events,
    Evidence,
    Fault,
    Json,
    Kind,
    Payloads,
    Token,
    Usage,
    error_type,
    merged,
)

_BLOCKS: dict[Kind, Json] = {
    Kind.TEXT: {"type": "text", "text": ""},
    Kind.REFUSAL: {"type": "text", "text": ""},
    Kind.REASONING: {"type": "thinking", "thinking": "", "signature": ""},
}
_DELTAS = {
    Kind.TEXT: ("text_delta", "text"),
    Kind.REFUSAL: ("text_delta", "text"),
    Kind.REASONING: ("thinking_delta", "thinking"),
    Kind.TOOL_CALL: ("input_json_delta", "partial_json"),
}


class AnthropicMessages(Payloads):
    """`/messages`."""

    name = "anthropic_messages"
    suffixes = ("/messages",)

    def opening(self, answer: Answer) -> Events:
        if answer.opening == "none":
            return ()
        message = _message(answer, [], None)
        if answer.usage:
            message["usage"] = {**_input_usage(answer.usage), "output_tokens": 1}
        events = [_event("message_start", message=message)]
        if _opens_early(answer):
            events += [_start(answer, answer.tokens[0]), self.ping()]
        return tuple(events)

    def token(self, answer: Answer, index: int) -> Events:
        token = answer.tokens[index]
        events = []
        if token.first and not (index == 0 and _opens_early(answer)):
            events.append(_start(answer, token))
        if not (token.first and token.kind is Kind.TOOL_CALL):
            kind, member = _DELTAS[token.kind]
            delta = {"type": kind, member: token.text}
            events.append(_event("content_block_delta", index=token.run, delta=delta))
        if token.last:
            events.append(_event("content_block_stop", index=token.run))
        return tuple(events)

    def closing(self, answer: Answer, evidence: Evidence) -> Events:
        delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
        usage = {} if answer.usage is None else {"usage": _usage(answer.usage)}
        events = [_event("message_delta", delta=delta, **usage), _event("message_stop")]
        return merged(events, evidence)

    def fault(self, answer: Answer, fault: Fault) -> Events:
        event = Event(self.refusal(529, fault), None if fault.bare else "error")
        return (event, _event("message_stop")) if fault.done else (event,)

    def ping(self) -> Event:
        return _event("ping")

    def whole(self, answer: Answer, evidence: Evidence) -> Json:
        blocks: list[Json] = []
        for token in answer.tokens:
            if token.first:
                blocks.append(_block(answer, token))
            block = blocks[-1]
            if block["type"] == "tool_use":
                block["input"] = answer.tool_input()
            else:
                block[_DELTAS[token.kind][1]] += token.text
        document = _message(answer, blocks, _stop_reason(answer))
        if answer.usage:
            document["usage"] = _usage(answer.usage)
        return {**document, **evidence}

    def refusal(self, status: int, fault: Fault) -> Json:
        kind = fault.type or ("api_error" if status == 500 else error_type(status, fault))
        return {"type": "error", "error": {"type": kind, "message": fault.message}}


def _event(name: str, **members: object) -> Event:
    return Event({"type": name, **members}, name)


def _opens_early(answer: Answer) -> bool:
    """The first block starts with the message, unless its start already is generated material."""
    tokens = answer.tokens
    return answer.opening != "none" and bool(tokens) and tokens[0].kind is not Kind.TOOL_CALL


def _start(answer: Answer, token: Token) -> Event:
    return _event("content_block_start", index=token.run, content_block=_block(answer, token))


def _block(answer: Answer, token: Token) -> Json:
    if token.kind is Kind.TOOL_CALL:
        return {"type": "tool_use", "id": "toolu_sim", "name": answer.tool_name, "input": {}}
    return dict(_BLOCKS[token.kind])


def _message(answer: Answer, content: list[Json], stop_reason: str | None) -> Json:
    return {
        "id": "msg_sim",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }


def _stop_reason(answer: Answer) -> str:
    return answer.finish_reason or ("tool_use" if answer.ends_in_tool_call else "end_turn")


def _input_usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
    }


def _usage(usage: Usage) -> Json:
    return {**_input_usage(usage), "output_tokens": usage.output}


anthropic_messages = AnthropicMessages()
