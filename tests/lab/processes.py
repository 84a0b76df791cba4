"""The processes of an experiment: the API, the proxy, the clients; each perhaps in a namespace."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from proxy.record import Record, from_json
from proxy.serve.runtime import running
from tests.lab.client import Plan, Reply
from tests.lab.upstream import Witnessed

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


def bare(home: Path) -> dict[str, str]:
    """An environment without the user's keys, proxies and settings."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(home),
    }


@contextmanager
def apart() -> Iterator[int]:
    """A core that what is started now stays off, so that the proxy can have it for itself.

    Where there is one core, or no choice of cores, nothing is kept apart.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield 0
        return
    cores = os.sched_getaffinity(0)
    own = min(cores)
    os.sched_setaffinity(0, cores - {own} or cores)
    try:
        yield own
    finally:
        os.sched_setaffinity(0, cores)


def pin(pid: int, core: int) -> None:
    """Put a process on a core, where that can be done."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(pid, {core})


@dataclass
class Upstream:
    """The simulated API. `seen` is filled at its end, by trace id."""

    host: str
    port: int
    seen: dict[str, Witnessed] = field(default_factory=dict)


@contextmanager
def upstream(
    folder: Path, *, host: str = "127.0.0.1", prefix: Sequence[str] = (), tls: Sequence[str] = ()
) -> Iterator[Upstream]:
    """The API, listening. `tls` are certificate, key and version; `prefix` goes before python."""
    with subprocess.Popen(
        [*prefix, sys.executable, "-m", "tests.lab.upstream", host, *tls],
        cwd=ROOT,
        env=bare(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            this = Upstream(host, int(process.stdout.readline()))
            yield this
            process.stdin.close()
            found = msgspec.msgpack.decode(process.stdout.read(), type=list[Witnessed])
            this.seen.update((one.trace, one) for one in found)
        finally:
            process.terminate()


@dataclass
class Served:
    """A running `ttft serve`."""

    host: str
    port: int
    pid: int
    log: Path

    def records(self) -> list[Record]:
        """What is in the log now."""
        return [from_json(line) for line in self.log.read_bytes().splitlines()]

    def wait_records(self, count: int) -> list[Record]:
        """The log, as soon as it holds `count` records. Raises `TimeoutError`."""
        for _ in range(int(PATIENCE_S / 0.05)):
            if self.log.exists() and self.log.read_bytes().count(b"\n") >= count:
                return self.records()
            time.sleep(0.05)
        raise TimeoutError(f"the log does not come to {count} records")


@contextmanager
def served(
    folder: Path, url: str, *, prefix: Sequence[str] = (), flags: Sequence[str] = ()
) -> Iterator[Served]:
    """`ttft serve` in front of `url`; its log is a new file in `folder`."""
    number = len(list(folder.glob("records-*.jsonl")))
    log = folder / f"records-{number}.jsonl"
    log.touch()
    command = [*prefix, sys.executable, "-m", "proxy", "serve", "--upstream", url]
    command += ["--port", "0", "--log", str(log), *flags]
    with (
        (folder / "serve.stderr").open("wb") as said,
        subprocess.Popen(command, cwd=ROOT, env=bare(folder), stderr=said) as process,
    ):
        try:
            host, port, pid = _address(folder, log, process)
            yield Served(host, port, pid, log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE_S)


def _address(folder: Path, log: Path, process: "subprocess.Popen[bytes]") -> tuple[str, int, int]:
    for _ in range(int(PATIENCE_S / 0.02)):
        for one in running(folder / "ttft"):
            if one.log == str(log):
                host, _, port = one.url.removeprefix("http://").rpartition(":")
                return host, int(port), one.pid
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise RuntimeError("the proxy does not start: " + (folder / "serve.stderr").read_text())


def ask(folder: Path, plan: Plan, *, prefix: Sequence[str] = ()) -> dict[str, Reply]:
    """Play a plan in a process of its own; the replies by trace id."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "tests.lab.client"],
        cwd=ROOT,
        env=bare(folder),
        input=msgspec.msgpack.encode(plan),
        stdout=subprocess.PIPE,
        check=True,
    )
    replies = msgspec.msgpack.decode(done.stdout, type=list[Reply])
    return {reply.trace: reply for reply in replies}
