"""How long `ttft serve` takes until it answers a request, and what of that are imports. I/O."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proxy.account import Clock

from .install import ROOT, UnavailableError
from .peers import OURS, Peer, environment
from .stage import Cores, free_port, started
from .stats import Spread, spread

PATIENCE_S = 30
_HELLO = b"GET /v1/models HTTP/1.1\r\nhost: model.example\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Startup:
    """All in seconds."""

    cold_s: Spread
    python_s: Spread
    import_s: Spread


def measure(ours: Peer, where: Cores, clock: Clock, rounds: int) -> Startup:
    """Start so many times. Raises `UnavailableError` when it does not answer."""
    assert ours.name == OURS
    cold, python, imports = [], [], []
    for _ in range(rounds):
        cold.append(_cold(ours, where, clock))
        bare = _seconds("pass", where, clock)
        python.append(bare)
        imports.append(_seconds("import proxy.serve.run", where, clock) - bare)
    spreads = [spread(values) for values in (cold, python, imports)]
    found = [each for each in spreads if each is not None]
    return Startup(*found)


def _cold(ours: Peer, where: Cores, clock: Clock) -> float:
    """Nothing listens upstream, so the answer is a 502 of the proxy's own."""
    with tempfile.TemporaryDirectory() as folder:
        begin = clock()
        with started(ours, free_port(), Path(folder), where) as process:
            assert process is not None
            while clock() - begin < PATIENCE_S * 1_000_000_000:
                with suppress(OSError), socket.create_connection(("127.0.0.1", process[1])) as sock:
                    sock.settimeout(PATIENCE_S)
                    sock.sendall(_HELLO)
                    if sock.recv(65_536).startswith(b"HTTP/1.1 502"):
                        return (clock() - begin) / 1e9
                time.sleep(0.001)
    raise UnavailableError("ttft serve does not answer")


def _seconds(program: str, where: Cores, clock: Clock) -> float:
    with tempfile.TemporaryDirectory() as folder:
        os.sched_setaffinity(0, {where.proxy})
        begin = clock()
        try:
            subprocess.run(
                [sys.executable, "-c", program],
                cwd=ROOT,
                env=environment(Path(folder)),
                check=True,
                timeout=PATIENCE_S,
            )
        finally:
            os.sched_setaffinity(0, {where.load})
        return (clock() - begin) / 1e9
