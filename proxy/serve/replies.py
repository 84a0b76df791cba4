"""Responses that the proxy makes itself: small, JSON, and marked as its own.

The body has the shape that the OpenAI and Anthropic SDKs print; the header lets a program tell
these from upstream's. Neither quotes a URL, a field or a body.
"""

import msgspec

from proxy.account import Phase
from proxy.serve.exchange import Exchange
from proxy.serve.refusal import Refusal
from proxy.upstream.client import Blame, UpstreamFault

MARKER = b"X-TTFT-Proxy-Error"


def fault_reply(exchange: Exchange, fault: UpstreamFault, phase: Phase) -> int:
    """Tell the client that upstream failed: 504 for a limit reached, else 502."""
    timed_out = fault.blame in (Blame.CONNECT_TIMEOUT, Blame.IDLE_TIMEOUT)
    status, reason = (504, b"Gateway Timeout") if timed_out else (502, b"Bad Gateway")
    return _reply(exchange, status, reason, phase, fault.error, fault.detail)


def limit_reply(exchange: Exchange, phase: Phase) -> int:
    """Tell the client that the proxy's total limit was reached."""
    detail = "the proxy's total time limit was reached"
    return _reply(exchange, 504, b"Gateway Timeout", phase, "TotalLimit", detail)


def refusal_reply(exchange: Exchange, refusal: Refusal) -> int:
    """Tell the client that its request is not relayed."""
    return _reply(
        exchange,
        refusal.status,
        refusal.reason,
        Phase.REQUEST_HEAD,
        refusal.error,
        refusal.detail,
    )


def _reply(
    exchange: Exchange, status: int, reason: bytes, phase: Phase, error: str, detail: str
) -> int:
    message = f"ttft proxy: {detail} (phase: {phase}, error: {error})"
    body = msgspec.json.encode(
        {
            "error": {
                "message": message,
                "type": "ttft_proxy_error",
                "code": error,
                "phase": phase,
            }
        }
    )
    fields = [
        (b"Content-Type", b"application/json"),
        (b"Content-Length", b"%d" % len(body)),
        (MARKER, f"phase={phase}; error={error}".encode("ascii", "replace")),
    ]
    if status == 426:
        fields.append((b"Upgrade", b"HTTP/1.1"))
    exchange.respond(status, reason, fields)
    if exchange.head.method != "HEAD":
        exchange.write(body)
    exchange.finish()
    return status
