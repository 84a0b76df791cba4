"""The requests under way, for a person who asks."""

from dataclasses import dataclass

from proxy.account import Mark, Phase, Trace
from proxy.serve.ledger import Ledger

SECOND = 1_000_000_000


@dataclass(eq=False)
class Request:
    """What the ledger needs of a request."""

    trace: Trace
    title: str


def test_open_requests_are_listed_oldest_first_with_age_and_phase() -> None:
    """A request that has been stuck for 40 s has no record yet; this is where it shows."""

    def clock() -> int:
        return 100 * SECOND

    ledger = Ledger()
    young = Request(Trace(clock, 98 * SECOND), "POST /v1/messages")
    old = Request(Trace(clock, 60 * SECOND), "POST /v1/chat/completions")
    old.trace.entered = Phase.WAIT
    young.trace.first(Mark.FIRST_TOKEN, 99 * SECOND)
    assert ledger.enter(young) == 0
    assert ledger.enter(old) == 1

    assert [" ".join(line.split()) for line in ledger.describe(clock)] == [
        "2 open requests",
        "40.0 s sent, no response head yet POST /v1/chat/completions",
        "2.0 s streaming tokens POST /v1/messages",
    ]


def test_a_request_with_a_record_is_no_longer_open() -> None:
    """Leaving twice does no harm."""
    ledger = Ledger()
    request = Request(Trace(lambda: 0, 0), "GET /")
    ledger.enter(request)
    ledger.leave(request)
    ledger.leave(request)

    assert len(ledger) == 0
    assert ledger.describe(lambda: 0) == ["0 open requests"]
