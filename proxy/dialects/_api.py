"""What a dialect is: knowledge of one wire format, without a clock or a socket."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class TokenKind(StrEnum):
    """What kind of generated material an event carries."""

    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    REFUSAL = "refusal"
    OTHER = "other"
    """Audio, image and other non-empty generated data."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the upstream states them; None is "not stated"."""

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a request body says about itself; None is "unknown"."""

    model: str | None = None
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What one event, or one whole response, means.

    `token` is set when the event carries generated, non-empty material; `visible` when part of it
    is answer text that the user sees. `terminal` is the event after which the answer is complete.
    `error` is the type of an error that the upstream reports inside a 200. `model` is the model
    that answers, when stated.
    """

    token: TokenKind | None = None
    visible: bool = False
    terminal: bool = False
    usage: Usage | None = None
    error: str | None = None
    model: str | None = None


NOTHING = Observation()
"""An event that means nothing to the account: structure, keep-alive, unknown."""


class Dialect(Protocol):
    """One wire format. Instances are stateless; one per module.

    `document` is a decoded JSON value of any shape: every method answers for any input and never
    raises.
    """

    name: str

    def matches(self, method: str, path: str) -> bool:
        """Whether a request of `method` to `path` (no query, prefix included) speaks this."""
        ...

    def read_request(self, document: object) -> RequestFacts:
        """Model and stream flag of a request body."""
        ...

    def read_event(self, name: bytes, data: bytes, document: object) -> Observation:
        """The meaning of one event of a stream; `document` is None when `data` is not JSON."""
        ...

    def read_response(self, document: object) -> Observation:
        """The meaning of a whole, unstreamed response."""
        ...
