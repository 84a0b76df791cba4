"""Requests that are not relayed: why, and with which status."""

from dataclasses import dataclass

import httptools

from proxy.serve.exchange import RequestHead
from proxy.serve.headers import values


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refusal. `error` is a class for the record, `detail` a sentence for the client."""

    status: int
    reason: bytes
    error: str
    detail: str

    @classmethod
    def head_too_large(cls, limit: int) -> "Refusal":
        """RFC 6585 section 5."""
        return cls(
            431,
            b"Request Header Fields Too Large",
            "HeadTooLarge",
            f"the request head is larger than {limit} bytes",
        )


BEHIND_A_BREAK = Refusal(
    503,
    b"Service Unavailable",
    "ConnectionBroken",
    "the response before this one on the same connection broke off",
)
"""For a pipelined request whose turn never comes."""


def refusal_for(error: httptools.HttpParserError) -> Refusal:
    """What the parser does not take: unknown methods are 501, everything else is 400.

    llhttp's reasons are fixed sentences that never quote the input.
    """
    if isinstance(error, httptools.HttpParserInvalidMethodError):
        return Refusal(
            501, b"Not Implemented", "UnknownMethod", "the request method is not known here"
        )
    return Refusal(
        400,
        b"Bad Request",
        "InvalidRequest",
        f"the request is not valid HTTP/1.1 ({error})",
    )


def upgrade_refusal(head: RequestHead) -> Refusal | None:
    """CONNECT is never served, WebSocket not yet; any other upgrade is ignored (None)."""
    if head.method == "CONNECT":
        return Refusal(
            501, b"Not Implemented", "Connect", "this is a reverse proxy: CONNECT is not served"
        )
    if any(value.strip().lower() == b"websocket" for value in values(head.fields, b"upgrade")):
        return Refusal(
            426,
            b"Upgrade Required",
            "WebSocketNotTunnelled",
            "WebSocket is not tunnelled here: use HTTP",
        )
    return None
