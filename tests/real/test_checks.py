"""The proof can fail: each disagreement between record, client and server is complained about."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxy.evidence.llamacpp import LLAMACPP
from proxy.record import Outcome, Record, to_json
from tests.real import checks
from tests.real.__main__ import SKIPPED, main
from tests.real.checks import Row
from tests.real.install import VARIABLE
from tests.real.plan import DIRECT, KEY, PROXY, Ask, Seen
from tests.real.table import table
from tests.records import ORDINARY, record

ASK = Ask("one", "openai", "chat", stream=True)
RECORD = record(
    label="one",
    dialect="openai_chat",
    marks_us={"response_headers": 700_000, "first_token": 812_345},
    grades={
        **ORDINARY.grades,
        "queue_delay": "inferred:header_arrival",
        "preprocessing_time": f"reported:{LLAMACPP.name}",
    },
)
SEEN = Seen(
    name="one",
    via=PROXY,
    text="Because of the air.",
    ttft_ms=815.0,
    total_ms=6500.0,
    output_tokens=256,
    cached_tokens=0,
    timings={"prompt_ms": 85.0, "predicted_ms": 5000.0, "predicted_n": 256, "cache_n": 0},
)
ROW = Row(ASK, RECORD, SEEN, direct=replace(SEEN, via=DIRECT))


def complaints(row: Row) -> str:
    """All complaints about one row."""
    return "\n".join(checks.of_row(row))


def but(**changes: Any) -> Row:
    """The row, its record changed."""
    return replace(ROW, record=record_but(**changes))


def record_but(**changes: Any) -> Record:
    """The row's record with `changes`."""
    fields = {name: getattr(RECORD, name) for name in RECORD.__struct_fields__}
    return Record(**{**fields, **changes})


def test_what_agrees_is_not_complained_about() -> None:
    """A record, a client and a server that say the same."""
    assert complaints(ROW) == ""


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (replace(ROW, seen=replace(SEEN, error="APIError: no")), "the client failed"),
        (replace(ROW, seen=replace(SEEN, text="")), "saw no text"),
        (but(outcome=Outcome.INCOMPLETE), "the record says"),
        (but(dialect="opaque"), "the record says"),
        (but(stream=False), "the record says"),
        (but(ttft_ms=None), "no first token"),
        (but(first_token_kind="reasoning"), "no first token of text"),
        (replace(ROW, seen=replace(SEEN, ttft_ms=812.0)), "first token: the client says 812.0"),
        (replace(ROW, seen=replace(SEEN, ttft_ms=950.0)), "first token: the client says 950.0"),
        (replace(ROW, seen=replace(SEEN, first_byte_ms=699.0)), "first byte: the client says"),
        (replace(ROW, ask=replace(ASK, stream=False)), "has a TTFT"),
        (replace(ROW, seen=replace(SEEN, timings={"prompt_ms": 85.01})), "prompt_ms 85.01"),
        (replace(ROW, seen=replace(SEEN, timings={})), "sent no timings, but preprocessing_time"),
        (replace(ROW, seen=replace(SEEN, timings={})), "sent no timings, but queue_delay"),
        (but(grades={}), "queue_delay is graded None"),
        (but(grades={}), "preprocessing_time is graded None"),
        (but(nulls={}), "first_token_generation is not inside_prefill"),
        (but(tokens=None), "counts None output tokens"),
        (replace(ROW, direct=replace(SEEN, text="Because.")), "the text differs"),
        (replace(ROW, direct=replace(SEEN, cached_tokens=26)), "not comparable"),
    ],
)
def test_what_disagrees_is_complained_about(row: Row, complaint: str) -> None:
    """One thing is wrong, and the complaint names the request and the thing."""
    found = complaints(row)
    assert complaint in found
    assert all(line.startswith("one: ") for line in found.splitlines())


def test_a_trimmed_value_may_differ_by_the_slack() -> None:
    """The record says that it trimmed the server's value: 3 ms are within 5 ms + 2 %, 9 are not."""
    trimmed = but(flags=["trimmed:preprocessing_time"])
    assert complaints(replace(trimmed, seen=replace(SEEN, timings={"prompt_ms": 88.0}))) == ""
    assert complaints(replace(trimmed, seen=replace(SEEN, timings={"prompt_ms": 94.0}))) != ""


