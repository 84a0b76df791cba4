"""One run: the model API, a fresh proxy, the load, and what the proxy used. I/O."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from proxy.account import Clock

from .install import ROOT, UnavailableError
from .load import Exchange, Pool
from .peers import Peer, environment, records
from .script import Script, at_once, request, stream
from .timetable import Timetable
from .upstream import Model
from .usage import Tree

START_S = 120.0
GRACE_S = 30.0


class UnfinishedError(Exception):
    """The load did not come to its end in time. The text says how far it came."""


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the load runs, and where the proxy does."""

    load: int
    proxy: int


def cores() -> Cores:
    """The first and the last core that this process may use."""
    mine = sorted(os.sched_getaffinity(0))
    return Cores(mine[0], mine[-1])


@dataclass(slots=True)
class Used:
    """What the proxy and the load used between two instants."""

    wall_ns: int = 0
    cpu_ns: int = 0
    load_ns: int = 0


@dataclass(slots=True)
class Stage:
    """What a workload works with."""

    clock: Clock
    timetable: Timetable
    model: Model
    pool: Pool
    tree: Tree | None
    random: random.Random
    quick: bool
    asked: int = 0
    failed: int = 0
    used: Used = field(default_factory=Used)

    def tell(self, exchange: Exchange) -> None:
        """Count an exchange that has ended."""
        self.asked += 1
        self.failed += not exchange.complete

    def cpu_ns(self) -> int:
        """CPU time of the proxy so far."""
        return self.tree.cpu_ns() if self.tree else 0

    @contextmanager
    def measured(self) -> Iterator[Used]:
        """Adds what is used inside to what was used before."""
        used = self.used
        # Looking at the proxy takes a while, and is not part of the window.
        cpu = self.cpu_ns()
        load, wall = time.process_time_ns(), self.clock()
        yield used
        used.wall_ns += self.clock() - wall
        used.load_ns += time.process_time_ns() - load
        used.cpu_ns += self.cpu_ns() - cpu

    async def warm(self, connections: int) -> None:
        """Open connections on both sides of the proxy, and use each twice."""
        await self.pool.grow(connections)
        self.model.use(stream(1, first_ms=50))
        await self.together(connections, request(), stream(1))
        self.model.use(at_once(3))
        await self.together(connections, request(), at_once(3))
        if self.tree:
            self.tree.reset_peak()

    async def together(self, count: int, asking: bytes, script: Script) -> list[Exchange]:
        """So many requests in the same instant, on connections that are open."""
        await self.pool.grow(count)
        return await self.open_loop([0] * count, asking, script)

    async def open_loop(
        self, after: Sequence[int], asking: bytes, script: Script, limit_s: float = GRACE_S
    ) -> list[Exchange]:
        """One request at each of these instants (ns from now), whatever became of the others.

        Raises `UnfinishedError` when some have not ended `limit_s` after the last one began.
        """
        finished = asyncio.get_running_loop().create_future()
        exchanges: list[Exchange] = []
        growing: set[asyncio.Task[None]] = set()
        left = len(after)

        def begin() -> None:
            client = self.pool.take()
            if client is None:
                task = asyncio.get_running_loop().create_task(begin_on_new())
                growing.add(task)
                task.add_done_callback(growing.discard)
                return

            def done(exchange: Exchange) -> None:
                nonlocal left
                self.tell(exchange)
                self.pool.give(client)
                left -= 1
                if not left and not finished.done():
                    finished.set_result(None)

            exchanges.append(client.ask(asking, script.mark, done))

        async def begin_on_new() -> None:
            await self.pool.grow(1)
            begin()

        now = self.clock()
        for each in after:
            if each:
                self.timetable.at(now + each, begin)
            else:
                begin()
        limit = max(after) / 1e9 + limit_s
        await self.until(finished, limit, lambda: f"{left} of {len(after)} did not end")
        return exchanges

    async def closed_loop(
        self,
        connections: int,
        asking: bytes,
        script: Script,
        *,
        count: int | None = None,
        seconds: float | None = None,
        into: list[Exchange] | None = None,
    ) -> list[Exchange]:
        """Each connection asks again as soon as it has its answer, `count` times in all or so long.

        `into` gets each exchange when it begins. Raises `UnfinishedError` when the last ones do not
        end.
        """
        await self.pool.grow(connections)
        finished = asyncio.get_running_loop().create_future()
        exchanges: list[Exchange] = [] if into is None else into
        until = self.clock() + int((seconds or 600.0) * 1e9)
        busy = 0

        def ask_again() -> None:
            nonlocal busy
            client = self.pool.take()
            assert client is not None
            busy += 1

            def done(exchange: Exchange) -> None:
                nonlocal busy
                busy -= 1
                self.tell(exchange)
                self.pool.give(client)
                if exchange.complete and more():
                    ask_again()
                elif not busy and not finished.done():
                    finished.set_result(None)

            exchanges.append(client.ask(asking, script.mark, done))

        def more() -> bool:
            return len(exchanges) < count if count is not None else self.clock() < until

        for _ in range(connections):
            ask_again()
        limit = (seconds or 0.0) + GRACE_S
        await self.until(finished, limit, lambda: f"{busy} of {connections} did not end")
        return exchanges

    async def until(
        self, finished: "asyncio.Future[None]", limit_s: float, how_far: Callable[[], str]
    ) -> None:
        """Wait. Raises `UnfinishedError` with what `how_far` says after `limit_s`."""
        try:
            await asyncio.wait_for(finished, limit_s)
        except TimeoutError:
            raise UnfinishedError(f"{how_far()} in {limit_s:.0f} s") from None


