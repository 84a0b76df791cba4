"""The table of httpcore's events: every name is emitted by the installed version."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpcore
import pytest
import trustme

from proxy.account import Mark, Phase
from proxy.upstream import client
from proxy.upstream.fallback import Connecting
from proxy.upstream.httpcore_events import MARKS, STEPS, TO_PROXY, observer
from tests.support import Handler, run
from tests.upstream.calls import OK, SECOND, always, ask, listening, new_trace, tls_server, to
from tests.upstream.peers import Http2, HttpProxy, Socks5, Stream

Way = tuple[str, str, bool, type | None, set[str]]

WAYS: dict[str, Way] = {
    "h2": (
        "https",
        "",
        True,
        None,
        {
            "connection.connect_tcp.started",
            "connection.connect_tcp.complete",
            "connection.start_tls.started",
            "connection.start_tls.complete",
            "http2.send_request_headers.started",
            "http2.send_request_body.complete",
            "http2.receive_response_headers.started",
            "http2.receive_response_headers.complete",
        },
    ),
    "forward": (
        "http",
        "http",
        False,
        HttpProxy,
        {
            "connection.connect_tcp.started",
            "connection.connect_tcp.complete",
            "http11.send_request_headers.started",
            "http11.send_request_body.complete",
            "http11.receive_response_headers.started",
            "http11.receive_response_headers.complete",
        },
    ),
    "tunnel": (
        "https",
        "http",
        False,
        HttpProxy,
        {
            "connection.connect_tcp.complete",
            "proxy.start_tls.started",
            "proxy.start_tls.complete",
            "http11.receive_response_headers.complete",
        },
    ),
    "tunnel_by_tls": (
        "https",
        "https",
        True,
        HttpProxy,
        {
            "connection.start_tls.complete",
            "proxy.start_tls.complete",
            "http2.receive_response_headers.complete",
        },
    ),
    "socks": (
        "https",
        "socks5",
        False,
        Socks5,
        {
            "socks.connect_tcp.started",
            "socks.connect_tcp.complete",
            "socks.setup_socks5_connection.complete",
            "socks.start_tls.started",
            "socks.start_tls.complete",
            "http11.send_request_headers.started",
        },
    ),
}
"""Scheme of upstream, scheme of the proxy, HTTP/2, the proxy, and the names that are for it."""


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all events, in the order in which httpcore emitted them."""
    names: list[str] = []

    def noting(*args: Any, **options: Any) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
        inner = observer(*args, **options)

        async def on_event(name: str, info: dict[str, Any]) -> None:
            names.append(name)
            await inner(name, info)

        return on_event

    monkeypatch.setattr(client, "observer", noting)
    return names


def test_every_name_of_the_table_is_for_some_way() -> None:
    """No entry without a configuration that emits it."""
    named = set().union(*(names for *_, names in WAYS.values()))
    assert set(STEPS) | set(MARKS) | set(TO_PROXY) == named


@pytest.mark.parametrize("way", WAYS)
def test_the_installed_httpcore_emits_them_and_the_marks_are_in_order(
    way: str, emitted: list[str]
) -> None:
    """Twice over one connection: connected, sent once, answered; the second is sent at once."""
    scheme, proxy_scheme, http2, proxy_class, expected = WAYS[way]
    handler: Handler = Http2(answer) if http2 else always(OK)
    ca = trustme.CA()

    async def story() -> None:
        cert = tls_server(ca.issue_cert("127.0.0.1"), alpn=["h2" if http2 else "http/1.1"])
        proxy_cert = tls_server(ca.issue_cert("127.0.0.1"))
        proxy = proxy_class() if proxy_class is not None else always()
        async with (
            listening(handler, tls=cert if scheme == "https" else None) as server,
            listening(proxy, tls=proxy_cert if proxy_scheme == "https" else None) as hop,
        ):
            url = f"{proxy_scheme}://127.0.0.1:{hop.port}" if proxy_scheme else None
            options: dict[str, Any] = {"forward_proxy": url, "http2": http2, "verify": False}
            async with to(server.port, scheme=scheme, **options) as upstream:
                told: list[int] = []
                opened = await ask(upstream, "POST", body=b"body", sent=lambda: told.append(1))
                assert told == [1]
                assert expected <= set(emitted)
                emitted.clear()
                reused = await ask(upstream)
                assert not [name for name in emitted if "connect" in name]
            assert server.connections == 1
        for answer in (opened, reused):
            assert answer.payload == b"ok"
            assert answer.head.framing.value == "length"
            assert answer.facts.http_version == ("2" if http2 else "1.1")
            steps = [
                Mark.POOL_READY,
                Mark.CONNECT_END,
                Mark.TLS_END,
                Mark.UPSTREAM_TX_START,
                Mark.UPSTREAM_TX_END,
                Mark.RESPONSE_HEADERS,
                Mark.FIRST_CHUNK,
                Mark.UPSTREAM_RX_END,
            ]
            marks = answer.trace.marks
            seen = [marks[step] for step in steps if step in marks]
            assert seen == sorted(seen)
            assert (Mark.CONNECT_END in marks) == (answer is opened)
            assert (Mark.TLS_END in marks) == (answer is opened and scheme == "https")
            assert {Mark.UPSTREAM_TX_START, Mark.UPSTREAM_TX_END} <= set(marks)

    run(story())


async def answer(stream: Stream) -> None:
    """Two bytes over HTTP/2."""
    await stream.head(200, (b"content-length", b"2"))
    await stream.data(b"ok", end=True)


def test_what_is_said_to_a_proxy_is_part_of_connecting() -> None:
    """CONNECT and its answer are neither the request nor the response, nor the end of sending."""
    connect = {"request": httpcore.Request("CONNECT", "http://proxy:1")}
    post = {"request": httpcore.Request("POST", "https://upstream:1")}
    told: list[str] = []
    now = 0

    def clock() -> int:
        nonlocal now
        now += SECOND
        return now

    class Notes(Connecting):
        def begun(self) -> None:
            told.append("begun")

        def opened(self, stream: Any) -> None:
            told.append(f"opened {stream}")

        def over(self) -> None:
            told.append("over")

    trace = new_trace()
    trace.clock = clock

    async def story() -> None:
        on_event = observer(trace, lambda: told.append("sent"), connecting=Notes(None))
        phases: list[Phase] = []
        await on_event("connection.connect_tcp.started", {})
        await on_event("connection.connect_tcp.complete", {"return_value": "stream"})
        for step in ("send_request_headers", "send_request_body", "receive_response_headers"):
            await on_event(f"http11.{step}.started", connect)
            await on_event(f"http11.{step}.complete", {})
        assert trace.marks == {Mark.POOL_READY: SECOND, Mark.CONNECT_END: 8 * SECOND}
        assert told == ["begun", "opened stream"]
        phases.append(trace.phase)
        await on_event("proxy.start_tls.started", {})
        phases.append(trace.phase)
        await on_event("proxy.start_tls.complete", {})
        await on_event("http11.send_request_headers.started", post)
        phases.append(trace.phase)
        await on_event("http11.send_request_body.complete", {})
        assert told == ["begun", "opened stream", "over", "sent"]
        assert phases == [Phase.TCP, Phase.TLS, Phase.SEND]
        assert trace.marks[Mark.UPSTREAM_TX_END] == 12 * SECOND

    asyncio.run(story())
