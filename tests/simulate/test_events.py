"""Events as text, and what they say about times."""

from proxy.simulate.events import written
from proxy.simulate.payloads._api import Event

from .plans import planned, reply


def test_how_an_event_is_written() -> None:
    """Name before data; a comment is a line of its own."""
    assert written(Event({"a": "é"}, "n"), False, "lf") == 'event: n\ndata: {"a":"é"}\n\n'.encode()
    assert written(Event("x", comment=True), False, "cr") == b": x\r\r"
    assert written(Event({"a": 1}), True, "lf") == b'{"a":1}\n'


def test_numbers_run_through_the_whole_stream() -> None:
    """Also where the last event has to wait for its moment."""
    found = planned('tokens=2 evidence=["llamacpp"]', dialect="openai_responses")
    events = reply("tokens=2", dialect="openai_responses").events
    closing = next(step for step in found.steps if step.name == "closing")

    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert closing.render is not None
    assert closing.events == 1
