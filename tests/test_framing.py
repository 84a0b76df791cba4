"""Framing: bytes to events, the same for every chunking, within bounds."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.framing import Document, Event, Framing, Ndjson, Sse

E = Event


def read(framing: Framing, *chunks: bytes) -> list[Event]:
    """All events of a body that arrives in these chunks."""
    events: list[Event] = []
    for chunk in chunks:
        events += framing.feed(chunk)
    return events + framing.close()


def sse(*chunks: bytes, limit: int = 1 << 20) -> list[Event]:
    return read(Sse(limit), *chunks)


def comment(text: bytes) -> Event:
    return Event(b"", text, comment=True)


def oversize(name: bytes = b"") -> Event:
    return Event(name, b"", oversize=True)


class TestSse:
    @pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
    def test_every_line_end(self, end: bytes) -> None:
        """LF, CRLF and CR end lines alike."""
        body = b"event: x" + end + b"data: 1" + end + end + b"data: 2" + end + end

        assert sse(body) == [E(b"x", b"1"), E(b"", b"2")]

    def test_mixed_line_ends(self) -> None:
        """One block may use several of them; a CRLF is one end, not two."""
        assert sse(b"data: a\r\ndata: b\n\r\ndata: c\r\r\n") == [E(b"", b"a\nb"), E(b"", b"c")]

    def test_a_bare_cr_completes_at_once(self) -> None:
        """The event is given with the read that ends its block, not with the next one."""
        framing = Sse()

        assert framing.feed(b"data: 1\r\r") == [E(b"", b"1")]
        assert framing.feed(b"data: 2\r\r") == [E(b"", b"2")]

    def test_a_crlf_cut_in_half_is_one_line_end(self) -> None:
        """The LF that follows a CR in the next read belongs to it."""
        framing = Sse()

        assert framing.feed(b"data: 1\r") == []
        assert framing.feed(b"\n") == []
        assert framing.feed(b"\r") == [E(b"", b"1")]
        assert framing.feed(b"\n") == []
        assert framing.feed(b"data: 2\n\n") == [E(b"", b"2")]

    def test_a_crlf_cut_in_half_after_a_whole_block(self) -> None:
        """Also when the block took the short way."""
        framing = Sse()
        framing.feed(b": warm\n\n")

        assert framing.feed(b"data: 1\n\r") == [E(b"", b"1")]
        assert framing.feed(b"\ndata: 2\n\n") == [E(b"", b"2")]
        assert framing.feed(b"event: n\ndata: 3\r\n\r") == [E(b"n", b"3")]
        assert framing.feed(b"\ndata: 4\n\n") == [E(b"", b"4")]

    @pytest.mark.parametrize(
        ("block", "events"),
        [
            pytest.param(b"data:x", [E(b"", b"x")], id="no space"),
            pytest.param(b"data:  x", [E(b"", b" x")], id="one space is removed"),
            pytest.param(b"data", [E(b"", b"")], id="no colon"),
            pytest.param(b"data:", [E(b"", b"")], id="empty data is an event"),
            pytest.param(b"data:a:b", [E(b"", b"a:b")], id="first colon only"),
            pytest.param(b"data\ndata", [E(b"", b"\n")], id="two empty lines"),
            pytest.param(b"event:error\ndata:1", [E(b"error", b"1")], id="event without space"),
            pytest.param(b"data: 1\nevent: x", [E(b"x", b"1")], id="event behind data"),
            pytest.param(b"event: x\nevent: y\ndata: 1", [E(b"y", b"1")], id="last name wins"),
            pytest.param(b"event: ping", [], id="a name alone is no event"),
            pytest.param(b"DATA: x", [], id="names are case-sensitive"),
            pytest.param(b" data: x", [], id="a leading space is part of the name"),
            pytest.param(b"retry: 1000", [], id="retry"),
            pytest.param(b"id: 7", [], id="id"),
            pytest.param(b"id: 7\ndata: x\nfoo: bar", [E(b"", b"x")], id="unknown fields"),
            pytest.param(b":", [comment(b"")], id="bare comment"),
            pytest.param(
                b": OPENROUTER PROCESSING", [comment(b"OPENROUTER PROCESSING")], id="text"
            ),
            pytest.param(b": x\ndata: 1", [comment(b"x"), E(b"", b"1")], id="comment in a block"),
            pytest.param(
                "data: a\u2028b\x0bc".encode(), [E(b"", "a\u2028b\x0bc".encode())], id="LS"
            ),
            pytest.param(b"", [], id="blank"),
        ],
    )
    def test_fields(self, block: bytes, events: list[Event]) -> None:
        """Each block means the same at the start of a stream and between two events."""
        assert events == sse(block + b"\n\n")
        assert sse(b"data: 0\n\n", block + b"\n\n", b"data: 9\n\n") == [
            E(b"", b"0"),
            *events,
            E(b"", b"9"),
        ]

    def test_a_comment_does_not_wait_for_its_block(self) -> None:
        """Keep-alives are often a line without a blank one."""
        assert Sse().feed(b": hi\n") == [comment(b"hi")]

    @pytest.mark.parametrize(
        "chunks", [(b"\xef\xbb\xbfdata: 1\n\n",), (b"\xef", b"\xbb\xbfdata: 1\n\n")]
    )
    def test_one_byte_order_mark_is_skipped(self, chunks: tuple[bytes, ...]) -> None:
        """At the very start only, wherever it is cut."""
        assert sse(*chunks) == [E(b"", b"1")]
        assert sse(b"data: 0\n\n", *chunks) == [E(b"", b"0")]

    def test_an_unfinished_block_is_dropped(self) -> None:
        """The end of the body is not a blank line."""
        assert sse(b"data: 1\n\ndata: 2\n") == [E(b"", b"1")]
        assert sse(b"data: 1") == []

    def test_several_blocks_in_one_read(self) -> None:
        """All of them are complete with that read; the beginning of the next one waits."""
        framing = Sse()

        assert framing.feed(b"data: 1\n\nevent: x\ndata: 2\n\ndata: ") == [
            E(b"", b"1"),
            E(b"x", b"2"),
        ]
        assert framing.feed(b"3\n\n") == [E(b"", b"3")]

    def test_an_oversize_line_is_skipped(self) -> None:
        """It is counted, keeps its name, and what follows is read."""
        framing = Sse(limit=64)
        events = read(framing, b"event: img\ndata: " + b"x" * 100 + b"\n\n", b"data: 1\n\n")

        assert events == [oversize(b"img"), E(b"", b"1")]
        assert framing.oversize == 1

    def test_an_oversize_block_of_short_lines_is_skipped(self) -> None:
        """The bound is on the event, not on the line."""
        framing = Sse(limit=64)

        assert read(framing, b"data: 12345678\n" * 9 + b"\ndata: 1\n\n") == [
            oversize(),
            E(b"", b"1"),
        ]
        assert framing.oversize == 1

    def test_a_huge_event_in_small_pieces_keeps_nothing(self) -> None:
        """Past the bound its pieces are let go as they come."""
        framing = Sse(limit=10_000)
        framing.feed(b"data: ")
        for _ in range(5_000):
            assert framing.feed(b"x" * 1_000) == []

        assert framing._line._pieces == []
        assert framing.feed(b"\n\ndata: 1\n\n") == [oversize(), E(b"", b"1")]

    def test_an_event_at_the_bound_is_kept(self) -> None:
        """In one read or in many."""
        block = b"data: " + b"x" * 50

        assert sse(block + b"\n\n", limit=58) == [E(b"", b"x" * 50)]
        assert sse(*(bytes([b]) for b in block + b"\n\n"), limit=58) == [E(b"", b"x" * 50)]


class TestNdjson:
    def test_one_event_per_line(self) -> None:
        """LF and CRLF; blank lines are nothing."""
        assert read(Ndjson(), b"1\n\n\r\n2\r\n") == [E(b"", b"1"), E(b"", b"2")]

    def test_the_last_line_needs_no_end(self) -> None:
        """The end of the body completes it."""
        framing = Ndjson()

        assert framing.feed(b'{"done":') == []
        assert framing.feed(b"true}") == []
        assert framing.close() == [E(b"", b'{"done":true}')]
        assert framing.close() == []

    def test_an_oversize_line_is_skipped(self) -> None:
        """It is counted and what follows is read."""
        framing = Ndjson(limit=8)

        assert read(framing, b"12345", b"67890", b"\n1\n") == [oversize(), E(b"", b"1")]
        assert framing.oversize == 1


class TestDocument:
    def test_complete_at_the_end(self) -> None:
        """Nothing before; an empty body is no document."""
        assert read(Document(), b'{"a"', b":1}") == [E(b"", b'{"a":1}')]
        assert read(Document(), b"") == []

    def test_oversize(self) -> None:
        """Too large to keep: known to have been there."""
        assert read(Document(limit=8), b"12345", b"67890") == [oversize()]


# Properties.

Make = Callable[[], Framing]
FRAMINGS = pytest.mark.parametrize(
    "make",
    [Sse, Ndjson, Document, lambda: Sse(limit=12), lambda: Ndjson(limit=12)],
    ids=["sse", "ndjson", "document", "sse bounded", "ndjson bounded"],
)
_PIECES = st.sampled_from(
    [
        b"data: ",
        b"data",
        b"event: ",
        b"e",
        b":",
        b" ",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"xyz",
        b"\xef\xbb\xbf",
    ]
)
BODIES = st.one_of(st.lists(_PIECES, max_size=30).map(b"".join), st.binary(max_size=60))


def cut(body: bytes, at: Iterable[int]) -> list[bytes]:
    """`body` cut at these places, empty pieces included."""
    places = sorted(min(place, len(body)) for place in at)
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


@FRAMINGS
@given(body=BODIES, places=st.lists(st.integers(0, 60), max_size=8))
def test_any_chunking_same_events(make: Make, body: bytes, places: list[int]) -> None:
    """Where a body is cut does not change what it says, nor does one byte per read."""
    whole = read(make(), body)

    assert whole == read(make(), *cut(body, places))
    assert whole == read(make(), *(bytes([byte]) for byte in body))


@given(body=BODIES)
def test_sse_agrees_with_the_specification_read_plainly(body: bytes) -> None:
    """Against a direct, slow rendering of WHATWG HTML 9.2.6 on the whole body."""
    lines = body.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    expected, name, data = [], b"", b""
    for line in lines.split(b"\n")[:-1]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            if data:
                expected.append(E(name, data[:-1]))
            name = data = b""
        elif not field:
            expected.append(comment(value))
        elif field == b"data":
            data += value + b"\n"
        elif field == b"event":
            name = value

    assert expected == sse(body)
