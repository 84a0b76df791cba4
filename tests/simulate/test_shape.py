"""What scripts do to the order of steps."""

from .plans import instants, planned, reply, wire


def test_coalesced_tokens_leave_when_the_last_of_them_is_due() -> None:
    """In one chunk; a rest leaves before the closing."""
    found = planned("coalesce=2 gap=10 tokens=5")

    assert instants(found)[2:] == [
        (10, "token"),
        (30, "token"),
        (40, "token"),
        (40, "closing"),
        (40, "end"),
    ]
    answer = reply("coalesce=2 tokens=5 no_terminal=true")
    assert [chunk.count(b"data: ") for chunk in answer.chunks] == [1, 2, 2, 1]
    assert answer.body == reply("tokens=5 no_terminal=true").body


def test_a_byte_order_mark_stands_before_the_first_event() -> None:
    """Once."""
    answer = reply("bom=true")

    assert answer.body.startswith(b"\xef\xbb\xbfdata: ")
    assert answer.body.count(b"\xef\xbb\xbf") == 1


def test_a_cut_after_events() -> None:
    """Role frame and two tokens; `extra_bytes` go into the next chunk."""
    whole = wire("tokens=5")
    cut = wire("tokens=5 cut.after_events=3")
    into_the_header = wire("tokens=5 cut.after_events=3 cut.extra_bytes=1")

    assert not reply("tokens=5 cut.after_events=3").complete
    assert len(reply("tokens=5 cut.after_events=3").objects) == 3
    assert whole.startswith(into_the_header)
    assert into_the_header[:-1] == cut
    assert instants(planned("gap=10 cut.after_events=3"))[-1] == (10, "cut")


def test_a_cut_after_tokens() -> None:
    """Whatever the number of events they come with."""
    answer = reply("cut.after_tokens=2", dialect="openai_responses")

    assert [name for name, _ in answer.events].count("response.output_text.delta") == 2
    assert not answer.complete


def test_a_cut_before_the_first_event() -> None:
    """The head has left."""
    answer = reply("cut.after_events=0")

    assert (answer.status, answer.body, answer.complete) == (200, b"", False)


def test_a_cut_in_the_middle_of_the_events_of_one_instant() -> None:
    """The opening of Anthropic has three events."""
    answer = reply("cut.after_events=2", dialect="anthropic_messages")

    assert [name for name, _ in answer.events] == ["message_start", "content_block_start"]


def test_a_cut_before_the_final_chunk() -> None:
    """Everything is said, and the end is missing."""
    answer = reply("cut.before_final_chunk=true")

    assert answer.events[-1] == (None, "[DONE]")
    assert not answer.complete


def test_a_cut_after_all_events_reaches_into_the_final_chunk() -> None:
    """With extra bytes."""
    whole = wire("tokens=1")

    assert wire("tokens=1 cut.after_events=4 cut.extra_bytes=2") == whole[:-3]
    assert wire("tokens=1 cut.after_events=4") == whole[:-5]


def test_a_document_is_cut_in_its_body() -> None:
    """Its head tells the whole length."""
    answer = reply("cut.after_events=0 cut.extra_bytes=7", stream=False)

    assert answer.body == b'{"id":"'
    assert not answer.complete


def test_a_hint_that_comes_too_late_is_not_sent() -> None:
    """The head is the last chance."""
    assert b"103" not in wire('{"informational":[[5,103,[]]],"prefill":9}')
    assert b"103" in wire('{"informational":[[5,103,[]]],"prefill":9,"headers":"late"}')


def test_nothing_is_said_after_the_end() -> None:
    """A comment that comes too late is not sent."""
    assert b"late" not in wire('{"comments":[[50,"late"]],"end_delay":10}')
