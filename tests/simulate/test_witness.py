"""What the witness remembers."""

import hashlib

from proxy.simulate import witness as module
from proxy.simulate.request import Head, RequestParser
from proxy.simulate.witness import Exchange, Witness


def head(data: bytes) -> Head:
    """The head of a request."""
    part = RequestParser().feed(data)[0]
    assert isinstance(part, Head)
    return part


GET = head(b"GET /x?a HTTP/1.1\r\nX-a: 1\r\nx-A: \xe9\r\n\r\n")


def test_a_request_is_shown_as_it_stands() -> None:
    """What has not happened is None."""
    witness = Witness()
    link = witness.connect("127.0.0.1:5", 10)
    exchange = Exchange(witness, link, GET, 20)

    now = exchange.snapshot()
    assert (now.method, now.target, now.http_version) == ("GET", "/x?a", "1.1")
    assert now.headers == (("X-a", "1"), ("x-A", "é"))
    assert now.values("x-a") == ("1", "é")
    assert (now.head_at, now.first_body_at, now.complete_at, now.ended_how) == (
        20,
        None,
        None,
        None,
    )

    exchange.add(b"he", 30)
    exchange.add(b"llo", 40)
    exchange.complete(((b"T", b"1"),), 50)
    exchange.timeline.append(("token", 55))
    exchange.end("complete", 60)
    exchange.end("client_fin", 70)
    witness.disconnect(link, "client_fin", 80)

    then = exchange.snapshot()
    assert (then.first_body_at, then.complete_at, then.ended_at) == (30, 50, 60)
    assert (then.body, then.body_bytes, then.trailers) == (b"hello", 5, (("T", "1"),))
    assert then.body_sha256 == hashlib.sha256(b"hello").hexdigest()
    assert (then.ended_how, then.closed_how, then.closed_at) == ("complete", "client_fin", 80)
    assert then.instants("token") == (55,)
    assert now.body == b""


def test_a_connection_is_shown_as_it_stands() -> None:
    """With the number of requests that it carried."""
    witness = Witness()
    link = witness.connect("p", 10)
    Exchange(witness, link, GET, 20)
    now = link.snapshot()
    witness.disconnect(link, "server", 30)

    assert (now.id, now.requests, now.open, witness.open) == (1, 1, True, 0)
    assert (link.snapshot().open, link.snapshot().closed_how) == (False, "server")
    assert witness.connect("p", 40).id == 2


def test_little_is_kept_of_a_large_body() -> None:
    """All of it is counted and digested."""
    witness = Witness()
    exchange = Exchange(witness, witness.connect("p", 0), GET, 0)
    block = b"x" * 1024 * 1024
    for _ in range(20):
        exchange.add(block, 1)
    held = len(exchange.body)
    exchange.forget()

    assert held == module.MAX_READ_BODY
    shown = exchange.snapshot()
    assert (len(shown.body), shown.body_bytes) == (len(block), 20 * len(block))
    assert shown.body_sha256 == hashlib.sha256(block * 20).hexdigest()


def test_a_bound_on_what_is_remembered() -> None:
    """The newest stay; with 0 nothing does."""
    witness, forgetful = Witness(keep=2), Witness(keep=0)
    for each in (witness, forgetful):
        link = each.connect("p", 0)
        for at in range(5):
            Exchange(each, link, GET, at)

    assert [exchange.head_at for exchange in witness.exchanges] == [3, 4]
    assert (len(forgetful.exchanges), len(forgetful.links)) == (0, 0)
    assert (witness.keeps_timelines, forgetful.keeps_timelines) == (True, False)


def test_whoever_watches_is_told_of_every_change() -> None:
    """Connection, request, completion, end, disconnection."""
    told: list[None] = []
    witness = Witness()
    witness.changed.add(lambda: told.append(None))
    link = witness.connect("p", 0)
    exchange = Exchange(witness, link, GET, 0)
    exchange.complete((), 0)
    exchange.end("complete", 0)
    witness.disconnect(link, "server", 0)

    assert len(told) == 5
