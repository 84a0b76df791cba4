"""httpcore's trace events mapped to our marks, in one table.

httpcore calls its `trace` extension at the start and the end of each step. Its names are not
promised to stay (httpcore docs, "Extensions: trace"), so a test checks every name of this table
against the installed version. DNS is inside `connect_tcp` there: its mark stays absent.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from proxy.account import Mark, Phase, Trace
from proxy.upstream.fallback import Connecting

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

TO_PROXY: dict[str, Mark] = {
    "connection.start_tls.complete": Mark.CONNECT_END,
    "http11.receive_response_headers.complete": Mark.CONNECT_END,
}
"""The same for what is said to a forward proxy: until it has answered, nothing is connected."""


def observer(
    trace: Trace,
    sent: Callable[[], None] | None,
    *,
    forwarded: bool = False,
    connecting: Connecting | None = None,
) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
    """The `trace` extension of one request: stamps `trace`, tells when all is `sent`.

    `forwarded` says that a forward proxy is on the way; `connecting` is told how that goes.
    """
    asking = False

    async def on_event(name: str, info: dict[str, Any]) -> None:
        nonlocal asking
        at = trace.clock()
        # Waiting for a place in the pool emits no event: it ends with the first one.
        trace.first(Mark.POOL_READY, at)
        if name == "http11.send_request_headers.started":
            asking = info["request"].method == b"CONNECT"
        to_proxy = (asking and name.startswith("http11.")) or (
            forwarded and name.startswith("connection.start_tls.")
        )
        step = None if to_proxy else STEPS.get(name)
        mark = (TO_PROXY if to_proxy else MARKS).get(name)
        if step is not None:
            trace.entered = step
        if mark is not None:
            # The last one counts: on the way through a proxy, connecting takes several events.
            trace.last(mark, at)
        if connecting is not None:
            if name.endswith(".connect_tcp.started"):
                connecting.begun()
            elif name.endswith(".connect_tcp.complete"):
                connecting.opened(info["return_value"])
            elif mark is Mark.UPSTREAM_TX_START:
                connecting.over()
        if sent is not None and mark is Mark.UPSTREAM_TX_END:
            sent()

    return on_event
