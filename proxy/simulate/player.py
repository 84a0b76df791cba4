"""Plays one plan on one connection: each step at its instant, or as soon after as can be.

Rules of this file:

1. Instants are absolute: a late step does not make the next one later.
2. A step is never early.
3. While the client does not take bytes, the plan waits.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from .evidence import Instants
from .outlet import Outlet
from .render import wire_of
from .shape import in_order
from .slots import Slots
from .step import Moment, Plan, Step
from .timekeeper import Timekeeper
from .wire import chunk
from .witness import Exchange

BLOCK = bytes(range(256)) * 256
"""What big bodies are made of."""

_BLOCKS_A_TURN = 16
_SPECIAL = frozenset({"slot", "cut", "big", "end"})


class Player:
    """One answer on its way."""

    __slots__ = (
        "_base",
        "_big_begun",
        "_big_left",
        "_done",
        "_exchange",
        "_first_token",
        "_handle",
        "_has_slot",
        "_held",
        "_index",
        "_last_token",
        "_left",
        "_outlet",
        "_paused",
        "_ping",
        "_plan",
        "_shift",
        "_slots",
        "_steps",
        "_time",
        "_timeline",
        "_write",
        "_writer",
    )

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange,
        transport: asyncio.Transport,
        time: Timekeeper,
        slots: Slots,
        timeline: list[tuple[str, int]] | None,
        done: Callable[[], None],
    ) -> None:
        self._plan = plan
        self._exchange = exchange
        self._time = time
        self._slots = slots
        self._timeline = timeline
        self._done = done
        self._outlet = Outlet(transport, time, plan.fragment, plan.fragment_delay)
        self._write = transport.write if plan.fragment is None else self._outlet.write
        self._steps = plan.steps
        self._index = 0
        self._held: list[Step] | None = None
        """What waits for a slot."""
        self._shift = 0
        self._has_slot = False
        self._first_token: int | None = None
        self._last_token: int | None = None
        self._left = plan.cut_after_bytes
        self._writer = plan.writer()
        self._big_left = plan.big
        self._big_begun = False
        self._handle: asyncio.Handle | None = None
        self._ping: asyncio.Handle | None = None
        self._paused = False
        complete = exchange.complete_at
        self._base = exchange.head_at if complete is None else complete

    def start(self) -> None:
        """Begin; what is due at once leaves at once."""
        every = self._plan.ping_every
        if every is not None:
            self._ping = self._time.at(self._base + every, self._send_ping)
        self._tick()

    def pause(self) -> None:
        """The client takes no more bytes for now."""
        self._paused = True

    def resume(self) -> None:
        """The client takes bytes again."""
        self._paused = False
        if self._handle is None:
            self._tick()

    def stop(self, how: str) -> None:
        """Play no further; `how` says why, unless the answer has ended already."""
        self._say_no_more()
        if self._has_slot:
            self._has_slot = False
            self._slots.release()
        elif self._held is not None:
            self._held = None
            self._slots.give_up(self._slot_is_free)
        self._exchange.end(how, self._time.now())

    def _tick(self) -> None:
        """Play what is due, and come back for the next step."""
        self._handle = None
        if self._big_left and self._big_begun and not self._pump():
            return
        now = self._time.now()
        playing = -1
        while not self._paused and self._index < len(self._steps):
            step = self._steps[self._index]
            if step.at != playing:
                if playing >= 0:
                    # Late: several instants are overdue, and each is kept as it really is.
                    now = self._time.now()
                playing = step.at
                if playing > now - self._base:
                    self._handle = self._time.at(self._base + playing, self._tick)
                    return
            self._index += 1
            if not self._play(step, now):
                return

    def _play(self, step: Step, now: int) -> bool:
        """Whether the next step may follow."""
        name = step.name
        if name in ("token", "generated"):
            self._last_token = now
            if self._first_token is None:
                self._first_token = now
        if self._timeline is not None:
            self._timeline.append((name, now))
        wire = self._rendered(step, now) if step.wire is None else step.wire
        if (wire or self._left == 0) and not self._emit(wire):
            return False
        return name not in _SPECIAL or self._play_special(name)

    def _rendered(self, step: Step, now: int) -> bytes:
        """The wire bytes of a step that had to wait for its moment."""
        moment = Moment(self._instants(now), self._exchange.snapshot())
        pieces = step.render(moment) if step.render else step.pieces
        return wire_of(self._plan, step, pieces, self._writer, moment)

    def _instants(self, now: int) -> Instants:
        times, base = self._plan.times, self._base + self._shift
        waits = self._held is not None
        return Instants(
            received=self._base,
            now=now,
            started=None if waits else base + times.started,
            loaded=None if waits else base + times.loaded,
            first_token=self._first_token,
            last_token=self._last_token,
        ).known_at(now)

    def _emit(self, data: bytes) -> bool:
        """Hand bytes over; whether the answer goes on behind them."""
        if self._left is None:
            self._write(data)
            return True
        self._write(data[: self._left])
        self._left -= min(len(data), self._left)
        if not self._left:
            self._cut()
        return bool(self._left)

    def _play_special(self, name: str) -> bool:
        if name == "slot":
            return self._take_slot()
        if name == "big":
            self._big_begun = True
            return self._pump()
        if name == "cut":
            self._cut()
        else:
            self._say_no_more()
            self._outlet.when_written(self._finish)
        return False

    def _say_no_more(self) -> None:
        for handle in (self._handle, self._ping):
            if handle is not None:
                handle.cancel()
        self._handle = self._ping = None
        self._steps = ()
        self._big_left = 0

    def _pump(self) -> bool:
        """Write a big body as fast as it is taken; whether all of it is written."""
        for _ in range(_BLOCKS_A_TURN):
            if self._paused or not self._big_left:
                break
            block = BLOCK[: self._big_left]
            self._big_left -= len(block)
            if not self._emit(chunk(block) if self._plan.chunked else block):
                return False
        if self._big_left and not self._paused:
            self._handle = self._time.loop.call_soon(self._tick)
        return not self._big_left

    # Waiting for a slot splits the plan in two: generation is held, the surroundings go on.

    def _take_slot(self) -> bool:
        if self._slots.take(self._slot_is_free):
            self._has_slot = True
            return True
        rest = self._steps[self._index :]
        self._held = [step for step in rest if step.moves]
        self._go_on_with([step for step in rest if not step.moves])
        return True

    def _slot_is_free(self) -> None:
        held, self._held = self._held or [], None
        self._has_slot = True
        self._shift = self._time.now() - self._base - self._plan.times.started
        moved = [replace(step, at=step.at + self._shift) for step in held]
        if self._handle is not None:
            self._handle.cancel()
        self._go_on_with(sorted([*self._steps[self._index :], *moved], key=in_order))
        self._handle = self._time.loop.call_soon(self._tick)

    def _go_on_with(self, steps: list[Step]) -> None:
        self._steps = tuple(steps)
        self._index = 0

    def _send_ping(self) -> None:
        """A ping makes a late head leave, as every body byte does."""
        rest = list(self._steps[self._index :])
        now = self._time.now()
        for steps in (rest, self._held or []):
            for step in steps:
                if step.name == "head":
                    steps.remove(step)
                    self._go_on_with(rest)
                    self._play(step, now)
                    break
        if self._timeline is not None:
            self._timeline.append(("ping", now))
        every = self._plan.ping_every or 0
        self._ping = self._time.at(now + every, self._send_ping)
        self._emit(self._writer.write((self._plan.ping,)))

    def _cut(self) -> None:
        how = self._plan.cut_how
        self.stop("cut")
        self._outlet.when_written(lambda: self._outlet.break_off(how))

    def _finish(self) -> None:
        self.stop("complete")
        self._done()
