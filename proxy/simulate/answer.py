"""From a script to what the model says and the instants at which it says it. Pure."""

import random
from dataclasses import dataclass
from itertools import chain, cycle, islice, repeat

from .payloads import Payloads
from .payloads._api import Answer, Fault, Kind, Token, Usage
from .script import Failure, FailureEvent, Reasoning, Script, ToolCall

WORDS = ("The", " time", " to", " first", " token", " is", " what", " you", " wait", " for", ".")
THOUGHTS = ("Let", " me", " think", " it", " over", ".")
DEFAULT_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks, as far as its answer depends on it. `model` is "sim" when not stated."""

    payloads: Payloads
    model: str
    stream: bool = False
    include_usage: bool = False
    head_only: bool = False
    """A HEAD request: no body is sent."""
    http10: bool = False
    close: bool = False
    """The client does not want to keep the connection."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """Offsets in ns from the complete request, as they are when a slot is free at once."""

    started: int
    loaded: int
    first: int
    """The first token, hidden ones included."""
    tokens: tuple[int, ...]
    """Every token of the answer."""
    next: int
    """When another token would come."""


def ns(ms: float) -> int:
    """Milliseconds as whole nanoseconds."""
    return round(ms * 1_000_000)


def answer(script: Script, asked: Asked) -> Answer:
    """What the model says."""
    tokens = _tokens(script)
    reasoning = _reasoning(script)
    hidden = reasoning.n if reasoning.hidden else 0
    output = len(tokens) + hidden if script.output_tokens is None else script.output_tokens
    usage = Usage(script.prompt_tokens, script.cached_tokens, output, reasoning.n)
    tool = script.tool_call if isinstance(script.tool_call, ToolCall) else ToolCall()
    return Answer(
        model=asked.model,
        tokens=tokens,
        usage=usage if _usage_wanted(script, asked) else None,
        usage_in_every_event=script.usage == "every",
        opening=script.opening,
        finish_reason=script.finish_reason,
        tool_name=tool.name,
        reasoning_field=reasoning.field,
        reasoning_content=reasoning.content,
    )


def timetable(script: Script, said: Answer) -> Timetable:
    """When it is said."""
    started = ns(script.queue)
    loaded = started + ns(script.load)
    first = loaded + ns(script.prefill) + ns(script.first_token)
    reasoning = _reasoning(script)
    gaps = script.gap if isinstance(script.gap, tuple) else (script.gap,)
    text_gaps = chain(gaps, repeat(gaps[-1] if gaps else 0.0))
    dice = random.Random(script.seed)  # noqa: S311 (jitter needs no cryptography)

    def after(kind: Kind) -> int:
        own = reasoning.gap if kind is Kind.REASONING and reasoning.gap is not None else None
        return ns((next(text_gaps) if own is None else own) + script.jitter * dice.random())

    at = first
    if reasoning.hidden:
        at += ns(reasoning.n * (next(text_gaps) if reasoning.gap is None else reasoning.gap))
    instants = []
    for token in said.tokens:
        instants.append(at)
        at += after(token.kind)
    return Timetable(started, loaded, first, tuple(instants), at)


def fault(error: Failure) -> Fault:
    """A scripted error as the payload writers take it."""
    if isinstance(error, FailureEvent):
        return Fault(error.type, error.message, error.code, error.style == "bare", error.done)
    return Fault(error.type, error.message, error.code)


def error_event(script: Script) -> FailureEvent | None:
    """The error inside the stream, if one is scripted."""
    scripted = script.error_event
    return FailureEvent(at=scripted) if isinstance(scripted, int) else scripted


def _tokens(script: Script) -> tuple[Token, ...]:
    pieces: list[tuple[Kind, str]] = []
    reasoning = _reasoning(script)
    if not reasoning.hidden:
        pieces += [(Kind.REASONING, word) for word in islice(cycle(THOUGHTS), reasoning.n)]
    if script.tool_call:
        tool = script.tool_call if isinstance(script.tool_call, ToolCall) else ToolCall()
        pieces += [(Kind.TOOL_CALL, text) for text in (tool.name, *tool.arguments)]
    kind = Kind.REFUSAL if script.refusal else Kind.TEXT
    if script.one_event_bytes:
        pieces.append((kind, "x" * script.one_event_bytes))
    pieces += [(kind, word) for word in islice(cycle(script.text or WORDS), _text_tokens(script))]
    return _in_runs(pieces)


def _text_tokens(script: Script) -> int:
    if script.tokens is not None:
        return script.tokens
    if script.text:
        return len(script.text)
    return 0 if script.tool_call or script.one_event_bytes else DEFAULT_TOKENS


def _in_runs(pieces: list[tuple[Kind, str]]) -> tuple[Token, ...]:
    tokens: list[Token] = []
    run = 0
    for index, (kind, text) in enumerate(pieces):
        first = index == 0 or pieces[index - 1][0] is not kind
        last = index == len(pieces) - 1 or pieces[index + 1][0] is not kind
        tokens.append(Token(kind, text, run, first, last))
        run += last
    return tuple(tokens)


def _reasoning(script: Script) -> Reasoning:
    reasoning = script.reasoning
    return reasoning if isinstance(reasoning, Reasoning) else Reasoning(n=reasoning or 0)


def _usage_wanted(script: Script, asked: Asked) -> bool:
    if script.usage is not None:
        return bool(script.usage)
    asks = asked.payloads.usage_on_request and asked.stream
    return asked.include_usage or not asks
