"""Part 1: recorded minus scripted, mark by mark, beside a bare socket client's difference."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from proxy.record import Record
from tests.lab import plan
from tests.lab.client import Ask, Plan, Reply
from tests.lab.marks import MARKS, observed, scripted
from tests.lab.plan import Timetable, timetables
from tests.lab.processes import Served, ask, served, upstream
from tests.lab.report import Goal, Part, ms, table
from tests.lab.stats import drift, spread
from tests.lab.upstream import Witnessed

SEED = 20_260
P50_MS, P99_MS = 0.5, 2.0
SIGN_MS = 0.1
"""A mark may not come before its bytes left, but for what aligning two clocks costs."""
DRIFT_MS = 0.1

Marks = dict[str, float]
"""Milliseconds by mark."""
Disturbance = Callable[[Served], AbstractContextManager[None]]
"""What goes on around the proxy while it is measured."""


class Sample(NamedTuple):
    """One request: stamped minus scripted, in ms."""

    timetable: Timetable
    record: Record
    recorded: Marks
    """Of the record, as intervals from the hand-over of the request."""
    floor: Marks
    """Of the bare client, likewise."""
    one_way: Marks
    """Of the record, placed on the monotonic clock by its `ts`: the way back alone."""


def run(folder: Path, count: int) -> Part:
    """The part: `count` requests, each asked through the proxy and directly."""
    return judge(measure(folder, count))


def measure(
    folder: Path, count: int, *, seed: int = SEED, around: Disturbance = lambda _: nullcontext()
) -> list[Sample]:
    """Ask `count` requests twice, at the same time: through the proxy, and bare."""
    cases = timetables(count, seed)
    with upstream(folder) as api, served(folder, f"http://{api.host}:{api.port}") as proxy:
        ways = (("proxied", proxy.host, proxy.port), ("bare", api.host, api.port))
        steps = [[_ask(case, *way) for way in ways] for case in cases]
        with around(proxy):
            replies = ask(folder, Plan(steps=steps))
        records = proxy.wait_records(count)
    return samples(cases, records, replies, api.seen)


def _ask(case: Timetable, client: str, host: str, port: int) -> Ask:
    return Ask(
        trace=plan.trace_id(case.number, client),
        lane=client,
        host=host,
        port=port,
        request=case.request(f"{host}:{port}", client),
        after_ms=case.after_ms[client == "bare"],
    )


def samples(
    cases: Sequence[Timetable],
    records: Sequence[Record],
    replies: Mapping[str, Reply],
    seen: Mapping[str, Witnessed],
) -> list[Sample]:
    """The differences, in the order of the run. Raises `KeyError` when a mark is missing."""
    by_trace = {record.trace_id: record for record in records}
    found = []
    for case in cases:
        proxied, bare = plan.trace_id(case.number, "proxied"), plan.trace_id(case.number, "bare")
        record, reply = by_trace[proxied], replies[bare]
        truth = scripted(seen[proxied].timeline, case.reasoning)
        marks = {mark: record.marks_us[mark] * 1000 for mark in MARKS}
        sent = record.marks_us["upstream_tx_end"] * 1000
        start = wall_ns(record) - reply.wall_ahead
        bare_marks = observed(reply.reads, reply.data, case.needles, ndjson=case.ndjson)
        bare_truth = scripted(seen[bare].timeline, case.reasoning)
        found.append(
            Sample(
                case,
                record,
                recorded=_differences(marks, sent, truth, seen[proxied].complete_at),
                floor=_differences(bare_marks, reply.sent_at, bare_truth, seen[bare].complete_at),
                one_way=_differences(marks, -start, truth, 0),
            )
        )
    return found


def wall_ns(record: Record) -> int:
    """The record's `ts` in ns since the epoch; it is given in whole microseconds."""
    since = datetime.fromisoformat(record.ts) - datetime.fromisoformat("1970-01-01T00:00:00Z")
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _differences(
    stamped: Mapping[str, int], sent: int, truth: Mapping[str, int], complete: int
) -> Marks:
    return {mark: (stamped[mark] - sent - (truth[mark] - complete)) / 1e6 for mark in MARKS}


def judge(found: Sequence[Sample]) -> Part:
    """Tables and goals."""
    rows, ways = [], []
    above50, above99, lows, drifts = [], [], [], []
    for mark in MARKS:
        ours = spread(sample.recorded[mark] for sample in found)
        floor = spread(sample.floor[mark] for sample in found)
        rows.append((mark, *map(ms, (*ours[2:], *floor[2:], ours.p50 - floor.p50))))
        above50.append(ours.p50 - floor.p50)
        above99.append(ours.p99 - floor.p99)
        one_way = [sample.one_way[mark] for sample in found]
        way, moved = spread(one_way), drift(one_way)
        ways.append((mark, *map(ms, (*way[1:], moved))))
        lows.append(way.low)
        drifts.append(abs(moved))
    flagged = sum("loop_lag" in sample.record.flags for sample in found)

    def goal(name: str, value: float, limit: float) -> Goal:
        return Goal(name, f"<= {limit} ms", f"{value:.3f} ms", value <= limit)

    return Part(
        "1. Scripted truth",
        (
            (
                f"{len(found):,} requests, all milliseconds. Recorded minus scripted: in the "
                "record from `upstream_tx_end` on, at the simulator from the complete request on. "
                "Beside it the same for a bare socket client that asked the same at the same time "
                "(the floor)."
            ),
            table(
                ("mark", "p50", "p99", "max", "floor p50", "floor p99", "floor max", "p50 above"),
                rows,
            ),
            (
                "The way back alone: the record's `ts` places its marks on the clock that all "
                "processes share. Drift: how far this moves over the run."
            ),
            table(("mark", "min", "p50", "p99", "max", "drift"), ways),
            "`first_token` by kind of request:",
            table(("kind", "requests", "p50", "p99", "max"), _kinds(found)),
        ),
        (
            goal("p50 above the floor, worst mark", max(above50), P50_MS),
            goal("p99 above the floor, worst mark", max(above99), P99_MS),
            goal("no mark before its bytes, worst mark", max(0.0, -min(lows)), SIGN_MS),
            goal("no drift over the run, worst mark", max(drifts), DRIFT_MS),
            Goal(
                "flagged `loop_lag` on a quiet run",
                "<= 1 %",
                f"{100 * flagged / len(found):.1f} %",
                flagged <= len(found) / 100,
            ),
        ),
    )


def _kinds(found: Sequence[Sample]) -> list[tuple[str, ...]]:
    kinds: dict[str, list[float]] = {}
    for sample in found:
        reused = "reused connection" if sample.record.connection_reused else "new connection"
        names = [sample.timetable.dialect, f"head {sample.timetable.script['headers']}", reused]
        if sample.timetable.reasoning:
            names.append("reasoning first")
        for name in names:
            kinds.setdefault(name, []).append(sample.recorded["first_token"])
    return [
        (name, f"{len(values):,}", *map(ms, spread(values)[2:]))
        for name, values in sorted(kinds.items())
    ]
