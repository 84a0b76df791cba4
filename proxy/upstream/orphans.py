"""HTTP/2 streams that nobody reads any more.

httpcore only forgets a stream that is given up: upstream would go on generating, and what it sends
would use up the connection's window. There is no public way to say it, so this file, and no other,
reaches into httpcore. Should what it needs go away, nothing happens there, and a test fails.
"""
# ruff: noqa: SLF001

import contextlib
from typing import Any

import httpx

_CANCEL = 8
"""RFC 9113, section 7."""
_LIMIT_S = 1.0


async def reset_orphans(transport: httpx.AsyncBaseTransport) -> None:
    """Reset the streams of `transport` that are open and that no call reads."""
    import httpcore  # as httpx does: who does not need it does not pay for it

    for connection in getattr(getattr(transport, "_pool", None), "connections", ()):
        http2: Any = connection
        while hasattr(http2, "_connection"):
            http2 = http2._connection
        streams = getattr(getattr(http2, "_h2_state", None), "streams", {})
        orphans = [n for n, stream in streams.items() if stream.open and n not in http2._events]
        for number in orphans:
            http2._h2_state.reset_stream(number, error_code=_CANCEL)
        if orphans:
            # Best effort: a connection that takes no bytes is not waited for.
            with contextlib.suppress(httpcore.NetworkError, httpcore.TimeoutException):
                limits = {"timeout": {"write": _LIMIT_S}}
                await http2._write_outgoing_data(
                    httpcore.Request("GET", "https://upstream", extensions=limits)
                )
