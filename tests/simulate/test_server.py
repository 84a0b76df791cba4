"""The simulator as a whole: in a test, and as a command."""

import asyncio
import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from proxy.simulate.script import ScriptError
from proxy.simulate.server import Simulator
from proxy.simulate.server import run as serve

from .client import PATIENCE_S, ask, connected, parse, request, run, wait_answered

COMMAND = (
    "import sys; from proxy.simulate.server import run; sys.exit(run('127.0.0.1', 0, slots=2))"
)


def test_a_simulator_in_a_test() -> None:
    """A default script, named ones, and what arrived."""

    async def story() -> None:
        async with Simulator(script="tokens=1", scripts={"slow": {"tokens": 3}}) as sim:
            assert sim.url == f"http://127.0.0.1:{sim.port}"
            assert len((await ask(sim)).objects) == 3
            assert len((await ask(sim, body={"model": "sim-slow", "stream": True})).objects) == 5
            sim.use({"status": 503})
            assert (await ask(sim)).status == 503
            assert (await ask(sim, body={"model": "slow", "stream": True})).status == 200
            assert len(await wait_answered(sim, 4)) == 4
            assert len(sim.connections) == 4

    run(story)


def test_it_drops_what_is_open_when_it_stops() -> None:
    """Nothing keeps the test waiting."""

    async def story() -> None:
        async with Simulator() as sim:
            client = connected(sim)
            open_client = await client.__aenter__()
            await open_client.send(request("prefill=60000"))
            await sim.wait(lambda: len(sim.requests) == 1)
        assert sim.open_connections == 0
        await client.__aexit__(None, None, None)

    run(story)


def test_waiting_has_a_limit() -> None:
    """TimeoutError, and a connection that is gone is there at once."""

    async def story() -> None:
        async with Simulator() as sim:
            with pytest.raises(TimeoutError):
                await sim.wait(lambda: False, 0.01)
            await ask(sim)
            assert (await sim.wait_closed(1)).closed_how is not None

    run(story)


def test_ipv6() -> None:
    """The host is a choice."""

    async def story() -> None:
        async with Simulator(host="::1") as sim:
            assert sim.url == f"http://[::1]:{sim.port}"
            assert (await ask(sim)).complete
            assert sim.connections[0].peer.startswith("::1:")

    run(story)


def test_tls() -> None:
    """Through a context; a cut by reset works there too."""
    authority = trustme.CA()
    server, client = (
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH),
        ssl.create_default_context(),
    )
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)

    async def story() -> None:
        async with Simulator(ssl=server) as sim:
            assert sim.url.startswith("https://")
            async with connected(sim, ssl=client, server_hostname="localhost") as each:
                await each.send(request("tokens=2 gap=1"))
                assert parse((await each.rest())[0]).complete
            async with connected(sim, ssl=client, server_hostname="localhost") as each:
                await each.send(request("tokens=2 gap=1 cut.after_tokens=1 cut.how=rst"))
                data, how = await each.rest()
                assert (len(parse(data).objects), how) == (2, "rst")

    run(story)


def test_a_script_that_cannot_be_played_is_refused_at_once() -> None:
    """When the simulator is made."""
    with pytest.raises(ScriptError):
        Simulator(script="gap=x")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_where_it_listens_and_ends_quietly(number: signal.Signals) -> None:
    """One line on standard error, with a call that works; then nothing."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("ttft simulate: listening on http://127.0.0.1:")
        assert '/v1/chat/completions -d \'{"model":"sim","stream":true}\'' in line
        port = int(line.split("127.0.0.1:")[1].split(";")[0])

        async def story() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("tokens=2"))
            data = await asyncio.wait_for(reader.read(-1), PATIENCE_S)
            assert parse(data).events[-1] == (None, "[DONE]")
            writer.close()
            await writer.wait_closed()

        asyncio.run(story())
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (out, err, process.returncode) == ("", "", 0)
    finally:
        process.kill()
        process.communicate()


def test_the_command_says_why_it_cannot_start(tmp_path: Path) -> None:
    """A bad script, a missing file, a port that is taken."""
    said: list[str] = []
    bad = tmp_path / "script.json"
    bad.write_text('{"slow": "gap=x"}')

    assert serve("127.0.0.1", 0, script_file=bad, announce=said.append) == 2
    assert serve("127.0.0.1", 0, script_file=tmp_path / "none", announce=said.append) == 2
    assert serve("127.0.0.1", 0, tls_cert=tmp_path / "none", announce=said.append) == 2

    async def story() -> None:
        async with Simulator() as sim:
            code = await asyncio.to_thread(in_another_process, sim.port)
            assert code == 2

    asyncio.run(story())
    assert all(line.startswith("ttft simulate: ") for line in said)
    assert "slow: " in said[0]


def in_another_process(port: int) -> int:
    """The exit status of a second simulator on the same port."""
    command = COMMAND.replace("127.0.0.1', 0", f"127.0.0.1', {port}")
    done = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, timeout=PATIENCE_S, check=False
    )
    return done.returncode


def test_the_command_with_a_script_file_and_tls(tmp_path: Path) -> None:
    """The line tells the scheme; without memory of what arrived."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    cert, key, script = tmp_path / "cert", tmp_path / "key", tmp_path / "script"
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    script.write_text('{"*": {"tokens": 1}}')
    said: list[str] = []

    def announce(line: str) -> None:
        said.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    assert (
        serve("127.0.0.1", 0, script_file=script, announce=announce, tls_cert=cert, tls_key=key)
        == 0
    )
    assert "https://127.0.0.1:" in said[0]
