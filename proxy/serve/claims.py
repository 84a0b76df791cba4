"""The claims of one response, from its head, its events and its trailers; bounded."""

from collections.abc import Callable
from dataclasses import replace

from proxy.account import Claim, ClaimKind
from proxy.evidence import ADAPTERS, EvidenceAdapter, RawHeaders

CLAIM_LIMIT = 64
"""The most claims that are kept of one response."""

MARKERS = frozenset(marker for adapter in ADAPTERS for marker in adapter.markers)
"""Keys of which at least one is present in every document that makes claims."""
_FIELDS = frozenset(field for adapter in ADAPTERS for field in adapter.fields)
_BY_EVENT = tuple((frozenset(adapter.markers), adapter) for adapter in ADAPTERS)


class Claims:
    """Header lines are kept each; of events that say the same thing again, the last counts."""

    __slots__ = ("_events", "_headers", "faults")

    def __init__(self) -> None:
        self._headers: tuple[Claim, ...] = ()
        self._events: dict[tuple[str, str], Claim] = {}
        self.faults = 0
        """Adapters that failed: their fault, contained."""

    def head(self, headers: RawHeaders) -> None:
        """Read the response head."""
        for adapter in _speaking(headers):
            self._headers += self._ask(adapter, lambda it: it.from_headers(headers))

    def trailers(self, headers: RawHeaders) -> None:
        """Read the trailers. A total there covers the whole response: it is context."""
        for adapter in _speaking(headers):
            for claim in self._ask(adapter, lambda it: it.from_headers(headers)):
                self._headers += (replace(claim, kind=ClaimKind.CONTEXT),)

    def document(self, document: dict[str, object], *, stream: bool) -> None:
        """Read one event, or a whole response, which has no head that could end a queue."""
        for markers, adapter in _BY_EVENT:
            if markers.isdisjoint(document):
                continue
            for claim in self._ask(adapter, lambda it: it.from_event(document)):
                key = (claim.source, claim.name)
                if claim.kind is ClaimKind.QUEUE_ENDS_AT_HEAD and not stream:
                    continue
                if key in self._events or len(self._events) < CLAIM_LIMIT:
                    self._events[key] = claim

    def all(self) -> tuple[Claim, ...]:
        """In order of precedence: what a body says in detail before what header lines say."""
        return (*self._events.values(), *self._headers)[:CLAIM_LIMIT]

    def _ask(
        self, adapter: EvidenceAdapter, question: Callable[[EvidenceAdapter], tuple[Claim, ...]]
    ) -> tuple[Claim, ...]:
        try:
            return question(adapter)
        except Exception:  # one source must not take the others along
            self.faults += 1
            return ()


def _speaking(headers: RawHeaders) -> tuple[EvidenceAdapter, ...]:
    """The adapters that find something in these headers: usually none."""
    names = _FIELDS.intersection([name.lower() for name, _ in headers])
    if not names:
        return ()
    return tuple(adapter for adapter in ADAPTERS if not names.isdisjoint(adapter.fields))
