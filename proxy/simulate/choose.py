"""From a request to the plan of its answer. Pure."""

import zlib
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qsl

import brotli
import msgspec
import zstandard

from .answer import Asked
from .book import Book
from .payloads import BY_NAME, Payloads, for_path
from .payloads.openai_chat import openai_chat
from .plan import plan
from .request import Head
from .script import Failure, Script, ScriptError, read_script
from .step import Plan

Key = TypeVar("Key")
Value = TypeVar("Value")

_MAX_CACHED = 1024
_MAX_DECODED = 64 * 1024 * 1024

MODELS = Script(body='{"object":"list","data":[{"id":"sim","object":"model","owned_by":"sim"}]}')
HEALTH = Script(body='{"status":"ok"}')
NOT_FOUND = Script(status=404, error=Failure(message="the simulator knows no such path"))


class _Body(msgspec.Struct):
    """What matters of a request body; everything else is skipped."""

    model: object = None
    stream: object = None
    stream_options: object = None
    sim: msgspec.Raw = msgspec.Raw()


_read_body = msgspec.json.Decoder(_Body).decode


class Chooser:
    """Finds the script of a request and keeps the plans that were made."""

    def __init__(self, book: Book, *, slots: bool = False) -> None:
        self.book = book
        self._slots = slots
        self._scripts: dict[bytes, Script] = {}
        self._plans: dict[tuple[int, Asked], tuple[Script, Plan]] = {}

    def early(self, head: Head) -> Script | None:
        """The script that the head itself names, in `X-Sim` or `sim=`. Raises `ScriptError`."""
        text = head.fields.get(b"x-sim")
        if text is None and b"sim=" in head.target:
            query = head.target.partition(b"?")[2].decode("latin-1")
            found = dict(parse_qsl(query, encoding="utf-8")).get("sim")
            text = None if found is None else found.encode("utf-8", "surrogateescape")
        return None if text is None else self._script(text)

    def manners(self, early: Script | None) -> Script:
        """Whose `read`, `early_reply` and `expect` hold before the body is known."""
        return early or self.book.default

    def plan(self, head: Head, body: bytes, early: Script | None) -> Plan:
        """The plan for a request. Raises `ScriptError`."""
        path = head.target.partition(b"?")[0].decode("latin-1")
        spoken = for_path(path) if head.method == b"POST" else None
        if early is None and spoken is None:
            other = self.book.default
            if not other.suits_any_path:
                other = _other(head.method, path)
            return self._plan(other, head, None, _Body())
        said = _said(head, body)
        script = early
        if script is None and (text := bytes(said.sim)):
            script = self._script(text)
        if script is None:
            script = self.book.find(said.model if isinstance(said.model, str) else None)
        return self._plan(script, head, spoken, said)

    def refusal(self, head: Head | None, status: int, message: str) -> Plan:
        """The plan for what cannot be answered: a JSON error, then the end of the connection."""
        script = Script(status=status, error=Failure(message=message), close=True)
        return plan(script, Asked(openai_chat, "sim", http10=_is_old(head)))

    def _script(self, text: bytes) -> Script:
        script = self._scripts.get(text)
        if script is None:
            script = read_script(text)
            _remember(self._scripts, text, script)
        return script

    def _plan(self, script: Script, head: Head, spoken: Payloads | None, said: _Body) -> Plan:
        payloads = spoken or openai_chat
        if script.dialect is not None:
            if script.dialect not in BY_NAME:
                raise ScriptError(f"dialect: there are {', '.join(BY_NAME)}")
            payloads = BY_NAME[script.dialect]
        stream = script.stream
        if stream is None:
            stream = payloads.streams_by_default if said.stream is None else bool(said.stream)
        options = said.stream_options
        asked = Asked(
            payloads=payloads,
            model=said.model if isinstance(said.model, str) else "sim",
            stream=stream,
            include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
            head_only=head.method == b"HEAD",
            http10=_is_old(head),
            close=not head.keep_alive,
        )
        # The script stays beside its plan: as long as it lives, its id is its own.
        _, found = self._plans.get((id(script), asked), (None, None))
        if found is None:
            found = plan(script, asked, slots=self._slots)
            _remember(self._plans, (id(script), asked), (script, found))
        return found


def _other(method: bytes, path: str) -> Script:
    """What is answered on paths that are no model's."""
    if method in (b"GET", b"HEAD"):
        if path.endswith("/models"):
            return MODELS
        if path in ("/", "/health"):
            return HEALTH
    return NOT_FOUND


def _is_old(head: Head | None) -> bool:
    return head is not None and head.version == b"HTTP/1.0"


def _remember(cache: dict[Key, Value], key: Key, value: Value) -> None:
    if len(cache) >= _MAX_CACHED:
        cache.clear()
    cache[key] = value


def _said(head: Head, body: bytes) -> _Body:
    """The body as a model API reads it; empty when it is not JSON of that shape."""
    try:
        return _read_body(_decoded(head.fields.get(b"content-encoding", b""), body))
    except (msgspec.DecodeError, UnicodeError, ValueError, zlib.error):
        return _Body()


def _decoded(coding: bytes, body: bytes) -> bytes:
    """The body without its content coding. Raises `ValueError` when it cannot be decoded."""
    if not coding or not body:
        return body
    decode = _DECODERS.get(coding.strip().lower())
    if decode is None:
        raise ValueError("unknown content coding")
    try:
        return decode(body)
    except (brotli.error, zstandard.ZstdError) as error:
        raise ValueError(str(error)) from None


def _zlib(window: int) -> Callable[[bytes], bytes]:
    return lambda body: zlib.decompressobj(wbits=window).decompress(body, _MAX_DECODED)


def _zstd(body: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(body)[:_MAX_DECODED]


_DECODERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"gzip": _zlib(31),
    b"deflate": _zlib(15),
    b"br": brotli.decompress,
    b"zstd": _zstd,
}
