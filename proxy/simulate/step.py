"""The vocabulary of a plan: steps, and what is known when they are due."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from .answer import Timetable
from .evidence import Instants
from .wire import BodyWriter
from .witness import Received

Pieces = tuple[bytes, ...]
"""Events as bytes, before content and transfer coding."""


class Moment(NamedTuple):
    """What is known when a step is due."""

    instants: Instants
    received: Received


Render = Callable[[Moment], Pieces]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Something that is due at `at`, in ns after the complete request.

    The names are those of the timeline: "informational", "head", "opening", "slot", "started",
    "generated", "token", "closing", "error", "comment", "body", "big", "end", "cut".
    """

    at: int
    name: str
    pieces: Pieces = ()
    render: Render | None = None
    """Gives the pieces when they depend on the moment."""
    events: int = 0
    in_body: bool = True
    moves: bool = True
    """Belongs to generation: while the request waits for a slot, the step waits too."""
    raw: bytes = b""
    """Bytes outside the body, ready for the wire."""
    limit: tuple[int, int] | None = None
    """Write so many pieces only, and so many wire bytes of the next."""
    wire: bytes | None = None
    """The bytes for the transport where they are known beforehand; those of steps at the same
    instant leave with the first of them."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """An answer before it is put on the wire."""

    steps: list[Step]
    content_type: str
    head_at: int
    head_moves: bool = True
    document: bool = False
    """One body that is known as a whole when the head leaves."""
    status: int = 200
    length: int | None = None
    """The length of a body that no step holds."""
    needs_slot: bool = False
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one request is answered. The instants are those of a slot that is free at once."""

    steps: tuple[Step, ...]
    times: Timetable
    head: Callable[[Moment | None, int | None], bytes]
    """The response head, given the moment (None when it does not matter) and the body's length."""
    head_needs_moment: bool
    length: int | None
    writer: Callable[[], BodyWriter]
    document: bool = False
    """The head leaves with the body step, because it tells its length."""
    sends_body: bool = True
    ping: bytes = b""
    ping_every: int | None = None
    big: int = 0
    chunked: bool = False
    cut_after_bytes: int | None = None
    cut_how: str = "fin"
    fragment: int | None = None
    fragment_delay: int = 0
    keep_alive: int | None = None
    """ns after which the idle connection is closed."""
    closes: bool = False
