"""proxy/analyze/render.py: styles, amounts, bars and cards."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.account import Segment
from proxy.analyze.render import (
    LETTER,
    Style,
    amount,
    bar,
    card,
    clean,
    millis,
    shorten,
    style_of,
    wrapped,
)
from proxy.record import Outcome, Record
from tests.records import record, segments

PLAIN, FULL = Style(), Style(color=True, unicode=True)
SGR = re.compile(r"\x1b\[[0-9;]*m")


def left(**changes: object) -> Record:
    """A request whose client went away."""
    return record(
        outcome=Outcome.CLIENT_DISCONNECT,
        ended_in="wait",
        status=None,
        account_of="cut",
        account_ms=1200.0,
        duration_ms=1200.0,
        ttft_ms=None,
        tpot_ms=None,
        tokens=None,
        band=None,
        segments_ms=segments(network=1.2, proxy=0.4, unattributed=1198.4),
        **changes,
    )


@pytest.mark.parametrize(
    ("value", "grade", "bounds", "plain", "pretty"),
    [
        (340.4, "measured", {}, "340", "340"),
        (340.4, "reported:x", {}, "340", "340"),
        (12.0, "inferred:x", {"lower": 10.0, "estimate": 12.0}, "~12", "~12"),
        (0.0, "inferred:x", {"lower": 0.0, "upper": 340.0}, "<=340", "≤340"),
        (12.0, "inferred:x", {"lower": 12.0}, ">=12", "≥12"),
        (3.04, "inferred:x", {}, "~3.0", "~3.0"),
        (0.0, "measured", {}, None, None),
        (0.01, "measured", {}, None, None),
        (None, "", {}, None, None),
    ],
)
def test_amount(
    value: float | None,
    grade: str,
    bounds: dict[str, float],
    plain: str | None,
    pretty: str | None,
) -> None:
    """A bound looks like a bound; nothing looks like zero that is not known."""
    one = record(
        segments_ms={"queue_delay": value},
        grades={"queue_delay": grade} if grade else {},
        bounds_ms={"queue_delay": bounds} if bounds else {},
    )
    assert amount(one, Segment.QUEUE, PLAIN) == plain
    assert amount(one, Segment.QUEUE, FULL) == pretty


def test_bar() -> None:
    """Proportions as letters, at least one for each part."""
    one = record(segments_ms=segments(network=1.0, queue=500.0, unattributed=499.0))
    assert bar(one, 20) == "NQQQQQQQQQQ........."
    assert bar(one, 20, unicode=True) == bar(one, 20)
    assert SGR.sub("", bar(one, 20, color=True, unicode=True)) == "███████████░░░░░░░░░"
    assert bar(record(segments_ms=segments()), 20) == ""


@given(st.lists(st.floats(0, 1e7), min_size=7, max_size=7), st.integers(7, 200))
def test_bar_has_its_width(values: list[float], width: int) -> None:
    """Whatever the parts, they fill the bar exactly, in order, none lost."""
    parts: dict[str, float | None] = {
        segment.value: round(value, 3) for segment, value in zip(Segment, values, strict=True)
    }
    drawn = bar(record(segments_ms=parts), width)
    taken = [segment for segment in Segment if parts[segment.value]]
    assert len(drawn) == (width if taken else 0)
    assert [letter for letter in LETTER.values() if letter in drawn] == [
        LETTER[segment] for segment in taken
    ]
    assert drawn == "".join(sorted(drawn, key=list(LETTER.values()).index))


def test_card() -> None:
    """A title, the total, the bar, one line per part with its grade, what is not known, one
    sentence."""
    assert card(record(), color=False, unicode=False).split("\n") == [
        "200  POST /v1/responses  gpt-5.1-codex  codex",
        "  TTFT 812.3 ms (noticeable), then 21.4 ms per token",
        "  N" + "Q" * 59 + "P" * 8 + "X" + "." * 7,
        "  N network_latency              ~12.0 ms    1 %   inferred:tcp_info",
        "  Q queue_delay                  640.2 ms   79 %   reported:llama.cpp",
        "  P preprocessing_time            85.0 ms   10 %   reported:llama.cpp",
        "  X proxy_time                     0.3 ms    0 %   measured",
        "  . unattributed                  74.8 ms    9 %   what nobody accounts for",
        "  not known: model_initialization (not reported); first_token_generation (inside",
        "  prefill)",
        "  640 of the 812 ms to the first token (79 %) went by in the upstream's queue,",
        "  as llama.cpp reports.",
    ]


def test_card_of_a_refused_request() -> None:
    """Nothing was timed: no bar, the sentence says it all; flags are shown."""
    refused = record(
        outcome=Outcome.BAD_REQUEST,
        error="HeadTooLarge",
        method=None,
        path=None,
        model=None,
        client=None,
        account_ms=0.0,
        flags=["loop_lag"],
    )
    assert card(refused, color=False, unicode=False) == (
        "refused  ? ?\n  flags: loop_lag\n  The proxy refused the request: HeadTooLarge."
    )


@pytest.mark.parametrize("width", [60, 80, 120])
def test_card_fits_its_width(width: int) -> None:
    """Also with long names, with and without colour."""
    long = record(
        path="/" + "p" * 300,
        model="m" * 100,
        error="E" * 50,
        nulls={"model_initialization": "because " * 20},
        grades={"queue_delay": "inferred:" + "x" * 90},
        flags=["some_flag"] * 12,
        outcome=Outcome.TIMEOUT,
    )
    for one in (long, left(), record()):
        for unicode in (False, True):
            plain = card(one, width=width, color=False, unicode=unicode)
            colored = card(one, width=width, color=True, unicode=unicode)
            assert max(len(line) for line in plain.split("\n")) <= width
            assert max(len(SGR.sub("", line)) for line in colored.split("\n")) <= width
            assert unicode or plain.isascii()


@given(st.text(max_size=30))
def test_nothing_in_a_record_reaches_the_terminal(text: str) -> None:
    """Control characters in what clients or upstreams said are shown as question marks."""
    hostile = record(
        model=text,
        client=text,
        label=text,
        path=text,
        error=text,
        ended_in=text,
        outcome=Outcome.PROXY_ERROR,
        flags=[text],
        grades={"queue_delay": text, "network_latency": f"inferred:{text}"},
        nulls={"model_initialization": text},
    )
    for line in card(hostile, color=False, unicode=False).split("\n"):
        assert line.isprintable()


def test_style_of() -> None:
    """Colour on a terminal unless NO_COLOR or TERM=dumb; signs that the encoding has."""

    def style(choice: str, *, terminal: bool = True, encoding: str = "utf-8", **env: str) -> Style:
        return style_of(choice, terminal=terminal, encoding=encoding, env=env)

    assert style("auto") == Style(color=True, unicode=True)
    assert style("auto", terminal=False) == Style(unicode=True)
    assert style("auto", NO_COLOR="1") == Style(unicode=True)
    assert style("auto", NO_COLOR="") == Style(color=True, unicode=True)
    assert style("auto", TERM="dumb") == Style(unicode=True)
    assert style("always", terminal=False, NO_COLOR="1") == Style(color=True, unicode=True)
    assert style("never") == Style(unicode=True)
    assert style("never", encoding="ascii") == Style()
    assert style("never", encoding="no such thing") == Style()
    assert style_of("never", terminal=False, encoding=None, env={}) == Style()


def test_text_helpers() -> None:
    """Milliseconds worth reading, cleaned and shortened text, lines broken at spaces."""
    assert [millis(v) for v in (0.04, 9.94, 9.96, 1234.5)] == ["0.0", "9.9", "10", "1234"]
    assert clean("a\x1b[31m\nb\u202e") == "a?[31m?b?"
    assert shorten("abcdef", 6, PLAIN) == "abcdef"
    assert shorten("abcdefg", 6, PLAIN) == "abcd.."
    assert shorten("abcdefg", 6, FULL) == "abcde…"
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("", 7) == [""]
