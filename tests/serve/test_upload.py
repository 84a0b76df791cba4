"""The request body: model and stream flag, or the reason why not."""

import gzip
import json

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import OLLAMA, OPENAI_CHAT, RequestFacts
from proxy.serve.upload import REQUEST_LIMIT, Reading, Upload

BODY = json.dumps({"messages": [{"content": "x" * 1000}], "model": "m", "stream": True}).encode()
FACTS = RequestFacts("m", stream=True)


def read(body: bytes, coding: bytes = b"", size: int = 1 << 16) -> Reading:
    upload = Upload(coding)
    for start in range(0, len(body), size):
        upload.add(body[start : start + size])
    return upload.read(OPENAI_CHAT)


@pytest.mark.parametrize("size", [1, 100, 1 << 16])
def test_plain(size: int) -> None:
    """In any number of pieces."""
    assert read(BODY, size=size) == Reading(FACTS)


@pytest.mark.parametrize(
    ("coding", "wire"),
    [
        (b"zstd", zstandard.compress(BODY)),
        (b"gzip", gzip.compress(BODY)),
        (b"gzip, zstd", zstandard.compress(gzip.compress(BODY))),
    ],
)
def test_compressed(coding: bytes, wire: bytes) -> None:
    """As Codex sends them."""
    assert read(wire, coding) == Reading(FACTS)


@pytest.mark.parametrize(
    ("body", "coding", "why"),
    [
        (b"", b"", "no_body"),
        (b"--boundary\r\n", b"", "not_json"),
        (BODY[:-1], b"", "not_json"),
        (b"[1]", b"", "not_json"),
        (b"[" * 100_000, b"", "not_json"),
        (b'{"model":' + b"[" * 100_000, b"", "not_json"),
        (b"\x28\xb5\x2f\xfd\xff\xff\xff", b"zstd", "undecodable"),
        (BODY, b"zstd", "undecodable"),
        (BODY, b"x-unknown", "unsupported_encoding"),
        (zstandard.compress(bytes(REQUEST_LIMIT + 1)), b"zstd", "body_too_large"),
        (b" " * (REQUEST_LIMIT + 1), b"", "body_too_large"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else value,
)
def test_unknown_with_a_reason(body: bytes, coding: bytes, why: str) -> None:
    """Never an exception, never a guess."""
    assert read(body, coding) == Reading(RequestFacts(), why)


def test_an_upload_past_the_bound_is_not_kept() -> None:
    """A large file costs nothing."""
    upload = Upload(b"")
    for _ in range(100):
        upload.add(bytes(1 << 20))

    assert upload._body._body._pieces == []


def test_the_dialect_knows_the_default() -> None:
    """Ollama streams unless told otherwise."""
    upload = Upload(b"")
    upload.add(b'{"model":"m"}')

    assert upload.read(OLLAMA) == Reading(RequestFacts("m", stream=True))


@given(body=st.binary(max_size=60), coding=st.sampled_from([b"", b"gzip", b"br", b"zstd"]))
def test_garbage_never_raises(body: bytes, coding: bytes) -> None:
    """Whatever a client sends."""
    read(body, coding)
