"""A proxy, wired: what each part gets from the others."""

import asyncio
import logging
from pathlib import Path

import pytest

from proxy.record import Record
from proxy.serve.app import Proxy
from proxy.serve.config import Config
from tests.support import Peer, proxied, run, upstream

GET = b"GET /v1/x HTTP/1.1\r\nHost: me\r\nConnection: close\r\n\r\n"


def make(url: str = "http://h", dropped: int = 0, **flags: str | bool) -> Proxy:
    """A proxy that is not serving."""
    return Proxy(
        Config.load({"upstream": url, "log": "-", **flags}, {}),
        clock=lambda: 0,
        wall=lambda: 0,
        emit=lambda _record: None,
        dropped=lambda: dropped,
    )


async def quick(peer: Peer) -> None:
    while True:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")


def test_the_server_adds_nothing_and_keeps_quiet() -> None:
    """No Date, no Server, no access log, no forwarded-for rules, no WebSocket library."""
    config = make(client_keepalive="90", shutdown_grace="2.5").server().config
    for addition in ("server_header", "date_header", "access_log", "proxy_headers"):
        assert getattr(config, addition) is False
    assert config.ws == "none"
    assert (config.timeout_keep_alive, config.timeout_graceful_shutdown) == (90, 2.5)


def test_requests_are_numbered_and_the_process_is_named() -> None:
    """One number each, also for what is refused; two processes never share one."""

    async def story() -> None:
        async with upstream(quick) as up, proxied(up.url, label="before") as proxy:
            for request in (GET, b"BREW / HTTP/1.1\r\n\r\n", GET):
                await proxy.ask(request)
            await proxy.record(3)
            run_id = {record.request_id.rpartition("-")[0] for record in proxy.records}
            assert [r.request_id.rpartition("-")[2] for r in proxy.records] == ["1", "2", "3"]
            assert len(run_id) == 1
            assert len(run_id.pop()) == 8
            for record in proxy.records:
                assert record.upstream == up.url
                assert (record.label, record.via_proxy) == ("before", False)
                assert record.worker
                assert record.instance
        assert make()._run != make()._run

    run(story())


def test_a_record_says_how_many_were_lost_before_it() -> None:
    """The writer counts, the record tells."""
    records: list[Record] = []

    async def story() -> None:
        async with upstream(quick) as up, proxied(up.url) as proxy:
            proxy.proxy._dropped = lambda: 7
            await proxy.ask(GET)
            records.append(await proxy.record())

    run(story())
    assert records[0].dropped_records == 7


def test_a_websocket_upgrade_is_refused_at_once_and_without_noise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """426 lets Codex fall back after 0.1 s; anything else costs it seconds (B10, R2)."""
    upgrade = (
        b"GET /v1/responses HTTP/1.1\r\nHost: me\r\nConnection: keep-alive, Upgrade\r\n"
        b"Upgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n"
    )

    async def story() -> None:
        async with upstream(quick) as up, proxied(up.url) as proxy:
            got, how = await proxy.ask(upgrade)
            assert got.startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
            assert b"\r\nUpgrade: HTTP/1.1\r\n" in got
            assert b"\r\nConnection: close\r\n" in got
            assert how == "fin"
            record = await proxy.record()
            assert (record.status, record.outcome) == (426, "bad_request")
            assert record.error == "WebSocketNotTunnelled"
            assert up.connections == 0

    with caplog.at_level(logging.INFO):
        run(story())
    assert [line for line in caplog.messages if "pgrade" in line or "socket" in line] == []


def test_no_log_line_of_the_server_quotes_a_request(caplog: pytest.LogCaptureFixture) -> None:
    """Neither a good one nor a bad one, nor one whose upstream is not there."""

    async def story() -> None:
        async with proxied("http://127.0.0.1:1") as proxy:
            for request in (GET, b"GET /v1/x?hidden HTTP/1.1\r\nbroken\r\n\r\n"):
                await proxy.ask(request.replace(b"/v1/x", b"/v1/hidden"))
            await proxy.record(2)

    with caplog.at_level(logging.DEBUG):
        run(story())
    assert not [line for line in caplog.messages if "hidden" in line or "/v1" in line]


def test_the_end_closes_idle_connections_to_upstream() -> None:
    """And the lag monitor stops: nothing of the proxy is left on the loop."""
    ended = asyncio.Event()

    async def handle(peer: Peer) -> None:
        try:
            await quick(peer)
        finally:
            ended.set()

    async def story() -> None:
        async with upstream(handle) as up:
            async with proxied(up.url) as proxy:
                await proxy.ask(GET)
                assert not ended.is_set()
            await asyncio.wait_for(ended.wait(), 20)
            assert proxy.proxy.lag._timer is None

    run(story())


def test_a_ca_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    """Before anything listens."""
    path = tmp_path / "ca.pem"
    path.write_text("nothing of use")
    with pytest.raises(OSError):  # noqa: PT011  # ssl.SSLError has no text of its own
        make("https://h", ca_file=str(path))
