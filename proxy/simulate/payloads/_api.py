"""What a payload writer is: the events and documents of one wire format. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

Json = dict[str, Any]

CREATED = 1_700_000_000
"""Every answer was created at this instant: payloads hold no clock, so they can be cached."""


class Kind(StrEnum):
    """What a token is part of."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    REFUSAL = "refusal"


class Token(NamedTuple):
    """One piece of generated material; the first token of a tool call is its name.

    `run` counts the stretches of one kind; `first` and `last` are true at the ends of a run.
    """

    kind: Kind
    text: str
    run: int = 0
    first: bool = True
    last: bool = True


class Usage(NamedTuple):
    """Token counts that the answer states."""

    input: int
    cached: int
    output: int
    reasoning: int


class Fault(NamedTuple):
    """An error, in the words of the script; a `type` of None leaves it to the dialect."""

    type: str | None
    message: str
    code: str | None = None
    bare: bool = False
    """Written without the `event:` line."""
    done: bool = False
    """Followed by the end marker of the dialect."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says in answer to one request."""

    model: str
    tokens: tuple[Token, ...]
    usage: Usage | None
    usage_in_every_event: bool = False
    opening: str = "standard"
    finish_reason: str | None = None
    tool_name: str = "get_weather"
    reasoning_field: str = "reasoning_content"
    reasoning_content: str = "absent"
    """The `content` beside a reasoning delta: "null", "empty" or "absent"."""

    def joined(self, kind: Kind) -> str:
        """All text of one kind; for tool calls the arguments without the name."""
        return "".join(
            token.text
            for token in self.tokens
            if token.kind is kind and not (kind is Kind.TOOL_CALL and token.first)
        )

    def tool_input(self) -> object:
        """The arguments of the tool call as a value, where they are JSON."""
        text = self.joined(Kind.TOOL_CALL)
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return {"arguments": text}

    def has(self, kind: Kind) -> bool:
        """Whether the answer has material of this kind."""
        return any(token.kind is kind for token in self.tokens)

    @property
    def ends_in_tool_call(self) -> bool:
        """Whether the model stopped in order to have a tool called."""
        return bool(self.tokens) and self.tokens[-1].kind is Kind.TOOL_CALL


class Event(NamedTuple):
    """One event: a JSON object, or text such as [DONE]; `name` is the SSE event type."""

    data: Json | str
    name: str | None = None
    comment: bool = False


Events = tuple[Event, ...]
Evidence = Mapping[str, object]
"""Members of the last JSON object that carry the server's own times."""


class Payloads(Protocol):
    """One wire format; the members with a value here are what most formats do.

    Instances are stateless; one per module.
    """

    name: str
    suffixes: tuple[str, ...]
    """The ends of the paths that speak it."""
    ndjson: bool = False
    """NDJSON instead of SSE."""
    streams_by_default: bool = False
    heads_late: bool = False
    """The real server sends its response head with the first token."""
    default_evidence: tuple[str, ...] = ()
    usage_on_request: bool = False
    """A stream states its usage only when `stream_options.include_usage` asks for it."""
    numbered: bool = False
    """Events carry a running `sequence_number`."""

    def started(self, answer: Answer) -> Events:
        """What tells that queueing has ended."""
        return ()

    def opening(self, answer: Answer) -> Events:
        """Structural events before the first token."""
        ...

    def token(self, answer: Answer, index: int) -> Events:
        """The events of one token, with the structure around it."""
        ...

    def closing(self, answer: Answer, evidence: Evidence) -> Events:
        """The events after the last token, the end marker included."""
        ...

    def fault(self, answer: Answer, fault: Fault) -> Events:
        """An error inside a stream."""
        ...

    def ping(self) -> Event:
        """What this format sends to keep an idle stream alive."""
        ...

    def whole(self, answer: Answer, evidence: Evidence) -> Json:
        """The answer as one document."""
        ...

    def refusal(self, status: int, fault: Fault) -> Json:
        """The body of an error status."""
        ...


def merged(events: list[Event], evidence: Evidence) -> Events:
    """`events` with `evidence` added to the last JSON object among them."""
    if evidence:
        for index in range(len(events) - 1, -1, -1):
            event = events[index]
            if isinstance(event.data, dict):
                events[index] = event._replace(data={**event.data, **evidence})
                break
    return tuple(events)


ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def error_type(status: int, fault: Fault) -> str:
    """The type of an error: as scripted, or what vendors call this status."""
    return fault.type or ERROR_TYPES.get(status, "server_error")
