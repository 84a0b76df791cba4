"""`ttft serve` as its users run it: a process of its own, its files in a folder of the test."""

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from proxy.record import Record, from_json
from tests.support import PATIENCE_S, Peer


@dataclass
class Served:
    """A serving process, everything it has said, and where its files are."""

    process: asyncio.subprocess.Process
    folder: Path
    stderr: bytearray = field(default_factory=bytearray)
    stdout: bytearray = field(default_factory=bytearray)
    clients: list[Peer] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / "ttft.jsonl"

    @property
    def runtime(self) -> Path:
        return self.folder / "run" / "ttft" / f"{self.process.pid}.json"

    @property
    def url(self) -> str:
        found = re.search(rb"listens +(\S+)", self.stderr)
        assert found is not None, self.stderr
        return found[1].decode()

    async def connect(self) -> Peer:
        """A client's connection."""
        port = int(self.url.rpartition(":")[2])
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 20))
        self.clients.append(peer)
        return peer

    async def ask(self, request: bytes) -> tuple[bytes, str]:
        """Send a request on its own connection; all that came back, and how it ended."""
        peer = await self.connect()
        peer.writer.write(request)
        return await peer.rest()

    async def says(self, text: bytes) -> None:
        """Wait until stderr holds `text`."""
        async with asyncio.timeout(PATIENCE_S):
            while text not in self.stderr:
                assert self.process.returncode is None, bytes(self.stderr)
                await asyncio.sleep(0.005)

    async def records(self, number: int, log: Path | None = None) -> list[Record]:
        """The first records of the log, as soon as there are that many."""
        path = log or self.log
        async with asyncio.timeout(PATIENCE_S):
            while not path.exists() or path.read_bytes().count(b"\n") < number:
                await asyncio.sleep(0.005)
        return [from_json(line) for line in path.read_bytes().splitlines()]

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.wait_for(self.process.wait(), PATIENCE_S)

    async def stop(self) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def memory(self) -> int:
        """Its resident memory in bytes, as `ps` tells it."""
        ps = await asyncio.create_subprocess_exec(
            "ps", "-o", "rss=", "-p", str(self.process.pid), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await ps.communicate()
        return int(out) * 1024


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Nothing of the user's environment but the search path; all files below `folder`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "PYTHONWARNINGS": "error",
        **more,
    }


async def started(folder: Path, *arguments: str, **env: str) -> Served:
    """Start `ttft serve` with these arguments; it may end at once."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "serve", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(folder, **env),
    )
    return Served(process, folder)


@contextlib.asynccontextmanager
async def serve(folder: Path, upstream: str, *arguments: str, **env: str) -> AsyncIterator[Served]:
    """`ttft serve` before `upstream` on a free port, logging to `<folder>/ttft.jsonl`."""
    log = () if "--log" in arguments else ("--log", str(folder / "ttft.jsonl"))
    this = await started(folder, "--upstream", upstream, "--port", "0", *log, *arguments, **env)
    reading = [
        asyncio.create_task(_collect(stream, into))
        for stream, into in (
            (this.process.stdout, this.stdout),
            (this.process.stderr, this.stderr),
        )
    ]
    try:
        await this.says(b"base_url")
        yield this
    finally:
        for client in this.clients:
            client.close()
        if this.process.returncode is None:
            await this.stop()
        await asyncio.gather(*reading)
    assert b"Traceback" not in this.stderr, bytes(this.stderr)


async def _collect(stream: asyncio.StreamReader | None, into: bytearray) -> None:
    assert stream is not None
    while piece := await stream.read(65536):
        into += piece
