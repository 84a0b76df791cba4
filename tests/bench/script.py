"""What is asked and what is answered, rendered once. Pure.

Events have the size and the fields of OpenAI's chat chunks. The closing chunks (finish reason,
usage, `[DONE]`) leave in one write with the last content event.
"""

import json
import zlib
from dataclasses import dataclass

MS = 1_000_000
END = b"0\r\n\r\n"
CONTENT = b'"content":"'
"""In every event with text, and nowhere else."""
FLUSHED = b"\x00\x00\xff\xff"
"""What deflate ends with when it is flushed (zlib manual, Z_SYNC_FLUSH)."""
BIG = b'"big"'
"""In the body of a request for one event of 5 MB."""
BIG_BYTES = 5_000_000

_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_CHUNK = {
    "id": "chatcmpl-9aBcDeFgHiJkLmNoPqRsTuVwXyZ12",
    "object": "chat.completion.chunk",
    "created": 1_700_000_000,
    "model": "gpt-4o-mini-2024-07-18",
    "service_tier": "default",
    "system_fingerprint": "fp_0123456789",
}


@dataclass(frozen=True, slots=True)
class Script:
    """An answer: `pieces`, framed as chunks, `first_ns` after the request, then `gap_ns` apart.

    `mark` is what the client counts; `ends` is what the last piece ends with, None where the
    response has a length. `document` is sent in one write with the head.
    """

    head: bytes
    pieces: tuple[bytes, ...]
    first_ns: int = 0
    gap_ns: int = 0
    mark: bytes = CONTENT
    closing: bytes = b""
    document: bool = False

    @property
    def whole(self) -> bytes:
        """All of it."""
        return self.head + b"".join(self.pieces) + self.closing


def stream(events: int, *, first_ms: int = 200, per_s: int = 50) -> Script:
    """A chat stream of so many content events."""
    head = f"{_HEAD}transfer-encoding: chunked\r\n\r\n".encode()
    closing = b"".join(_chunk(each) for each in _closing(events)) + END
    gap_ns = 1_000 * MS // per_s
    return Script(
        head, (_chunk(_event(" world")),) * events, first_ms * MS, gap_ns, closing=closing
    )


def at_once(events: int) -> Script:
    """A short chat stream whose events leave with its head."""
    script = stream(events)
    return Script(script.head, script.pieces, closing=script.closing, document=True)


def compressed(events: int, *, first_ms: int = 200, per_s: int = 50) -> Script:
    """A chat stream in gzip, flushed after each event."""
    head = f"{_HEAD}content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    pieces = tuple(
        _chunk(packer.compress(_event(f" word{number}")) + packer.flush(zlib.Z_SYNC_FLUSH))
        for number in range(events)
    )
    rest = b"".join(packer.compress(each) for each in _closing(events)) + packer.flush()
    gap_ns = 1_000 * MS // per_s
    return Script(head, pieces, first_ms * MS, gap_ns, mark=FLUSHED, closing=_chunk(rest) + END)


def document(size: int = 2_000) -> Script:
    """A completion that is not streamed, of about `size` bytes."""
    usage = {"prompt_tokens": 200, "completion_tokens": 400, "total_tokens": 600}
    message = {"role": "assistant", "content": "word " * ((size - 400) // 5)}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    whole = {**_CHUNK, "object": "chat.completion", "choices": [choice], "usage": usage}
    body = json.dumps(whole, separators=(",", ":")).encode()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return Script(head.encode(), (body,), document=True)


def big_event() -> bytes:
    """One content event of 5 MB, framed."""
    return _chunk(_event("x" * BIG_BYTES))


def request(*, streams: bool = True, prompt_bytes: int = 1_000, model: str = "bench") -> bytes:
    """A chat completion request with a prompt of so many bytes."""
    prompt = ("The quick brown fox jumps over the lazy dog. " * (prompt_bytes // 45 + 1))[
        :prompt_bytes
    ]
    asked = {"model": model, "stream": streams, "messages": [{"role": "user", "content": prompt}]}
    body = json.dumps(asked).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: model.example\r\nuser-agent: bench\r\n"
        "accept: */*\r\ncontent-type: application/json\r\nauthorization: Bearer sk-bench\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _event(text: str) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    return _sse({**_CHUNK, "choices": [delta], "usage": None})


def _closing(events: int) -> tuple[bytes, ...]:
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 200, "completion_tokens": events, "total_tokens": 200 + events}
    return (
        _sse({**_CHUNK, "choices": [last], "usage": None}),
        _sse({**_CHUNK, "choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    )


def _sse(value: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
