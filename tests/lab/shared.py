"""Part 4: time that is not the proxy's own. Clocks that jump or stand still, stolen processor."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import uvloop

from proxy.record import Record
from proxy.simulate.server import Simulator
from tests.lab import plan
from tests.lab.inprocess import Clocks, inside, real_clock
from tests.lab.processes import Served, apart, pin
from tests.lab.report import Goal, Part, table
from tests.lab.truth import Disturbance, Sample, measure, wall_ns

TITLE = "4. Shared time"
SEED = 404
SPOILT_MS = 5.0
"""What the proxy calls a lag that may have moved a stamp visibly."""
NEIGHBOURS = 4
STOP_S, EVERY_S = 0.03, 0.2
NAP_S = 0.3
FIRST_TOKEN = b"w0w"
SCRIPT: dict[str, object] = {
    "prefill": 60,
    "text": ["w0w", *"abcde"],
    "gap": 20,
    "headers": "early",
}


def run(folder: Path, count: int) -> Part:
    """The part: clocks in this process, then `count` requests for each kind of stolen time."""
    lines, held = clocks()
    with apart() as core:
        kinds: tuple[tuple[str, Disturbance], ...] = (
            ("quiet", _alone(core)),
            (f"{NEIGHBOURS} busy neighbours", _crowded(core)),
            (f"stopped for {STOP_S * 1000:.0f} ms, again and again", _stopped(core)),
        )
        found = {name: measure(folder, count, seed=SEED, around=around) for name, around in kinds}
    return judge(lines, held, found)


# -- clocks


def _nothing(_clocks: Clocks) -> None:
    pass


def _set(seconds: float) -> Callable[[Clocks], None]:
    return lambda clocks: clocks.step_wall(seconds)


class Happening(NamedTuple):
    """What happens to the clocks in the middle of a request."""

    name: str
    streaming: bool
    """While tokens stream; else when the API has the request."""
    deed: Callable[[Clocks], None]
    lasting_s: float = 0.0
    undo: Callable[[Clocks], None] = _nothing


HAPPENINGS = (
    Happening("nothing", False, _nothing),
    *(
        Happening(f"wall clock {name}, {when}", streaming, _set(seconds))
        for name, seconds in (("-5 s", -5.0), ("+1 h", 3600.0))
        for when, streaming in (("before the first token", False), ("while tokens stream", True))
    ),
    Happening("suspended, before the first token", False, Clocks.sleep, NAP_S, Clocks.wake),
    Happening("suspended, while tokens stream", True, Clocks.sleep, NAP_S, Clocks.wake),
)


def clocks() -> tuple[list[tuple[str, ...]], bool]:
    """What the records say when clocks misbehave: rows of a table, and whether all of it holds."""
    return uvloop.run(_clocks())


async def _clocks() -> tuple[list[tuple[str, ...]], bool]:
    rows: list[tuple[str, ...]] = []
    all_right = True
    for name, streaming, deed, lasting_s, undo in HAPPENINGS:
        own = Clocks()
        async with (
            Simulator() as simulator,
            inside(simulator.url, own) as proxy,
        ):
            sent_wall, sent = own.wall(), real_clock()
            token = asyncio.Event()
            asking = asyncio.create_task(_ask(proxy.port, token))
            await simulator.wait(lambda: any(one.complete_at for one in simulator.requests))
            if streaming:
                await token.wait()
            deed(own)
            await asyncio.sleep(lasting_s)
            undo(own)
            await asking
            elapsed_ms = (real_clock() - sent) / 1e6
            record = await proxy.record(1)
        faults = _faults(record, sent_wall, elapsed_ms)
        all_right = all_right and not faults
        rows.append(
            (
                name,
                f"{elapsed_ms:.1f}",
                f"{record.duration_ms:.1f}",
                f"{record.ttft_ms:.1f}",
                f"{(wall_ns(record) - sent_wall) / 1e6:.1f}",
                ", ".join(faults) or "none",
            )
        )
    return rows, all_right


async def _ask(port: int, token: asyncio.Event) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body: dict[str, object] = {"model": "sim", "stream": True}
    path = plan.PATHS["openai_chat"]
    writer.write(plan.request("127.0.0.1", path, plan.trace_id(1, "shared"), body, SCRIPT))
    await reader.readuntil(FIRST_TOKEN)
    token.set()
    await reader.readuntil(b"0\r\n\r\n")
    writer.close()


def _faults(record: Record, sent_wall: int, elapsed_ms: float) -> list[str]:
    """What cannot be true of a record."""
    order = (
        "request_end",
        "pool_ready",
        "upstream_tx_start",
        "upstream_tx_end",
        "response_headers",
        "first_chunk",
        "first_token",
        "last_token",
        "upstream_rx_end",
        "end",
    )
    marks = [record.marks_us[name] for name in order]
    parts = [value for value in record.segments_ms.values() if value is not None]
    durations = [*parts, record.duration_ms, record.tpot_ms or 0, record.gap_max_ms or 0]
    durations += [record.relay_delay_ms or 0, record.loop_lag_ms or 0]
    return [
        fault
        for fault, is_so in (
            ("marks out of order", marks != sorted(marks)),
            ("a negative duration", min(durations) < 0 or marks[0] < 0),
            ("parts do not add up", round(sum(parts) * 1000) != round(record.account_ms * 1000)),
            ("ts is not when it began", abs(wall_ns(record) - sent_wall) > 1_000_000_000),
            ("a duration longer than it took", max(durations) > elapsed_ms),
        )
        if is_so
    ]


# -- processor


def _alone(core: int) -> Disturbance:
    def around(proxy: Served) -> "nullcontext[None]":
        pin(proxy.pid, core)
        return nullcontext()

    return around


def _crowded(core: int) -> Disturbance:
    @contextmanager
    def around(proxy: Served) -> Iterator[None]:
        pin(proxy.pid, core)
        spinning = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(NEIGHBOURS)
        ]
        try:
            for one in spinning:
                pin(one.pid, core)
            yield
        finally:
            for one in spinning:
                one.kill()
                one.wait()

    return around


def _stopped(core: int) -> Disturbance:
    @contextmanager
    def around(proxy: Served) -> Iterator[None]:
        pin(proxy.pid, core)
        over = threading.Event()

        def stop_and_go() -> None:
            while not over.wait(EVERY_S):
                os.kill(proxy.pid, signal.SIGSTOP)
                over.wait(STOP_S)
                os.kill(proxy.pid, signal.SIGCONT)

        thread = threading.Thread(target=stop_and_go)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    return around


def _spoilt(sample: Sample) -> bool:
    """Whether a mark is visibly later than its bytes left the simulator."""
    return max(sample.one_way.values()) >= SPOILT_MS


def judge(
    lines: Sequence[Sequence[str]], held: bool, found: Mapping[str, Sequence[Sample]]
) -> Part:
    """Tables and goals."""
    rows = []
    spoilt_flagged, spoilt = 0, 0
    for name, samples in found.items():
        bad = [sample for sample in samples if _spoilt(sample)]
        flagged = [sample for sample in samples if "loop_lag" in sample.record.flags]
        both = sum("loop_lag" in sample.record.flags for sample in bad)
        worst = max(max(sample.one_way.values()) for sample in samples)
        missed = [
            max(sample.one_way.values()) for sample in bad if "loop_lag" not in sample.record.flags
        ]
        rows.append(
            (
                name,
                *(str(len(some)) for some in (samples, bad, flagged)),
                str(both),
                f"{worst:.1f}",
                f"{max(missed):.1f}" if missed else "-",
            )
        )
        spoilt += len(bad)
        spoilt_flagged += both
    quiet = found["quiet"]
    flagged_quiet = sum("loop_lag" in sample.record.flags for sample in quiet)
    return Part(
        TITLE,
        (
            (
                "Clocks are made to misbehave in the middle of one request each; milliseconds. "
                "`duration` leaves out the time in which the monotonic clock stood still."
            ),
            table(("what happened", "really", "duration", "ttft", "ts off by", "faults"), lines),
            (
                "Processor time is stolen from the proxy, pinned to one core. Spoilt: a mark is "
                f"{SPOILT_MS:.0f} ms or more later than its bytes left the simulator."
            ),
            table(
                (
                    "",
                    "requests",
                    "spoilt",
                    "flagged",
                    "both",
                    "latest mark ms",
                    "latest not flagged ms",
                ),
                rows,
            ),
        ),
        (
            Goal("durations ordered and >= 0, `ts` right", "always", "yes" if held else "no", held),
            Goal(
                "spoilt records carry `loop_lag`",
                "all",
                f"{spoilt_flagged} of {spoilt}",
                spoilt_flagged == spoilt,
            ),
            Goal(
                "flagged on a quiet run",
                "<= 1 %",
                f"{100 * flagged_quiet / len(quiet):.1f} %",
                flagged_quiet <= len(quiet) / 100,
            ),
        ),
    )
