"""The simulated model API as a process that tells at its end what it saw.

`python -m tests.lab.upstream HOST [CERT KEY TLS_VERSION]` prints its port, serves until its
standard input ends, then writes `Witnessed` items as msgpack on standard output.
"""

import asyncio
import ssl
import sys

import msgspec
import uvloop

from proxy.simulate.server import Simulator
from proxy.simulate.witness import Received

TLS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Witnessed(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the simulator saw it; instants in ns of the monotonic clock."""

    trace: str
    connection: int
    head_at: int
    complete_at: int
    body_bytes: int
    timeline: list[tuple[str, int]]


def witnessed(received: Received) -> Witnessed | None:
    """What is told of a request; None when it was not one of the laboratory's, or not whole."""
    trace = received.values("traceparent")
    if not trace or received.complete_at is None:
        return None
    return Witnessed(
        trace=trace[0].split("-")[1],
        connection=received.connection,
        head_at=received.head_at,
        complete_at=received.complete_at,
        body_bytes=received.body_bytes,
        timeline=list(received.timeline),
    )


async def _serve(host: str, context: ssl.SSLContext | None) -> list[Witnessed]:
    async with Simulator(host=host, ssl=context) as simulator:
        print(simulator.port, flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
        await ended.wait()
        found = [witnessed(received) for received in simulator.requests]
    return [one for one in found if one is not None]


def main(arguments: list[str]) -> int:
    """The process."""
    host, *tls = arguments
    context = None
    if tls:
        certificate, key, version = tls
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        context.minimum_version = context.maximum_version = TLS[version]
    found = uvloop.run(_serve(host, context))
    sys.stdout.buffer.write(msgspec.msgpack.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
