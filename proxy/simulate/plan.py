"""From a script to a plan: which bytes are due when. Pure.

A plan is a list of steps in the order of their instants. What can be known beforehand is rendered
beforehand, down to the bytes on the wire, and the plan is then reused for every request that asks
the same; a step that tells measured times is rendered when it is due.
"""

from collections.abc import Iterator
from dataclasses import replace

from .answer import Asked, answer, ns, timetable
from .draft import draft
from .events import written
from .head import ResponseHead
from .render import needs_moment, prerendered
from .script import Script
from .shape import coalesced, cut_off, hints_before_head, in_order, mark_order, up_to_end
from .step import Draft, Plan, Step
from .wire import BodyWriter
from .wire import head as head_bytes


def plan(script: Script, asked: Asked, *, slots: bool = False) -> Plan:
    """The plan for one answer; `slots` says that generation has to get a slot.

    Raises `ScriptError` for what a script asks of an answer that cannot have it.
    """
    said = answer(script, asked)
    times = timetable(script, said)
    found = draft(script, asked, said, times)
    head = ResponseHead(script, asked, found)
    document = found.document and head.framing == "length"
    waits = slots and found.needs_slot
    steps = [*found.steps, *_surroundings(script)]
    if waits:
        steps.append(Step(at=times.started, name="slot", in_body=False, moves=False))
    if not head.sends_body:
        steps = _without_body(steps, document)
    head_step = _head_step(steps, found)
    steps.append(replace(head_step, wire=b"") if document else head_step)
    if not head.sends_body:
        steps.append(replace(max(steps, key=in_order), name="end", in_body=True))
    steps = hints_before_head(sorted(steps, key=in_order))
    if not waits:
        steps = up_to_end(steps)
    steps = list(coalesced(steps, script.coalesce))
    if script.bom:
        mark_order(steps)
    length = found.length
    if head.framing == "length" and not document and length is None:
        length = None if waits and script.comments else _length(steps, head.writer())
    cut = script.cut
    if cut is not None:
        steps = cut_off(steps, cut)
    ping_every = None if script.pings is None or found.document else ns(script.pings)
    result = Plan(
        steps=tuple(steps),
        times=times,
        head=head.render,
        head_needs_moment=head.needs_moment,
        length=length,
        writer=head.writer,
        document=document,
        sends_body=head.sends_body,
        ping=written(asked.payloads.ping(), asked.payloads.ndjson, script.line_end),
        ping_every=ping_every,
        big=script.big,
        chunked=head.framing == "chunked",
        cut_after_bytes=None if cut is None else cut.after_bytes,
        cut_how="fin" if cut is None else cut.how,
        fragment=script.fragment,
        fragment_delay=ns(script.fragment_delay),
        keep_alive=None if script.keep_alive is None else ns(script.keep_alive),
        closes=head.closes,
    )
    # A head that cannot be written is told of now, not when it is due.
    head.render(None, 0 if document else length)
    if script.content_encoding and (waits or ping_every or any(s.render for s in steps)):
        return result
    whole = not ping_every and not any(needs_moment(result, step) for step in steps)
    return replace(result, steps=tuple(prerendered(result, whole)))


def _surroundings(script: Script) -> Iterator[Step]:
    """What happens around the answer, at its own times."""
    for at, status, headers in script.informational:
        raw = head_bytes("1.1", status, None, headers)
        yield Step(at=ns(at), name="informational", raw=raw, in_body=False, moves=False)
    if script.cut is not None and script.cut.at_ms is not None:
        yield Step(at=ns(script.cut.at_ms), name="cut", in_body=False, moves=False)


def _without_body(steps: list[Step], document: bool) -> list[Step]:
    """The steps of an answer to HEAD, or of a status that has no body: it ends with its head."""
    kept = [step for step in steps if not step.in_body or (document and step.name == "body")]
    return [step for step in kept if step.name != "generated"]


def _head_step(steps: list[Step], found: Draft) -> Step:
    """The head leaves when it is due, or before the first body bytes if they come earlier."""
    at, moves = found.head_at, found.head_moves
    for step in steps:
        if step.in_body and step.name != "end" and step.at < at:
            at, moves = step.at, step.moves
    return Step(at=at, name="head", in_body=False, moves=moves)


def _length(steps: list[Step], writer: BodyWriter) -> int | None:
    """The length of a body that is known beforehand."""
    if any(step.render for step in steps):
        return None
    return sum(len(writer.write(step.pieces)) for step in steps) + len(writer.end())
