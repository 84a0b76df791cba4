"""What the relay sees of upstream: send a request, get a head, pump the body.

The origin's wire is ours (`WireTransport`) unless HTTP/2 or a forward proxy is asked for; then
httpcore's transport stands in and its trace events fill the same marks. That path has no 1xx, no
early replies, no `TCP_INFO`, and frames bodies anew.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from proxy.account import Clock, Mark, Trace
from proxy.upstream.connect import Origin, tls_context
from proxy.upstream.connection import Sink
from proxy.upstream.fallback import (
    Connecting,
    ExactUrl,
    PacedBody,
    fallback_transport,
)
from proxy.upstream.faults import Blame, UpstreamFault, mapped_faults
from proxy.upstream.httpcore_events import observer
from proxy.upstream.kernel import KernelSample
from proxy.upstream.orphans import reset_orphans
from proxy.upstream.transport import RequestBody, Watch, WireBody, WireTransport
from proxy.upstream.wire import Framing, Head

__all__ = [
    "Blame",
    "Call",
    "ConnectionFacts",
    "Fields",
    "ResponseHead",
    "Upstream",
    "UpstreamFault",
]

Fields = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response head, fields as received.

    `wire` says that the sink's first argument carries the chunked coding as upstream wrote it.
    """

    status: int
    reason: bytes
    fields: Fields
    framing: Framing
    wire: bool


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What is known of the connection that carried a request; None is "not known"."""

    reused: bool | None = None
    idle_ns: int | None = None
    http_version: str | None = None
    address: str | None = None
    local_port: int | None = None
    family: str | None = None
    kernel_before: KernelSample | None = None
    kernel_when_sent: KernelSample | None = None
    """Only of a request larger than the initial window."""
    kernel_at_head: KernelSample | None = None
    kernel_at_end: KernelSample | None = None
    read_paused_ns: int = 0
    first_paused_at: int | None = None


class Upstream:
    """One upstream origin.

    `http2` and `forward_proxy` (an http, https, socks5 or socks5h URL) use httpcore's transport.
    Raises `ImportError` when the extra for one of them is not installed, `OSError` or
    `ssl.SSLError` when the CA file cannot be read.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        clock: Clock,
        ca_file: str | None = None,
        verify: bool = True,
        forward_proxy: str | None = None,
        http2: bool = False,
        pool_limit: int = 1000,
        keepalive_s: float = 55.0,
        connect_timeout: float | None = 10.0,
        idle_timeout: float | None = None,
    ) -> None:
        secure = origin.scheme == "https"
        tls = tls_context(ca_file, verify=verify) if secure or forward_proxy else None
        self.url = httpx.URL(scheme=origin.scheme, host=origin.host, port=origin.port)
        self.native = not (http2 or forward_proxy)
        self.forwarded = forward_proxy is not None
        self.http2 = http2
        self.connect_timeout = connect_timeout
        # Who waits for a place in the pool waits for us, not for upstream.
        self.timeouts = httpx.Timeout(idle_timeout, connect=connect_timeout, pool=None).as_dict()
        self.transport: httpx.AsyncBaseTransport
        if self.native:
            self.transport = WireTransport(
                origin,
                clock=clock,
                tls=tls if secure else None,
                pool_limit=pool_limit,
                keepalive_s=keepalive_s,
                connect_timeout=connect_timeout,
                idle_timeout=idle_timeout,
            )
        else:
            self.transport = fallback_transport(
                tls=tls,
                http2=http2,
                forward_proxy=forward_proxy,
                pool_limit=pool_limit,
                keepalive_s=keepalive_s,
            )

    async def aclose(self) -> None:
        """Close idle connections."""
        await self.transport.aclose()


