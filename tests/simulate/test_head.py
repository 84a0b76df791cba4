"""Response heads and the framing of bodies."""

import pytest

from proxy.simulate.script import ScriptError

from .plans import planned, reply, wire


def names(script: object, **asked: object) -> list[str]:
    """The names of the header fields of an answer."""
    return [name for name, _ in reply(script, **asked).headers]


def test_a_stream_is_chunked_and_a_document_has_a_length() -> None:
    """By default, towards an HTTP/1.1 client."""
    assert names("") == ["Content-Type", "Transfer-Encoding"]
    assert names("", stream=False) == ["Content-Type", "Content-Length"]


def test_an_old_client_gets_a_body_that_ends_with_the_connection() -> None:
    """Chunks are unknown to HTTP/1.0."""
    answer = reply("", http10=True, close=True)

    assert answer.headers == [("Content-Type", "text/event-stream"), ("Connection", "close")]
    assert planned("", http10=True).closes
    assert ("Connection", "keep-alive") in reply("", http10=True, stream=False).headers


def test_framing_as_scripted() -> None:
    """A length of a stream is that of all its events; an end of file needs a close."""
    length = reply("framing=length")
    eof = reply("framing=eof", stream=False)

    assert length.complete
    assert length.body == reply("").body
    assert eof.values("Connection") == ["close"]
    assert reply("framing=chunked", stream=False).json["object"] == "chat.completion"


def test_an_old_server() -> None:
    """The status line and the framing of HTTP/1.0."""
    answer = reply('http_version="1.0"')

    assert answer.line == "HTTP/1.0 200 OK"
    assert answer.complete


def test_the_length_of_measured_times_is_not_known_beforehand() -> None:
    """A stream that tells them cannot tell its length first."""
    with pytest.raises(ScriptError, match="framing"):
        planned('framing=length evidence=["llamacpp"]')


def test_a_head_for_head() -> None:
    """The same fields, no body, and nothing is generated for it."""
    whole = reply("tokens=3", stream=False)

    assert reply("tokens=3", stream=False, head_only=True).headers == whole.headers
    assert wire("prefill=50", head_only=True).endswith(b"chunked\r\n\r\n")
    assert [step.name for step in planned("prefill=50", head_only=True).steps] == ["head", "end"]


@pytest.mark.parametrize("status", [204, 304])
def test_statuses_without_a_body(status: int) -> None:
    """No framing fields of our own; a scripted Content-Length stays."""
    script = {"status": status, "body": "x", "extra_headers": [["Content-Length", "5"]]}

    assert reply(script).headers == [("Content-Length", "5")]


def test_extra_headers_are_sent_as_they_are() -> None:
    """Repeats, odd case and Latin-1; one of our own names is replaced."""
    pairs = [["X-a", "1"], ["x-A", "é"], ["X-a", "2"], ["content-type", "Text/Event-Stream"]]
    answer = reply({"extra_headers": pairs})

    assert [list(pair) for pair in answer.headers] == [["Transfer-Encoding", "chunked"], *pairs]
    assert b"x-A: \xe9\r\n" in answer.head


def test_status_and_reason_as_scripted() -> None:
    """Also an empty reason, also a status that nobody knows."""
    assert reply('{"status":200,"reason":"Very Fine"}').line == "HTTP/1.1 200 Very Fine"
    assert reply('{"status":299,"reason":""}').line == "HTTP/1.1 299 "


def test_trailers() -> None:
    """Announced, and behind the last chunk."""
    answer = reply({"trailers": [["Server-Timing", "a;dur=1"], ["X", "2"]]})

    assert answer.values("Trailer") == ["Server-Timing, X"]
    assert answer.trailers == [("Server-Timing", "a;dur=1"), ("X", "2")]


def test_closing_is_announced() -> None:
    """On demand of the script or of the client."""
    assert reply("close=true").values("Connection") == ["close"]
    assert reply("", close=True).values("Connection") == ["close"]
