"""Random timetables."""

import re

from proxy.simulate.script import read_script
from tests.lab.plan import PATHS, timetables, trace_id


def test_timetables_depend_on_the_seed_alone() -> None:
    """A run can be repeated."""
    assert timetables(20, 1) == timetables(20, 1)
    assert timetables(20, 1) != timetables(20, 2)


def test_they_cover_what_they_promise() -> None:
    """Every dialect, every kind of head, reasoning, new connections; each a valid script."""
    cases = timetables(300, 5)
    assert {case.dialect for case in cases} == PATHS.keys()
    assert {case.script["headers"] for case in cases} == {"early", "late", "queue_end"}
    assert {case.script["close"] for case in cases} == {True, False}
    assert any(case.reasoning for case in cases)
    for case in cases:
        read_script(case.script)


def test_a_request_can_be_found_again() -> None:
    """Its trace id is valid (W3C Trace Context) and its own."""
    ids = {trace_id(number, client) for number in range(50) for client in ("proxied", "bare")}
    assert len(ids) == 100
    assert all(re.fullmatch("[0-9a-f]{32}", one) for one in ids)
    case = timetables(1, 1)[0]
    head, _, body = case.request("h:1", "bare").partition(b"\r\n\r\n")
    assert f"traceparent: 00-{trace_id(0, 'bare')}-".encode() in head
    assert f"Content-Length: {len(body)}".encode() in head
