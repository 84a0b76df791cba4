"""The simulator: a model API on real sockets. I/O.

In tests: `async with Simulator(script=...) as sim`, then `sim.url`, `sim.requests`. On the command
line: `ttft simulate`, which calls `run`.
"""

import asyncio
import signal
import ssl as tls
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from proxy.account import Clock

from .book import DEMO, Book, read_book
from .choose import Chooser
from .connection import Connection, House
from .script import Script, ScriptError, read_script
from .slots import Slots
from .timekeeper import Timekeeper
from .witness import Connected, Received, Witness

BACKLOG = 4096

Scripted = Script | str | Mapping[str, object]


class Simulator:
    """A model API with a scripted timetable.

    `script` is what requests get that name no script of their own; `scripts` are further ones by
    name. `slots` bounds how many requests generate at once. `clock` gives ns and has to run at the
    pace of the event loop. `keep` bounds how many requests are remembered.

    Raises `ScriptError` for a script that cannot be played, `OSError` when it cannot listen.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        slots: int | None = None,
        script: Scripted | None = None,
        scripts: Mapping[str, Scripted] | None = None,
        clock: Clock = time.monotonic_ns,  # noqa: TID251 (an entry point)
        ssl: tls.SSLContext | None = None,
        keep: int | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._scripts = {name: read_script(each) for name, each in (scripts or {}).items()}
        self._witness = Witness(keep)
        self._slots = Slots(slots, self._witness.tell)
        self._clock = clock
        self._ssl = ssl
        self._chooser = Chooser(Book(self._scripts), slots=slots is not None)
        if script is not None:
            self.use(script)

    def use(self, script: Scripted) -> None:
        """From now on requests without a script of their own get this one."""
        self._chooser.book = Book({**self._scripts, "*": read_script(script)})

    async def start(self) -> None:
        """Listen; a port of 0 becomes the real one."""
        house = House(Timekeeper(self._clock), self._chooser, self._slots, self._witness, set())
        self._house = house
        self._server = await house.time.loop.create_server(
            lambda: Connection(house), self.host, self.port, ssl=self._ssl, backlog=BACKLOG
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        self._server.close()
        for connection in tuple(self._house.connections):
            connection.abort()
        await self.wait(lambda: not self._house.connections)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._ssl else 'http'}://{host}:{self.port}"

    @property
    def requests(self) -> list[Received]:
        """What arrived so far, in the order of the request heads."""
        return [exchange.snapshot() for exchange in self._witness.exchanges]

    @property
    def connections(self) -> list[Connected]:
        """The connections made so far, in order."""
        return [link.snapshot() for link in self._witness.links]

    @property
    def open_connections(self) -> int:
        """How many connections stand now."""
        return self._witness.open

    @property
    def generating(self) -> int:
        """How many requests hold a slot."""
        return self._slots.busy

    @property
    def waiting(self) -> int:
        """How many requests wait for a slot."""
        return self._slots.waiting

    async def wait(self, until: Callable[[], bool], timeout: float = 10.0) -> None:  # noqa: ASYNC109 (a limit for tests, raised as TimeoutError)
        """Wait until something about requests, connections or slots is true.

        `until` is asked at every change. Raises `TimeoutError` after `timeout` seconds.
        """
        true = asyncio.Event()

        def changed() -> None:
            if until():
                true.set()

        self._witness.changed.add(changed)
        try:
            changed()
            async with asyncio.timeout(timeout):
                await true.wait()
        finally:
            self._witness.changed.discard(changed)

    async def wait_requests(self, count: int, timeout: float = 10.0) -> list[Received]:  # noqa: ASYNC109 (as above)
        """Wait until `count` requests have been answered or have ended otherwise."""
        exchanges = self._witness.exchanges
        await self.wait(
            lambda: sum(exchange.ended_how is not None for exchange in exchanges) >= count, timeout
        )
        return self.requests

    async def wait_closed(self, connection: int, timeout: float = 10.0) -> Connected:  # noqa: ASYNC109 (as above)
        """Wait until a connection is gone, by its id, and say how it went."""
        link = next(link for link in self._witness.links if link.id == connection)
        await self.wait(lambda: link.closed_at is not None, timeout)
        return link.snapshot()


def run(
    host: str,
    port: int,
    *,
    slots: int | None = None,
    script_file: Path | None = None,
    announce: Callable[[str], object] | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> int:
    """Serve until SIGINT or SIGTERM; the exit status.

    One line goes to `announce` (standard error if None) when it listens, or why it cannot.
    """
    say = announce or _to_stderr
    try:
        simulator = Simulator(
            host=host,
            port=port,
            slots=slots,
            scripts=read_book(script_file.read_bytes()) if script_file else {"*": DEMO},
            ssl=_context(tls_cert, tls_key),
            keep=0,
        )
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(simulator, say))
    except (OSError, ScriptError) as error:
        say(f"ttft simulate: {error}")
        return 2
    return 0


async def _serve(simulator: Simulator, say: Callable[[str], object]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with simulator:
        body = '{"model":"sim","stream":true}'
        call = f"curl -sN {simulator.url}/v1/chat/completions -d '{body}'"
        say(f"ttft simulate: listening on {simulator.url}; try: {call}")
        await stop.wait()


def _context(cert: Path | None, key: Path | None) -> tls.SSLContext | None:
    if cert is None:
        return None
    context = tls.create_default_context(tls.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
