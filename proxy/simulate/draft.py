"""From a script to the steps of its answer, of whichever kind it is. Pure."""

from dataclasses import replace

import msgspec

from .answer import Asked, Timetable, error_event, fault, ns
from .events import Claims, EventWriter, written
from .payloads import Payloads
from .payloads._api import Answer, Event, Events, Evidence, Fault, merged
from .script import Base64, Script, ScriptError
from .step import Draft, Moment, Pieces, Render, Step

JSON = "application/json"
SSE = "text/event-stream"
NDJSON = "application/x-ndjson"

_SILENT = ("token", "generated", "end")


def draft(script: Script, asked: Asked, said: Answer, times: Timetable) -> Draft:
    """The steps of one answer, without head and framing."""
    if script.redirect is not None:
        found = _document(script, times, (b"",), "")
        found.status = 307
        found.headers = (("Location", script.redirect),)
    elif script.body is not None:
        found = _document(script, times, (_bytes(script.body),), JSON)
    elif script.raw:
        found = _raw(script)
    elif script.big:
        found = _big(script, times)
    elif script.echo:
        found = _document(script, times, _echo, JSON)
    elif script.error is not None or (script.status or 200) >= 400:
        found = _error(script, asked, times)
    elif asked.stream:
        found = _stream(script, asked, said, times)
    else:
        found = _whole(script, asked, said, times)
    found.steps += _comments(script, asked)
    return found


def _document(
    script: Script,
    times: Timetable,
    body: Pieces | Render,
    content_type: str,
    at: int | None = None,
) -> Draft:
    at = times.first if at is None else at
    pieces, render = (body, None) if isinstance(body, tuple) else ((), body)
    steps = [
        Step(at=at, name="body", pieces=pieces, render=render, events=1),
        Step(at=at + ns(script.end_delay), name="end"),
    ]
    head_at, head_moves = _head_at(script, times, at, "late")
    return Draft(
        steps=steps,
        content_type=content_type,
        head_at=head_at,
        head_moves=head_moves,
        document=head_at == at,
    )


def _error(script: Script, asked: Asked, times: Timetable) -> Draft:
    status = script.status or 500
    said = fault(script.error) if script.error else Fault(None, "scripted error")
    body = msgspec.json.encode(asked.payloads.refusal(status, said))
    found = _document(script, times, (body,), JSON)
    found.status = status
    return found


def _raw(script: Script) -> Draft:
    steps = [
        Step(at=ns(at), name="body", pieces=(_bytes(piece),), events=1, moves=False)
        for at, piece in script.raw
    ]
    end = max(step.at for step in steps) + ns(script.end_delay)
    steps.append(Step(at=end, name="end", moves=False))
    first = min(step.at for step in steps)
    head_at = first if script.headers == "late" else 0
    return Draft(steps=steps, content_type=SSE, head_at=head_at, head_moves=False)


def _big(script: Script, times: Timetable) -> Draft:
    if script.content_encoding:
        raise ScriptError("big: a coded body has no length that is known beforehand")
    at = times.first
    steps = [Step(at=at, name="big", events=1), Step(at=at, name="end")]
    return Draft(
        steps=steps, content_type="application/octet-stream", head_at=at, length=script.big
    )


def _whole(script: Script, asked: Asked, said: Answer, times: Timetable) -> Draft:
    last = (times.tokens or (times.first,))[-1]
    body: Pieces | Render
    claims = Claims(script, asked, said)
    if claims.sources:

        def body(moment: Moment) -> Pieces:
            return (msgspec.json.encode(asked.payloads.whole(said, claims.at(moment))),)

    else:
        body = (msgspec.json.encode(asked.payloads.whole(said, {})),)
    found = _document(script, times, body, JSON, last + ns(script.closing_delay))
    found.steps += [_generated(times.first), _generated(last)]
    found.needs_slot = True
    return found


def _stream(script: Script, asked: Asked, said: Answer, times: Timetable) -> Draft:
    payloads = asked.payloads
    writer = EventWriter(script, asked, said)
    late = _first_event(said, payloads, times)
    head_at, head_moves = _head_at(script, times, late, "late" if payloads.heads_late else "early")
    error = error_event(script)
    spoken = len(said.tokens) if error is None else min(error.at, len(said.tokens))
    per_token = "llamacpp_per_token" in writer.claims.sources

    opening_at = head_at if script.opening_at is None else ns(script.opening_at)
    opening = writer.step(opening_at, "opening", lambda _: payloads.opening(said))
    opening_moves = head_moves if script.opening_at is None else False
    steps = [replace(opening, moves=opening_moves)]
    steps.append(writer.step(times.started, "started", lambda _: payloads.started(said)))
    if not times.tokens or times.first < times.tokens[0]:
        steps.append(_generated(times.first))
    if head_moves and head_at == late:
        # So that a late head knows when the first token was there.
        steps.append(_generated(late))
    for index in range(spoken):

        def token(members: Evidence, index: int = index) -> Events:
            return merged(list(payloads.token(said, index)), members)

        steps.append(writer.step(times.tokens[index], "token", token, dynamic=per_token))
    if error is not None:
        at = end = (*times.tokens, times.next)[spoken]
        told = fault(error)
        steps.append(writer.step(at, "error", lambda _: payloads.fault(said, told)))
    else:
        at = end = (times.tokens or (times.first,))[-1] + ns(script.closing_delay)
        if not script.no_terminal:
            dynamic = bool(writer.claims.sources)
            closing = writer.step(
                at, "closing", lambda m: payloads.closing(said, m), dynamic=dynamic
            )
            steps.append(closing)
    steps.append(Step(at=end + ns(script.end_delay), name="end"))
    return Draft(
        steps=[_unseen(step) for step in steps if step.events or step.name in _SILENT],
        content_type=NDJSON if payloads.ndjson else SSE,
        head_at=head_at,
        head_moves=head_moves,
        needs_slot=True,
    )


def _first_event(said: Answer, payloads: Payloads, times: Timetable) -> int:
    """When the first token can be seen; some formats hold a tool call until it is whole."""
    for index, at in enumerate(times.tokens):
        if payloads.token(said, index):
            return at
    return (times.tokens or (times.first,))[-1]


def _comments(script: Script, asked: Asked) -> list[Step]:
    if script.comments and asked.payloads.ndjson:
        raise ScriptError("comments: NDJSON has none")
    return [
        Step(
            at=ns(at),
            name="comment",
            pieces=(written(Event(text, comment=True), False, script.line_end),),
            events=1,
            moves=False,
        )
        for at, text in script.comments
    ]


def _unseen(step: Step) -> Step:
    """A token that the format does not show yet is only generated."""
    if step.name == "token" and not step.events:
        return _generated(step.at)
    return step


def _generated(at: int) -> Step:
    """A token that is generated and not sent, or not yet."""
    return Step(at=at, name="generated", in_body=False)


def _head_at(script: Script, times: Timetable, late: int, default: str) -> tuple[int, bool]:
    """When the head leaves, and whether it waits for a slot."""
    choice = script.headers or default
    if choice == "early":
        return 0, False
    return (times.loaded if choice == "queue_end" else late), True


def _echo(moment: Moment) -> Pieces:
    received = moment.received
    return (
        msgspec.json.encode(
            {
                "method": received.method,
                "target": received.target,
                "http_version": received.http_version,
                "headers": received.headers,
                "framing": received.framing,
                "trailers": received.trailers,
                "body_bytes": received.body_bytes,
                "body_sha256": received.body_sha256,
            }
        ),
    )


def _bytes(text: str | Base64) -> bytes:
    return text.base64 if isinstance(text, Base64) else text.encode()
