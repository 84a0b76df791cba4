"""The order of steps, and what scripts do to it: coalescing, byte order marks, cuts. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from .script import Cut
from .step import Moment, Pieces, Step

_RANKS = {"cut": 0, "informational": 1, "slot": 3, "generated": 4, "end": 7}


def in_order(step: Step) -> tuple[int, int]:
    """Instant first; at one instant, what has to come first."""
    if step.name == "head":
        return step.at, 5 if step.moves else 2
    return step.at, _RANKS.get(step.name, 6)


def coalesced(steps: list[Step], size: int) -> Iterator[Step]:
    """`size` tokens at a time, when the last of them is due: a hop that buffers."""
    held: list[Step] = []
    for step in steps:
        if step.name == "token" and size > 1:
            held.append(step)
        elif step.name in ("closing", "error", "end") and held:
            yield _joined(held)
            held = []
        if len(held) == size:
            yield _joined(held)
            held = []
        if step.name != "token" or size == 1:
            yield step


def _joined(steps: list[Step]) -> Step:
    """Several steps as one, at the instant of the last, as one piece."""
    parts = tuple(steps)

    def render(moment: Moment) -> Pieces:
        pieces = (part.render(moment) if part.render else part.pieces for part in parts)
        return (b"".join(b"".join(each) for each in pieces),)

    events = sum(part.events for part in parts)
    if any(part.render for part in parts):
        return replace(parts[-1], render=render, events=events)
    joined = b"".join(b"".join(part.pieces) for part in parts)
    return replace(parts[-1], pieces=(joined,), events=events)


def mark_order(steps: list[Step]) -> None:
    """Put a byte order mark in front of the first event."""
    for index, step in enumerate(steps):
        if step.pieces:
            first, *rest = step.pieces
            steps[index] = replace(step, pieces=(b"\xef\xbb\xbf" + first, *rest))
            return


def hints_before_head(steps: list[Step]) -> list[Step]:
    """There is no informational response once the final one has begun."""
    head = next(index for index, step in enumerate(steps) if step.name == "head")
    rest = [step for step in steps[head:] if step.name != "informational"]
    return [*steps[:head], *rest]


def up_to_end(steps: list[Step]) -> list[Step]:
    """Nothing is said after the end."""
    end = next(index for index, step in enumerate(steps) if step.name == "end")
    return steps[: end + 1]


def cut_off(steps: list[Step], cut: Cut) -> list[Step]:
    """The steps up to the cut; a cut after bytes is counted while they are written."""
    if cut.before_final_chunk:
        return [
            replace(step, name="cut", in_body=False) if step.name == "end" else step
            for step in steps
        ]
    if cut.after_events is None and cut.after_tokens is None:
        return steps
    by_tokens = cut.after_tokens is not None
    left = cut.after_tokens if cut.after_tokens is not None else cut.after_events or 0
    kept: list[Step] = []
    for step in steps:
        if not step.in_body:
            kept.append(step)
            continue
        weight = step.name == "token" if by_tokens else step.events
        if not left or left < weight:
            if left or cut.extra_bytes or step.name == "body":
                kept.append(replace(step, limit=(left, cut.extra_bytes)))
            break
        kept.append(step)
        left -= weight
        if not left and not cut.extra_bytes:
            break
    last = kept[-1] if kept else Step(at=0, name="cut", moves=False)
    return [*kept, Step(at=last.at, name="cut", in_body=False, moves=last.moves)]