class Call:
    """One request to upstream, from before it is sent until after its end.

    The order of use: `send`, `pump`, `aclose`; `facts` at any time.
    """

    def __init__(
        self,
        upstream: Upstream,
        trace: Trace,
        *,
        informational: Callable[[Head], None] | None = None,
        sent: Callable[[], None] | None = None,
    ) -> None:
        self._upstream = upstream
        self._trace = trace
        self._watch = Watch(trace, informational, sent, self._carried)
        self._stream: WireBody | None = None
        self._paced: PacedBody | None = None
        self._response: httpx.Response | None = None
        self._http_version: str | None = None
        self._facts: ConnectionFacts | None = None

    def _carried(self, stream: WireBody) -> None:
        self._stream = stream

    async def send(
        self, method: str, target: bytes, fields: Fields, body: RequestBody
    ) -> ResponseHead:
        """Send a request as it stands and return with the response head.

        Raises `UpstreamFault`; the trace's `phase` then names the step that failed.
        """
        request = httpx.Request(method, self._upstream.url, headers=fields, stream=body)
        with self._faults():
            if self._upstream.native:
                request.extensions = {"target": target, "watch": self._watch}
                response = await self._upstream.transport.handle_async_request(request)
            else:
                request.url = ExactUrl(self._upstream.url, target)
                response = await self._fall_back(request)
        self._response = response
        self._trace.first(Mark.RESPONSE_HEADERS, self._trace.clock())
        version = bytes(response.extensions["http_version"]).removeprefix(b"HTTP/")
        self._http_version = version.decode("ascii", "replace")
        return ResponseHead(
            status=response.status_code,
            reason=response.extensions.get("reason_phrase", b""),
            fields=list(response.headers.raw),
            framing=self._framing(method, response),
            wire=self._stream is not None,
        )

    async def _fall_back(self, request: httpx.Request) -> httpx.Response:
        upstream = self._upstream
        connecting = Connecting(upstream.connect_timeout)
        request.extensions = {
            "timeout": upstream.timeouts,
            "trace": observer(
                self._trace,
                self._watch.sent,
                forwarded=upstream.forwarded,
                connecting=connecting,
            ),
        }
        async with connecting:
            response = await upstream.transport.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self._paced = PacedBody(response.stream, self._trace)
        return response

    def _faults(self) -> mapped_faults:
        upstream = self._upstream
        return mapped_faults(self._trace, own_wire=upstream.native, forwarded=upstream.forwarded)

    def _framing(self, method: str, response: httpx.Response) -> Framing:
        if self._stream is not None:
            return self._stream.framing[0]
        if method == "HEAD" or response.status_code in (204, 304):
            return Framing.NONE
        return Framing.LENGTH if "content-length" in response.headers else Framing.EOF

    async def pump(self, sink: Sink) -> None:
        """Hand every read to `sink` where it arrives; return when the body is complete.

        Raises `UpstreamFault` when it breaks off.
        """
        body = self._stream or self._paced
        assert body is not None
        with self._faults():
            await body.pump(sink)

    def resume(self) -> None:
        """Read on after the sink asked for a pause."""
        body = self._stream or self._paced
        if body is not None:
            body.resume()

    @property
    def trailers(self) -> Fields:
        """Trailer fields of a complete body, until `aclose`."""
        return self._stream.trailers if self._stream is not None else []

    def facts(self) -> ConnectionFacts:
        """What is known of the connection, now or, after `aclose`, when it ended."""
        if self._facts is not None:
            return self._facts
        if self._stream is not None:
            return _wire_facts(self._stream, self._http_version)
        if self._paced is not None:
            return ConnectionFacts(
                http_version=self._http_version,
                read_paused_ns=self._paced.read_paused_ns,
                first_paused_at=self._paced.first_paused_at,
            )
        return ConnectionFacts()

    async def aclose(self) -> None:
        """End the exchange; keep the connection when both sides are through with it."""
        self._facts = self.facts()
        if self._stream is not None:
            await self._stream.aclose()
            return
        if self._response is not None:
            await self._response.aclose()
        if self._upstream.http2 and Mark.UPSTREAM_RX_END not in self._trace.marks:
            await reset_orphans(self._upstream.transport)


def _wire_facts(stream: WireBody, http_version: str | None) -> ConnectionFacts:
    connection = stream.connection
    address, port, family = _names(connection.peer, connection.local)
    return ConnectionFacts(
        reused=stream.reused,
        idle_ns=stream.idle_ns,
        http_version=http_version,
        address=address,
        local_port=port,
        family=family,
        kernel_before=stream.kernel_before,
        kernel_when_sent=connection.sample_when_sent,
        kernel_at_head=stream.kernel_at_head,
        kernel_at_end=connection.sample(),
        read_paused_ns=connection.read_paused_ns,
        first_paused_at=connection.first_paused_at,
    )


def _names(peer: Any, local: Any) -> tuple[str | None, int | None, str | None]:
    if not peer:
        return None, None, None
    host, port = peer[0], peer[1]
    v6 = ":" in host
    return (
        f"[{host}]:{port}" if v6 else f"{host}:{port}",
        local[1] if local else None,
        "ipv6" if v6 else "ipv4",
    )
