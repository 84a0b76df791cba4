"""Reads of a known shape mean what the known one meant, and nothing else is taken for them."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.account import Mark, Trace
from proxy.serve.alike import Alike
from proxy.serve.tap import Tap, TapFacts

CHAT = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"%b"},"x":null}]}\n\n'
DONE = b"data: [DONE]\n\n"


def test_only_the_text_may_differ() -> None:
    """Same bytes before and after, plain text in between."""
    alike = Alike()
    assert CHAT % b"a" not in alike
    alike.learn(CHAT % b" hello")

    assert CHAT % b"world, 5 < 6" in alike
    assert CHAT % b"" not in alike
    assert CHAT % rb"\u00e9" not in alike
    assert CHAT % b'"},"finish_reason":"stop' not in alike
    assert CHAT % b"caf\xc3\xa9" not in alike
    assert CHAT % b"two\n\ndata: blocks" not in alike
    assert CHAT % b"a" + DONE not in alike
    alike.forget()
    assert CHAT % b"a" not in alike


def test_a_shape_with_two_texts_is_not_learned() -> None:
    """Which of the two made it a token cannot be told without reading it."""
    alike = Alike()
    alike.learn(b'data: {"delta":{"content":"a","reasoning_content":"b"}}\n\n')

    assert b'data: {"delta":{"content":"a","reasoning_content":"b"}}\n\n' not in alike


text = st.sampled_from(
    [b"a", b" b", b"", b'\\"', b"\\n", b"\xc3\xa9", b"[DONE]", b"x" * 40, b'","role":"assistant']
)
reads = st.lists(
    st.one_of(
        text.map(lambda value: CHAT % value),
        st.just(b'data: {"choices":[{"delta":{"content":"a","reasoning_content":"b"}}]}\n\n'),
        st.just(b'data: {"choices":[{"delta":{"reasoning_content":"b"}}]}\n\n'),
        st.just(b": ping\n\n"),
        st.just(b'data: {"choices":[],"usage":{"completion_tokens":7}}\n\n'),
        st.just(b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'),
        st.just(b'data: {"choices":[{"delta":{"content":"a"}}],"timings":{"prompt_ms":1}}\n\n'),
        st.just(b'data: {"error":{"type":"overloaded"}}\n\n'),
        st.just(b"event: x\n"),
        st.just(b"data: {"),
        st.just(DONE),
    ),
    max_size=40,
)


def facts_of(pieces: list[tuple[bytes, int]], *, one_by_one: bool) -> tuple[TapFacts, object]:
    """What a tap knows at the end; `one_by_one` makes it read each piece when it comes."""
    trace = Trace(lambda: 0, 0)
    tap = Tap("POST", "/v1/chat/completions", trace=trace, request_headers=[])
    tap.request_complete()
    tap.response_head(200, [(b"content-type", b"text/event-stream")])
    for data, at in pieces:
        if one_by_one:
            tap.feed(data, at)
            tap._alike.forget()
        elif Mark.FIRST_TOKEN in trace.marks:
            tap.late.append((data, at))
        else:
            tap.feed(data, at)
    tap.close()
    return tap.facts(), trace.offsets_us()


@given(reads)
def test_reading_late_and_by_shape_changes_nothing(stream: list[bytes]) -> None:
    """The facts and the marks are those of a tap that parses every read when it comes."""
    pieces = [(data, number * 20_000_000) for number, data in enumerate(stream)]

    assert facts_of(pieces, one_by_one=False) == facts_of(pieces, one_by_one=True)
