"""The command `ttft`: one verb each to serve, to read, to try out.

A side of the package is imported inside its verb only, so that `ttft tail` starts without a web
server. Exit codes: 0 done, 1 something could not be read, 2 the command line or a setting is wrong,
130 interrupted, 141 the reader of the output went away.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import dedent, fill
from typing import TYPE_CHECKING, Any, NoReturn

from proxy import __version__

if TYPE_CHECKING:
    from proxy.analyze.render import Style

USAGE, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
Verb = Callable[[argparse.Namespace], int]


class _Parser(argparse.ArgumentParser):
    """One clear message and where to read on, instead of the whole usage."""

    def __init__(self, *, description: str, epilog: str = "", **more: Any) -> None:
        super().__init__(
            description=fill(description, 78),
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **more,
        )

    def error(self, message: str) -> NoReturn:
        # The message quotes arguments, and one of them may be a URL with a password.
        shown = re.sub(r"//\S*@", "//***@", message)
        self.exit(USAGE, f"{self.prog}: {shown}\nTry '{self.prog} --help'.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit code; usage errors and `--help` raise SystemExit."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # None when it was closed
    arguments = parser().parse_args(argv)
    verb: Verb = arguments.verb
    try:
        code = verb(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    return code


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = _Parser(
        prog="ttft",
        description="Where does the time to first token go? A transparent proxy that measures it.",
        epilog=_examples("""
            ttft demo                                      see what it does, offline
            ttft serve --upstream https://api.openai.com   measure a model API
            ttft tail                                      watch the requests
            """),
    )
    root.add_argument("--version", action="version", version=f"ttft {__version__}")
    verbs = root.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_serve(verbs)
    _add_tail(verbs)
    _add_simulate(verbs)
    _add_demo(verbs)
    return root


def _add_serve(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    serve = verbs.add_parser(
        "serve",
        usage="ttft serve --upstream URL [options]",
        help="forward requests to a model API and log where their time went",
        description=(
            "Forward every request unchanged to one model API and write one JSON record per "
            "request. Every option can also be set as an environment variable: "
            "--pool-limit is TTFT_POOL_LIMIT."
        ),
        epilog=_examples("""
            ttft serve --upstream https://api.openai.com
            ttft serve --upstream https://api.anthropic.com --port 8788 --label before
            ttft serve --upstream http://127.0.0.1:8080 --host 0.0.0.0 --tags --log -

            The path of --upstream goes in front of the client's path, as it is:
            https://relay.example/api and /v1/models make /api/v1/models.
            SIGHUP reopens the log; SIGUSR1 prints the requests under way.
            """),
    )
    add = serve.add_argument
    add("--upstream", metavar="URL", help="the model API to send requests to (required)")
    add("--host", metavar="HOST", help="address to listen on (127.0.0.1)")
    add("--port", metavar="PORT", help="port to listen on, 0 for any free one (8787)")
    add("--log", metavar="FILE", help="where records go, '-' for stdout (the user's state folder)")
    add("--label", metavar="TEXT", help="a label for every record, such as before or after")
    _switch(serve, "--tags", "take /t/TAG off the front of paths and label records with TAG")
    tls = serve.add_argument_group("TLS and the way to the upstream")
    add = tls.add_argument
    add("--ca-file", metavar="FILE", help="trust the certificates in this PEM file, too")
    _switch(tls, "--insecure", "do not verify the upstream's certificate")
    add(
        "--upstream-proxy",
        metavar="URL",
        help="go through this http or socks5 proxy; 'env' for the one in HTTPS_PROXY (none)",
    )
    _switch(tls, "--http2", "speak HTTP/2 to the upstream if it can")
    limits = serve.add_argument_group("limits (seconds; 'none' where there shall be no limit)")
    add = limits.add_argument
    add("--connect-timeout", metavar="S", help="to connect to the upstream (10)")
    add("--idle-timeout", metavar="S", help="silence of the upstream (none)")
    add("--total-timeout", metavar="S", help="the whole request (none)")
    add("--pool-limit", metavar="N", help="connections to the upstream (1000)")
    add("--keepalive", metavar="S", help="keep idle connections to the upstream (55)")
    add("--client-keepalive", metavar="S", help="keep idle connections of clients (75)")
    add("--shutdown-grace", metavar="S", help="let requests finish when told to stop (10)")
    add("--max-head-bytes", metavar="N", help="largest request head accepted (262144)")
    judging = serve.add_argument_group("how latencies are judged (milliseconds, rising)")
    add = judging.add_argument
    add("--bands", metavar="MS,MS,MS", help="ends of instant, slight, noticeable (100,300,1000)")
    add("--ttft-alert", metavar="MS,MS", help="TTFT of a warning, a critical one (1000,2000)")
    add("--tpot-alert", metavar="MS,MS", help="the same per token after the first (100,200)")
    serve.set_defaults(verb=_serve)


def _add_tail(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    tail = verbs.add_parser(
        "tail",
        help="follow the log: one line per finished request, in milliseconds",
        description=(
            "Print one line per finished request and wait for more. Without FILE, the log of the "
            "proxy that runs here. Reads plain and gzip files."
        ),
        epilog=_examples("""
            ttft tail
            ttft tail -n all --no-follow ttft.jsonl ttft.jsonl.1.gz
            ttft tail --json | jq -c 'select(.ttft_ms > 1000)'

            ttft, all, cut   what the account covers: to the first token, the complete
                             response, or an exchange that ended without a token
            net queue pre init gen proxy unattr   its parts; they add up
            ~ about, <= at most, >= at least      what was inferred, not measured
            """),
    )
    tail.add_argument("files", nargs="*", metavar="FILE", help="logs to read, '-' for stdin")
    tail.add_argument(
        "-n", "--lines", type=_lines, default=10, metavar="N", help="start with the last N (10)"
    )
    tail.add_argument("--no-follow", dest="follow", action="store_false", help="do not wait")
    tail.add_argument("--json", action="store_true", help="print the records themselves")
    _add_color(tail)
    tail.set_defaults(verb=_tail)


def _add_simulate(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    simulate = verbs.add_parser(
        "simulate",
        help="run a model API with a scripted timetable, to try things out",
        description=(
            "A model API that answers by a timetable: queue, load, prefill, tokens, errors and "
            "cuts, as a request or a script file asks."
        ),
        epilog=_examples("""
            ttft simulate --port 8788
            ttft serve --upstream http://127.0.0.1:8788     (in another terminal)
            """),
    )
    simulate.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    simulate.add_argument(
        "--port", type=_port, default=8788, help="port to listen on, 0 for any free one (8788)"
    )
    simulate.add_argument(
        "--slots", type=_slots, default=None, metavar="N", help="requests served at once (no limit)"
    )
    simulate.add_argument(
        "--script", type=Path, metavar="FILE", help="the timetable of every request"
    )
    simulate.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="speak TLS: PEM certificate"
    )
    simulate.add_argument("--tls-key", type=Path, metavar="FILE", help="its PEM key")
    simulate.set_defaults(verb=_simulate)


def _add_demo(verbs: "argparse._SubParsersAction[_Parser]") -> None:
    demo = verbs.add_parser(
        "demo",
        help="see a dozen requests and where their time went, offline",
        description=(
            "Start a simulated model API and the proxy, send a dozen different requests, and "
            "show the account of each. Needs no network and no key; takes less than 20 s."
        ),
    )
    _add_color(demo)
    demo.set_defaults(verb=_demo)


def _serve(arguments: argparse.Namespace) -> int:
    from proxy.serve.config import SETTINGS, Config, ConfigError

    try:
        config = Config.load({name: getattr(arguments, name) for name in SETTINGS}, os.environ)
    except ConfigError as error:
        return _complain("serve", str(error), USAGE)
    from proxy.serve.run import run

    return run(config)


def _tail(arguments: argparse.Namespace) -> int:
    from proxy.analyze.tail import Options, tail

    files = arguments.files or _logs_here()
    if not files:
        return _complain(
            "tail",
            "no proxy runs here that logs to a file, and there is no log at the usual place. "
            "Name a log file, or start one: ttft serve --upstream URL",
            USAGE,
        )
    for file in files:
        if arguments.follow and file != "-" and not os.path.exists(file):
            print(f"ttft tail: waiting for {file} to appear", file=sys.stderr)  # noqa: T201
    out = sys.stdout
    options = Options(
        last=arguments.lines,
        follow=arguments.follow,
        json=arguments.json,
        style=_style(arguments.color),
    )
    out.reconfigure(errors="replace")  # type: ignore[union-attr]  # stdout is a TextIOWrapper
    try:
        return tail(
            files,
            options,
            out=out,
            err=sys.stderr,
            stdin=sys.stdin.buffer,
            clock=time.monotonic_ns,  # noqa: TID251  # an entry point reads the clock
            sleep=time.sleep,
        )
    except BrokenPipeError:
        raise
    except OSError as error:
        what = f"cannot read {error.filename}" if error.filename else "stopped"
        return _complain("tail", f"{what}: {error.strerror}", 1)


def _simulate(arguments: argparse.Namespace) -> int:
    from proxy.simulate.server import run

    return run(
        arguments.host,
        arguments.port,
        slots=arguments.slots,
        script_file=arguments.script,
        tls_cert=arguments.tls_cert,
        tls_key=arguments.tls_key,
    )


def _demo(arguments: argparse.Namespace) -> int:
    from proxy.demo import run

    style = _style(arguments.color)
    return run(color=style.color, unicode=style.unicode)


def _style(choice: str) -> "Style":
    from proxy.analyze.render import style_of

    out = sys.stdout
    return style_of(choice, terminal=out.isatty(), encoding=out.encoding, env=os.environ)


def _logs_here() -> list[str]:
    """The log of the newest proxy that runs here, else the usual place if there is one."""
    from proxy.serve.config import default_log
    from proxy.serve.runtime import running

    for one in running():
        if one.log != "-":
            return [one.log]
    usual = default_log(os.environ)
    return [usual] if os.path.exists(usual) else []


def _switch(group: "argparse._ActionsContainer", flag: str, text: str) -> None:
    group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)


def _add_color(verb: _Parser) -> None:
    verb.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="auto: on a terminal, unless NO_COLOR is set",
    )


def _examples(text: str) -> str:
    return "examples:\n" + "\n".join(
        f"  {line}".rstrip() for line in dedent(text).strip().split("\n")
    )


def _complain(verb: str, sentence: str, code: int) -> int:
    with suppress(OSError):
        print(f"ttft {verb}: {sentence}", file=sys.stderr)  # noqa: T201  # said to a person
    return code


def _lines(value: str) -> int | None:
    if value == "all":
        return None
    return _whole(value, 0, 10_000_000)


def _port(value: str) -> int:
    return _whole(value, 0, 65535)


def _slots(value: str) -> int:
    return _whole(value, 1, 100_000)


def _whole(value: str, least: int, most: int) -> int:
    if not (value.isascii() and value.isdigit() and least <= int(value[:20]) <= most):
        raise argparse.ArgumentTypeError(
            f"{value[:40]!r} is not a whole number from {least} to {most}"
        )
    return int(value)
