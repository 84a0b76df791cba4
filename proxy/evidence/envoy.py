"""`x-envoy-upstream-service-time`: an Envoy between here and the model.

Whole milliseconds from the request being complete at Envoy to the response head of the server
behind it, connect and retries included (envoy `source/common/router/router.cc`). Near zero says
nothing when that server sends its head early.
"""

from proxy.account import Claim, ClaimKind
from proxy.evidence._api import RawHeaders
from proxy.evidence._values import header_texts, microseconds, raw_value


class Envoy:
    """One lump in milliseconds."""

    name = "envoy"
    markers: tuple[str, ...] = ()
    fields: tuple[bytes, ...] = (b"x-envoy-upstream-service-time",)

    def from_headers(self, headers: RawHeaders) -> tuple[Claim, ...]:
        """One claim per header line."""
        return tuple(
            Claim(
                source=self.name,
                name="x-envoy-upstream-service-time",
                kind=ClaimKind.LUMP,
                raw=raw_value(text),
                value_us=microseconds(text, 1000),
            )
            for text in header_texts(headers, b"x-envoy-upstream-service-time")
        )

    def from_event(self, document: object) -> tuple[Claim, ...]:
        """Nothing."""
        return ()


ENVOY = Envoy()
