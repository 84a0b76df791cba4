"""Which fields are relayed."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.serve.headers import HOP_BY_HOP, first, for_client, for_upstream, tokens

HOST = b"api.example"
names = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,12}", fullmatch=True).filter(
    lambda name: (
        name.lower()
        not in HOP_BY_HOP | {b"host", b"connection", b"content-length", b"transfer-encoding"}
    )
)
fields = st.lists(st.tuples(names, st.binary(max_size=20)), max_size=12)


@given(fields)
def test_end_to_end_fields_stay_as_they_are(sent: list[tuple[bytes, bytes]]) -> None:
    """Case, order, repeats and bytes, in both directions."""
    assert for_upstream([(b"Host", b"me"), *sent], HOST) == [(b"Host", HOST), *sent]
    assert for_client(sent, keep_length=True, keep_coding=True) == sent


def test_host_is_replaced_where_it_stood() -> None:
    """With the client's spelling, once; first when the client sent none."""
    assert for_upstream([(b"A", b"1"), (b"hOsT", b"x"), (b"Host", b"y")], HOST) == [
        (b"A", b"1"),
        (b"hOsT", HOST),
    ]
    assert for_upstream([(b"A", b"1")], HOST) == [(b"Host", HOST), (b"A", b"1")]


def test_hop_by_hop_fields_end_here() -> None:
    """Those of the list, and those that Connection names, wherever it stands."""
    sent = [
        (b"X-Mine", b"1"),
        (b"Connection", b"keep-alive, x-MINE"),
        (b"Keep-Alive", b"timeout=5"),
        (b"TE", b"trailers"),
        (b"Upgrade", b"h2c"),
        (b"HTTP2-Settings", b"AAM"),
        (b"Proxy-Authorization", b"Basic x"),
        (b"Content-Encoding", b"zstd"),
        (b"Expect", b"100-continue"),
    ]

    assert for_upstream([(b"Host", b"me"), *sent], HOST) == [
        (b"Host", HOST),
        (b"Content-Encoding", b"zstd"),
        (b"Expect", b"100-continue"),
    ]


def test_connection_cannot_take_the_framing_away() -> None:
    """A length that Connection names still describes the body (request smuggling)."""
    sent = [(b"Connection", b"content-length, transfer-encoding, host"), (b"Content-Length", b"5")]

    assert for_upstream(sent, HOST) == [(b"Host", HOST), (b"Content-Length", b"5")]


def test_credentials_of_the_url_yield_to_the_clients_own() -> None:
    """They are added only when the client sent none."""
    basic = b"Basic dTpw"
    assert (b"Authorization", basic) in for_upstream([], HOST, basic)
    mine = [(b"authorization", b"Bearer k")]
    assert for_upstream(mine, HOST, basic) == [(b"Host", HOST), *mine]


def test_length_and_coding_go_when_they_no_longer_describe_the_body() -> None:
    """The rest stays."""
    sent = [(b"Content-Length", b"5"), (b"A", b"1"), (b"Transfer-Encoding", b"chunked")]

    assert for_client(sent, keep_length=False, keep_coding=False) == [(b"A", b"1")]


def test_lookup_ignores_case_and_splits_lists() -> None:
    """As RFC 9110 says of names and of lists."""
    sent = [(b"Via", b"a, B"), (b"vIA", b",c ,")]
    assert tokens(sent, b"via") == {b"a", b"b", b"c"}
    assert first(sent, b"via") == b"a, B"
    assert first(sent, b"none") is None
