"""What a run of the benchmarks found, and the goals it is held against. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .peers import NONE, OURS
from .stats import Spread, spread
from .workloads import Numbers

ADDED = ("ttft_p50_ms", "ttft_p99_ms", "gap_p99_ms")
"""Numbers that make sense as a difference to the row without a proxy, too."""


@dataclass(slots=True)
class Cell:
    """One row in one workload: numbers of each round, or why there are none."""

    rounds: list[Numbers] = field(default_factory=list)
    note: str = ""


@dataclass(slots=True)
class Results:
    """By workload, then by row."""

    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)

    def cell(self, workload: str, row: str) -> Cell:
        """That cell, made when it is asked for the first time."""
        return self.cells.setdefault(workload, {}).setdefault(row, Cell())

    def add(self, workload: str, round_of: Mapping[str, Numbers]) -> None:
        """One round: what each row gave, and how much more than without a proxy."""
        bare = round_of.get(NONE)
        for row, numbers in round_of.items():
            more = {
                f"added_{name}": numbers[name] - bare[name]
                for name in ADDED
                if bare is not None and row != NONE and name in numbers and name in bare
            }
            self.cell(workload, row).rounds.append({**numbers, **more})

    def get(self, workload: str, row: str, name: str) -> Spread | None:
        """A number over its rounds; None when it was not measured."""
        cell = self.cells.get(workload, {}).get(row, Cell())
        return spread([numbers[name] for numbers in cell.rounds if name in numbers])

    def ratio(self, workload: str, name: str, over: str, row: str = OURS) -> float | None:
        """A row's median over another row's."""
        one, other = self.get(workload, row, name), self.get(workload, over, name)
        return one.middle / other.middle if one and other and other.middle else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A number that shall not be larger (or smaller) than a limit."""

    text: str
    limit: float
    find: Callable[[Results], float | None]
    at_least: bool = False

    def judge(self, results: Results) -> tuple[float | None, str]:
        """What was reached, and "pass", "MISS" or "not measured"."""
        reached = self.find(results)
        if reached is None:
            return None, "not measured"
        good = reached >= self.limit if self.at_least else reached <= self.limit
        return reached, "pass" if good else "MISS"


def _ratio(workload: str, name: str, over: str) -> Callable[[Results], float | None]:
    return lambda results: results.ratio(workload, name, over)


def _ours(workload: str, name: str) -> Callable[[Results], float | None]:
    def find(results: Results) -> float | None:
        found = results.get(workload, OURS, name)
        return found.middle if found else None

    return find


def _stall(results: Results) -> float | None:
    before = results.get("stall", OURS, "gap_max_without_ms")
    beside = results.get("stall", OURS, "gap_max_with_ms")
    return beside.middle - before.middle if before and beside else None


GOALS = (
    Goal("CPU per event / nginx", 1.5, _ratio("slope", "cpu_us_event", "nginx")),
    Goal("CPU per event / mitmproxy", 0.25, _ratio("slope", "cpu_us_event", "mitmproxy")),
    Goal("TTFT added, random arrivals, p50 (ms)", 1.0, _ours("open", "added_ttft_p50_ms")),
    Goal("TTFT added, random arrivals, p99 (ms)", 5.0, _ours("open", "added_ttft_p99_ms")),
    Goal("TTFT added, same instant, p99 (ms)", 20.0, _ours("burst", "added_ttft_p99_ms")),
    Goal(
        "requests per CPU second at saturation / nginx",
        0.7,
        _ratio("saturation", "per_cpu_s", "nginx"),
        at_least=True,
    ),
    Goal("1,000 streams: not complete", 0.0, _ours("thousand", "failed")),
    Goal("1,000 streams: gap error p99 (ms)", 50.0, _ours("thousand", "gap_p99_ms")),
    Goal("1,000 streams: memory per stream (kB)", 60.0, _ours("thousand", "memory_kb_stream")),
    Goal("5 MB event: longest gap of the others grows by (ms)", 50.0, _stall),
)
COLD_START = ("cold start to the first accepted request (s)", 0.7)
