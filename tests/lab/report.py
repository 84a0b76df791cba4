"""What a part of the laboratory says: tables, goals, and whether they were reached. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal: what was wanted, what was reached."""

    name: str
    wanted: str
    reached: str
    met: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One part's report. `text` is Markdown; `skipped` is the reason why it did not run."""

    title: str
    text: Sequence[str] = ()
    goals: Sequence[Goal] = ()
    skipped: str | None = None
    notes: Sequence[str] = field(default=())

    @property
    def met(self) -> bool:
        """Whether nothing was missed; a skipped part has missed nothing and shown nothing."""
        return all(goal.met for goal in self.goals)

    def markdown(self) -> str:
        """The whole part."""
        blocks = [f"## {self.title}"]
        if self.skipped is not None:
            blocks.append(f"Skipped, which is not passed: {self.skipped}.")
        blocks += self.text
        if self.goals:
            rows = [
                (goal.name, goal.wanted, goal.reached, "reached" if goal.met else "**missed**")
                for goal in self.goals
            ]
            blocks.append(table(("goal", "wanted", "measured", ""), rows))
        blocks += self.notes
        return "\n\n".join(blocks)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns after the first are aligned to the right when all are numbers."""
    numeric = [
        bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(head))
    ]
    lines = [
        "| " + " | ".join(head) + " |",
        "|" + "|".join("---:" if right else "---" for right in numeric) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "").rstrip("%") or "0")
    except ValueError:
        return text in ("", "-")
    return True


def ms(value: float) -> str:
    """Milliseconds with three decimals."""
    return f"{value:.3f}"
