"""What the relay sees of upstream: send a request, get a head, pump the body.

The origin's wire is ours (`WireTransport`) unless HTTP/2 or a forward proxy is asked for; then
httpcore's transport stands in and its trace events fill the same marks. That path has no 1xx, no
early replies, no `TCP_INFO`, and frames bodies anew.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import httpx

from proxy.account import Clock, Mark, Trace
from proxy.upstream.connect import Origin, tls_context
from proxy.upstream.connection import Sink
from proxy.upstream.httpcore_events import observer
from proxy.upstream.kernel import KernelSample
from proxy.upstream.transport import RequestBody, Watch, WireBody, WireTransport
from proxy.upstream.wire import Framing, Head

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


class Blame(Enum):
    """Which promise the upstream, or the way to it, broke."""

    UNREACHABLE = "unreachable"
    """No response head: DNS, TCP, TLS, or the connection died before it."""
    ABORTED = "aborted"
    """The response broke off after its head."""
    CONNECT_TIMEOUT = "connect_timeout"
    IDLE_TIMEOUT = "idle_timeout"


class UpstreamFault(Exception):  # noqa: N818  # a fault of the upstream, not an error of ours
    """The upstream did not keep its side. `error` names the class, `detail` says it in words.

    Neither ever quotes bytes, addresses or URLs.
    """

    def __init__(self, blame: Blame, error: str, detail: str) -> None:
        super().__init__(f"{error}: {detail}")
        self.blame = blame
        self.error = error
        self.detail = detail


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
        self.timeouts = httpx.Timeout(idle_timeout, connect=connect_timeout).as_dict()
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
            self.transport = httpx.AsyncHTTPTransport(
                verify=tls if tls is not None else False,
                http2=http2,
                proxy=forward_proxy,
                trust_env=False,
                limits=httpx.Limits(
                    max_connections=pool_limit,
                    max_keepalive_connections=pool_limit,
                    keepalive_expiry=keepalive_s,
                ),
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
        extensions: dict[str, Any] = {"target": target, "watch": self._watch}
        if not self._upstream.native:
            extensions["trace"] = observer(self._trace, self._watch.sent)
            extensions["timeout"] = self._upstream.timeouts
        request = httpx.Request(
            method, self._upstream.url, headers=fields, stream=body, extensions=extensions
        )
        with _faults(self._trace):
            response = await self._upstream.transport.handle_async_request(request)
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
        assert self._response is not None
        trace = self._trace
        with _faults(trace):
            if self._stream is not None:
                await self._stream.pump(sink)
                return
            async for piece in self._response.stream:  # type: ignore[union-attr] # it is async
                at = trace.clock()
                if piece:
                    trace.first(Mark.FIRST_CHUNK, at)
                    sink(piece, piece, at)
            trace.first(Mark.UPSTREAM_RX_END, trace.clock())

    def resume(self) -> None:
        """Read on after the sink asked for a pause."""
        if self._stream is not None:
            self._stream.resume()

    @property
    def trailers(self) -> Fields:
        """Trailer fields of a complete body."""
        return self._stream.trailers if self._stream is not None else []

    def facts(self) -> ConnectionFacts:
        """What is known of the connection, now or, after `aclose`, when it ended."""
        if self._facts is not None:
            return self._facts
        if self._stream is None:
            return ConnectionFacts(http_version=self._http_version)
        return _wire_facts(self._stream, self._http_version)

    async def aclose(self) -> None:
        """End the exchange; keep the connection when both sides are through with it."""
        self._facts = self.facts()
        if self._stream is not None:
            await self._stream.aclose()
        elif self._response is not None:
            await self._response.aclose()


class _faults(contextlib.AbstractContextManager[None]):  # noqa: N801  # reads as a function
    """Maps httpx's exceptions to `UpstreamFault`, once, where foreign code is called."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def __exit__(self, _kind: object, error: BaseException | None, _tb: object) -> None:
        if not isinstance(error, httpx.TransportError):
            return
        root: BaseException = error
        while root.__cause__ is not None:
            root = root.__cause__
        name = type(error).__name__
        if root is not error:
            name = f"{name}({type(root).__name__})"
        if isinstance(error, httpx.ConnectTimeout):
            blame = Blame.CONNECT_TIMEOUT
        elif isinstance(error, httpx.TimeoutException):
            blame = Blame.IDLE_TIMEOUT
        elif Mark.RESPONSE_HEADERS in self._trace.marks:
            blame = Blame.ABORTED
        else:
            blame = Blame.UNREACHABLE
        raise UpstreamFault(blame, name, _in_words(error, root)) from error


def _in_words(error: httpx.TransportError, root: BaseException) -> str:
    """What happened, without quoting anything that was sent, received or configured."""
    if isinstance(root, ssl.SSLCertVerificationError):
        return f"certificate not trusted: {root.verify_message or 'verification failed'}"
    if isinstance(root, ssl.SSLError):
        return f"TLS failed: {root.reason or type(root).__name__}"
    if isinstance(root, socket.gaierror):
        return f"name not resolved: {root.strerror or type(root).__name__}"
    if isinstance(root, httpx.ProxyError) or isinstance(error, httpx.ProxyError):
        return "proxy connect failed: the forward proxy refused"
    if isinstance(root, OSError) and root.strerror:
        return root.strerror
    return str(error) or type(root).__name__


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
