"""`ttft serve` as a process: what it says, the files it keeps, the signals it answers."""

import asyncio
import json
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving import Served, serve, started
from tests.support import PATIENCE_S, Peer, run, upstream

GET = b"GET /v1/x?key=hidden HTTP/1.1\r\nHost: me\r\nConnection: close\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TOKEN = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
POST = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: me\r\nContent-Length: 27\r\n\r\n"
    b'{"model":"m","stream":true}'
)


async def quick(peer: Peer) -> None:
    """An upstream that answers at once."""
    while True:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")


async def endless(peer: Peer) -> None:
    """An upstream that begins to answer and never ends."""
    await peer.head()
    await peer.send(STREAM + b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN))
    await peer.rest()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_says_where_everything_is_and_keeps_its_files_private(tmp_path: Path) -> None:
    """A banner for people, a runtime file for the other verbs; nothing is left behind."""

    async def story() -> None:
        async with upstream(quick) as up:
            url = up.url.replace("http://", "http://me:hidden@") + "/api"
            async with serve(tmp_path, url, "--tags") as served:
                lines = served.stderr.decode().splitlines()
                assert lines[0].startswith("ttft ")
                assert f"  listens   {served.url}" in lines
                assert f"  sends to  {up.url}/api (directly)" in lines
                assert f"  logs to   {served.log}" in lines
                assert f"  base_url  {served.url}/t/TAG/v1   OpenAI SDKs, Codex, Dify" in lines
                running = json.loads(served.runtime.read_bytes())
                assert running["url"] == served.url
                assert running["log"] == str(served.log)
                assert mode(served.runtime) == 0o600
                assert mode(served.runtime.parent) == 0o700

                got, _ = await served.ask(GET)
                assert got.endswith(b"hi")
                (record,) = await served.records(1)
                assert (record.outcome, record.upstream_path) == ("ok", "/api/v1/x")
                assert mode(served.log) == 0o600
                assert await served.stop() == 0
                assert not served.runtime.exists()
                assert served.stdout == b""
                assert b"hidden" not in served.stderr + served.log.read_bytes()

    run(story())


def test_records_can_go_to_stdout(tmp_path: Path) -> None:
    """And nothing else goes there."""

    async def story() -> None:
        async with upstream(quick) as up, serve(tmp_path, up.url, "--log", "-") as served:
            assert b"logs to   standard output" in served.stderr
            await served.ask(GET)
            await served.ask(b"BREW / HTTP/1.1\r\n\r\n")
            assert await served.stop() == 0
            await asyncio.sleep(0)
            outcomes = [json.loads(line)["outcome"] for line in served.stdout.splitlines()]
            assert outcomes == ["ok", "bad_request"]

    run(story())


def test_sigusr1_prints_the_open_requests(tmp_path: Path) -> None:
    """One that hangs has no record yet; its phase and age say where it is."""

    async def story() -> None:
        async with upstream(endless) as up, serve(tmp_path, up.url) as served:
            served.signal(signal.SIGUSR1)
            await served.says(b"0 open requests\n")
            client = await served.connect()
            await client.send(POST)
            await client.until(b"Hi")
            await asyncio.sleep(0.02)
            served.signal(signal.SIGUSR1)
            await served.says(b"1 open request\n")
            await served.says(b"POST /v1/chat/completions\n")
            assert b"streaming tokens" in served.stderr

    run(story())


def test_sighup_opens_the_log_again(tmp_path: Path) -> None:
    """What logrotate does: rename, then signal; nothing is lost between the two files."""

    async def story() -> None:
        async with upstream(quick) as up, serve(tmp_path, up.url) as served:
            await served.ask(GET)
            await served.records(1)
            old = served.log.rename(tmp_path / "ttft.jsonl.1")
            served.signal(signal.SIGHUP)
            await served.ask(GET)
            (after,) = await served.records(1)
            (before,) = await served.records(1, old)
            assert before.request_id != after.request_id
            assert mode(served.log) == 0o600

    run(story())


async def opened(served: Served) -> Peer:
    """A client in the middle of an endless stream."""
    client = await served.connect()
    await client.send(POST)
    await client.until(b"Hi")
    return client


