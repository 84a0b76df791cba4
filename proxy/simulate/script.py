"""The script: what one answer of the simulator looks like, and when. Pure.

A script is written as JSON, or compactly as `prefill=200 gap=20 cut.after_tokens=3`. SCRIPT.md
explains every field. Times are milliseconds; nothing is random unless `jitter` and `seed` are set.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

Ms = Annotated[float, Meta(ge=0, le=86_400_000)]
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
Size = Annotated[int, Meta(ge=0, le=4_000_000_000)]
StatusCode = Annotated[int, Meta(ge=200, le=999)]
HeaderPair = tuple[str, str]
Source = Literal[
    "llamacpp",
    "llamacpp_per_token",
    "ollama",
    "vllm",
    "server_timing",
    "openai_processing_ms",
    "envoy",
]


class ScriptError(ValueError):
    """A script that cannot be played; the text says where and why."""


class Base64(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes that are not text."""

    base64: bytes


class Reasoning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reasoning tokens before everything else. `hidden` ones take their time and stay unseen."""

    n: Count
    gap: Ms | None = None
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    content: Literal["null", "empty", "absent"] = "absent"
    hidden: bool = False


class ToolCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call before the text: one token for the name, one per piece of the arguments."""

    name: str = "get_weather"
    arguments: tuple[str, ...] = ('{"city":', '"Paris"}')


class Failure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an error says, in the words of the dialect."""

    type: str | None = None
    message: str = "scripted error"
    code: str | None = None


class FailureEvent(Failure, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error inside a 200 stream, after `at` tokens; `done` sends the end marker after it."""

    at: Count = 0
    style: Literal["event", "bare"] = "event"
    done: bool = False


