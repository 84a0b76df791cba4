"""How a request ended, and whose doing it was."""

import pytest

from proxy.account import Phase
from proxy.record import EndedBy, Outcome
from proxy.serve import ending
from proxy.serve.ending import Ending
from proxy.upstream.client import Blame, UpstreamFault


@pytest.mark.parametrize(
    ("blame", "outcome", "by"),
    [
        (Blame.UNREACHABLE, Outcome.UPSTREAM_UNREACHABLE, EndedBy.UPSTREAM),
        (Blame.ABORTED, Outcome.UPSTREAM_ABORTED, EndedBy.UPSTREAM),
        (Blame.CONNECT_TIMEOUT, Outcome.TIMEOUT, EndedBy.UPSTREAM),
        (Blame.IDLE_TIMEOUT, Outcome.TIMEOUT, EndedBy.PROXY),
    ],
)
def test_a_fault_names_its_owner(blame: Blame, outcome: Outcome, by: EndedBy) -> None:
    """A failed DNS, TCP or TLS step is upstream's; a limit on its silence is ours."""
    fault = UpstreamFault(blame, "ReadError", "connection lost")

    assert ending.of_fault(fault, Phase.WAIT) == Ending(outcome, by, Phase.WAIT, "ReadError")


def test_a_client_that_leaves_with_its_answer_is_a_success() -> None:
    """SDKs close as soon as they have seen the terminal event."""
    early = ending.of_client_leaving(Phase.STREAM, answered=True)
    assert (early.outcome, early.flags) == (Outcome.OK, ("client_closed_early",))

    gone = ending.of_client_leaving(Phase.WAIT, answered=False)
    assert (gone.outcome, gone.by, gone.error) == (
        Outcome.CLIENT_DISCONNECT,
        EndedBy.CLIENT,
        "ClientDisconnect",
    )
