"""From steps to bytes on the wire. Pure."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

from .step import Moment, Pieces, Plan, Step
from .wire import BodyWriter


def prerendered(found: Plan, whole: bool) -> Iterator[Step]:
    """The steps with their bytes on the wire; a `whole` plan is one without any moment in it.

    In a whole plan the bytes that are due at one instant leave in one write.
    """
    writer = found.writer()
    if not whole:
        for step in found.steps:
            yield step if needs_moment(found, step) else _with_wire(found, step, writer)
        return
    steps = [_with_wire(found, step, writer) for step in found.steps]
    for _, group in groupby(steps, key=lambda step: (step.at, step.moves, step.name == "cut")):
        first, *others = group
        yield replace(first, wire=b"".join(step.wire or b"" for step in (first, *others)))
        yield from (replace(step, wire=b"") for step in others)


def needs_moment(found: Plan, step: Step) -> bool:
    """Whether the bytes of a step cannot be known beforehand."""
    if step.wire is not None:
        return False
    has_head = step.name == "head" or (found.document and step.name == "body")
    return bool(step.render or step.name == "big" or (has_head and found.head_needs_moment))


def _with_wire(found: Plan, step: Step, writer: BodyWriter) -> Step:
    if step.wire is not None:
        return step
    return replace(step, wire=wire_of(found, step, step.pieces, writer, None))


def wire_of(
    found: Plan, step: Step, pieces: Pieces, writer: BodyWriter, moment: Moment | None
) -> bytes:
    """The wire bytes of one step, whose pieces are known."""
    if step.name == "head":
        return found.head(moment, found.length)
    if not step.in_body:
        return step.raw
    if found.document:
        return _document_wire(found, step, pieces, writer, moment)
    if not found.sends_body:
        return b""
    if step.limit is None:
        return writer.end() if step.name == "end" else writer.write(pieces)
    kept, extra = step.limit
    body = writer.write(pieces[:kept])
    if extra:
        body += (writer.write(pieces[kept : kept + 1]) or writer.end())[:extra]
    return body


def _document_wire(
    found: Plan, step: Step, pieces: Pieces, writer: BodyWriter, moment: Moment | None
) -> bytes:
    """Head and body together, since the head tells the length."""
    if step.name != "body":
        return b""
    body = writer.write(pieces) + writer.end()
    head = found.head(moment, len(body))
    if not found.sends_body:
        return head
    return head + (body if step.limit is None else body[: step.limit[1]])
