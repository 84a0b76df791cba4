"""`ttft serve`: bind, say where everything is, serve until told to stop. Reads the clocks."""

import asyncio
import errno
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable

import uvloop

from proxy import __version__
from proxy.serve.app import Proxy
from proxy.serve.config import Config
from proxy.serve.log import RecordLog
from proxy.serve.operator import operator_log, route_logging
from proxy.serve.runtime import register

_clock = time.monotonic_ns  # noqa: TID251  # an entry point: clocks are read here and passed on
_wall = time.time_ns
_ENDING = (signal.SIGINT, signal.SIGTERM)


def run(config: Config) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit code; 2 for what the user can correct."""
    say = operator_log()
    route_logging(say)
    log = RecordLog(config.log, clock=_clock, announce=say.warning)
    try:
        proxy = Proxy(config, clock=_clock, wall=_wall, emit=log.emit, dropped=lambda: log.dropped)
    except ImportError as error:
        return _fail(str(error))
    except OSError as error:  # ssl.SSLError is one
        return _fail(_why_no_tls(config, error))
    try:
        listener = _listen(config.host, config.port)
    except OSError as error:
        return _fail(_why_not(config, error))
    port = listener.getsockname()[1]
    url = f"http://{_reachable(config.host)}:{port}"
    # Before uvicorn listens to signals they are noted; those that it caught it raises once more at
    # its end, when its work is done.
    noted: list[int] = []
    previous = {n: signal.signal(n, lambda n, _frame: noted.append(n)) for n in _ENDING}
    try:
        with (
            register(url=url, upstream=config.upstream.url, log=config.log, started_ns=_wall()),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(_serve(proxy, listener, banner(config, url), log.reopen, noted))
    finally:
        proxy.settle()
        log.close(timeout=5.0)
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


async def _serve(
    proxy: Proxy,
    listener: socket.socket,
    greeting: str,
    reopen: Callable[[], None],
    noted: list[int],
) -> None:
    def started() -> None:
        # Greeted only when every signal is heard: who reads the pid may use it at once.
        print(greeting, file=sys.stderr, flush=True)  # noqa: T201  # said to a person
        server.should_exit = server.should_exit or bool(noted)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reopen)
    loop.add_signal_handler(signal.SIGUSR1, _print_open, proxy)
    server = proxy.server(on_start=started, on_stop=lambda: _print_stopping(proxy))
    await server.serve(sockets=[listener])


def _print_stopping(proxy: Proxy) -> None:
    """The first signal: say what is waited for, and how not to."""
    count, grace = len(proxy.ledger), proxy.config.shutdown_grace_s
    if count:
        line = f"ttft: stopping; open requests ({count}) have {grace:g} s; Ctrl-C again ends them"
        print(line, file=sys.stderr, flush=True)  # noqa: T201  # said to a person


def _print_open(proxy: Proxy) -> None:
    """SIGUSR1: a request that is stuck has no record yet; here is where it is."""
    print("\n".join(proxy.ledger.describe(_clock)), file=sys.stderr, flush=True)  # noqa: T201


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)[0][4]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _why_no_tls(config: Config, error: OSError) -> str:
    if config.ca_file is None:
        return f"cannot set up TLS: {error.strerror or type(error).__name__}."
    why = "it holds no usable certificate" if isinstance(error, ssl.SSLError) else error.strerror
    return f"cannot use the CA file {config.ca_file}: {why}. Expected certificates in PEM form."


def _why_not(config: Config, error: OSError) -> str:
    where = f"{config.host} port {config.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"cannot listen on {where}: it is in use. "
            "Stop what listens there, or choose another one with --port."
        )
    return f"cannot listen on {where}: {error.strerror or type(error).__name__}."


def _fail(message: str) -> int:
    print(f"ttft serve: {message}", file=sys.stderr)  # noqa: T201  # said to a person
    return 2


def _reachable(host: str) -> str:
    """A host that a client on this machine can use."""
    if host in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        return "127.0.0.1" if host == "0.0.0.0" else "[::1]"  # noqa: S104
    return f"[{host}]" if ":" in host else host


def banner(config: Config, url: str) -> str:
    """What a person needs to know at the start: where it listens, sends and logs, what to paste."""
    forward = config.forward_proxy
    via = f"through the proxy {forward.shown}" if forward is not None else "directly"
    tag = "/t/TAG" if config.tags else ""
    has_version = config.upstream.prefix.endswith(b"/v1")
    lines = [
        f"ttft {__version__}, pid {os.getpid()}",
        f"  listens   {url}",
        f"  sends to  {config.upstream.url} ({via})",
        f"  logs to   {'standard output' if config.log == '-' else config.log}",
        f"  base_url  {url}{tag}{'' if has_version else '/v1'}   OpenAI SDKs, Codex, Dify",
    ]
    if not has_version:
        lines.append(f"            {url}{tag}      Anthropic SDKs, Claude Code")
    if config.host in ("0.0.0.0", "::"):  # noqa: S104  # compared, not bound
        lines.append("  note      every machine that reaches this host can use the proxy")
    if config.insecure:
        lines.append("  note      upstream's certificate is not checked (--insecure)")
    return "\n".join(lines)
