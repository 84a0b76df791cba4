"""OpenAI responses: created, in_progress, items with parts and deltas, completed.

Shapes: openai-python `types/responses`. Events are numbered. With the opening "queued" the stream
begins with response.queued, and response.in_progress follows when generation starts.
"""

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
    Token,
    error_type,
)

_PARTS: dict[Kind, Json] = {
    Kind.TEXT: {"type": "output_text", "text": "", "annotations": []},
    Kind.REFUSAL: {"type": "refusal", "refusal": ""},
    Kind.REASONING: {"type": "summary_text", "text": ""},
}
_DELTAS = {
    Kind.TEXT: "response.output_text.delta",
    Kind.REFUSAL: "response.refusal.delta",
    Kind.REASONING: "response.reasoning_summary_text.delta",
    Kind.TOOL_CALL: "response.function_call_arguments.delta",
}


class OpenAIResponses(Payloads):
    """`/responses`."""

    name = "openai_responses"
    suffixes = ("/responses",)
    numbered = True

    def opening(self, answer: Answer) -> Events:
        if answer.opening == "none":
            return ()
        state = "queued" if answer.opening == "queued" else "in_progress"
        response = _response(answer, state)
        created = _event("response.created", response=response)
        return (created, _event(f"response.{state}", response=response))

    def started(self, answer: Answer) -> Events:
        if answer.opening != "queued":
            return ()
        return (_event("response.in_progress", response=_response(answer, "in_progress")),)

    def token(self, answer: Answer, index: int) -> Events:
        token = answer.tokens[index]
        events = list(_item_start(answer, token)) if token.first else []
        if not (token.first and token.kind is Kind.TOOL_CALL):
            place: Json = {"item_id": _item_id(token), "output_index": token.run}
            if token.kind is Kind.REASONING:
                place["summary_index"] = 0
            elif token.kind is not Kind.TOOL_CALL:
                place["content_index"] = 0
            events.append(_event(_DELTAS[token.kind], **place, delta=token.text))
        if token.last:
            events += _item_end(answer, token)
        return tuple(events)

    def closing(self, answer: Answer, evidence: Evidence) -> Events:
        state = "incomplete" if answer.finish_reason in ("length", "max_output_tokens") else None
        response = self.whole(answer, evidence)
        if state:
            response["status"] = state
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        return (_event(f"response.{state or 'completed'}", response=response),)

    def fault(self, answer: Answer, fault: Fault) -> Events:
        if fault.bare:
            error = {"code": fault.code, "message": fault.message, "param": None}
            return (Event({"type": "error", **error}),)
        response = _response(answer, "failed")
        response["error"] = {"code": fault.code or fault.type or "server_error"}
        response["error"]["message"] = fault.message
        return (_event("response.failed", response=response),)

    def ping(self) -> Event:
        return Event({"type": "keepalive"})

    def whole(self, answer: Answer, evidence: Evidence) -> Json:
        response = _response(answer, "completed")
        response["output"] = [_item(answer, token, "") for token in answer.tokens if token.last]
        if answer.usage:
            usage = answer.usage
            response["usage"] = {
                "input_tokens": usage.input,
                "input_tokens_details": {"cached_tokens": usage.cached},
                "output_tokens": usage.output,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.input + usage.output,
            }
        return {**response, **evidence}

    def refusal(self, status: int, fault: Fault) -> Json:
        kind = error_type(status, fault)
        error = {"message": fault.message, "type": kind, "param": None, "code": fault.code}
        return {"error": error}


def _event(name: str, **members: object) -> Event:
    return Event({"type": name, **members}, name)


def _response(answer: Answer, status: str) -> Json:
    return {
        "id": "resp_sim",
        "object": "response",
        "created_at": CREATED,
        "model": answer.model,
        "status": status,
        "error": None,
        "output": [],
        "usage": None,
    }


def _item_start(answer: Answer, token: Token) -> Events:
    item = _item(answer, token, None)
    added = _event("response.output_item.added", output_index=token.run, item=item)
    if token.kind is Kind.TOOL_CALL:
        return (added,)
    place: Json = {"item_id": _item_id(token), "output_index": token.run}
    if token.kind is Kind.REASONING:
        name, place["summary_index"] = "response.reasoning_summary_part.added", 0
    else:
        name, place["content_index"] = "response.content_part.added", 0
    return (added, _event(name, **place, part=_PARTS[token.kind]))


def _item_end(answer: Answer, token: Token) -> Events:
    name, member = {
        Kind.TEXT: ("response.output_text.done", "text"),
        Kind.REFUSAL: ("response.refusal.done", "refusal"),
        Kind.REASONING: ("response.reasoning_summary_text.done", "text"),
        Kind.TOOL_CALL: ("response.function_call_arguments.done", "arguments"),
    }[token.kind]
    text = {member: answer.joined(token.kind)}
    place: Json = {"item_id": _item_id(token), "output_index": token.run}
    item = _item(answer, token, "")
    ended = _event("response.output_item.done", output_index=token.run, item=item)
    return (_event(name, **place, **text), ended)


def _item_id(token: Token) -> str:
    return f"item_{token.run}"


def _item(answer: Answer, token: Token, complete: str | None) -> Json:
    """The item that holds `token`: as it begins, or with its text when `complete` is given."""
    text = "" if complete is None else answer.joined(token.kind)
    status = "in_progress" if complete is None else "completed"
    item: Json = {"id": _item_id(token), "status": status}
    if token.kind is Kind.TOOL_CALL:
        item |= {"type": "function_call", "call_id": "call_sim", "name": answer.tool_name}
        return item | {"arguments": text}
    part = dict(_PARTS[token.kind])
    part["refusal" if token.kind is Kind.REFUSAL else "text"] = text
    parts = [part] if complete is not None else []
    if token.kind is Kind.REASONING:
        return item | {"type": "reasoning", "summary": parts}
    return item | {"type": "message", "role": "assistant", "content": parts}


openai_responses = OpenAIResponses()
