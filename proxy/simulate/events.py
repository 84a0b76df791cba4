"""From events to steps: as SSE or NDJSON text, numbered, with the times they tell. Pure."""

from collections.abc import Callable

import msgspec

from . import evidence
from .answer import Asked
from .evidence import Counts
from .payloads._api import Answer, Event, Events, Evidence
from .script import Script
from .step import Moment, Pieces, Step

_LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}


def written(event: Event, ndjson: bool, line_end: str) -> bytes:
    """One event as bytes, in SSE (WHATWG HTML, section 9.2) or NDJSON."""
    data = event.data if isinstance(event.data, str) else msgspec.json.encode(event.data)
    text = data.encode() if isinstance(data, str) else data
    if ndjson:
        return text + b"\n"
    end = _LINE_ENDS[line_end]
    if event.comment:
        return b": " + text + end + end
    name = b"event: " + event.name.encode() + end if event.name else b""
    return name + b"data: " + text + end + end


class Claims:
    """What the server says about its times in the body."""

    def __init__(self, script: Script, asked: Asked, said: Answer) -> None:
        named = asked.payloads.default_evidence if script.evidence is None else script.evidence
        # vLLM's metrics travel on the usage chunk, so without usage there are none.
        self.sources = [
            source
            for source in named
            if source not in evidence.HEADER_SOURCES and (source != "vllm" or said.usage)
        ]
        output = len(said.tokens) if said.usage is None else said.usage.output
        self._counts = Counts(script.prompt_tokens, script.cached_tokens, output)
        self._override = script.evidence_override

    def at(self, moment: Moment) -> evidence.Json:
        """The members as of this moment."""
        return evidence.members(self.sources, moment.instants, self._counts, self._override)


class EventWriter:
    """Turns events into steps, and numbers them where the format does."""

    def __init__(self, script: Script, asked: Asked, said: Answer) -> None:
        self.claims = Claims(script, asked, said)
        self._ndjson = asked.payloads.ndjson
        self._numbered = asked.payloads.numbered
        self._line_end = script.line_end
        self._next = 0

    def step(
        self, at: int, name: str, make: Callable[[Evidence], Events], *, dynamic: bool = False
    ) -> Step:
        """A step for the events that `make` gives, anew for each moment when `dynamic`."""
        events = make({})
        first = self._next
        self._next += len(events)
        if dynamic:
            return Step(
                at=at,
                name=name,
                render=lambda moment: self._pieces(make(self.claims.at(moment)), first),
                events=len(events),
            )
        return Step(at=at, name=name, pieces=self._pieces(events, first), events=len(events))

    def _pieces(self, events: Events, first: int) -> Pieces:
        if self._numbered:
            events = tuple(_numbered(event, first + k) for k, event in enumerate(events))
        return tuple(written(event, self._ndjson, self._line_end) for event in events)


def _numbered(event: Event, number: int) -> Event:
    if isinstance(event.data, str):
        return event
    return event._replace(data={**event.data, "sequence_number": number})
