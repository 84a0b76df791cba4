"""A long link in user space: IP packets from one TUN device to the other, late, and some never.

As a process (`python -m tests.lab.link FD FD DELAY_MS LOSS SEED`) it forwards between two open TUN
descriptors until its standard input ends, then writes a `LinkReport` as msgpack on standard output.
"""

import os
import random
import select
import sys
import time
from collections import deque

import msgspec

from tests.lab.packets import Resent
from tests.lab.stats import quantile

_clock = time.monotonic_ns  # noqa: TID251  # an entry point
MTU = 1500


class Wire:
    """One direction: every packet `delay_ns` later, in order, or never."""

    def __init__(self, delay_ns: int, loss: float, seed: int) -> None:
        self._delay = delay_ns
        self._loss = loss
        self._dice = random.Random(seed)
        self._queue: deque[tuple[int, bytes]] = deque()
        self.carried = 0
        self.dropped = 0

    def enter(self, packet: bytes, now: int) -> None:
        """A packet begins its way."""
        if self._dice.random() < self._loss:
            self.dropped += 1
        else:
            self.carried += 1
            self._queue.append((now + self._delay, packet))

    @property
    def next_at(self) -> int | None:
        """When the next packet arrives."""
        return self._queue[0][0] if self._queue else None

    def leave(self, now: int) -> list[tuple[int, bytes]]:
        """Packets that have arrived by now, with the instants at which they were due."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            found.append(self._queue.popleft())
        return found


class LinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """What the link did: counts both ways, how late it was (ms), what the near side sent again."""

    carried: tuple[int, int]
    dropped: tuple[int, int]
    late_p50_ms: float
    late_p99_ms: float
    resent: dict[int, int]
    """Segments that the near side sent again, by its port: what its kernel calls retransmits."""


def forward(near: int, far: int, stop: int, *, delay_ns: int, loss: float, seed: int) -> LinkReport:
    """Forward between two descriptors until `stop` can be read."""
    wires = {near: Wire(delay_ns, loss, seed), far: Wire(delay_ns, loss, seed + 1)}
    other = {near: far, far: near}
    resent = Resent()
    late: list[int] = []
    for number in (near, far):
        os.set_blocking(number, False)
    while True:
        now = _clock()
        for source, wire in wires.items():
            for due, packet in wire.leave(now):
                os.write(other[source], packet)
                late.append(_clock() - due)
        waiting = [wire.next_at for wire in wires.values() if wire.next_at is not None]
        ready = select.select(
            (near, far, stop), (), (), max(0.0, (min(waiting) - _clock()) / 1e9) if waiting else 1.0
        )[0]
        if stop in ready:
            break
        for number in ready:
            _take(number, wires[number], resent if number == near else None)
    return LinkReport(
        carried=(wires[near].carried, wires[far].carried),
        dropped=(wires[near].dropped, wires[far].dropped),
        late_p50_ms=quantile(late, 0.5) / 1e6 if late else 0.0,
        late_p99_ms=quantile(late, 0.99) / 1e6 if late else 0.0,
        resent=resent.counts,
    )


def _take(number: int, wire: Wire, resent: Resent | None) -> None:
    """Read what the device has now; each read is one packet."""
    for _ in range(64):
        try:
            packet = os.read(number, MTU + 100)
        except BlockingIOError:
            return
        if resent is not None:
            resent.see(packet)
        wire.enter(packet, _clock())


def main(arguments: list[str]) -> int:
    """The process."""
    near, far = int(arguments[0]), int(arguments[1])
    delay_ns = int(float(arguments[2]) * 1e6)
    report = forward(
        near,
        far,
        sys.stdin.fileno(),
        delay_ns=delay_ns,
        loss=float(arguments[3]),
        seed=int(arguments[4]),
    )
    sys.stdout.buffer.write(msgspec.msgpack.encode(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
