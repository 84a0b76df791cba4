"""Which script a request gets."""

import gzip
import json
import zlib
from typing import Any
from urllib.parse import quote

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulate.book import Book, read_book
from proxy.simulate.choose import Chooser
from proxy.simulate.request import Head, RequestParser
from proxy.simulate.script import ScriptError
from proxy.simulate.step import Plan

from .client import Reply, parse

BOOK = {"slow": {"tokens": 3}, "*": {"tokens": 4}}
CHAT = "/v1/chat/completions"


def chosen(
    target: str = CHAT,
    body: Any = None,
    *headers: str,
    book: Any = BOOK,
    method: str = "POST",
    version: str = "1.1",
) -> Plan:
    """The plan for a request."""
    lines = [f"{method} {target} HTTP/{version}", *headers, "", ""]
    head = RequestParser().feed("\r\n".join(lines).encode("latin-1"))[0]
    assert isinstance(head, Head)
    chooser = Chooser(Book(read_book(book)))
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    return chooser.plan(head, data, chooser.early(head))


def answered(*request: Any, **options: Any) -> Reply:
    """Its answer."""
    wire = b"".join(step.wire or b"" for step in chosen(*request, **options).steps)
    return parse(wire, options.get("method", "POST"))


def tokens(*request: Any, **options: Any) -> int:
    """How many tokens the script of a request has."""
    return sum(step.name == "token" for step in chosen(*request, **options).steps)


def test_the_header_comes_before_the_query_before_the_body_before_the_file() -> None:
    """The first that is found is the script; they are not merged."""
    query = f"{CHAT}?sim=" + quote('{"tokens":2}')
    body = {"model": "sim-slow", "stream": True, "sim": {"tokens": 5}}

    assert tokens(query, body, 'X-Sim: {"tokens":1}') == 1
    assert tokens(query, body) == 2
    assert tokens(CHAT, body) == 5
    assert tokens(CHAT, {"model": "sim-slow", "stream": True}) == 3
    assert tokens(CHAT, {"model": "other", "stream": True}) == 4
    assert tokens(CHAT, {"model": "other", "stream": True}, book={}) == 8


def test_scripts_may_be_compact_everywhere() -> None:
    """In a query spaces are plus signs."""
    body = {"stream": True, "sim": "tokens=2 gap=1"}

    assert tokens(f"{CHAT}?a=b&sim=tokens=1+gap=1", {"stream": True}) == 1
    assert tokens(CHAT, body) == 2
    assert tokens(CHAT, body, 'x-sim: tokens=1 text=["\\u00e9"]') == 1


def test_the_body_says_whether_to_stream() -> None:
    """As each API has it; the script has the last word."""
    assert answered().json["object"] == "chat.completion"
    assert answered(CHAT, {"stream": True}).objects[0]["object"] == "chat.completion.chunk"
    assert answered(CHAT, {}, "X-Sim: stream=true").objects
    assert answered("/api/chat", {}, "X-Sim: evidence=[]").body.count(b"\n") == 9


def test_the_answer_names_the_model_of_the_request() -> None:
    """Or one of its own."""
    assert answered(CHAT, {"model": "gpt-9"}).json["model"] == "gpt-9"
    assert answered(CHAT, {"model": 7}).json["model"] == "sim"


def test_usage_is_asked_for_in_the_stream_options() -> None:
    """Of a stream."""
    body = {"stream": True, "stream_options": {"include_usage": True}}

    assert answered(CHAT, body).objects[-1]["usage"]["completion_tokens"] == 4
    assert "usage" not in answered(CHAT, {"stream": True, "stream_options": None}).objects[-1]


def test_a_dialect_as_scripted() -> None:
    """On any path."""
    answer = answered("/anything", {}, "X-Sim: dialect=anthropic_messages")

    assert answer.json["type"] == "message"
    with pytest.raises(ScriptError, match="dialect: there are openai_chat"):
        chosen("/anything", {}, "X-Sim: dialect=latin")


@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("br", brotli.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
    ],
)
def test_a_coded_body_is_understood(coding: str, encode: Any) -> None:
    """As the real APIs take it."""
    body = encode(b'{"model":"coded"}')

    assert answered(CHAT, body, f"Content-Encoding: {coding}").json["model"] == "coded"
    assert answered(CHAT, body[:9], f"Content-Encoding: {coding}").json["model"] == "sim"
    assert answered(CHAT, b"{}", "Content-Encoding: what").json["model"] == "sim"


@given(st.binary())
def test_any_body_gets_an_answer(body: bytes) -> None:
    """What cannot be read says nothing."""
    assert answered(CHAT, body, book={}).status == 200


def test_paths_that_are_no_models() -> None:
    """The list of models, health, and 404 for everything else."""
    assert answered("/v1/models?limit=1", method="GET").json["data"][0]["id"] == "sim"
    assert answered("/health", method="GET").json == {"status": "ok"}
    assert answered("/", method="HEAD").status == 200
    assert answered("/v1/what").status == 404
    assert answered(CHAT, method="GET").status == 404


def test_a_default_script_that_is_no_models_answer_is_for_every_path() -> None:
    """So a simulator can refuse or echo whatever comes."""
    refusing = {"*": {"status": 426}}

    assert answered("/v1/responses", method="GET", book=refusing).status == 426
    assert answered("/v1/models", method="GET", book=refusing).status == 426


def test_an_unknown_script_name_is_told() -> None:
    """And a script that cannot be played."""
    with pytest.raises(ScriptError, match="no script is named 'x'"):
        chosen(CHAT, {"model": "sim-x"})
    with pytest.raises(ScriptError, match="gap"):
        chosen(CHAT, {}, "X-Sim: gap=x")


def test_the_client_decides_whether_the_connection_is_kept() -> None:
    """HTTP/1.0 by default does not."""
    assert not chosen().closes
    assert chosen(CHAT, {}, "Connection: close").closes
    assert chosen(version="1.0").closes
    assert not chosen(CHAT, {}, "Connection: keep-alive", version="1.0").closes


def test_the_same_request_gets_the_same_plan() -> None:
    """Plans are made once."""
    chooser = Chooser(Book())
    head = RequestParser().feed(b"POST /v1/messages HTTP/1.1\r\nX-Sim: tokens=2\r\n\r\n")[0]
    assert isinstance(head, Head)

    def plan(body: bytes) -> Plan:
        return chooser.plan(head, body, chooser.early(head))

    assert plan(b'{"model":"a"}') is plan(b'{"model":"a","messages":[]}')
    assert plan(b'{"model":"a"}') is not plan(b'{"model":"b"}')
    for index in range(1100):
        chooser.plan(head, b'{"model":"%d"}' % index, None)
    assert plan(b'{"model":"a"}').steps


def test_what_cannot_be_answered_ends_the_connection() -> None:
    """With the reason as a JSON error."""
    plan = Chooser(Book()).refusal(None, 400, "why")
    answer = parse(b"".join(step.wire or b"" for step in plan.steps))

    assert (answer.status, answer.json["error"]["message"]) == (400, "why")
    assert plan.closes
