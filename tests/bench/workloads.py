"""What is asked of every row. Each workload gives numbers by name; the names carry the unit."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from .load import Exchange
from .peers import NONE, OURS_HTTPX
from .script import BIG, MS, Script, at_once, compressed, document, request, stream
from .stage import Stage
from .stats import Work, gap_errors, quantile, split

S = 1_000 * MS
STREAMS = 64
PER_S = 50
EVENTS = 50
LONG_EVENTS = 500
EVERY_MS = 1_000 // PER_S

Numbers = dict[str, float]
Run = Callable[[Stage], Awaitable[Numbers]]

_TOO_SLOW = "not run: more than this row can do on one core"
_LITELLM = {"litellm": _TOO_SLOW}
_NOT_SLOW = {OURS_HTTPX: _TOO_SLOW, "mitmproxy": _TOO_SLOW, "litellm": _TOO_SLOW}


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of load. `skip` gives a reason by row."""

    name: str
    title: str
    run: Run
    rounds: int
    quick: bool = True
    skip: Mapping[str, str] = field(default_factory=dict)


async def turn(stage: Stage) -> Numbers:
    """One connection, one request at a time."""
    await stage.warm(1)
    script = at_once(3)
    stage.model.use(script)
    with stage.measured():
        done = await stage.closed_loop(1, request(), script, count=100 if stage.quick else 300)
    return _delays(done) | _per_request(stage, len(done))


async def saturation(stage: Stage) -> Numbers:
    """As many small streams as 32 connections can get."""
    await stage.warm(32)
    script = at_once(3)
    stage.model.use(script)
    with stage.measured() as used:
        done = await stage.closed_loop(32, request(), script, seconds=1.5 if stage.quick else 3.0)
    found = {"per_s": len(done) * S / used.wall_ns} | _per_request(stage, len(done))
    if used.cpu_ns:
        found["per_cpu_s"] = len(done) * S / used.cpu_ns
    return found


async def spread_out(stage: Stage) -> Numbers:
    """Streams that begin at random: on average 64 at a time."""
    return await _open(stage, stream(EVENTS, per_s=PER_S))


async def gzipped(stage: Stage) -> Numbers:
    """The same in gzip."""
    return await _open(stage, compressed(EVENTS, per_s=PER_S))


async def _open(stage: Stage, script: Script) -> Numbers:
    await stage.warm(STREAMS)
    stage.model.use(script)
    span_ns = (4 if stage.quick else 8) * S
    rate = STREAMS / (0.2 + (EVENTS - 1) / PER_S)
    starts = sorted(stage.random.randrange(span_ns) for _ in range(round(rate * span_ns / S)))
    with stage.measured():
        done = await stage.open_loop(starts, request(), script)
    return _delays(done) | _gaps(done, EVERY_MS) | _per_request(stage, len(done))


async def burst(stage: Stage) -> Numbers:
    """64 streams that begin in the same instant, again and again."""
    await stage.warm(STREAMS)
    script = stream(EVENTS, per_s=PER_S)
    stage.model.use(script)
    done: list[Exchange] = []
    with stage.measured():
        for _ in range(1 if stage.quick else 3):
            done += await stage.together(STREAMS, request(), script)
    return _delays(done) | _gaps(done, EVERY_MS) | _per_request(stage, len(done))


async def slope(stage: Stage) -> Numbers:
    """64 streams at all times, of 50 events and of 500: what an event costs, and a request."""
    await stage.warm(STREAMS)
    short = await _window(stage, EVENTS)
    long = await _window(stage, LONG_EVENTS)
    if stage.tree is None:
        return {"load_busy": _load_busy(stage)}
    per_request, per_event = split(short, long)
    return {
        "cpu_us_event": per_event,
        "cpu_ms_bare_request": per_request / 1_000,
        "load_busy": _load_busy(stage),
    }


async def _window(stage: Stage, events: int) -> Work:
    """A window out of a steady state: the first stream of each connection is cut at random."""
    script = stream(events, per_s=PER_S)
    cut = STREAMS

    def length() -> int:
        nonlocal cut
        cut -= 1
        return stage.random.randint(1, events) if cut >= 0 else events

    stage.model.use(script, length)
    exchanges: list[Exchange] = []
    running = asyncio.create_task(
        stage.closed_loop(STREAMS, request(), script, seconds=60.0, into=exchanges)
    )
    await asyncio.sleep(1.0)
    begin, used, cpu = stage.clock(), stage.used, stage.used.cpu_ns
    with stage.measured():
        await asyncio.sleep(3.0 if stage.quick else 6.0)
    end = stage.clock()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    stage.pool.close()
    arrived = sum(begin <= at < end for each in exchanges for at in each.arrivals)
    # A request costs at its beginning and at its end: half of it for each.
    edges = sum((begin <= each.started < end) + (begin <= each.ended < end) for each in exchanges)
    return Work(edges / 2, arrived, (used.cpu_ns - cpu) / 1_000)