def test_every_request_has_one_record() -> None:
    """Two for one and none for another are two complaints."""
    assert list(checks.of_names([RECORD], ["one"])) == []
    assert list(checks.of_names([RECORD, RECORD], ["one", "two"])) == [
        "one: 2 records for 1 requests",
        "two: 0 records for 1 requests",
    ]


def test_lines_that_are_no_records_are_named() -> None:
    """A torn line, and a record whose parts do not add up."""
    wrong = record_but(account_ms=900.0)
    records, found = checks.read_log([b'{"schema":1', to_json(wrong)])
    assert records == []
    assert [complaint.partition(":")[0] for complaint in found] == [
        "line 1 of the log",
        "line 2 of the log",
    ]


def waiting(name: str, *, waited_ms: float, queue_ms: float) -> Row:
    """A request of the burst."""
    segments = {**RECORD.segments_ms, "queue_delay": queue_ms}
    return Row(
        replace(ASK, name=name),
        record_but(segments_ms=segments),
        replace(SEEN, ttft_ms=85.0 + waited_ms),
    )


BURST = [
    waiting("a", waited_ms=20, queue_ms=2),
    waiting("b", waited_ms=240, queue_ms=230),
    waiting("c", waited_ms=3000, queue_ms=2990),
    waiting("d", waited_ms=6000, queue_ms=5990),
]
ALONE = [waiting("e", waited_ms=10, queue_ms=2)]


@pytest.mark.parametrize(
    ("alone", "burst", "deferred", "complaint"),
    [
        (ALONE, BURST, 2, None),
        (ALONE, BURST, 0, "the server deferred no request"),
        (ALONE, [*BURST, waiting("f", waited_ms=9000, queue_ms=4000)], 3, "f: the client waited"),
        (ALONE, [BURST[0], waiting("b", waited_ms=240, queue_ms=2000), *BURST[2:]], 2, "b: had"),
        ([waiting("e", waited_ms=10, queue_ms=200)], BURST, 2, "e: was alone"),
        (ALONE, [*BURST, replace(BURST[0], seen=replace(SEEN, timings={}))], 2, "not every"),
    ],
)
def test_queueing_is_seen_where_it_was_and_nowhere_else(
    alone: list[Row], burst: list[Row], deferred: float, complaint: str | None
) -> None:
    """Two slots: the two that waited least were served at once, the others queued."""
    found = list(checks.of_queue(alone, burst, deferred))
    assert (complaint is None) == (found == [])
    assert complaint is None or any(complaint in line for line in found)


def test_secrets_are_found_wherever_they_show() -> None:
    """The key in one output, the answer in another."""
    outputs = {"log": f"... {KEY} ...", "err": "it said: Because of the air."}
    assert list(checks.of_secrets(outputs, [ROW])) == [
        "log shows the key",
        "err shows the answer of one",
    ]
    assert list(checks.of_secrets({"log": "nothing"}, [ROW])) == []


def test_the_table_shows_account_client_and_server_side_by_side() -> None:
    """Grades as signs, unknown as a dash, a response that was not streamed in brackets."""
    whole = Row(
        replace(ASK, name="whole", stream=False),
        record_but(ttft_ms=None, tpot_ms=None),
        replace(SEEN, ttft_ms=None, timings={}),
    )
    head, _, streamed, complete, *_ = table([ROW, whole]).splitlines()
    assert len(streamed) == len(head)
    assert streamed.split()[3:11] == [
        *("815.0", "812.3", "2.7"),
        *("~12.0", "<=640.2", "85.0r", "0.3", "74.8"),
    ]
    assert streamed.split()[11:] == ["21.4", "85.0", "19.6", "0", "815.0", "yes"]
    assert complete.split()[3:6] == ["(6500.0)", "(812.3)", "5687.7"]
    assert complete.split()[-4:] == ["-"] * 4


def test_what_cannot_be_installed_is_skipped_and_not_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The environment's place is below a file: the reason is printed, with a code of its own."""
    blocked = tmp_path / "file"
    blocked.touch()
    assert main({VARIABLE: str(blocked / "venv")}, tmp_path / "work") == SKIPPED
    said = capsys.readouterr().out
    assert "SKIPPED, which is not passed: " in said
    assert "PASSED" not in said
