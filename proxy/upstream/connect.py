"""Opening a connection in separately stamped steps: DNS, TCP, TLS."""

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import aiohappyeyeballs
import httpx

from proxy.account import Clock, Mark, Phase, Trace
from proxy.upstream.connection import Connection

HAPPY_EYEBALLS_DELAY = 0.25
"""Seconds before the next address is tried beside a silent one (RFC 8305 section 5)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where to connect: one scheme, host and port."""

    scheme: str
    host: str
    port: int


def tls_context(ca_file: str | None, *, verify: bool = True) -> ssl.SSLContext:
    """TLS for upstream: the system's trust store, and `ca_file` besides.

    `SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured by OpenSSL itself. Raises `OSError` or
    `ssl.SSLError` when `ca_file` cannot be read.
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(cafile=os.fspath(ca_file))
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


async def open_connection(
    origin: Origin,
    trace: Trace,
    *,
    clock: Clock,
    tls: ssl.SSLContext | None,
    connect_timeout: float | None,
    idle_timeout: float | None,
) -> Connection:
    """A new connection to `origin`, its steps stamped into `trace`.

    Several addresses are tried as browsers do (RFC 8305), so that a dead one costs a quarter of a
    second. Raises `httpx.ConnectError` (cause: the operating system's or TLS's error) or
    `httpx.ConnectTimeout`; `trace.entered` then names the step that failed.
    """
    limit = asyncio.timeout(connect_timeout)
    try:
        async with limit:
            return await _open(origin, trace, clock, tls, idle_timeout)
    except (OSError, UnicodeError) as error:
        # The kernel has a timeout of its own, which is an OSError like any other.
        if limit.expired():
            raise httpx.ConnectTimeout(f"not connected within {connect_timeout:g} s") from None
        raise httpx.ConnectError(type(error).__name__) from error


async def rehearse(clock: Clock) -> None:
    """Connect once to ourselves, so that the first request does not pay for first-time work.

    Imports and caches of a first connection take several milliseconds, which the account would
    call network. Does nothing where the loopback interface cannot be used.
    """
    with contextlib.suppress(OSError, httpx.TransportError), socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        connection = await open_connection(
            Origin("http", *listener.getsockname()),
            Trace(clock, clock()),
            clock=clock,
            tls=None,
            connect_timeout=1.0,
            idle_timeout=None,
        )
        connection.close()


async def _open(
    origin: Origin,
    trace: Trace,
    clock: Clock,
    tls: ssl.SSLContext | None,
    idle_timeout: float | None,
) -> Connection:
    loop = asyncio.get_running_loop()

    # 1. DNS, unless the host is an address already.
    addresses = _literal(origin)
    if addresses is None:
        trace.entered = Phase.DNS
        addresses = await loop.getaddrinfo(
            origin.host, origin.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        trace.first(Mark.DNS_END, clock())

    # 2. TCP.
    trace.entered = Phase.TCP
    sock = await aiohappyeyeballs.start_connection(
        addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_DELAY, interleave=1, loop=loop
    )
    trace.first(Mark.CONNECT_END, clock())

    # 3. TLS, on that socket.
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            trace.entered = Phase.TLS
        _, connection = await loop.create_connection(
            lambda: Connection(clock, idle_timeout=idle_timeout),
            sock=sock,
            ssl=tls,
            server_hostname=origin.host if tls is not None else None,
        )
    except BaseException:
        sock.close()
        raise
    if tls is not None:
        trace.first(Mark.TLS_END, clock())
    return connection


def _literal(origin: Origin) -> list[Any] | None:
    try:
        address = ipaddress.ip_address(origin.host)
    except ValueError:
        return None
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    target: tuple[Any, ...] = (origin.host, origin.port)
    if family == socket.AF_INET6:
        target += (0, 0)
    return [(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", target)]
