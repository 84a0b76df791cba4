"""Part 3: the record against packets, captured by tcpdump on the upstream's port."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from proxy.record import Record
from tests.lab import capture, plan
from tests.lab.capture import captured, exchanges
from tests.lab.client import Ask, Plan
from tests.lab.marks import observed
from tests.lab.plan import Timetable, timetables
from tests.lab.processes import apart, ask, pin, served, upstream
from tests.lab.report import Goal, Part, ms, table
from tests.lab.stats import quantile, spread
from tests.lab.truth import wall_ns

TITLE = "3. An independent witness"
SEED = 303
P50_MS, P99_MS = 0.3, 2.0
STREAMS, EVENTS, GAP_MS, BEFORE_MS = 64, 50, 20.0, 200.0
_ALIGNMENTS: tuple[tuple[str, Literal[1, 2]], ...] = (
    ("by the request's last byte", 1),
    ("by `ts`", 2),
)
MARKS = {"first byte": "response_headers", "first token": "first_token"}


class Seen(NamedTuple):
    """One request: recorded minus captured, in ms, by "first byte" and "first token"."""

    record: Record
    since_sent: dict[str, float]
    """Both counted from the last byte of the request."""
    by_wall: dict[str, float]
    """The record placed by its `ts`; packets are stamped with the wall clock anyway."""


def run(folder: Path, count: int, rounds: int) -> Part:
    """The part: `count` requests one by one, then `rounds` on each of 64 parallel streams."""
    reason = capture.why_not()
    if reason is not None:
        return Part(TITLE, skipped=reason)
    idle_cases = timetables(count, SEED)
    load_cases = _streams(rounds)
    dice = random.Random(SEED)
    period_ms = BEFORE_MS + EVENTS * GAP_MS
    spread_out = [
        (case, f"stream {case.number % STREAMS}", dice.uniform(0, period_ms)) for case in load_cases
    ]
    with apart() as core:
        idle = _seen(folder, core, idle_cases, [[(case, "one", 0.0)] for case in idle_cases])
        load = _seen(folder, core, load_cases, [spread_out])
    return judge(idle, load)


def _streams(rounds: int) -> list[Timetable]:
    words = tuple(f"w{index}w" for index in range(EVENTS))
    script: dict[str, object] = {"prefill": BEFORE_MS, "gap": GAP_MS, "text": words}
    return [
        Timetable(number, "openai_chat", script, 0, words, (0.0, 0.0))
        for number in range(STREAMS * rounds)
    ]


def _seen(
    folder: Path,
    core: int,
    cases: Sequence[Timetable],
    steps: Sequence[Sequence[tuple[Timetable, str, float]]],
) -> list[Seen]:
    file = folder / "packets.pcap"
    with (
        upstream(folder) as api,
        served(folder, f"http://{api.host}:{api.port}") as proxy,
        captured(api.port, file),
    ):
        pin(proxy.pid, core)
        where = f"{proxy.host}:{proxy.port}"
        asks = [
            [
                Ask(
                    trace=plan.trace_id(case.number, "witness"),
                    lane=lane,
                    host=proxy.host,
                    port=proxy.port,
                    request=case.request(where, "witness"),
                    after_ms=after_ms,
                )
                for case, lane, after_ms in step
            ]
            for step in steps
        ]
        ask(folder, Plan(steps=asks))
        records = {record.trace_id: record for record in proxy.wait_records(len(cases))}
        port = api.port
    found = exchanges(file.read_bytes(), port)
    file.unlink()
    seen = []
    for case in cases:
        trace = plan.trace_id(case.number, "witness")
        record, packets = records[trace], found[trace]
        marks = observed(packets.reads, packets.data, case.needles, ndjson=case.ndjson)
        sent, start = record.marks_us["upstream_tx_end"] * 1000, wall_ns(record)
        stamped = {name: record.marks_us[mark] * 1000 for name, mark in MARKS.items()}
        seen.append(
            Seen(
                record,
                {
                    name: (stamped[name] - sent - (marks[mark] - packets.sent_at)) / 1e6
                    for name, mark in MARKS.items()
                },
                {name: (stamped[name] + start - marks[mark]) / 1e6 for name, mark in MARKS.items()},
            )
        )
    return seen


def judge(idle: Sequence[Seen], load: Sequence[Seen]) -> Part:
    """Tables and goals."""
    rows = []
    for state, seen in (("idle", idle), ("under load", load)):
        for name in MARKS:
            since = spread(one.since_sent[name] for one in seen)
            wall = spread(one.by_wall[name] for one in seen)
            lag = spread(one.record.loop_lag_ms or 0.0 for one in seen)
            rows.append(
                (
                    f"{name}, {state}",
                    str(len(seen)),
                    *map(ms, since[1:]),
                    *map(ms, (wall.low, wall.p50, wall.p99, lag.p99)),
                )
            )
    explained = [
        abs(one.since_sent[name]) <= (one.record.loop_lag_ms or 0.0) + P99_MS
        for one in load
        for name in MARKS
    ]
    return Part(
        TITLE,
        (
            (
                "Recorded minus captured, in ms, aligned by the packet with the last byte of the "
                "request (`upstream_tx_end` is stamped when the write returns, a little after it); "
                "`ts` columns: aligned by the record's wall clock instead. Load: "
                f"{STREAMS} streams of {EVENTS} events, {1000 / GAP_MS:.0f} events/s each, "
                "starting at random. The proxy is alone on one core."
            ),
            table(
                (
                    "",
                    "requests",
                    "min",
                    "p50",
                    "p99",
                    "max",
                    "ts: min",
                    "ts: p50",
                    "ts: p99",
                    "loop lag p99",
                ),
                rows,
            ),
        ),
        (
            *(
                _goal(f"p{share * 100:.0f} by amount, idle, {how}", idle, side, share, limit)
                for how, side in _ALIGNMENTS
                for share, limit in ((0.5, P50_MS), (0.99, P99_MS))
            ),
            Goal(
                "under load: no more than the recorded loop lag and 2 ms",
                ">= 99 %",
                f"{100 * sum(explained) / len(explained):.1f} %",
                sum(explained) >= 0.99 * len(explained),
            ),
        ),
    )


def _goal(name: str, seen: Sequence[Seen], side: Literal[1, 2], share: float, limit: float) -> Goal:
    worst = max(quantile([abs(one[side][mark]) for one in seen], share) for mark in MARKS)
    return Goal(name, f"<= {limit} ms", f"{worst:.3f} ms", worst <= limit)
