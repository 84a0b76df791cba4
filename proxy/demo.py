"""`ttft demo`: a simulated model API, the proxy before it, a dozen requests, the account of each.

What is shown of a request is drawn from its record alone: the script that the simulated API
follows goes to that API with the request and nowhere else. So the demo shows what the proxy can
find out, also where that is less than what was planted.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from proxy.analyze.render import card, wrapped
from proxy.record import Record, from_json

_WIDTH = 80
_PATIENCE_S = 15.0
_CHAT = "/v1/chat/completions"
_MESSAGES = "/v1/messages"


@dataclass(frozen=True)
class Ask:
    """One request: what is planted, in words and as a script, and how the client behaves."""

    planted: str
    script: dict[str, Any]
    path: str = _CHAT
    model: str = "sim-8b"
    stream: bool = True
    gives_up: bool = False


REQUESTS = (
    Ask("nothing: a quick answer", {"prefill": 45, "tokens": 12, "gap": 10}),
    Ask(
        "a queue that shows in when the head leaves (llama.cpp)",
        {"queue": 900, "prefill": 70, "headers": "queue_end", "evidence": ["llamacpp"], "gap": 10},
    ),
    Ask(
        "a queue that the engine reports (vLLM)",
        {"queue": 650, "prefill": 80, "evidence": ["vllm"], "usage": True, "gap": 10},
    ),
    Ask(
        "a cold start: the model has to be loaded (Ollama)",
        {"load": 1300, "prefill": 60, "gap": 10},
        path="/api/chat",
        model="sim-3b",
    ),
    Ask(
        "a long prompt",
        {"prefill": 850, "prompt_tokens": 6100, "evidence": ["llamacpp"], "gap": 10},
    ),
    Ask(
        "the same prompt, cached",
        {
            "prefill": 60,
            "prompt_tokens": 6100,
            "cached_tokens": 6000,
            "evidence": ["llamacpp"],
            "gap": 10,
        },
    ),
    Ask(
        "a model that thinks before it answers",
        {"prefill": 120, "reasoning": {"n": 30, "gap": 25}, "tokens": 10, "gap": 20},
    ),
    Ask(
        "a slow server that says nothing about it",
        {"queue": 300, "prefill": 500, "headers": "late", "gap": 10},
    ),
    Ask(
        "a claim of 9 s of prefill, in a quick answer",
        {
            "prefill": 90,
            "evidence": ["llamacpp"],
            "evidence_override": {"llamacpp": {"prompt_ms": 9000}},
            "gap": 10,
        },
    ),
    Ask(
        "a tool call, in another API's words",
        {"prefill": 150, "tool_call": True, "gap": 15},
        path=_MESSAGES,
        model="sim-opus",
    ),
    Ask(
        "a refusal because of a rate limit",
        {"status": 429, "error": {"type": "rate_limit_error", "message": "slow down"}},
    ),
    Ask(
        "an error inside a stream that began well",
        {"prefill": 60, "gap": 10, "error_event": {"at": 4, "type": "overloaded_error"}},
    ),
    Ask(
        "a connection that breaks in the middle",
        {"prefill": 60, "gap": 10, "tokens": 20, "cut": {"after_tokens": 6, "how": "rst"}},
    ),
    Ask(
        "a client that gives up after half a second",
        {"prefill": 3000},
        gives_up=True,
    ),
)


def run(*, color: bool, unicode: bool) -> int:
    """Run the demo on stdout. Returns the exit code: 1 when a part of it did not start."""
    say = _printer()
    folder = Path(tempfile.mkdtemp(prefix="ttft-demo-"))
    log = folder / "ttft.jsonl"
    try:
        with (
            _running("simulate", "--port", str(model_port := _free_port()), port=model_port),
            _running(
                "serve",
                *("--upstream", f"http://127.0.0.1:{model_port}"),
                *("--port", str(proxy_port := _free_port()), "--log", str(log)),
                port=proxy_port,
            ),
        ):
            say(f"A simulated model API listens on 127.0.0.1:{model_port}, and the proxy before it")
            say(f"on 127.0.0.1:{proxy_port}. {len(REQUESTS)} requests follow.")
            for number, ask in enumerate(REQUESTS, 1):
                _send(ask, proxy_port)
                say("")
                say(f"--- {number} of {len(REQUESTS)}, planted: {ask.planted}")
                say(card(_record(log, number), width=_WIDTH, color=color, unicode=unicode))
    except _NotStartedError as error:
        print(f"ttft demo: {error}", file=sys.stderr)  # noqa: T201  # said to a person
        return 1
    say("")
    for line in wrapped(
        "Each account above was drawn from one line of the log: what upstream reported, what "
        "was measured, what was inferred, and what nobody can know.",
        _WIDTH,
    ):
        say(line)
    say("")
    say(f"The log   {log}")
    command = (
        "ttft" if shutil.which("ttft") else os.path.relpath(Path(sys.executable).parent / "ttft")
    )
    say(f"Try       {command} tail -n all --no-follow {log}")
    say(f"          {command} serve --upstream https://api.openai.com")
    return 0


class _NotStartedError(Exception):
    """A child process did not come up; the text says which and what it said."""


def _printer() -> Callable[[str], None]:
    def say(text: str) -> None:
        print(text, flush=True)  # noqa: T201  # this is what the verb is for

    return say


@contextlib.contextmanager
def _running(verb: str, *arguments: str, port: int) -> Iterator[None]:
    """One verb of this program as a process of its own, until the context ends."""
    command = [sys.executable, "-m", "proxy", verb, *arguments]
    child = subprocess.Popen(  # noqa: S603  # our own program
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _wait_for(port, child, verb)
        yield
    finally:
        child.terminate()
        child.communicate(timeout=_PATIENCE_S)


def _wait_for(port: int, child: "subprocess.Popen[str]", verb: str) -> None:
    for _ in range(int(_PATIENCE_S / 0.05)):
        if child.poll() is not None:
            said = child.stderr.read().strip() if child.stderr is not None else ""
            raise _NotStartedError(f"ttft {verb} ended at once: {said or 'it said nothing'}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise _NotStartedError(f"ttft {verb} did not listen within {_PATIENCE_S:.0f} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _send(ask: Ask, port: int) -> None:
    """Send one request and take the answer, as far as it comes."""
    body: dict[str, Any] = {
        "model": ask.model,
        "stream": ask.stream,
        "messages": [{"role": "user", "content": "Why is the sky blue?"}],
    }
    if ask.path == _CHAT:
        body["stream_options"] = {"include_usage": True}
    client = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    fields = {
        "Content-Type": "application/json",
        "User-Agent": "ttft-demo",
        "X-Sim": json.dumps(ask.script),
    }
    try:
        client.request("POST", ask.path, json.dumps(body), fields)
        if ask.gives_up:
            time.sleep(0.5)
            return
        client.getresponse().read()
    except (OSError, HTTPException):
        # Some of them are meant to break; the record tells how.
        pass
    finally:
        client.close()


def _record(log: Path, number: int) -> Record:
    """The record with that number, as soon as its line is complete."""
    for _ in range(int(_PATIENCE_S / 0.01)):
        lines = log.read_bytes().split(b"\n") if log.exists() else []
        if len(lines) > number:
            return from_json(lines[number - 1])
        time.sleep(0.01)
    raise _NotStartedError(f"request {number} left no record within {_PATIENCE_S:.0f} s")
