"""One exchange with a client, filled by hand instead of by a socket."""

import asyncio
from typing import Any

import pytest

from proxy.serve.exchange import HIGH_WATER, Exchange, RequestHead
from tests.support import run


class Connection:
    """A connection that writes down what is asked of it."""

    def __init__(self) -> None:
        self.written = b""
        self.asked: list[Any] = []

    def write(self, data: bytes) -> bool:
        self.written += data
        return True

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")

    def exchange_done(self, *, keep: bool) -> None:
        self.asked.append("keep" if keep else "close")

    def break_off(self, *, reset: bool) -> None:
        self.asked.append("reset" if reset else "cut")


def begun(
    *, version: str = "1.1", expects: bool = False, keep: bool = True
) -> tuple[Exchange, Connection]:
    """An exchange whose head has arrived."""
    connection = Connection()
    head = RequestHead("POST", b"/", version, [], started=5, expects_continue=expects)
    return Exchange(head, connection, keep=keep), connection


def test_a_body_that_is_here_comes_in_one_piece() -> None:
    """Only when it is complete, so that head and body can be one write."""
    exchange, _ = begun()
    exchange.body_arrived(b"ab")
    assert exchange.ready_body() is None
    exchange.body_arrived(b"cd")
    exchange.request_ended(9)

    assert exchange.ready_body() == b"abcd"
    assert exchange.request_bytes == 4
    assert exchange.request_ended_at == 9


def test_no_body_is_an_empty_one() -> None:
    """Nothing arrived, and nothing will."""
    exchange, _ = begun()
    exchange.request_ended(9)
    assert exchange.ready_body() == b""


def test_pieces_come_as_they_arrive() -> None:
    """A reader waits for the next one, and learns of the end."""

    async def story() -> None:
        exchange, _ = begun()
        got: list[bytes | None] = []

        async def read() -> None:
            while True:
                got.append(await exchange.next_part())
                if got[-1] is None:
                    return

        reader = asyncio.create_task(read())
        for piece in (b"one", b"two"):
            exchange.body_arrived(piece)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert got[-1] == piece
        exchange.request_ended(1)
        await reader
        assert got == [b"one", b"two", None]

    run(story())


def test_an_upload_that_is_not_taken_pauses_reading() -> None:
    """Bounded memory: above the high-water mark the client waits, below it reading goes on."""

    async def story() -> None:
        exchange, connection = begun()
        exchange.body_arrived(b"x" * HIGH_WATER)
        assert connection.asked == []
        exchange.body_arrived(b"y")
        assert connection.asked == ["pause"]
        assert len(await exchange.next_part() or b"") == HIGH_WATER
        assert connection.asked == ["pause", "resume"]

    run(story())


def test_a_client_leaves_once() -> None:
    """The first instant counts; whoever relays is told once."""
    exchange, _ = begun()
    told: list[int | None] = []
    exchange.on_gone = lambda: told.append(exchange.left_at)
    exchange.client_left(7)
    exchange.client_left(8)
    assert told == [7]


def test_a_broken_body_is_told_once_and_not_after_its_end() -> None:
    """What follows a complete body belongs to another request."""
    exchange, _ = begun()
    told: list[str | None] = []
    exchange.on_gone = lambda: told.append(exchange.broken)
    exchange.body_broke("InvalidRequest")
    exchange.body_broke("Other")
    assert told == ["InvalidRequest"]

    complete, _ = begun()
    complete.request_ended(1)
    complete.body_broke("InvalidRequest")
    assert complete.broken is None


def test_an_answer_says_nothing_but_what_it_is_told() -> None:
    """Status, reason and fields in their order; no Date, no Server."""
    exchange, connection = begun()
    exchange.request_ended(1)
    exchange.respond(299, b"Odd", [(b"x-A", b"\xff"), (b"X-a", b"")])
    exchange.write(b"body")
    exchange.finish()

    assert connection.written == b"HTTP/1.1 299 Odd\r\nx-A: \xff\r\nX-a: \r\n\r\nbody"
    assert connection.asked == ["keep"]


@pytest.mark.parametrize(("keep", "complete"), [(False, True), (True, False)])
def test_an_answer_after_which_the_connection_ends_says_so(keep: bool, complete: bool) -> None:
    """Because the client asked for it, or because its request is not complete."""
    exchange, connection = begun(keep=keep)
    if complete:
        exchange.request_ended(1)
    exchange.respond(200, b"", [])
    exchange.finish()

    assert connection.written == b"HTTP/1.1 200 \r\nConnection: close\r\n\r\n"
    assert connection.asked == ["close"]


def test_a_body_that_only_the_end_ends() -> None:
    """Chunked to HTTP/1.0: said before the head is written."""
    exchange, connection = begun()
    exchange.request_ended(1)
    exchange.close_after()
    exchange.respond(200, b"OK", [])
    assert b"Connection: close" in connection.written


@pytest.mark.parametrize("reset", [False, True])
def test_a_break_is_a_break(reset: bool) -> None:
    """It reaches the connection as it is meant."""
    exchange, connection = begun()
    exchange.break_off(reset=reset)
    assert connection.asked == ["reset" if reset else "cut"]


def test_interim_responses_pass_until_the_final_one() -> None:
    """Not after it, not to a client that left, not to HTTP/1.0."""
    exchange, connection = begun()
    exchange.inform(103, b"Early Hints", [(b"Link", b"<a>")])
    assert connection.written == b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n"
    exchange.respond(200, b"OK", [])
    before = connection.written
    exchange.inform(103, b"", [])
    assert connection.written == before

    old, connection = begun(version="1.0", expects=True)
    old.inform(103, b"", [])
    old.continue_anyway()
    assert connection.written == b""

    left, connection = begun()
    left.client_left(1)
    left.inform(103, b"", [])
    assert connection.written == b""


def test_a_client_that_waits_gets_one_100() -> None:
    """Upstream's, or ours when upstream is silent; never both."""
    exchange, connection = begun(expects=True)
    exchange.continue_anyway()
    exchange.continue_anyway()
    exchange.inform(100, b"Continue", [])
    assert connection.written == b"HTTP/1.1 100 Continue\r\n\r\n"

    exchange, connection = begun(expects=True)
    exchange.inform(100, b"Go", [])
    exchange.continue_anyway()
    assert connection.written == b"HTTP/1.1 100 Go\r\n\r\n"


def test_no_100_of_ours_to_a_client_that_already_sends() -> None:
    """It did not wait; what upstream says still passes."""
    exchange, connection = begun(expects=True)
    exchange.body_arrived(b"x")
    exchange.continue_anyway()
    assert connection.written == b""
    exchange.inform(100, b"Continue", [])
    assert connection.written == b"HTTP/1.1 100 Continue\r\n\r\n"
