"""Marks, phases, and how phases tile an account."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.account import Mark, Phase, Trace, tile

MS = 1000  # µs


def test_a_new_connection_is_cut_into_all_its_steps() -> None:
    """Each step ends with its mark and starts where the one before ended."""
    marks = {
        Mark.REQUEST_END: 0,
        Mark.POOL_READY: 1 * MS,
        Mark.DNS_END: 3 * MS,
        Mark.CONNECT_END: 10 * MS,
        Mark.TLS_END: 30 * MS,
        Mark.UPSTREAM_TX_START: 31 * MS,
        Mark.UPSTREAM_TX_END: 32 * MS,
        Mark.RESPONSE_HEADERS: 200 * MS,
        Mark.FIRST_CHUNK: 210 * MS,
    }

    assert tile(marks, 500 * MS, Phase.WAIT) == {
        Phase.POOL: 1 * MS,
        Phase.DNS: 2 * MS,
        Phase.TCP: 7 * MS,
        Phase.TLS: 20 * MS,
        Phase.OWN: 1 * MS,
        Phase.SEND: 1 * MS,
        Phase.WAIT: 168 * MS,
        Phase.HEAD: 10 * MS,
        Phase.BODY: 290 * MS,
    }


def test_an_upload_that_overlaps_the_connection_counts_once() -> None:
    """Until the connection is ready the time is the connection's, then the client's."""
    marks = {
        Mark.POOL_READY: 0,
        Mark.CONNECT_END: 40 * MS,
        Mark.UPSTREAM_TX_START: 40 * MS,
        Mark.REQUEST_END: 100 * MS,
        Mark.UPSTREAM_TX_END: 101 * MS,
        Mark.RESPONSE_HEADERS: 150 * MS,
    }

    assert tile(marks, 150 * MS, Phase.WAIT) == {
        Phase.TCP: 40 * MS,
        Phase.UPLOAD: 60 * MS,
        Phase.SEND: 1 * MS,
        Phase.WAIT: 49 * MS,
    }


def test_an_early_reply_cuts_the_upload() -> None:
    """A 413 in the middle of the upload ends the upload's share, whenever it is finished."""
    marks = {
        Mark.POOL_READY: 0,
        Mark.UPSTREAM_TX_START: 0,
        Mark.RESPONSE_HEADERS: 20 * MS,
        Mark.REQUEST_END: 90 * MS,
    }

    assert tile(marks, 90 * MS, Phase.UPLOAD) == {Phase.UPLOAD: 20 * MS, Phase.HEAD: 70 * MS}


def test_a_request_that_died_while_resolving_spent_its_time_on_dns() -> None:
    """The step that was under way gets the time that no mark ended."""
    assert tile({Mark.POOL_READY: 1, Mark.REQUEST_END: 0}, 5_000_000, Phase.DNS) == {
        Phase.POOL: 1,
        Phase.DNS: 5_000_000 - 1,
    }


marks_of_any_kind = st.dictionaries(st.sampled_from(Mark), st.integers(0, 10_000_000))


@given(marks_of_any_kind, st.integers(0, 10_000_000), st.sampled_from(Phase))
def test_phases_tile_any_interval(marks: dict[Mark, int], end: int, running: Phase) -> None:
    """Whatever was observed, in whatever order: no negative phase, and the sum is the interval."""
    tiles = tile(marks, end, running)

    assert end == sum(tiles.values())
    assert all(duration > 0 for duration in tiles.values())


def test_first_wins_and_last_moves() -> None:
    """A mark that was set stays; only `last` moves it."""
    trace = Trace(lambda: 0, start=1_000_000)
    trace.first(Mark.FIRST_TOKEN, 2_000_000)
    trace.first(Mark.FIRST_TOKEN, 3_000_000)
    trace.last(Mark.LAST_TOKEN, 4_000_000)
    trace.last(Mark.LAST_TOKEN, 5_000_999)

    assert trace.offsets_us() == {Mark.FIRST_TOKEN: 1000, Mark.LAST_TOKEN: 4000}


def test_what_is_observed_after_the_end_is_not_part_of_the_request() -> None:
    """Draining a connection after the client left adds no marks."""
    trace = Trace(lambda: 0, start=0)
    trace.first(Mark.TERMINAL_EVENT, 5_000)
    trace.first(Mark.UPSTREAM_RX_END, 900_000)
    trace.end(7_000)

    assert trace.offsets_us() == {Mark.TERMINAL_EVENT: 5, Mark.END: 7}


def test_the_phase_follows_the_marks() -> None:
    """What a request is doing is the latest thing that was seen."""
    trace = Trace(lambda: 0, start=0)
    trace.entered = Phase.WAIT
    assert trace.phase is Phase.WAIT
    for mark, phase in (
        (Mark.RESPONSE_HEADERS, Phase.HEAD),
        (Mark.FIRST_CHUNK, Phase.BODY),
        (Mark.FIRST_TOKEN, Phase.STREAM),
        (Mark.UPSTREAM_RX_END, Phase.DONE),
    ):
        trace.first(mark, 1)
        assert trace.phase is phase
