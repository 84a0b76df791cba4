"""One request, from its head to its record, top to bottom.

Rules of this file:

1. Forward first, look afterwards. Nothing that only observes may delay or change a byte.
2. A broken upstream ends broken at the client. Nothing is retried, repaired or politely finished.
3. However it ends, it is exactly one record.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from proxy.account import Clock, Mark, Phase, Trace
from proxy.record import EndedBy, Outcome
from proxy.serve import ending, replies
from proxy.serve.config import Config, join
from proxy.serve.ending import Ending
from proxy.serve.exchange import Exchange
from proxy.serve.headers import for_client, for_upstream
from proxy.serve.ledger import Ledger
from proxy.serve.observed import Observed
from proxy.serve.reframe import Reframe, choose, encode, fields_for, last_bytes
from proxy.serve.refusal import Refusal
from proxy.serve.tap import LATE_READS, SMALL_READ, Tap
from proxy.upstream.client import Call, Upstream, UpstreamFault
from proxy.upstream.transport import RequestBody
from proxy.upstream.wire import Head

CONTINUE_AFTER_S = 1.0
"""How long `Expect: 100-continue` waits for upstream's word (RFC 9110, section 10.1.1)."""
DRAIN_S = 1.0
"""How long a finished answer is read on after its client left, so that the connection is kept."""


@dataclass(frozen=True, slots=True)
class Relaying:
    """What every request needs: where to, by which rules, and who writes it down."""

    config: Config
    upstream: Upstream
    clock: Clock
    wall: Clock
    """Wall clock in nanoseconds: read once a request, for people."""
    ledger: Ledger
    emit: Callable[[Observed], None]


async def relay(exchange: Exchange, proxy: Relaying) -> None:
    """Relay one request and emit one `Observed`, whatever happens."""
    head, config, clock = exchange.head, proxy.config, proxy.clock
    trace = Trace(clock, head.started)
    joined = join(config.upstream, head.target, tags=config.tags)
    observed = Observed(exchange, trace, joined, proxy.wall() - (clock() - head.started))
    tap = observed.tap = Tap(head.method, observed.path, trace=trace, request_headers=head.fields)
    call = Call(
        proxy.upstream,
        trace,
        informational=lambda interim: _pass_on(exchange, interim),
        sent=tap.request_complete,
    )
    observed.inflight = proxy.ledger.enter(observed)
    stop = _Stop(exchange, tap, config.total_timeout_s)
    ended: int | None = None

    try:
        # 1. Send the request as it is: same target, same fields but hop-by-hop ones and Host.
        stop.watch()
        response = await call.send(
            head.method,
            joined.target,
            for_upstream(head.fields, config.upstream.authority, config.upstream.authorization),
            _Upload(exchange, tap),
        )

        # 2. Pass status and fields on, with the framing that upstream chose.
        framed = choose(response.framing, head.version, wire=response.wire)
        if framed is Reframe.UNTIL_CLOSE:
            exchange.close_after()
        observed.status = response.status
        exchange.respond(
            response.status,
            response.reason,
            fields_for(response.fields, response.framing, framed),
        )
        observed.response_fields = response.fields
        tap.response_head(response.status, response.fields)

        # 3. Pass the body on: each read is written at once, and only then looked at.
        as_read, late = framed is Reframe.AS_READ, tap.late

        def forward(wire: bytes, payload: bytes, at: int) -> bool:
            if exchange.gone:
                # Read on only so that the connection is kept: no longer part of the request.
                return True
            writable = exchange.write(wire if as_read else encode(framed, payload))
            if observed.relay_delay_ns is None:
                written = clock()
                tap.feed(payload, at)
                if Mark.FIRST_TOKEN in trace.marks:
                    observed.relay_delay_ns = written - at
            else:
                late.append((payload, at))
                if len(late) >= LATE_READS or len(payload) > SMALL_READ:
                    tap.catch_up()
            return writable

        exchange.on_writable = call.resume
        await call.pump(forward)
        stop.ignore()

        # 4. End it as upstream did.
        exchange.write(last_bytes(framed, call.trailers))
        exchange.finish()
        ended = clock()
        tap.trailers(call.trailers)
        tap.close()
        observed.ending = ending.of_response(
            response.status, tap.facts(), trace.phase, client_left=exchange.gone
        )
    except UpstreamFault as fault:
        stop.ignore()
        observed.ending = ending.of_fault(fault, trace.phase)
        if exchange.responded:
            exchange.break_off(reset=framed is Reframe.UNTIL_CLOSE)
        else:
            observed.status = replies.fault_reply(exchange, fault, trace.phase)
    except asyncio.CancelledError:
        stop.ignore()
        observed.ending = stop.ending(trace)
        if not exchange.gone:
            observed.status = stop.answer(trace, observed.status)
        if observed.ending.outcome is Outcome.PROXY_SHUTDOWN:
            raise
    except Exception as error:
        stop.ignore()
        observed.ending = Ending(
            Outcome.PROXY_ERROR, EndedBy.PROXY, trace.phase, type(error).__name__
        )
        exchange.break_off()
        raise
    finally:
        # 5. However it ended, it is one record.
        ended = exchange.left_at or ended or clock()
        if exchange.request_complete:
            # What upstream never took still says which model was asked for.
            tap.request_body(exchange.ready_body() or b"")
            tap.request_complete()
        tap.close()
        trace.end(ended)
        try:
            await call.aclose()
        finally:
            observed.connection = call.facts()
            proxy.ledger.leave(observed)
            proxy.emit(observed)


