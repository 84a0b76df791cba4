"""proxy/analyze/rows.py: one aligned line per record."""

import re
from datetime import UTC, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from proxy.analyze.render import Style
from proxy.analyze.rows import Rows
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
        "14:03:07 200 codex gpt-5.1-codex ttft  812 21/tok 4012>256 "
        "net ~12 queue 640 pre 85 unattr 75"
    )


def test_rows_are_aligned_and_fit_100_columns() -> None:
    """Columns grow to what they hold; ordinary values fit."""
    some = [
        record(),
        record(client="claude-code", model="claude-sonnet-4-5"),
        record(client="openai-python", tokens=Tokens(input=123_456, output=None)),
        record(ttft_ms=1520.4, account_ms=1520.4),
    ]
    rows = Rows(PLAIN, UTC)
    for one in some:
        rows.fit(one)
    lines = [rows.row(one) for one in some]
    assert lines[1] == (
        "14:03:07 200 claude claude-sonnet-4-5 ttft  812 21/tok 4012>256 "
        "net ~12 queue 640 pre 85 unattr 75"
    )
    assert " openai gpt-5.1-codex     ttft  812 21/tok   123k>? " in lines[2]
    assert {line.index("net ~") for line in lines} == {64}
    assert max(len(line) for line in lines) <= 100


def test_rows_say_how_it_ended() -> None:
    """A short word in place of the status, and the phase when it did not come to its end."""
    assert Rows(PLAIN, UTC).row(left()) == (
        "14:03:07 left codex gpt-5.1-codex cut  1200               net ~1.2 unattr 1198 in wait"
    )
    failed = record(outcome=Outcome.STREAM_ERROR, ended_in="stream", flags=["loop_lag"])
    row = Rows(PLAIN, UTC).row(failed)
    assert " 200+err " in row
    assert row.endswith("in stream loop_lag")
    whole = Rows(PLAIN, UTC).row(record(ttft_ms=None, account_of="response"))
    assert " all   812 " in whole


def test_a_label_gets_a_column_when_there_is_one() -> None:
    """And keeps it, so that the rows after it stay aligned."""
    rows = Rows(PLAIN, UTC)
    assert "codex gpt" in rows.row(record())
    assert "codex before gpt" in rows.row(record(label="before"))
    assert "codex        gpt" in rows.row(record())


def test_row_colours_only_what_it_means() -> None:
    """The band on the number, one colour per segment; without colour the same text."""
    colored = Rows(FULL, UTC).row(record())
    assert "\x1b[33mttft  812\x1b[0m" in colored
    assert SGR.sub("", colored) == Rows(Style(unicode=True), UTC).row(record())
    assert "\x1b[31;1mttft  812" in Rows(FULL, UTC).row(record(band="needs_work"))


def test_time_zone() -> None:
    """Rows show the reader's time."""
    india = timezone(timedelta(hours=5, minutes=30))
    assert Rows(PLAIN, india).row(record()).startswith("19:33:07 ")
    assert Rows(PLAIN, UTC).row(record(ts="not a time")).startswith("?        200")


@given(st.text(max_size=30))
def test_nothing_in_a_record_reaches_the_terminal(text: str) -> None:
    """Control characters in what clients or upstreams said are shown as question marks."""
    hostile = record(
        ts=text,
        model=text,
        client=text,
        label=text,
        ended_in=text,
        flags=[text],
        outcome=Outcome.PROXY_ERROR,
        grades={"queue_delay": text},
    )
    assert Rows(PLAIN, UTC).row(hostile).isprintable()
