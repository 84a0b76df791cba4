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
    """Token counts as the upstream states them; None is "not stated".

    `input` is the whole prompt, cached share included; `output` includes `reasoning`.
    """

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    reasoning: int | None = None

    def merged(self, later: "Usage") -> "Usage":
        """This statement brought up to date by a later one of the same response.

        The last value of a field wins. Prompt counts never shrink, though: a last statement that
        leaves out the cache share would otherwise hide it.
        """
        return Usage(
            input=_larger(self.input, later.input),
            cached=_larger(self.cached, later.cached),
            output=self.output if later.output is None else later.output,
            reasoning=self.reasoning if later.reasoning is None else later.reasoning,
        )


def _larger(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a request body says about itself; None is "unknown"."""

    model: str | None = None
    stream: bool | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """What one event, or one whole response, means.

    `token` is set when the event carries generated, non-empty material; `visible` when part of it
    is answer text that the user sees; `repeats` when the format sends that material only after it
    was streamed piece by piece, so that it is a token only if nothing came before. `finished` says
    that the answer has its finish reason; `terminal` that this is the event after which the answer
    is complete. `error` is the type of an error that the upstream reports inside a 200. `model` is
    the model that answers, when stated.
    """

    token: TokenKind | None = None
    visible: bool = False
    repeats: bool = False
    finished: bool = False
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

    def read_oversize(self, name: bytes) -> Observation | None:
        """The meaning of an event that was too large to keep; None when its name does not say."""
        ...

    def read_response(self, document: object) -> Observation:
        """The meaning of a whole, unstreamed response."""
        ...