def refuse(exchange: Exchange, refusal: Refusal, proxy: Relaying) -> None:
    """Answer a request that is not relayed, and emit its `Observed`."""
    trace = Trace(proxy.clock, exchange.head.started)
    trace.entered = Phase.REQUEST_HEAD
    target = join(proxy.config.upstream, exchange.head.target, tags=proxy.config.tags)
    waited = proxy.clock() - exchange.head.started
    observed = Observed(exchange, trace, target, proxy.wall() - waited)
    observed.inflight = len(proxy.ledger)
    observed.ending = Ending(Outcome.BAD_REQUEST, EndedBy.PROXY, Phase.REQUEST_HEAD, refusal.error)
    if not exchange.gone:
        observed.status = replies.refusal_reply(exchange, refusal)
    trace.end(exchange.left_at if exchange.left_at is not None else proxy.clock())
    proxy.emit(observed)


class _Upload(RequestBody):
    """The client's body on its way to upstream; the tap gets what has been handed on."""

    def __init__(self, exchange: Exchange, tap: Tap) -> None:
        self._exchange = exchange
        self._tap = tap

    def ready(self) -> bytes | None:
        whole = self._exchange.ready_body()
        if whole:
            self._tap.request_body(whole)
        return whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (part := await self._exchange.next_part()) is not None:
            yield part
            self._tap.request_body(part)

    @property
    def trailers(self) -> list[tuple[bytes, bytes]]:
        return self._exchange.trailers


def _pass_on(exchange: Exchange, interim: Head) -> None:
    fields = for_client(interim.fields, keep_length=True, keep_coding=False)
    exchange.inform(interim.status, interim.reason, fields)


class _Stop:
    """What can stop a relay from outside: its client leaves or breaks off, a limit, a shutdown."""

    def __init__(self, exchange: Exchange, tap: Tap, total_s: float | None) -> None:
        self._exchange = exchange
        self._tap = tap
        self._total_s = total_s
        self._limit_reached = False
        self._timers: list[asyncio.TimerHandle] = []
        task = asyncio.current_task()
        assert task is not None
        self._task = task

    def watch(self) -> None:
        """From now on, stop when there is a reason."""
        loop = asyncio.get_running_loop()
        self._exchange.on_gone = self._client_gone
        if self._exchange.gone or self._exchange.broken:
            raise asyncio.CancelledError
        if self._total_s is not None:
            self._timers.append(loop.call_later(self._total_s, self._limit))
        if self._exchange.head.expects_continue:
            self._timers.append(loop.call_later(CONTINUE_AFTER_S, self._exchange.continue_anyway))

    def ignore(self) -> None:
        """The ending is settled: nothing stops it any more."""
        self._exchange.on_gone = None
        self._exchange.on_writable = None
        for timer in self._timers:
            timer.cancel()

    def ending(self, trace: Trace) -> Ending:
        """Why the task was cancelled."""
        if self._limit_reached:
            return Ending(Outcome.TIMEOUT, EndedBy.PROXY, trace.phase, "TotalLimit")
        if self._exchange.gone:
            answered = self._tap.terminal or Mark.UPSTREAM_RX_END in trace.marks
            return ending.of_client_leaving(trace.phase, answered=answered)
        if self._exchange.broken is not None:
            return Ending(Outcome.BAD_REQUEST, EndedBy.CLIENT, trace.phase, self._exchange.broken)
        return Ending(Outcome.PROXY_SHUTDOWN, EndedBy.PROXY, trace.phase, "Shutdown")

    def answer(self, trace: Trace, status: int | None) -> int | None:
        """Tell a client that is still there, if nothing was said yet; else break off."""
        exchange = self._exchange
        if not exchange.responded and self._limit_reached:
            return replies.limit_reply(exchange, trace.phase)
        if not exchange.responded and exchange.broken is not None:
            broken = Refusal(400, b"Bad Request", exchange.broken, "the body's framing is broken")
            return replies.refusal_reply(exchange, broken)
        exchange.break_off()
        return status

    def _client_gone(self) -> None:
        if self._tap.terminal and self._exchange.broken is None:
            # The answer was complete: read on for a while, so that the connection is kept.
            self._timers.append(asyncio.get_running_loop().call_later(DRAIN_S, self._task.cancel))
        else:
            self._task.cancel()

    def _limit(self) -> None:
        self._limit_reached = True
        self._task.cancel()
