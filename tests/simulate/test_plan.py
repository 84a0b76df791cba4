"""Plans: everything around the steps of an answer."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.simulate.payloads import BY_NAME
from proxy.simulate.script import ScriptError, read_script

from .client import MS, parse
from .plans import instants, planned, reply

TIMES = st.integers(0, 3)
TEXTS = st.text(max_size=5)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "queue": TIMES,
    "prefill": TIMES,
    "gap": TIMES | st.lists(TIMES),
    "headers": st.sampled_from(["early", "queue_end", "late"]),
    "opening_at": TIMES,
    "closing_delay": TIMES,
    "end_delay": TIMES,
    "tokens": TIMES,
    "text": st.lists(TEXTS),
    "reasoning": TIMES | st.fixed_dictionaries({"n": TIMES, "hidden": st.booleans()}),
    "tool_call": st.booleans(),
    "refusal": st.booleans(),
    "one_event_bytes": TIMES,
    "opening": st.sampled_from(["standard", "empty_choices", "queued", "none"]),
    "no_terminal": st.booleans(),
    "error_event": TIMES,
    "usage": st.sampled_from([True, False, "every"]),
    "evidence": st.just([]),
    "error": st.fixed_dictionaries({"message": TEXTS}),
    "redirect": st.just("/x"),
    "body": TEXTS,
    "raw": st.lists(st.tuples(TIMES, TEXTS)),
    "status": st.sampled_from([200, 204, 304, 404, 500]),
    "http_version": st.sampled_from(["1.0", "1.1"]),
    "framing": st.sampled_from(["chunked", "length", "eof"]),
    "content_encoding": st.sampled_from(["gzip", "deflate", "br", "zstd"]),
    "line_end": st.sampled_from(["lf", "crlf", "cr"]),
    "bom": st.booleans(),
    "comments": st.lists(st.tuples(TIMES, st.just("x"))),
    "coalesce": st.integers(1, 3),
    "trailers": st.just([["A", "b"]]),
    "informational": st.just([[1, 103, []]]),
}
CUTS = st.none() | st.sampled_from(["after_events", "after_tokens", "at_ms"]).flatmap(
    lambda place: st.fixed_dictionaries({place: st.integers(1, 4), "extra_bytes": TIMES})
)


@settings(max_examples=150)
@given(
    fields=st.fixed_dictionaries({}, optional=FIELDS),
    cut=CUTS,
    dialect=st.sampled_from(sorted(BY_NAME)),
    asked=st.fixed_dictionaries({"stream": st.booleans(), "http10": st.booleans()}),
    slots=st.booleans(),
)
def test_every_script_is_a_plan_or_is_refused(
    fields: dict[str, Any], cut: object, dialect: str, asked: dict[str, bool], slots: bool
) -> None:
    """A plan is in order, has an end or a cut, and without a cut its answer is complete."""
    try:
        script = read_script(fields if cut is None else {**fields, "cut": cut})
        found = planned(script, dialect=dialect, slots=slots, **asked)
    except ScriptError:
        return
    ends = [step.name for step in found.steps if step.name in ("end", "cut")]
    assert [step.at for step in found.steps] == sorted(step.at for step in found.steps)
    assert ends
    if cut is None and all(step.wire is not None for step in found.steps):
        end = next(index for index, step in enumerate(found.steps) if step.name == "end")
        data = b"".join(step.wire or b"" for step in found.steps[: end + 1])
        assert parse(data.replace(b"HTTP/1.0", b"HTTP/1.1")).complete


def test_an_early_hint_comes_before_the_head() -> None:
    """At its time, with its fields."""
    script = {"informational": [[5, 103, [["Link", "</x>"]]]], "headers": "late", "prefill": 9}

    assert [name for _, name in instants(planned(script))][:3:2] == ["informational", "head"]
    assert reply(script).informational == [b"HTTP/1.1 103 Early Hints\r\nLink: </x>"]


def test_a_cut_at_a_time_comes_before_what_is_due_then() -> None:
    """Also before the head."""
    assert instants(planned("prefill=9 cut.at_ms=5")) == [
        (0, "head"),
        (0, "opening"),
        (5, "cut"),
        *instants(planned("prefill=9"))[2:],
    ]
    assert instants(planned("cut.at_ms=0 tokens=1"))[0] == (0, "cut")


def test_generation_waits_for_a_slot_where_there_are_slots() -> None:
    """Early heads, comments and role frames do not."""
    found = planned('{"queue":5,"prefill":9,"tokens":1,"comments":[[7,"x"]]}', slots=True)

    assert instants(found)[:4] == [(0, "head"), (0, "opening"), (5, "slot"), (7, "comment")]
    assert [step.name for step in found.steps if step.moves] == ["token", "closing", "end"]
    assert "slot" not in [step.name for step in planned("status=500", slots=True).steps]


def test_a_late_head_waits_for_the_slot_too() -> None:
    """It belongs to generation."""
    found = planned("queue=5 headers=queue_end prefill=1 tokens=1", slots=True)

    assert instants(found)[:2] == [(5, "slot"), (5, "head")]


def test_pings_are_for_streams() -> None:
    """In the words of the dialect."""
    assert planned("pings=20").ping == b": ping\n\n"
    assert planned("pings=20", dialect="anthropic_messages").ping == (
        b'event: ping\ndata: {"type":"ping"}\n\n'
    )
    assert planned("pings=20").ping_every == 20 * MS
    assert planned("pings=20", stream=False).ping_every is None


def test_what_the_connection_has_to_know() -> None:
    """Pieces, pauses, closing."""
    found = planned("fragment=7 fragment_delay=2 keep_alive=50 close=true cut.after_bytes=9")

    assert (found.fragment, found.fragment_delay, found.keep_alive) == (7, 2 * MS, 50 * MS)
    assert (found.closes, found.cut_after_bytes, found.cut_how) == (True, 9, "fin")
