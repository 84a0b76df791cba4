"""proxy/analyze/render.py: rows, bars and cards."""

import re
from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.account import Segment
from proxy.analyze.render import (
    LETTER,
    Rows,
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
from proxy.record import Outcome, Record, Tokens
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


def test_row() -> None:
    """When, how it ended, who, what, TTFT, TPOT, tokens, and the parts that are not zero."""
    assert Rows(PLAIN, UTC).row(record()) == (
        "14:03:07 200 codex gpt-5.1-codex ttft   812 21/tok 4012>256 "
        "net ~12 queue 640 pre 85 unattr 75"
    )


def test_rows_are_aligned_and_fit_100_columns() -> None:
    """Columns grow to what they hold; ordinary values fit."""
    some = [
        record(),
        record(client="claude-code", model="claude-sonnet-4-5", label=None),
        record(client="openai-python", tokens=Tokens(input=123_456, output=None)),
        left(),
        record(outcome=Outcome.STREAM_ERROR, ended_in="stream"),
    ]
    rows = Rows(PLAIN, UTC)
    for one in some:
        rows.fit(one)
    lines = [rows.row(one) for one in some]
    assert {line.index("net ~") for line in lines} == {74}
    assert max(len(line) for line in lines) <= 100
    assert lines[1][:67] == "14:03:07 200     claude-code claude-sonnet-4-5 ttft   812 21/tok 401"
    assert " openai-py " in lines[2]
    assert " 21/tok   123k>? net" in lines[2]
    assert lines[3] == (
        "14:03:07 left    codex       gpt-5.1-codex     cut   1200                 "
        "net ~1.2 unattr 1198 in wait"
    )
    assert " 200+err " in lines[4]
    assert lines[4].endswith("in stream")


def test_a_label_gets_a_column_when_there_is_one() -> None:
    """And keeps it, so that the rows after it stay aligned."""
    rows = Rows(PLAIN, UTC)
    assert "codex gpt" in rows.row(record())
    assert "codex before gpt" in rows.row(record(label="before"))
    assert "codex        gpt" in rows.row(record())


def test_row_colours_only_what_it_means() -> None:
    """The band on the number, one colour per segment; without colour the same text."""
    colored = Rows(FULL, UTC).row(record())
    assert "\x1b[33mttft   812\x1b[0m" in colored
    assert SGR.sub("", colored) == Rows(Style(unicode=True), UTC).row(record())
    assert "\x1b[31;1mttft   812" in Rows(FULL, UTC).row(record(band="needs_work"))


def test_time_zone() -> None:
    """Rows show the reader's time."""
    india = timezone(timedelta(hours=5, minutes=30))
    assert Rows(PLAIN, india).row(record()).startswith("19:33:07 ")
    assert Rows(PLAIN, UTC).row(record(ts="not a time")).startswith("?        200")


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
        "  Q queue_delay                  640.2 ms   79 %   reported:llamacpp_timings",
        "  P preprocessing_time            85.0 ms   10 %   reported:llamacpp_timings",
        "  X proxy_time                     0.3 ms    0 %   measured",
        "  . unattributed                  74.8 ms    9 %   what nobody accounts for",
        "  not known: model_initialization (not reported); first_token_generation (inside",
        "  prefill)",
        "  640 of the 812 ms to the first token (79 %) went by in the upstream's queue,",
        "  as llamacpp_timings reports.",
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
    for shown in (
        Rows(PLAIN, UTC).row(hostile),
        *card(hostile, color=False, unicode=False).split("\n"),
    ):
        assert shown.isprintable()


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
