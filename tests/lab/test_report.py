"""Markdown for people."""

from tests.lab.report import Goal, Part, table


def test_a_table() -> None:
    """Columns of numbers are aligned to the right."""
    assert table(("name", "ms"), [("a", "1,000.5"), ("b", "-")]) == (
        "| name | ms |\n|---|---:|\n| a | 1,000.5 |\n| b | - |"
    )


def test_a_missed_goal_is_bold_and_counts() -> None:
    """One missed goal misses the part."""
    part = Part("T", ("text",), (Goal("a", "<= 1", "0.5", True), Goal("b", "<= 1", "2", False)))
    assert not part.met
    assert "| b | <= 1 | 2 | **missed** |" in part.markdown()
    assert Part("T", goals=part.goals[:1]).met


def test_skipped_says_why() -> None:
    """And does not look like success."""
    assert "Skipped, which is not passed: needs root." in Part("T", skipped="needs root").markdown()
