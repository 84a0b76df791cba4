"""The same product with httpx's default transport: `python -m tests.bench.launch_httpx` + flags."""

import signal
import socket
import sys
import time

import uvloop

from proxy.serve.app import Proxy
from proxy.serve.config import Config
from proxy.serve.log import RecordLog
from proxy.upstream.fallback import fallback_transport


def main(upstream: str, port: str, log_file: str) -> None:
    """Serve until told to stop."""
    clock = time.monotonic_ns  # noqa: TID251  # an entry point
    config = Config.load({"upstream": upstream, "port": port, "log": log_file}, {})
    log = RecordLog(config.log, clock=clock, announce=print)
    proxy = Proxy(config, clock=clock, wall=time.time_ns, emit=log.emit)
    way = proxy._upstream
    way.native = False
    way.transport = fallback_transport(
        tls=None,
        http2=False,
        forward_proxy=None,
        pool_limit=config.pool_limit,
        keepalive_s=config.keepalive_s,
    )
    # uvicorn raises a signal that it caught once more at its end.
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        listener = socket.create_server((config.host, config.port), backlog=2048)
        uvloop.run(proxy.server().serve(sockets=[listener]))
    finally:
        proxy.settle()
        log.close(timeout=5.0)


if __name__ == "__main__":
    main(*sys.argv[1:])
