"""A proxy, wired: configuration to upstream, relay, account and log, in one ASGI application."""

import asyncio
import contextlib
import gc
import itertools
import os
import platform
import secrets
import socket
from collections.abc import AsyncIterator, Callable
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from proxy.account import Clock, Mark
from proxy.record import Record
from proxy.serve.accounting import Service, to_record
from proxy.serve.config import Config
from proxy.serve.decode import warm_up
from proxy.serve.lag import LagMonitor
from proxy.serve.ledger import Ledger
from proxy.serve.observed import Observed
from proxy.serve.protocol import RelayProtocol
from proxy.serve.relay import Relaying, refuse, relay
from proxy.upstream.client import Upstream
from proxy.upstream.connect import Origin, rehearse

BOOKKEEPING_S = 0.01
"""How long after its end a request becomes a record."""


class Proxy:
    """One proxy: the ASGI application, and what belongs to it.

    `emit` takes every finished record; `dropped` tells how many were lost so far. Who stops the
    event loop calls `settle` afterwards, for the records of the last requests. Raises what
    `Upstream` raises for a CA file that cannot be read or an extra that is not installed.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        wall: Clock,
        emit: Callable[[Record], None],
        dropped: Callable[[], int] = lambda: 0,
    ) -> None:
        self.config = config
        self.ledger = Ledger()
        self.lag = LagMonitor(clock, busy=lambda: len(self.ledger) > 0)
        self._clock = clock
        self._emit = emit
        self._dropped = dropped
        self._ended: list[Observed] = []
        self._bookkeeping: asyncio.TimerHandle | None = None
        self._numbers = itertools.count(1)
        self._run = secrets.token_hex(4)
        self._upstream = Upstream(
            Origin(config.upstream.scheme, config.upstream.host, config.upstream.port),
            clock=clock,
            ca_file=config.ca_file,
            verify=not config.insecure,
            forward_proxy=config.forward_proxy.url if config.forward_proxy is not None else None,
            http2=config.http2,
            pool_limit=config.pool_limit,
            keepalive_s=config.keepalive_s,
            connect_timeout=config.connect_timeout_s,
            idle_timeout=config.idle_timeout_s,
        )
        self._service = Service(
            upstream=config.upstream.origin,
            instance=platform.node() or "unknown",
            worker=os.getpid(),
            label=config.label,
            via_proxy=config.forward_proxy is not None,
            thresholds=config.thresholds,
        )
        self._relaying = Relaying(
            config=config,
            upstream=self._upstream,
            clock=clock,
            wall=wall,
            ledger=self.ledger,
            emit=self._on_observed,
        )
        self._starlette = Starlette(lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI: requests go to the relay, everything else to Starlette."""
        if scope["type"] != "http":
            await self._starlette(scope, receive, _unless_cancelled(send))
            return
        exchange = scope["extensions"]["proxy.exchange"]
        refusal = scope["extensions"]["proxy.refusal"]
        if refusal is not None:
            refuse(exchange, refusal, self._relaying)
            return
        self.lag.wake()
        await relay(exchange, self._relaying)

    def server(
        self,
        *,
        on_start: Callable[[], None] = lambda: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> uvicorn.Server:
        """uvicorn with our protocol, adding nothing of its own to any response.

        `on_start` is called when requests are accepted and signals are heard, `on_stop` when the
        first signal to stop arrives.
        """
        config = uvicorn.Config(
            self,
            # uvicorn calls it with keywords, like the class that it stands for.
            http=partial(  # type: ignore[arg-type]
                RelayProtocol, clock=self._clock, max_head=self.config.max_head_bytes
            ),
            ws="none",
            lifespan="on",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            # Fractions of a second are as good: uvicorn hands both to the loop.
            timeout_keep_alive=self.config.client_keepalive_s,  # type: ignore[arg-type]
            timeout_graceful_shutdown=self.config.shutdown_grace_s,  # type: ignore[arg-type]
        )
        return _Server(config, on_start, on_stop)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Any) -> AsyncIterator[None]:
        # Importing the decoders takes 30 ms, which no stream should have to wait for.
        warming = asyncio.get_running_loop().run_in_executor(None, warm_up)
        await rehearse(self._clock)
        # What was imported stays: the collector need not look at it again in every pass.
        gc.collect()
        gc.freeze()
        yield
        self.lag.stop()
        await warming
        await self._upstream.aclose()

    def _on_observed(self, observed: Observed) -> None:
        # A moment later, and several at a time: nobody else's first token waits for bookkeeping,
        # and it costs half as much while code and data are still in the caches.
        self._ended.append(observed)
        if self._bookkeeping is None:
            loop = asyncio.get_running_loop()
            self._bookkeeping = loop.call_later(BOOKKEEPING_S, self.settle)

    def settle(self) -> None:
        """Emit the records of all requests that have ended."""
        if self._bookkeeping is not None:
            self._bookkeeping.cancel()
            self._bookkeeping = None
        ended, self._ended = self._ended, []
        for observed in ended:
            trace = observed.trace
            record = to_record(
                observed,
                self._service,
                request_id=f"{self._run}-{next(self._numbers)}",
                lag_ns=self.lag.worst(trace.start, trace.marks[Mark.END]),
                dropped=self._dropped(),
            )
            self._emit(record)


class _Server(uvicorn.Server):
    """uvicorn's server, telling when it serves and when it is told to stop."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[], None], on_stop: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        first = not self.should_exit
        super().handle_exit(sig, frame)
        if first:
            self._on_stop()


def _unless_cancelled(send: Send) -> Send:
    """Whoever does not wait for the shutdown cancels it: no failure that anybody must read of."""

    async def unless_cancelled(message: Message) -> None:
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            await send(message)

    return unless_cancelled
