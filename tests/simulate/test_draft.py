"""The kinds of answers, and the instants of their parts."""

import pytest

from proxy.simulate.script import ScriptError

from .client import sse
from .plans import instants, planned, reply, wire


def test_a_stream_sends_its_head_and_role_early() -> None:
    """As most servers do."""
    assert instants(planned("queue=10 prefill=20 gap=5 tokens=2")) == [
        (0, "head"),
        (0, "opening"),
        (30, "token"),
        (35, "token"),
        (35, "closing"),
        (35, "end"),
    ]


def test_a_head_can_leave_when_queueing_and_loading_end() -> None:
    """As llama.cpp does it; the role frame leaves with it."""
    found = planned("queue=10 load=20 prefill=30 tokens=1 headers=queue_end")

    assert instants(found)[:3] == [(30, "head"), (30, "opening"), (60, "token")]


def test_a_head_can_leave_with_the_first_token() -> None:
    """On demand, and with Ollama always."""
    late = planned("queue=10 prefill=20 tokens=1 headers=late")
    ollama = planned("queue=10 prefill=20 tokens=1 evidence=[]", dialect="ollama")

    assert instants(late)[1:4] == [(30, "head"), (30, "opening"), (30, "token")]
    assert instants(ollama)[1:3] == [(30, "head"), (30, "token")]


def test_a_late_head_leaves_with_the_first_body_byte() -> None:
    """So a comment brings it forward."""
    found = planned('{"prefill":30,"tokens":1,"headers":"late","comments":[[10,"waiting"]]}')

    assert instants(found)[:2] == [(10, "head"), (10, "comment")]


def test_the_role_frame_can_come_later_than_the_head() -> None:
    """And closing and end later than the last token."""
    found = planned("opening_at=20 prefill=90 tokens=1 closing_delay=60 end_delay=200")

    assert instants(found) == [
        (0, "head"),
        (20, "opening"),
        (90, "token"),
        (150, "closing"),
        (350, "end"),
    ]


def test_a_queued_response_starts_when_its_queue_ends() -> None:
    """response.queued early, response.in_progress when generation starts."""
    found = planned("queue=50 prefill=20 tokens=1 opening=queued", dialect="openai_responses")

    assert instants(found)[:4] == [(0, "head"), (0, "opening"), (50, "started"), (70, "token")]
    numbers = [
        data["sequence_number"]
        for _, data in reply("opening=queued tokens=2", dialect="openai_responses").events
    ]
    assert numbers == list(range(len(numbers)))


def test_hidden_reasoning_is_generated_and_not_sent() -> None:
    """Its first token is where prefill ends."""
    found = planned('{"prefill":10,"tokens":1,"reasoning":{"n":3,"gap":20,"hidden":true}}')

    assert instants(found)[2:4] == [(10, "generated"), (70, "token")]


def test_a_tool_call_of_ollama_is_shown_when_it_is_whole() -> None:
    """Until then its tokens are hidden, and so is the head."""
    found = planned("tool_call=true gap=10 evidence=[]", dialect="ollama")

    assert instants(found)[:2] == [(0, "generated"), (10, "generated")]
    assert instants(found)[3:5] == [(20, "head"), (20, "token")]


def test_a_whole_answer_comes_when_its_last_token_is_generated() -> None:
    """Head and body together."""
    found = planned("prefill=20 gap=10 tokens=3 evidence=[]", stream=False)

    assert instants(found) == [
        (20, "generated"),
        (40, "generated"),
        (40, "head"),
        (40, "body"),
        (40, "end"),
    ]
    answer = reply("tokens=3", stream=False)
    assert answer.values("Content-Length") == [str(len(answer.body))]
    assert answer.json["choices"][0]["message"]["content"] == "The time to"


def test_an_error_inside_the_stream() -> None:
    """In place of a token; nothing follows but the end."""
    found = planned("error_event=2 gap=10 tokens=5")
    assert instants(found)[2:] == [(0, "token"), (10, "token"), (20, "error"), (20, "end")]

    first = {"opening": "none", "error_event": {"type": "quota", "message": "m", "done": True}}
    assert [name for name, _ in reply(first).events] == ["error", None]
    assert b"DONE" not in wire("error_event=1")


def test_an_end_without_a_terminal_event() -> None:
    """A clean end of the body, and nothing that says so."""
    answer = reply("no_terminal=true tokens=1")

    assert answer.complete
    assert [data["choices"][0]["finish_reason"] for data in answer.objects] == [None, None]
    assert b"[DONE]" not in answer.body


def test_an_error_status_has_an_error_body_of_the_dialect() -> None:
    """Type and message are the script's, or the usual ones."""
    plain = reply("status=429 prefill=5")
    told = reply(
        {"status": 529, "error": {"type": "overloaded_error", "message": "later"}},
        dialect="anthropic_messages",
    )

    assert (plain.status, plain.json["error"]["type"]) == (429, "rate_limit_error")
    assert told.json == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "later"},
    }
    assert reply({"error": {}}).status == 500


def test_a_redirect() -> None:
    """With its Location and no body."""
    answer = reply('{"redirect":"/other?x=1"}')

    assert (answer.status, answer.values("Location")) == (307, ["/other?x=1"])
    assert (answer.body, answer.complete) == (b"", True)
    assert reply('{"redirect":"/other","status":301}').status == 301


def test_any_other_body() -> None:
    """Text or bytes, with any content type."""
    page = reply({"status": 502, "body": "<html>é", "content_type": "text/html"})

    assert page.body == "<html>é".encode()
    assert page.values("Content-Type") == ["text/html"]
    assert reply({"body": {"base64": "AP8="}}).body == b"\x00\xff"
    assert reply({"body": "{}", "content_type": ""}).values("Content-Type") == []


def test_raw_pieces_at_their_times() -> None:
    """Any bytes, framed or not."""
    script = {"raw": [[0, "data:x\n\n"], [20, "data"], [40, {"base64": "Og=="}]], "end_delay": 5}

    assert instants(planned(script))[1:] == [(0, "body"), (20, "body"), (40, "body"), (45, "end")]
    assert reply(script).chunks == [b"data:x\n\n", b"data", b":"]
    assert reply({**script, "framing": "eof"}).body == b"data:x\n\ndata:"


def test_comments_are_events_at_their_times() -> None:
    """In the line ends of the stream."""
    script = {"comments": [[0, "one"], [5, ""]], "prefill": 10, "tokens": 0}

    assert reply(script).events[:3] == [
        (None, reply(script).objects[0]),
        (":", "one"),
        (":", ""),
    ]
    assert b": one\r\n\r\n" in wire({**script, "line_end": "crlf"})
    with pytest.raises(ScriptError, match="NDJSON has none"):
        planned(script, dialect="ollama")


def test_line_ends() -> None:
    """LF, CRLF or CR, the same events."""
    lf = reply("tokens=2").body

    assert reply("tokens=2 line_end=crlf").body == lf.replace(b"\n", b"\r\n")
    assert reply("tokens=2 line_end=cr").body == lf.replace(b"\n", b"\r")
    assert len(sse(lf)) == 5


def test_a_big_body_cannot_be_coded() -> None:
    """Its length is told before it is made."""
    with pytest.raises(ScriptError, match="big"):
        planned("big=5 content_encoding=gzip")
