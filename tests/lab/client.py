"""Bare socket clients in one process: send bytes, stamp every read, understand nothing.

As a process (`python -m tests.lab.client`) it takes `Plan` as msgpack on standard input and gives
`Reply` items as msgpack on standard output. Nothing is parsed while requests run, so that the
stamps are as good as a Python program can take them.
"""

import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable

import msgspec

_clock = time.monotonic_ns  # noqa: TID251  # an entry point
LAST_CHUNK = b"0\r\n\r\n"
PATIENCE_S = 120.0


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request. Requests of one lane share a connection, one after the other."""

    trace: str
    lane: str
    host: str
    port: int
    request: bytes
    after_ms: float = 0.0
    """Not before this time after the start of the step."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Steps: each is over when all of its requests are answered."""

    steps: list[list[Ask]]
    pause_ms: float = 0.0
    """Between two steps."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What came back: instants in ns of the monotonic clock, sizes in bytes."""

    trace: str
    lane: str
    connected: bool
    """A connection was made for it."""
    closes: bool
    """The server closes the connection behind it."""
    sent_at: int
    """The last byte was handed to the kernel."""
    wall_ahead: int
    """How far the wall clock was ahead of the monotonic one then (ns)."""
    reads: list[tuple[int, int]]
    data: bytes


def wall_ahead() -> int:
    """Wall clock minus monotonic clock (ns), from the quickest of three readings."""
    found = []
    for _ in range(3):
        before = _clock()
        wall = time.time_ns()
        after = _clock()
        found.append((after - before, wall - (before + after) // 2))
    return min(found)[1]


class _Lane:
    """One connection at a time, requests in order."""

    def __init__(self) -> None:
        self.waiting: deque[Ask] = deque()
        self.socket: socket.socket | None = None
        self.ask: Ask | None = None
        self._connected = False
        self._sent_at = self._wall_ahead = 0
        self._reads: list[tuple[int, int]] = []
        self._data: list[bytes] = []

    def send(self, ask: Ask) -> socket.socket:
        """Connect if need be, and send."""
        self.ask, self._connected, self._reads, self._data = ask, False, [], []
        if self.socket is None:
            self.socket = socket.create_connection((ask.host, ask.port), PATIENCE_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connected = True
        self.socket.sendall(ask.request)
        self._sent_at = _clock()
        self._wall_ahead = wall_ahead()
        return self.socket

    def read(self) -> Reply | None:
        """Take what is there; the reply when it is whole. Raises `ConnectionError` if it is cut."""
        assert self.socket is not None
        assert self.ask is not None
        data = self.socket.recv(1 << 16)
        self._reads.append((_clock(), len(data)))
        if not data:
            raise ConnectionError(f"{self.ask.trace}: the answer is cut")
        self._data.append(data)
        if not data.endswith(LAST_CHUNK) and not b"".join(self._data[-6:]).endswith(LAST_CHUNK):
            return None
        whole = b"".join(self._data)
        ask, self.ask = self.ask, None
        head = whole.partition(b"\r\n\r\n")[0].lower() + b"\r\n"
        return Reply(
            trace=ask.trace,
            lane=ask.lane,
            connected=self._connected,
            closes=b"connection: close\r\n" in head,
            sent_at=self._sent_at,
            wall_ahead=self._wall_ahead,
            reads=self._reads,
            data=whole,
        )

    def close(self) -> None:
        """End the connection; the next request makes a new one."""
        if self.socket is not None:
            self.socket.close()
            self.socket = None


def play(plan: Plan) -> Iterable[Reply]:
    """Ask everything. Raises `OSError` when a connection fails, `TimeoutError` after patience."""
    lanes: dict[str, _Lane] = {}
    try:
        for step in plan.steps:
            yield from _play_step(step, lanes)
            if plan.pause_ms:
                time.sleep(plan.pause_ms / 1000)
    finally:
        for lane in lanes.values():
            lane.close()


def _play_step(step: list[Ask], lanes: dict[str, _Lane]) -> Iterable[Reply]:
    for ask in sorted(step, key=lambda one: one.after_ms):
        lanes.setdefault(ask.lane, _Lane()).waiting.append(ask)
    mine = [lanes[name] for name in dict.fromkeys(ask.lane for ask in step)]
    started = last = _clock()
    poll = selectors.DefaultSelector()
    replies: list[Reply] = []
    while len(replies) < len(step):
        now = _clock()
        due = [lane for lane in mine if lane.ask is None and lane.waiting]
        next_ms = 1000.0
        for lane in due:
            wait_ms = lane.waiting[0].after_ms - (now - started) / 1e6
            if wait_ms > 0:
                next_ms = min(next_ms, wait_ms)
                continue
            opened = lane.send(lane.waiting.popleft())
            if opened not in poll.get_map():
                poll.register(opened, selectors.EVENT_READ, lane)
            next_ms, last = 0.0, now
        for key, _ in poll.select(next_ms / 1000):
            reply = key.data.read()
            last = _clock()
            if reply is not None:
                replies.append(reply)
                if reply.closes:
                    poll.unregister(key.fileobj)
                    key.data.close()
        if _clock() - last > PATIENCE_S * 1e9:
            raise TimeoutError("no answer")
    poll.close()
    return replies


def main() -> int:
    """The process."""
    plan = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Plan)
    replies = list(play(plan))
    sys.stdout.buffer.write(msgspec.msgpack.encode(replies))
    return 0


if __name__ == "__main__":
    sys.exit(main())
