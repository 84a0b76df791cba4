"""What an evidence adapter is: one source of statements of the upstream about its own time."""

from collections.abc import Sequence
from typing import Protocol

from proxy.account import Claim

RawHeaders = Sequence[tuple[bytes, bytes]]


class EvidenceAdapter(Protocol):
    """One source. Instances are stateless; one per module. No method ever raises.

    `markers` are keys of a JSON object of which at least one is present, at the top, in every
    event that `from_event` can read; an adapter without markers is never asked about events.
    `fields` are header names (lower case) of which one is present where `from_headers` finds
    anything; an adapter without fields is never asked about headers.
    """

    name: str
    markers: tuple[str, ...]
    fields: tuple[bytes, ...]

    def from_headers(self, headers: RawHeaders) -> tuple[Claim, ...]:
        """Claims made by response headers (or trailers), names in any case."""
        ...

    def from_event(self, document: object) -> tuple[Claim, ...]:
        """Claims made by one decoded event, or by a whole decoded response."""
        ...