@asynccontextmanager
async def stage(
    peer: Peer, where: Cores, clock: Clock, *, seed: int, quick: bool
) -> AsyncIterator[Stage]:
    """Everything for one run, started anew. Raises `UnavailableError` without a proxy."""
    with Timetable(clock) as timetable, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = Model(timetable, at_once(3))
        port = free_port()
        server = await model.listen(port)
        try:
            with started(peer, port, folder, where) as process:
                at = process[1] if process else port
                tree = Tree(process[0].pid) if process else None
                pool = Pool(at, clock)
                this = Stage(clock, timetable, model, pool, tree, random.Random(seed), quick)
                if process:
                    await ready(process[0], at, folder)
                try:
                    yield this
                finally:
                    timetable.clear()
                    pool.close()
            if peer.writes_records:
                check_records(folder, this.asked)
        finally:
            server.close()


@contextmanager
def started(
    peer: Peer, upstream: int, folder: Path, where: Cores
) -> Iterator[tuple["subprocess.Popen[bytes]", int] | None]:
    """The proxy's process and port; ended politely. None for the row without a proxy."""
    if peer.command is None:
        yield None
        return
    port = free_port()
    command = peer.command(port, upstream, folder)
    with (folder / "said").open("wb") as said:
        # Its threads inherit the core that is in force here when it starts.
        os.sched_setaffinity(0, {where.proxy})
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        finally:
            os.sched_setaffinity(0, {where.load})
    try:
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def ready(process: "subprocess.Popen[bytes]", port: int, folder: Path) -> None:
    """Wait until a request comes back. Raises `UnavailableError` when none does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + START_S
    while loop.time() < end and process.poll() is None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(5):
                if await _answers(port):
                    return
        await asyncio.sleep(0.02)
    said = (folder / "said").read_text(errors="replace").strip().splitlines() or ["nothing"]
    how = "does not start" if process.poll() is not None else f"not ready within {START_S:.0f} s"
    raise UnavailableError(f"{how}; its last line: {said[-1][:120]}")


async def _answers(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request())
        await writer.drain()
        return b" 200 " in await reader.readline()
    finally:
        writer.transport.abort()


def check_records(folder: Path, asked: int) -> None:
    """Our rows wrote one record per request, those of getting ready included."""
    with records(folder).open("rb") as log:
        lines = sum(1 for _ in log)
    assert lines >= asked, f"{asked} requests, {lines} records"


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
