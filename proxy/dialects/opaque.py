"""Everything else: forwarded and timed as bytes, never a token."""

from proxy.dialects._api import NOTHING, Observation, RequestFacts


class Opaque:
    """The fallback: it matches every request and knows nothing about any."""

    name = "opaque"

    def matches(self, method: str, path: str) -> bool:
        """Always."""
        return True

    def read_request(self, document: object) -> RequestFacts:
        """Nothing."""
        return RequestFacts()

    def read_event(self, name: bytes, data: bytes, document: object) -> Observation:
        """Nothing."""
        return NOTHING

    def read_oversize(self, name: bytes) -> Observation | None:
        """Nothing."""
        return NOTHING

    def read_response(self, document: object) -> Observation:
        """Nothing."""
        return NOTHING


OPAQUE = Opaque()
