"""The README is executed: every command in it, and what it says about names and fields."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.account import Segment
from proxy.cli import main
from proxy.record import Outcome

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PATIENCE_S = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A user's environment: `ttft` on the path, a home of its own, a port that is free."""
    scripts = tmp_path / "bin"
    scripts.mkdir()
    script = scripts / "ttft"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m proxy "$@"\n')
    script.chmod(0o755)
    return {
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "TTFT_PORT": str(free_port()),
    }


def wait_for(port: int) -> None:
    """Until something listens there."""
    for _ in range(PATIENCE_S * 20):
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"nothing listens on port {port}")


def stop(process: "subprocess.Popen[str]") -> str:
    """End a command and what it started; what it said on stderr."""
    os.killpg(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    return said


def start(command: str, env: dict[str, str]) -> "subprocess.Popen[str]":
    """Start a command as a shell would."""
    return subprocess.Popen(
        ["sh", "-c", command],
        cwd=ROOT,
        env=env,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


@pytest.fixture
def model(env: dict[str, str]) -> Iterator[int]:
    """A simulated model API."""
    port = free_port()
    process = start(f"ttft simulate --port {port}", env)
    wait_for(port)
    yield port
    stop(process)


def test_every_command_is_known_here() -> None:
    """A command that is added to the README needs a test below."""
    assert [command.strip().split("\n")[0] for command in COMMANDS] == [
        "make demo",
        "make serve UPSTREAM=https://api.openai.com",
        "ttft tail",
        "curl -sN http://127.0.0.1:8787/v1/chat/completions -H 'Content-Type: application/json' \\",
    ]


def test_make_serve_and_make_demo_call_the_verbs() -> None:
    """What make adds is the set-up; the verbs have tests of their own."""
    for target, verb in (("demo", "ttft demo"), ("serve UPSTREAM=https://x", "ttft serve")):
        done = subprocess.run(
            ["make", "-n", *target.split()], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert verb in done.stdout


def test_serve_curl_and_tail_work_together(env: dict[str, str], model: int) -> None:
    """As the README has them: serve, ask with curl, see the line in tail."""
    serve = start(f"ttft serve --upstream http://127.0.0.1:{model}", env)
    wait_for(int(env["TTFT_PORT"]))
    tail = start(COMMANDS[2].strip(), env)
    curl = COMMANDS[3].replace(":8787", f":{env['TTFT_PORT']}")
    answer = subprocess.run(
        ["sh", "-c", curl], env=env, capture_output=True, text=True, check=True
    ).stdout
    assert answer.rstrip().endswith("data: [DONE]")
    assert tail.stdout is not None
    line = tail.stdout.readline()
    assert "200" in line
    assert "curl" in line
    stop(tail)
    said = stop(serve)
    assert f"http://127.0.0.1:{env['TTFT_PORT']}" in said
    assert "ttft.jsonl" in said


def test_the_segments_and_outcomes_are_those_of_the_record() -> None:
    """None is missing from the README, none is invented."""
    for name in (*Segment, *Outcome):
        assert name.value in README


def test_every_file_that_is_named_exists() -> None:
    """Links and paths."""
    for path in re.findall(r"\]\(([^)]+)\)", README) + re.findall(r"`(deploy/[^`]+)`", README):
        assert (ROOT / path).exists(), path


def test_the_flags_that_are_named_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """`ttft serve --help` knows every flag of the README."""
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    known = capsys.readouterr().out
    for flag in set(re.findall(r"`(--[a-z0-9-]+)", README)):
        assert flag in known, flag
