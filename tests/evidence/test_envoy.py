"""x-envoy-upstream-service-time: one lump."""

from proxy.account import Claim, ClaimKind
from proxy.evidence import ENVOY


def test_milliseconds() -> None:
    """Names in any case."""
    assert ENVOY.from_headers([(b"X-Envoy-Upstream-Service-Time", b"37")]) == (
        Claim("envoy", "x-envoy-upstream-service-time", ClaimKind.LUMP, "37", 37_000),
    )
