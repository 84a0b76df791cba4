"""From the simulator's timeline and from a bare client's reads to marks. Pure.

Both give instants in ns of the machine's monotonic clock, by the names of the record's marks.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate

MARKS = (
    "response_headers",
    "first_chunk",
    "first_event",
    "first_token",
    "first_content",
    "last_token",
    "terminal_event",
    "upstream_rx_end",
)
_EVENTS = ("opening", "started", "token", "closing")


def scripted(timeline: Sequence[tuple[str, int]], reasoning: int) -> dict[str, int]:
    """When the simulator handed over what each mark stands for.

    `timeline` is that of `proxy.simulate.witness.Received`, of a stream without errors, comments
    and cuts; `reasoning` is how many of its tokens come before the first visible one.
    """
    tokens = [at for name, at in timeline if name == "token"]
    first_event = next(at for name, at in timeline if name in _EVENTS)
    one = dict(reversed(timeline))
    return {
        "response_headers": one["head"],
        "first_chunk": first_event,
        "first_event": first_event,
        "first_token": tokens[0],
        "first_content": tokens[reasoning],
        "last_token": tokens[-1],
        "terminal_event": one["closing"],
        "upstream_rx_end": one["end"],
    }


def observed(
    reads: Sequence[tuple[int, int]], data: bytes, needles: Mapping[str, bytes], *, ndjson: bool
) -> dict[str, int]:
    """When a bare client's reads completed what each mark stands for.

    `reads` are (instant, bytes read) and `data` all bytes: one complete chunked response.
    `needles` are texts that only the event of a mark, and later ones, hold. Raises `ValueError`
    when the response is not of that shape.
    """
    ends = list(accumulate(size for _, size in reads))
    instants = [at for at, _ in reads]

    def at(wire_end: int) -> int:
        return instants[bisect_left(ends, wire_end)]

    head_end = data.index(b"\r\n\r\n") + 4
    payload, places = dechunked(data, head_end)
    blank = b"\n" if ndjson else b"\n\n"
    event_ends = _ends(payload, blank)

    def event_with(needle: bytes) -> int:
        found = payload.index(needle) + len(needle)
        return event_ends[bisect_left(event_ends, found)]

    marks = {
        "response_headers": at(head_end),
        "first_chunk": at(wire_end(places, 1)),
        "first_event": at(wire_end(places, event_ends[0])),
        "terminal_event": at(wire_end(places, event_ends[-1])),
        "upstream_rx_end": at(len(data)),
    }
    for name, needle in needles.items():
        marks[name] = at(wire_end(places, event_with(needle)))
    return marks


def _ends(payload: bytes, blank: bytes) -> list[int]:
    ends = []
    start = 0
    while (found := payload.find(blank, start)) >= 0:
        start = found + len(blank)
        ends.append(start)
    return ends


Places = list[tuple[int, int]]
"""For every chunk: where its data end in the payload, and where on the wire."""


def dechunked(data: bytes, start: int) -> tuple[bytes, Places]:
    """The payload of a chunked body that begins at `start`. Raises `ValueError` if it is cut."""
    payload = bytearray()
    places: Places = []
    while True:
        line_end = data.index(b"\r\n", start)
        size = int(data[start:line_end], 16)
        start = line_end + 2
        if not size:
            return bytes(payload), places
        if start + size + 2 > len(data):
            raise ValueError("the last chunk is cut")
        payload += data[start : start + size]
        places.append((len(payload), start + size))
        start += size + 2


def wire_end(places: Places, payload_end: int) -> int:
    """Where on the wire the first `payload_end` bytes of the payload end."""
    chunk = places[bisect_left(places, (payload_end, 0))]
    return chunk[1] - (chunk[0] - payload_end)