async def thousand(stage: Stage) -> Numbers:
    """1,000 streams that begin within the time of half a stream."""
    await stage.warm(8)
    count, per_s = 1_000, 10
    within_ns = (3 if stage.quick else 5) * S
    script = stream(60 if stage.quick else 100, per_s=per_s)
    stage.model.use(script)
    before = stage.tree.memory_kb() if stage.tree else 0
    await stage.pool.grow(count)
    starts = sorted(stage.random.randrange(within_ns) for _ in range(count))
    with stage.measured():
        done = await stage.open_loop(starts, request(), script)
    found = _delays(done) | _gaps(done, 1_000 // per_s) | _per_request(stage, len(done))
    if stage.tree:
        found["memory_kb_stream"] = (stage.tree.peak_kb() - before) / count
    return found


async def upload(stage: Stage) -> Numbers:
    """Request bodies of 1 MB, four at a time."""
    await stage.warm(4)
    script = at_once(3)
    stage.model.use(script)
    asking = request(prompt_bytes=1_000_000)
    with stage.measured():
        done = await stage.closed_loop(4, asking, script, count=40 if stage.quick else 120)
    return _delays(done) | _per_request(stage, len(done))


async def plain(stage: Stage) -> Numbers:
    """Answers of 2 kB that are not streamed, eight at a time."""
    await stage.warm(8)
    script = document()
    stage.model.use(script)
    asking = request(streams=False)
    with stage.measured():
        done = await stage.closed_loop(8, asking, script, count=300 if stage.quick else 1_000)
    return _delays(done) | _per_request(stage, len(done))


async def stall(stage: Stage) -> Numbers:
    """50 streams, and after two seconds one more with an event of 5 MB."""
    await stage.warm(STREAMS)
    script = stream(170, per_s=PER_S)
    stage.model.use(script)
    asking = request().replace(b'"bench"', BIG.ljust(7))
    big: list[Exchange] = []
    asked: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()

    def ask_big() -> None:
        client = stage.pool.take()
        assert client is not None
        big.append(client.ask(asking, script.mark, asked.set_result))

    begin = stage.clock()
    stage.timetable.at(begin + 2 * S, ask_big)
    starts = sorted(stage.random.randrange(S // 2) for _ in range(50))
    with stage.measured():
        done = await stage.open_loop(starts, request(), script)
        stage.tell(await asyncio.wait_for(asked, 30))
    return {
        "gap_max_without_ms": _longest(done, begin + S * 4 // 5, begin + 2 * S),
        "gap_max_with_ms": _longest(done, begin + 2 * S, begin + S * 16 // 5),
        "big_ms": (big[0].ended - big[0].started) / MS,
        **_common(stage),
    }


def _longest(done: Sequence[Exchange], begin: int, end: int) -> float:
    return max(
        (later - earlier) / MS
        for each in done
        for earlier, later in pairwise(each.arrivals)
        if begin <= later < end
    )


def _delays(done: Sequence[Exchange]) -> Numbers:
    waits = [each.ttft / MS for each in done if each.arrivals]
    return {"ttft_p50_ms": quantile(waits, 0.5), "ttft_p99_ms": quantile(waits, 0.99)}


def _gaps(done: Sequence[Exchange], every_ms: int) -> Numbers:
    errors = [error / MS for each in done for error in gap_errors(each.arrivals, every_ms * MS)]
    return {"gap_p99_ms": quantile(errors, 0.99), "gap_max_ms": max(errors)}


def _per_request(stage: Stage, requests: int) -> Numbers:
    found = _common(stage)
    if stage.tree:
        found["cpu_ms_request"] = stage.used.cpu_ns / requests / MS
    return found


def _common(stage: Stage) -> Numbers:
    found = {"failed": float(stage.failed), "load_busy": _load_busy(stage)}
    if stage.tree:
        found["busy"] = 100 * stage.used.cpu_ns / stage.used.wall_ns
        found["peak_mb"] = stage.tree.peak_kb() / 1_000
    return found


def _load_busy(stage: Stage) -> float:
    return 100 * stage.used.load_ns / stage.used.wall_ns


WORKLOADS = (
    Workload("turn", "one connection in turn, streams of 3 events", turn, 5),
    Workload("saturation", "32 connections, streams of 3 events at once", saturation, 5),
    Workload(
        "open",
        f"{STREAMS} streams x {PER_S} events/s after 200 ms, {EVENTS} events, begun at random",
        spread_out,
        5,
        skip=_LITELLM,
    ),
    Workload("burst", f"the same, {STREAMS} begun in the same instant", burst, 5),
    Workload(
        "slope",
        f"{STREAMS} streams x {PER_S} events/s at all times, of {EVENTS} and of {LONG_EVENTS}",
        slope,
        3,
        skip=_LITELLM,
    ),
    Workload(
        "thousand",
        "1,000 streams x 10 events/s for 10 s, begun within 5 s",
        thousand,
        2,
        skip=_NOT_SLOW,
    ),
    Workload(
        "upload", "request bodies of 1 MB, 4 at a time", upload, 3, quick=False, skip=_LITELLM
    ),
    Workload("gzip", "as open, in gzip flushed per event", gzipped, 3, quick=False, skip=_LITELLM),
    Workload("json", "answers of 2 kB, not streamed, 8 at a time", plain, 3, quick=False),
    Workload(
        "stall",
        "50 streams x 50 events/s, and one event of 5 MB beside them",
        stall,
        3,
        quick=False,
        skip=_NOT_SLOW,
    ),
)
"""In the order in which they are run and shown."""

assert NONE not in {row for each in WORKLOADS for row in each.skip}
