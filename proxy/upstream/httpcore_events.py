"""httpcore's trace events mapped to our marks, in one table.

httpcore calls its `trace` extension at the start and the end of each step. Its names are not
promised to stay (httpcore docs, "Extensions: trace"), so a test checks every name of this table
against the installed version. DNS is inside `connect_tcp` there: its mark stays absent.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from proxy.account import Mark, Phase, Trace

STEPS: dict[str, Phase] = {
    "connection.connect_tcp.started": Phase.TCP,
    "connection.start_tls.started": Phase.TLS,
    "proxy.start_tls.started": Phase.TLS,
    "socks.connect_tcp.started": Phase.TCP,
    "socks.start_tls.started": Phase.TLS,
    "http11.send_request_headers.started": Phase.SEND,
    "http2.send_request_headers.started": Phase.SEND,
    "http11.receive_response_headers.started": Phase.WAIT,
    "http2.receive_response_headers.started": Phase.WAIT,
}
"""What the request is doing after the event."""

MARKS: dict[str, Mark] = {
    "connection.connect_tcp.complete": Mark.CONNECT_END,
    "connection.start_tls.complete": Mark.TLS_END,
    "proxy.start_tls.complete": Mark.TLS_END,
    "socks.connect_tcp.complete": Mark.CONNECT_END,
    "socks.setup_socks5_connection.complete": Mark.CONNECT_END,
    "socks.start_tls.complete": Mark.TLS_END,
    "http11.send_request_headers.started": Mark.UPSTREAM_TX_START,
    "http2.send_request_headers.started": Mark.UPSTREAM_TX_START,
    "http11.send_request_body.complete": Mark.UPSTREAM_TX_END,
    "http2.send_request_body.complete": Mark.UPSTREAM_TX_END,
    "http11.receive_response_headers.complete": Mark.RESPONSE_HEADERS,
    "http2.receive_response_headers.complete": Mark.RESPONSE_HEADERS,
}
"""The instant that the event stands for."""


def observer(
    trace: Trace, sent: Callable[[], None] | None
) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
    """The `trace` extension of one request: stamps `trace`, tells when all is `sent`."""

    async def on_event(name: str, _info: dict[str, Any]) -> None:
        at = trace.clock()
        # Waiting for a place in the pool emits no event: it ends with the first one.
        trace.first(Mark.POOL_READY, at)
        step = STEPS.get(name)
        if step is not None:
            trace.entered = step
        mark = MARKS.get(name)
        if mark is not None:
            # The last one counts: a CONNECT to a forward proxy goes through the same steps before.
            trace.last(mark, at)
            if mark is Mark.UPSTREAM_TX_END and sent is not None:
                sent()

    return on_event
