"""Puts the peers in place: Python ones into environments of their own, the others by apt-get."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
VARIABLE = "TTFT_BENCH_CACHE"
PINS = {"mitmproxy": ("mitmproxy==11.0.2",), "litellm": ("litellm[proxy]==1.108.7",)}
DEBIAN = {"nginx": "nginx-light", "haproxy": "haproxy"}
PATIENCE_S = 1_200


class UnavailableError(Exception):
    """A row cannot be measured here. The text is the reason, for a person."""


def cache(env: Mapping[str, str]) -> Path:
    """Where the environments of the peers are kept."""
    return Path(env.get(VARIABLE) or ROOT / ".cache" / "bench").resolve()


def python_peer(name: str, folder: Path, say: Callable[[str], None]) -> Path:
    """The `bin` folder of the peer's environment, made if its pins are not those of the last time.

    Raises `UnavailableError` when it cannot be installed.
    """
    venv = folder / name
    stamp = venv / "installed"
    pins = PINS[name]
    wanted = "\n".join(pins)
    if stamp.is_file() and stamp.read_text() == wanted:
        return venv / "bin"
    say(f"installing {', '.join(pins)} into {venv} (once)")
    _run([sys.executable, "-m", "venv", "--clear", str(venv)])
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "install", "--quiet", *pins])
    stamp.write_text(wanted)
    return venv / "bin"


def debian_peer(name: str, say: Callable[[str], None]) -> str:
    """The path of the command, installed by apt-get where that is possible.

    Raises `UnavailableError` when it is not there and cannot be installed.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise UnavailableError(
                f"not installed (Debian, Ubuntu: apt-get install {DEBIAN[name]})"
            )
        say(f"installing {DEBIAN[name]}")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _run(["apt-get", "install", "-y", "--no-install-recommends", DEBIAN[name]], env)
        found = shutil.which(name, path=path)
    if found is None:
        raise UnavailableError("installed, but not found on the path")
    return found


def _run(command: list[str], env: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=PATIENCE_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"not installed: {error}") from None
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()] or said or ["no message"]
        raise UnavailableError(f"not installed: {errors[-1].strip()}")