class Cut(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the answer breaks off, and how.

    `after_bytes` counts from the first byte of the status line. `extra_bytes` go on the wire
    behind the last event that counts, so 1 ends inside a chunk header.
    """

    after_bytes: Size | None = None
    after_events: Count | None = None
    after_tokens: Annotated[int, Meta(ge=1)] | None = None
    before_final_chunk: bool = False
    at_ms: Ms | None = None
    extra_bytes: Size = 0
    how: Literal["fin", "rst", "hang"] = "fin"


class ReadRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast the request body is taken, in bytes per second."""

    rate: Annotated[float, Meta(gt=0)]


class Script(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer. Every field has a default; the default script answers at once."""

    # what is spoken
    dialect: str | None = None
    stream: bool | None = None

    # when
    queue: Ms = 0
    load: Ms = 0
    prefill: Ms = 0
    first_token: Ms = 0
    gap: Ms | tuple[Ms, ...] = 0
    jitter: Ms = 0
    seed: int | None = None
    headers: Literal["early", "queue_end", "late"] | None = None
    opening_at: Ms | None = None
    closing_delay: Ms = 0
    end_delay: Ms = 0

    # what the model says
    tokens: Count | None = None
    text: tuple[str, ...] = ()
    reasoning: Reasoning | Count | None = None
    tool_call: ToolCall | bool = False
    refusal: bool = False
    one_event_bytes: Size = 0
    opening: Literal["standard", "empty_choices", "queued", "none"] = "standard"
    finish_reason: str | None = None
    no_terminal: bool = False
    error_event: FailureEvent | Count | None = None

    # what the server tells
    usage: bool | Literal["every"] | None = None
    prompt_tokens: Count = 16
    cached_tokens: Count = 0
    output_tokens: Count | None = None
    evidence: tuple[Source, ...] | None = None
    evidence_override: dict[str, Any] = {}

    # bodies that are not a model's answer
    error: Failure | None = None
    redirect: str | None = None
    body: str | Base64 | None = None
    raw: tuple[tuple[Ms, str | Base64], ...] = ()
    big: Size = 0
    echo: bool = False
    digest: bool = False

    # the response head and what surrounds it
    status: StatusCode | None = None
    reason: str | None = None
    content_type: str | None = None
    extra_headers: tuple[HeaderPair, ...] = ()
    trailers: tuple[HeaderPair, ...] = ()
    informational: tuple[tuple[Ms, int, tuple[HeaderPair, ...]], ...] = ()

    # the bytes on the wire
    http_version: Literal["1.0", "1.1"] | None = None
    framing: Literal["chunked", "length", "eof"] | None = None
    content_encoding: Literal["gzip", "deflate", "br", "zstd"] | None = None
    line_end: Literal["lf", "crlf", "cr"] = "lf"
    bom: bool = False
    comments: tuple[tuple[Ms, str], ...] = ()
    pings: Annotated[float, Meta(ge=1)] | None = None
    coalesce: Annotated[int, Meta(ge=1)] = 1
    fragment: Annotated[int, Meta(ge=1)] | None = None
    fragment_delay: Ms = 0
    cut: Cut | None = None

    # the request body and the connection
    read: Literal["all", "none"] | ReadRate = "all"
    early_reply: bool = False
    expect: Literal["100", "ignore", "refuse"] = "100"
    keep_alive: Ms | None = None
    close: bool = False

    @property
    def suits_any_path(self) -> bool:
        """Whether it answers something else than a model would."""
        other = (self.redirect, self.body, self.error)
        return (
            any(each is not None for each in other)
            or bool(self.raw or self.big or self.echo)
            or (self.status or 200) >= 300
        )


def read_script(source: "str | bytes | Mapping[str, object] | Script") -> Script:
    """A script from JSON text, compact text or a decoded JSON object. Raises `ScriptError`."""
    if isinstance(source, Script):
        return source
    value = _decode(source) if isinstance(source, bytes | str) else source
    try:
        script = msgspec.convert(value, Script)
    except msgspec.ValidationError as error:
        raise ScriptError(_explain(str(error))) from None
    _check(script)
    return script


def _decode(text: str | bytes) -> object:
    try:
        string = (text.decode() if isinstance(text, bytes) else text).strip()
        value = msgspec.json.decode(string) if string.startswith(("{", '"')) else string
        return _compact(value) if isinstance(value, str) else value
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ScriptError(f"not JSON: {error}") from None


_TEXTS = {"http_version", "expect", "reason", "redirect", "content_type", "body"}
_SETTING = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*)=(\S*)")


def _compact(text: str) -> object:
    """`a=1 b.c=x` as {"a": 1, "b": {"c": "x"}}; a value is JSON where it can be, else text."""
    found: dict[str, Any] = {}
    for setting in text.split():
        match = _SETTING.fullmatch(setting)
        if match is None:
            raise ScriptError(f"not a setting such as gap=20: {setting!r}")
        *path, last = match[1].split(".")
        place = found
        for name in path:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise ScriptError(f"{match[1]}: {name} has a value already")
        if last in _TEXTS and not match[2].startswith('"'):
            place[last] = match[2]
            continue
        try:
            place[last] = msgspec.json.decode(match[2])
        except msgspec.DecodeError:
            place[last] = match[2]
    return found


def _explain(error: str) -> str:
    match = re.search(r"unknown field `(.+?)`", error)
    if match is None:
        return error
    near = difflib.get_close_matches(match[1], Script.__struct_fields__, n=1)
    return f"{error}; did you mean {near[0]!r}?" if near else error


def _check(script: Script) -> None:
    """What the types cannot say."""
    cut = script.cut
    if cut is not None:
        places = (cut.after_bytes, cut.after_events, cut.after_tokens, cut.at_ms)
        if sum(place is not None for place in places) + cut.before_final_chunk != 1:
            raise ScriptError(
                "cut: give one of after_bytes, after_events, after_tokens, at_ms and "
                "before_final_chunk"
            )
    if script.jitter and script.seed is None:
        raise ScriptError("jitter: give a seed too; nothing is random without one")
    if script.trailers and script.framing not in (None, "chunked"):
        raise ScriptError("trailers: only a chunked body has them")
    if script.http_version == "1.0" and script.framing == "chunked":
        raise ScriptError("framing: HTTP/1.0 knows no chunks")
    for _, status, _ in script.informational:
        if not 100 <= status <= 199:
            raise ScriptError(f"informational: {status} is not a 1xx status")
    named = set(script.evidence or ()) | {"ollama"}
    for source in script.evidence_override:
        if source not in named:
            raise ScriptError(f"evidence_override: {source!r} is not under evidence")
    texts = [script.reason or "", script.redirect or "", script.content_type or ""]
    early = (pair for _, _, pairs in script.informational for pair in pairs)
    for name, value in (*script.extra_headers, *script.trailers, *early):
        texts += (name, value)
    if any("\r" in text or "\n" in text for text in texts):
        raise ScriptError("header text: a line end would make another header")
