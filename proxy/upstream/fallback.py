"""httpcore's transport where ours has no wire: HTTP/2, and forward proxies (HTTP, SOCKS)."""

import asyncio
import importlib.util
import ssl
from collections.abc import AsyncIterable
from types import TracebackType
from typing import Any

import httpx

from proxy.account import Mark, Trace
from proxy.upstream.connection import Sink


def fallback_transport(
    *,
    tls: ssl.SSLContext | None,
    http2: bool,
    forward_proxy: str | None,
    pool_limit: int,
    keepalive_s: float,
) -> httpx.AsyncHTTPTransport:
    """A transport for `http2`, or by way of `forward_proxy`.

    Raises `ImportError` when the extra for one of them is not installed.
    """
    if http2:
        _require("h2", "http2", "HTTP/2")
    proxy = None
    if forward_proxy is not None:
        proxy = httpx.Proxy(forward_proxy)
        if proxy.url.scheme.startswith("socks"):
            _require("socksio", "socks", "a SOCKS proxy")
        elif proxy.url.scheme == "https":
            proxy = httpx.Proxy(forward_proxy, ssl_context=tls)
    return httpx.AsyncHTTPTransport(
        verify=tls if tls is not None else False,
        http2=http2,
        proxy=proxy,
        trust_env=False,
        limits=httpx.Limits(
            max_connections=pool_limit,
            max_keepalive_connections=pool_limit,
            keepalive_expiry=keepalive_s,
        ),
    )


def _require(module: str, extra: str, purpose: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(f"{purpose} needs an extra: pip install 'ttft-proxy[{extra}]'")


class ExactUrl(httpx.URL):
    """An origin with a target that goes out as it stands.

    httpx would normalise the target, and httpcore's own way to give it raw (the `target` extension)
    also replaces what a forward proxy has to be asked.
    """

    def __init__(self, origin: httpx.URL, target: bytes) -> None:
        super().__init__(origin)
        self._target = target

    @property
    def raw_path(self) -> bytes:
        """The target."""
        return self._target


class Connecting:
    """What httpcore leaves undone while it connects, as a context around one request.

    All of connecting is limited to `limit_s` seconds: httpcore does not limit the talk with a SOCKS
    proxy at all. And when it fails, what was opened is closed. Raises `httpx.ConnectTimeout`.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._limit = asyncio.timeout(None)
        self._opened: Any = None

    def begun(self) -> None:
        """A new connection is begun."""
        if self._limit_s is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + self._limit_s)

    def opened(self, stream: Any) -> None:
        """TCP is connected."""
        self._opened = stream

    def over(self) -> None:
        """The connection carries the request."""
        self._opened = None
        self._limit.reschedule(None)

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None and self._opened is not None:
            await self._opened.aclose()
        try:
            await self._limit.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise httpx.ConnectTimeout("") from None


class PacedBody:
    """A response body of httpcore's, read no faster than the sink takes it."""

    def __init__(self, stream: AsyncIterable[bytes], trace: Trace) -> None:
        self._stream = stream
        self._trace = trace
        self._paused: asyncio.Future[None] | None = None
        self._paused_at = 0
        self._paused_ns = 0
        self.first_paused_at: int | None = None

    async def pump(self, sink: Sink) -> None:
        """Hand every piece to `sink`; after it returned false, wait for `resume`."""
        trace = self._trace
        async for piece in self._stream:
            at = trace.clock()
            if piece:
                trace.first(Mark.FIRST_CHUNK, at)
                if not sink(piece, piece, at):
                    await self._pause(at)
        trace.first(Mark.UPSTREAM_RX_END, trace.clock())

    async def _pause(self, at: int) -> None:
        if self.first_paused_at is None:
            self.first_paused_at = at
        self._paused_at = at
        self._paused = asyncio.get_running_loop().create_future()
        try:
            await self._paused
        finally:
            self._paused_ns += self._trace.clock() - at
            self._paused = None

    def resume(self) -> None:
        """Read on."""
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)

    @property
    def read_paused_ns(self) -> int:
        """How long reading was paused, up to now."""
        running = self._trace.clock() - self._paused_at if self._paused is not None else 0
        return self._paused_ns + running