def test_sigterm_ends_well_with_every_record_written(tmp_path: Path) -> None:
    """Exit code 0; what did not end in time is cut and recorded (B64)."""

    async def story() -> None:
        async with (
            upstream(endless) as up,
            serve(tmp_path, up.url, "--shutdown-grace", "0.2") as served,
        ):
            client = await opened(served)
            served.signal(signal.SIGTERM)
            got, _ = await client.rest()
            assert b"0\r\n\r\n" not in got
            assert await served.ended() == 0
            (record,) = await served.records(1)
            assert (record.outcome, record.ended_by) == ("proxy_shutdown", "proxy")
            assert record.ttft_ms is not None

    run(story())


def test_a_second_control_c_does_not_wait(tmp_path: Path) -> None:
    """The grace time is for who asks once; the record is written all the same (B64)."""

    async def story() -> None:
        async with (
            upstream(endless) as up,
            serve(tmp_path, up.url, "--shutdown-grace", "600") as served,
        ):
            await opened(served)
            served.signal(signal.SIGINT)
            await asyncio.sleep(0.3)
            assert served.process.returncode is None
            served.signal(signal.SIGINT)
            assert await served.ended() == 0
            (record,) = await served.records(1)
            assert record.outcome == "proxy_shutdown"

    run(story())


def test_environment_proxies_are_ignored_unless_asked_for(tmp_path: Path) -> None:
    """A dead one in every variable changes nothing; asked for, it is what failed (B17)."""

    async def story() -> None:
        with socket.socket() as dead:
            dead.bind(("127.0.0.1", 0))  # not listening: a connection is refused
            url = f"http://me:hidden@127.0.0.1:{dead.getsockname()[1]}"
            names = ("http_proxy", "https_proxy", "all_proxy")
            env = dict.fromkeys((*names, *(name.upper() for name in names)), url)
            async with upstream(quick) as up:
                async with serve(tmp_path, up.url, **env) as served:
                    assert b"(directly)" in served.stderr
                    assert (await served.ask(GET))[0].endswith(b"hi")
                    assert (await served.records(1))[0].via_proxy is False
                # Before a name that is not this machine, so that NO_PROXY rules do not apply.
                asked = ("--upstream-proxy", "env", "--log", str(tmp_path / "asked"))
                async with serve(tmp_path, "http://api.example", *asked, **env) as served:
                    assert b"through the proxy http://127.0.0.1" in served.stderr
                    got, _ = await served.ask(GET)
                    assert got.startswith(b"HTTP/1.1 502 ")
                    assert b"proxy connect failed" in got
                    (record,) = await served.records(1, tmp_path / "asked")
                    assert record.via_proxy is True
                    assert record.outcome == "upstream_unreachable"
                    assert b"hidden" not in served.stderr + got

    run(story())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--upstream", "https://h", "--ca-file", "{folder}/text", "--port", "0"),
         "cannot use the CA file {folder}/text: it holds no usable certificate."),
        (("--upstream", "https://h", "--ca-file", "{folder}/none", "--port", "0"),
         "--ca-file: there is no file {folder}/none."),
        (("--upstream", "http://h", "--host", "203.0.113.1", "--port", "0"),
         "cannot listen on 203.0.113.1 port 0: "),
        (("--upstream", "http://h", "--idle-timeout", "soon"), "--idle-timeout: 'soon'"),
        (("--upstream", "ftp://h"), "--upstream: "),
    ],
)  # fmt: skip
def test_what_the_user_can_correct_is_one_clear_line(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    """Exit code 2, no traceback."""
    (tmp_path / "text").write_text("this is no certificate")
    filled = [argument.format(folder=tmp_path) for argument in arguments]
    _fails(tmp_path, says.format(folder=tmp_path), *filled)


def test_a_busy_port_is_one_clear_line(tmp_path: Path) -> None:
    """With what to do about it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        _fails(tmp_path, "it is in use", "--upstream", "http://h", "--port", port)


def _fails(folder: Path, says: str, *arguments: str) -> None:
    async def story() -> None:
        served = await started(folder, *arguments)
        out, err = await asyncio.wait_for(served.process.communicate(), PATIENCE_S)
        assert (served.process.returncode, out) == (2, b"")
        assert says in err.decode()
        assert err.count(b"\n") == 1
        assert err.startswith(b"ttft serve: ")

    run(story())


def test_serving_loads_no_more_than_it_needs() -> None:
    """By modules and not by a clock: no other server, no test tools, nothing of the extras."""
    code = "import sys, proxy.serve.run; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "proxy.serve.relay" in loaded
    unwanted = (
        "wsproto websockets watchfiles rich hypothesis pytest jsonschema trustme yaml duckdb "
        "sqlite3 proxy.analyze proxy.simulate proxy.demo proxy.cli"
    )
    assert not loaded & set(unwanted.split())
