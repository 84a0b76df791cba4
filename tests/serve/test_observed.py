"""What is seen of one request, as far as it is shown to people."""

import pytest

from proxy.account import Trace
from proxy.serve.config import Joined
from proxy.serve.exchange import Exchange, RequestHead
from proxy.serve.observed import Observed, bare_path
from tests.serve.test_exchange import Connection


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        (b"/v1/messages?beta=true", "/v1/messages"),
        (b"/v1/x#key=hidden", "/v1/x"),
        (b"http://me:hidden@h:81/v1/x?key=hidden", "/v1/x"),
        (b"http://me:hidden@h", ""),
        (b"http://me:hid", ""),
        (b"//v1/%2Fx", "//v1/%2Fx"),
        (b"*", "*"),
        (b"", ""),
    ],
)
def test_a_path_is_shown_without_query_and_authority(target: bytes, shown: str) -> None:
    """Both may hold credentials."""
    assert bare_path(target) == shown


def test_a_title_is_what_goes_to_upstream() -> None:
    """Method and path, prefix included."""
    head = RequestHead("GET", b"/x?key=hidden", "1.1", [], started=0)
    exchange = Exchange(head, Connection(), keep=True)
    observed = Observed(exchange, Trace(lambda: 0, 0), Joined(b"/api/x?key=hidden", None), 0)

    assert observed.path == "/api/x"
    assert observed.title == "GET /api/x"
