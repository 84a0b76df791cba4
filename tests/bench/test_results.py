"""Results, goals and their report, from numbers made by hand."""

import pytest

from tests.bench.peers import NONE, OURS
from tests.bench.report import Setting, report
from tests.bench.results import GOALS, Goal, Results
from tests.bench.startup import Startup
from tests.bench.stats import Spread

SETTING = Setting("bench", "today", "a machine", {OURS: "1.0"}, {"litellm": "not installed"})
STARTUP = Startup(Spread(0.9, 0.8, 1.0, 3), Spread(0.1, 0.1, 0.1, 3), Spread(0.4, 0.4, 0.4, 3))


def results() -> Results:
    """Two rounds of one workload; the second had a slower machine."""
    found = Results()
    for bare, ours in ((200.0, 200.5), (210.0, 211.5)):
        found.add("open", {NONE: {"ttft_p50_ms": bare}, OURS: {"ttft_p50_ms": ours}})
    return found


def test_added_is_the_difference_within_a_round() -> None:
    """Medians of all rounds would mix fast and slow ones."""
    assert results().get("open", OURS, "added_ttft_p50_ms") == Spread(1.0, 0.5, 1.5, 2)
    assert results().get("open", NONE, "added_ttft_p50_ms") is None


def test_what_was_not_measured_is_not_zero() -> None:
    """Neither as a number, nor as a ratio, nor as a goal."""
    found = results()
    assert found.get("burst", OURS, "ttft_p50_ms") is None
    assert found.ratio("slope", "cpu_us_event", "nginx") is None
    assert GOALS[0].judge(found) == (None, "not measured")


def test_ratios_are_of_medians() -> None:
    """Of two rows in one workload."""
    found = Results()
    found.add("slope", {"nginx": {"cpu_us_event": 40.0}, OURS: {"cpu_us_event": 50.0}})
    assert found.ratio("slope", "cpu_us_event", "nginx") == 1.25
    assert GOALS[0].judge(found) == (1.25, "pass")


@pytest.mark.parametrize(
    ("at_least", "reached", "verdict"),
    [(False, 1.0, "pass"), (False, 1.1, "MISS"), (True, 1.0, "pass"), (True, 0.9, "MISS")],
)
def test_a_goal_has_a_direction(at_least: bool, reached: float, verdict: str) -> None:
    """And the limit itself is good enough."""
    assert Goal("it", 1.0, lambda _: reached, at_least).judge(Results()) == (reached, verdict)


def test_the_report_says_why_a_row_is_empty() -> None:
    """Not installed, or not run, with the reason; a missed goal is not hidden."""
    found = results()
    found.cell("open", "mitmproxy").note = "not run: too slow"
    text = report(found, STARTUP, SETTING)
    assert "| litellm | not installed |" in text
    assert "not run: too slow |" in text
    assert "| TTFT added, random arrivals, p50 (ms) | <= 1 | 1 | pass |" in text
    assert "| < 0.7 | 0.9 | MISS |" in text


def test_tables_are_square() -> None:
    """Every line of a table has as many cells as its head."""
    found = results()
    found.cell("open", "mitmproxy").note = "not run: too slow"
    table: list[int] = []
    for line in report(found, STARTUP, SETTING).splitlines():
        table = [*table, line.count("|")] if line.startswith("|") else []
        assert len(set(table)) <= 1, line
