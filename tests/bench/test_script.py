"""The rendered requests and answers of the benchmarks are what they claim to be."""

import json
import zlib

import pytest

from tests.bench import script


def unchunked(data: bytes) -> bytes:
    """The body under the chunked coding."""
    body = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body, data = body + data[:length], data[length + 2 :]
        if not length:
            return body


def events(body: bytes) -> list[bytes]:
    """The data of its events."""
    return [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]


@pytest.mark.parametrize("made", [script.stream(5), script.at_once(5)])
def test_a_stream(made: script.Script) -> None:
    """Five content events, finish, usage, done; the mark is in the content events only."""
    found = events(unchunked(made.whole.partition(b"\r\n\r\n")[2]))
    assert [script.CONTENT in event for event in found] == [True] * 5 + [False] * 3
    assert json.loads(found[0])["choices"][0]["delta"] == {"content": " world"}
    assert json.loads(found[6])["usage"]["completion_tokens"] == 5
    assert found[7] == b"[DONE]"
    assert made.whole.endswith(script.END)


def test_a_compressed_stream() -> None:
    """Each piece can be decoded when it arrives, and is marked once."""
    made = script.compressed(50)
    decoder = zlib.decompressobj(31)
    for number, piece in enumerate(made.pieces):
        assert piece.count(made.mark) == 1
        assert f' word{number}"'.encode() in decoder.decompress(unchunked(piece + script.END))
    assert decoder.decompress(unchunked(made.closing)).endswith(b"data: [DONE]\n\n")
    assert decoder.eof


def test_a_document() -> None:
    """About as large as asked, with a true length and one mark."""
    made = script.document(2_000)
    head, _, body = made.whole.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert 1_800 < len(body) < 2_200
    assert body.count(made.mark) == 1
    assert json.loads(body)["usage"]["completion_tokens"] == 400


def test_a_large_event() -> None:
    """One event of 5 MB."""
    assert len(script.big_event()) > script.BIG_BYTES
    assert script.big_event().count(script.CONTENT) == 1


def test_a_request() -> None:
    """Its length is true and its prompt as long as asked."""
    head, _, body = script.request(prompt_bytes=1_000_000).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert len(json.loads(body)["messages"][0]["content"]) == 1_000_000
