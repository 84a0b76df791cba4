"""What the model says, and when."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.simulate.answer import Asked, Timetable, answer, timetable
from proxy.simulate.payloads import BY_NAME
from proxy.simulate.payloads._api import Answer, Kind
from proxy.simulate.script import read_script

from .client import MS


def said(script: Any = "", dialect: str = "openai_chat", **asked: Any) -> Answer:
    """The answer to a request that streams, unless `asked` says otherwise."""
    asking = Asked(BY_NAME[dialect], "m", **{"stream": True, **asked})
    return answer(read_script(script), asking)


def times(script: Any) -> Timetable:
    """The timetable of the same."""
    return timetable(read_script(script), said(script))


def kinds(saying: Answer) -> str:
    """The kinds of the tokens, a letter each."""
    letters = {Kind.TEXT: "t", Kind.REASONING: "r", Kind.TOOL_CALL: "c", Kind.REFUSAL: "f"}
    return "".join(letters[token.kind] for token in saying.tokens)


def test_how_many_tokens_there_are() -> None:
    """As asked; else as many as pieces of text; else eight, or none beside a tool call."""
    assert kinds(said()) == "tttttttt"
    assert kinds(said("tokens=3")) == "ttt"
    assert kinds(said('{"text":["a","b"]}')) == "tt"
    assert said('{"text":["a","b"],"tokens":3}').joined(Kind.TEXT) == "aba"
    assert kinds(said("tool_call=true")) == "ccc"
    assert kinds(said("tool_call=true tokens=1 reasoning=2")) == "rrccct"
    assert kinds(said("refusal=true tokens=2")) == "ff"
    assert kinds(said("one_event_bytes=5")) == "t"
    assert said("one_event_bytes=5 tokens=1").tokens[0].text == "xxxxx"


def test_runs_know_their_ends() -> None:
    """A run is a stretch of one kind."""
    tokens = said("reasoning=2 tokens=1").tokens

    assert [(token.run, token.first, token.last) for token in tokens] == [
        (0, True, False),
        (0, False, True),
        (1, True, True),
    ]


def test_the_first_token_comes_after_queue_load_prefill_and_its_own_time() -> None:
    """Gaps follow; the last of a list goes on."""
    found = times('{"queue":10,"load":20,"prefill":30,"first_token":5,"gap":[7,2],"tokens":4}')

    assert (found.started, found.loaded, found.first) == (10 * MS, 30 * MS, 65 * MS)
    assert found.tokens == (65 * MS, 72 * MS, 74 * MS, 76 * MS)
    assert found.next == 78 * MS


def test_reasoning_has_its_own_gap_if_it_wants() -> None:
    """Streamed or hidden: hidden reasoning is silence of that length."""
    streamed = times('{"reasoning":{"n":2,"gap":50},"tokens":2,"gap":1}')
    hidden = times('{"reasoning":{"n":2,"gap":50,"hidden":true},"tokens":2,"gap":1}')

    assert streamed.tokens == (0, 50 * MS, 100 * MS, 101 * MS)
    assert (hidden.first, hidden.tokens) == (0, (100 * MS, 101 * MS))


@given(st.integers())
def test_jitter_is_the_same_for_the_same_seed(seed: int) -> None:
    """And only ever adds."""
    script = {"gap": 10, "jitter": 5, "seed": seed, "tokens": 20}
    found = times(script)

    assert found == times(script)
    gaps = [b - a for a, b in zip(found.tokens, found.tokens[1:], strict=False)]
    assert all(10 * MS <= gap <= 15 * MS for gap in gaps)


def test_usage_counts_hidden_tokens_too() -> None:
    """Or what the script says."""
    hidden = said('{"reasoning":{"n":600,"hidden":true},"tokens":50,"usage":true}').usage
    told = said("tokens=10 output_tokens=40 prompt_tokens=9 cached_tokens=4 usage=true").usage

    assert hidden is not None
    assert (hidden.output, hidden.reasoning) == (650, 600)
    assert told == (9, 4, 40, 0)


def test_usage_comes_as_in_the_real_formats() -> None:
    """A chat stream has it on request, everything else always; a script overrides."""
    assert said().usage is None
    assert said(include_usage=True).usage is not None
    assert said(stream=False).usage is not None
    assert said(dialect="anthropic_messages").usage is not None
    assert said("usage=false", dialect="anthropic_messages").usage is None
    assert said("usage=every").usage_in_every_event
