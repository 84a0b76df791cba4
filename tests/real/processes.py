"""The model server and the proxy: processes of their own, on loopback, with a bare environment."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proxy.serve.runtime import running
from tests.real.install import Environment, UnavailableError
from tests.real.plan import SLOTS

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0


def bare(home: Path) -> dict[str, str]:
    """An environment without the user's keys, proxies and settings."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "XDG_RUNTIME_DIR": str(home),
    }


@dataclass(frozen=True, slots=True)
class ModelServer:
    """llama.cpp's server. `url` has no path."""

    url: str
    port: int

    def metric(self, name: str) -> float | None:
        """A gauge of `/metrics`; None when the server does not answer."""
        text = self._get("/metrics") or ""
        found = re.search(rf"^llamacpp:{name} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else None

    def healthy(self) -> bool:
        """The model is loaded."""
        return self._get("/health") is not None

    def _get(self, path: str) -> str | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        return text if answer.status == 200 else None


@contextmanager
def model_server(environment: Environment, folder: Path) -> Iterator[ModelServer]:
    """The model server, ready. Raises `UnavailableError` when it does not start."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = int(probe.getsockname()[1])
    server = ModelServer(f"http://127.0.0.1:{port}", port)
    command = [str(environment.server), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-m", str(environment.model), "-t", "1", "-np", str(SLOTS), "-c", "8192"]
    command += ["--metrics", "--offline", "--cache-ram", "0", "--no-jinja"]
    command += ["--chat-template", "gemma"]
    log = folder / "llama-server.log"
    with _process(command, folder, log) as process:
        if not _until(lambda: process.poll() is not None or server.healthy()):
            raise UnavailableError(
                f"the model server is not ready after {PATIENCE_S:.0f} s (see {log})"
            )
        if process.poll() is not None:
            raise UnavailableError(f"the model server does not start (see {log})")
        yield server


@contextmanager
def proxy_server(upstream: str, folder: Path, log: Path) -> Iterator[str]:
    """`ttft serve` in front of `upstream`: its URL. Ends it politely and checks that it obeys."""
    command = [sys.executable, "-m", "proxy", "serve", "--upstream", upstream, "--log", str(log)]
    command += ["--port", "0", "--tags"]
    said = folder / "proxy.log"
    with _process(command, folder, said) as process:
        found: list[str] = []

        def listens() -> bool:
            mine = [one.url for one in running(folder / "ttft") if one.pid == process.pid]
            found.extend(mine)
            return bool(mine) or process.poll() is not None

        _until(listens)
        assert found, said.read_text()
        yield found[0]
        process.send_signal(signal.SIGTERM)
        code = process.wait(PATIENCE_S)
        assert code == 0, f"the proxy ended with {code}"


@contextmanager
def deferred(server: ModelServer) -> Iterator[list[float]]:
    """Watch the server's own count of waiting requests; one list element per look."""
    counts: list[float] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.2):
            if (count := server.metric("requests_deferred")) is not None:
                counts.append(count)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield counts
    finally:
        stop.set()
        thread.join()


@contextmanager
def _process(command: list[str], home: Path, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that writes both its outputs to `log`; it does not outlive the context."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=bare(home),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until(happened: Callable[[], bool]) -> bool:
    """Whether it happened in time."""
    for _ in range(int(PATIENCE_S / 0.05)):
        if happened():
            return True
        time.sleep(0.05)
    return False
