"""One client connection: requests in, answers out, in order. I/O.

The only place where sockets are read. What a script may do to the reading side happens here: a
body that is taken slowly or not at all, an answer before the body, a refused expectation.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import cast

from msgspec.structs import replace

from . import wire
from .choose import Chooser
from .outlet import shrink_receive_buffer
from .player import Player
from .request import Bad, Data, End, Head, Part, RequestParser
from .script import ReadRate, Script, ScriptError
from .slots import Slots
from .step import Plan
from .timekeeper import Timekeeper
from .witness import Exchange, Link, Witness

CONTINUE = wire.head("1.1", 100, None, ())


@dataclass(slots=True)
class House:
    """What all connections of one simulator share."""

    time: Timekeeper
    chooser: Chooser
    slots: Slots
    witness: Witness
    connections: "set[Connection]"


class Connection(asyncio.Protocol):
    """Reads requests and has a player answer each."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._now = house.time.now
        self._parser = RequestParser()
        self._arriving: Exchange | None = None
        """The request that is being received."""
        self._early: Script | None = None
        """The script that its head names."""
        self._decided = False
        """It is answered already, or will be; its body decides nothing any more."""
        self._rate: float | None = None
        """How fast its body is taken, in bytes per ns."""
        self._pending: deque[tuple[Exchange, Plan]] = deque()
        self._player: Player | None = None
        self._plan: Plan | None = None
        self._serving = False
        self._idle: asyncio.TimerHandle | None = None
        self._write_paused = False
        self._closing = False
        self._client_left = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        peer = f"{address[0]}:{address[1]}" if address else ""
        self._link: Link = self._house.witness.connect(peer, self._now())
        self._house.connections.add(self)

    def data_received(self, data: bytes) -> None:
        now = self._now()
        self._stop_idling()
        for part in self._parser.feed(data):
            self._take(part, now)

    def eof_received(self) -> None:
        # A client that has closed its side has left: a half-close cannot be told from it.
        self._client_left = True

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._player is not None:
            self._player.pause()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._player is not None:
            self._player.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        how = "client_reset" if exc else "client_fin" if self._client_left else "server"
        self._stop_idling()
        if self._player is not None:
            self._player.stop(how)
        for exchange, _ in self._pending:
            exchange.end(how, self._now())
        self._pending.clear()
        if self._arriving is not None:
            self._arriving.end(how, self._now())
        self._house.connections.discard(self)
        self._house.witness.disconnect(self._link, how, self._now())

    def abort(self) -> None:
        """The simulator stops."""
        self._closing = True
        self._transport.abort()

    # Requests

    def _take(self, part: Part, now: int) -> None:
        if self._closing:
            return
        if isinstance(part, Head):
            self._begin(part, now)
        elif isinstance(part, Bad):
            self._refuse_bytes(part, now)
        elif self._arriving is None:
            return
        elif isinstance(part, Data):
            self._arriving.add(part.data, now)
            if self._rate is not None:
                self._slow_down(self._arriving, self._rate, now)
        else:
            self._complete(self._arriving, part, now)

    def _begin(self, head: Head, now: int) -> None:
        exchange = self._arriving = Exchange(self._house.witness, self._link, head, now)
        self._decided = False
        self._rate = None
        chooser = self._house.chooser
        try:
            self._early = chooser.early(head)
        except ScriptError as error:
            self._answer(exchange, chooser.refusal(head, 400, str(error)))
            return
        manners = chooser.manners(self._early)
        if head.framing == "none":
            return
        if head.expects_continue and manners.expect == "refuse":
            refusing = replace(manners, status=manners.status or 417, close=True)
            self._plan_and_answer(exchange, refusing)
            return
        if head.expects_continue and manners.expect == "100":
            exchange.timeline.append(("continue", now))
            self._transport.write(CONTINUE)
        if manners.early_reply:
            self._plan_and_answer(exchange, self._early)
        if manners.read != "all":
            self._read_as_told(manners.read)

    def _complete(self, exchange: Exchange, end: End, now: int) -> None:
        self._arriving = None
        exchange.complete(end.trailers, now)
        if not self._decided:
            self._plan_and_answer(exchange, self._early)

    def _refuse_bytes(self, bad: Bad, now: int) -> None:
        if self._arriving is not None:
            self._arriving.end("bad_request", now)
        fields = [("Content-Length", "0"), ("Connection", "close")]
        self._transport.write(wire.head("1.1", bad.status, bad.reason, fields))
        self._close()

    def _plan_and_answer(self, exchange: Exchange, script: Script | None) -> None:
        chooser = self._house.chooser
        try:
            plan = chooser.plan(exchange.head, exchange.body, script)
        except ScriptError as error:
            plan = chooser.refusal(exchange.head, 400, str(error))
        exchange.forget()
        self._answer(exchange, plan)

    # Answers

    def _answer(self, exchange: Exchange, plan: Plan) -> None:
        self._decided = True
        self._pending.append((exchange, plan))
        self._serve()

    def _serve(self) -> None:
        """Answer what is pending, one after the other; players may end while they start."""
        if self._serving:
            return
        self._serving = True
        house = self._house
        while self._player is None and self._pending and not self._closing:
            exchange, self._plan = self._pending.popleft()
            timeline = exchange.timeline if house.witness.keeps_timelines else None
            self._player = Player(
                self._plan,
                exchange,
                self._transport,
                house.time,
                house.slots,
                timeline,
                self._answered,
            )
            if self._write_paused:
                self._player.pause()
            self._player.start()
        self._serving = False

    def _answered(self) -> None:
        assert self._plan is not None
        self._player = None
        if self._plan.closes:
            self._close()
        elif self._plan.keep_alive is not None and not self._pending and self._arriving is None:
            self._idle = self._house.time.after(self._plan.keep_alive, self._close)
        else:
            self._serve()

    def _close(self) -> None:
        self._closing = True
        self._transport.close()

    # Reading slowly, or not at all

    def _read_as_told(self, read: str | ReadRate) -> None:
        shrink_receive_buffer(self._transport)
        if isinstance(read, ReadRate):
            self._rate = read.rate / 1_000_000_000
        else:
            self._transport.pause_reading()

    def _slow_down(self, exchange: Exchange, rate: float, now: int) -> None:
        due = exchange.head_at + round(exchange.body_bytes / rate)
        if due > now and self._transport.is_reading():
            self._transport.pause_reading()
            self._house.time.at(due, self._read_on)

    def _read_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _stop_idling(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
