"""The results as Markdown. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .peers import NAMES, NONE
from .results import COLD_START, GOALS, Results
from .startup import Startup
from .stats import Spread
from .workloads import WORKLOADS

LABELS = {
    "cpu_ms_request": "CPU ms/request",
    "ttft_p50_ms": "TTFT p50 ms",
    "added_ttft_p50_ms": "added p50 ms",
    "ttft_p99_ms": "TTFT p99 ms",
    "added_ttft_p99_ms": "added p99 ms",
    "gap_p99_ms": "gap error p99 ms",
    "added_gap_p99_ms": "added gap p99 ms",
    "gap_max_ms": "gap error max ms",
    "per_s": "requests/s",
    "per_cpu_s": "requests per CPU second",
    "cpu_us_event": "CPU us/event",
    "cpu_ms_bare_request": "CPU ms/request without events",
    "memory_kb_stream": "memory kB/stream",
    "gap_max_without_ms": "longest gap without ms",
    "gap_max_with_ms": "longest gap beside it ms",
    "big_ms": "the large answer ms",
    "peak_mb": "peak memory MB",
    "busy": "proxy core busy %",
    "load_busy": "load core busy %",
    "failed": "not complete",
}
"""Column heads, in their order."""
PLAIN = {"busy", "load_busy", "failed", "peak_mb"}
"""Shown without their range."""
SUMMARY = (
    ("CPU ms/request", "open", "cpu_ms_request"),
    ("CPU us/event", "slope", "cpu_us_event"),
    ("CPU ms/request without events", "slope", "cpu_ms_bare_request"),
    ("TTFT added p50 ms", "open", "added_ttft_p50_ms"),
    ("TTFT added p99 ms", "open", "added_ttft_p99_ms"),
    ("added gap p99 ms", "open", "added_gap_p99_ms"),
    ("requests/s at saturation", "saturation", "per_s"),
    ("requests per CPU second", "saturation", "per_cpu_s"),
    ("peak memory MB", "open", "peak_mb"),
)

PREFACE = """\
The load and the simulated model API run on one core; the proxy has the other one to itself and is
started anew for each run. CPU is what the kernel counts for the proxy's processes. Numbers are
medians over the rounds (least to most). "Added" is the difference to the row `none` of the same
round. Where the proxy core is not busy to nearly 100 % at saturation, the load and not the proxy
limits `requests/s`; `requests per CPU second` holds all the same.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how the run was made."""

    command: str
    date: str
    machine: str
    versions: Mapping[str, str]
    unavailable: Mapping[str, str]


def report(results: Results, startup: Startup | None, setting: Setting) -> str:
    """The whole page."""
    versions = ", ".join(f"{row} {version}".strip() for row, version in setting.versions.items())
    parts = [
        "# Benchmarks\n",
        f"`{setting.command}`, {setting.date}  \n{setting.machine}  \n{versions}\n",
        PREFACE,
        "## Goals\n",
        _goals(results, startup),
        "## In short\n",
        _summary(results, setting),
    ]
    for workload in WORKLOADS:
        if workload.name in results.cells:
            parts += [f"## {workload.name}: {workload.title}\n", _workload(results, workload.name)]
    if startup is not None:
        parts += ["## Start\n", _startup(startup)]
    return "\n".join(parts)


def _goals(results: Results, startup: Startup | None) -> str:
    lines = []
    for goal in GOALS:
        reached, verdict = goal.judge(results)
        limit = f"{'>=' if goal.at_least else '<='} {goal.limit:g}"
        lines.append((goal.text, limit, "" if reached is None else _number(reached), verdict))
    if startup is not None:
        text, most = COLD_START
        reached = startup.cold_s.middle
        verdict = "pass" if reached < most else "MISS"
        lines.append((text, f"< {most:g}", _number(reached), verdict))
    return _table(("goal", "limit", "reached", ""), lines)


def _summary(results: Results, setting: Setting) -> str:
    shown = [(label, *where) for label, *where in SUMMARY if where[0] in results.cells]
    lines = []
    for row in _rows(results):
        cells = [_cell(results.get(workload, row, name)) for _, workload, name in shown]
        lines.append((row, *cells))
    for row, reason in setting.unavailable.items():
        lines.append((row, reason, *[""] * (len(shown) - 1)))
    return _table(("", *(label for label, *_ in shown)), lines)


def _workload(results: Results, workload: str) -> str:
    cells = results.cells[workload]
    found = {name for cell in cells.values() for numbers in cell.rounds for name in numbers}
    names = [name for name in LABELS if name in found]
    lines = []
    for row in NAMES:
        if row not in cells:
            continue
        spreads = [(name, results.get(workload, row, name)) for name in names]
        shown = [_cell(each, plain=name in PLAIN) for name, each in spreads]
        if not cells[row].rounds:
            shown = [""] * len(names)
        lines.append((row, *shown, cells[row].note))
    return _table(("", *(LABELS[name] for name in names), "note"), lines)


def _startup(startup: Startup) -> str:
    return _table(
        ("", f"median of {startup.cold_s.rounds} (least to most)"),
        (
            ("start to the first answered request, s", _cell(startup.cold_s)),
            ("of it Python itself, s", _cell(startup.python_s)),
            ("of it importing the serving side, s", _cell(startup.import_s)),
        ),
    )


def _rows(results: Results) -> list[str]:
    found = {row for cells in results.cells.values() for row in cells}
    return [row for row in NAMES if row in found and row != NONE]


def _cell(value: Spread | None, *, plain: bool = False) -> str:
    if value is None:
        return ""
    if plain or value.rounds == 1:
        return _number(value.middle)
    return f"{_number(value.middle)} ({_number(value.least)} to {_number(value.most)})"


def _number(value: float) -> str:
    if value == int(value) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
