"""The clients, in their own environment and process: `python -m tests.real.clients`.

Reads the plan from stdin as one JSON object (`direct` and `proxy`: base URLs; `steps`: lists of
calls), makes the calls, and prints each `Seen` as one line of JSON when its step is over.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any

from tests.real.plan import DIRECT, KEY, PROXY, SEED, Ask, Call, Seen

MODEL = "gemma-3-270m"
TIMEOUT_S = 300.0
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}

_clock = time.perf_counter  # noqa: TID251  # an entry point, and the client's own measurement


class Watch:
    """The client's stop watch for one call, and what it has collected."""

    def __init__(self) -> None:
        self._start = _clock()
        self._first: float | None = None
        self._text: list[str] = []
        self.timings: Mapping[str, float] = {}
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.first_byte_ms: float | None = None

    def piece(self, text: str | None) -> None:
        """Generated text has reached the client."""
        if text:
            if self._first is None:
                self._first = self._ms()
            self._text.append(text)

    def usage(self, usage: Any, output: str, cached: Any) -> None:
        """Token counts of an SDK's usage object; `cached` is already looked up."""
        if usage is not None:
            self.output_tokens = getattr(usage, output, None) or self.output_tokens
            self.cached_tokens = cached if cached is not None else self.cached_tokens

    def seen(self, call: Call) -> Seen:
        """The call is over."""
        return Seen(
            name=call.ask.name,
            via=call.via,
            text="".join(self._text),
            ttft_ms=self._first if call.ask.stream else None,
            first_byte_ms=self.first_byte_ms,
            total_ms=self._ms(),
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            timings=dict(self.timings),
        )

    def _ms(self) -> float:
        return (_clock() - self._start) * 1000


def _extra(document: Any) -> Mapping[str, float]:
    """`timings` of an SDK's object, a field that the SDK does not know."""
    return (document.model_extra or {}).get("timings") or {}


def _chat(client: Any, ask: Ask, watch: Watch) -> None:
    """OpenAI SDK, chat completions."""
    more = {"stream": True, "stream_options": {"include_usage": True}} if ask.stream else {}
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": ask.prompt}],
        max_tokens=ask.max_tokens,
        temperature=0,
        seed=SEED,
        extra_body={"cache_prompt": ask.cache},
        **more,
    )
    for part in answer if ask.stream else [answer]:
        if part.choices:
            choice = part.choices[0]
            watch.piece((choice.delta if ask.stream else choice.message).content)
        watch.timings = _extra(part) or watch.timings
        details = getattr(part.usage, "prompt_tokens_details", None)
        watch.usage(part.usage, "completion_tokens", getattr(details, "cached_tokens", None))


def _responses(client: Any, ask: Ask, watch: Watch) -> None:
    """OpenAI SDK, responses."""
    answer = client.responses.create(
        model=MODEL,
        input=ask.prompt,
        max_output_tokens=ask.max_tokens,
        temperature=0,
        stream=ask.stream,
        extra_body={"cache_prompt": ask.cache, "seed": SEED},
    )
    whole = None if ask.stream else answer
    if ask.stream:
        for event in answer:
            if event.type == "response.output_text.delta":
                watch.piece(event.delta)
            elif event.type == "response.completed":
                whole = event.response
                watch.timings = _extra(event)
    else:
        watch.piece(answer.output_text)
        watch.timings = _extra(answer)
    if whole is not None:
        details = getattr(whole.usage, "input_tokens_details", None)
        watch.usage(whole.usage, "output_tokens", getattr(details, "cached_tokens", None))


def _messages(client: Any, ask: Ask, watch: Watch) -> None:
    """Anthropic SDK, messages. Its own stop: a stream without `message_stop` is cut silently."""
    answer = client.messages.create(
        model=MODEL,
        messages=[{"role": "user", "content": ask.prompt}],
        max_tokens=ask.max_tokens,
        stream=ask.stream,
        extra_body={"temperature": 0, "seed": SEED},
    )
    if not ask.stream:
        watch.piece(answer.content[0].text)
        cached = answer.usage.cache_read_input_tokens
        watch.usage(answer.usage, "output_tokens", cached)
        watch.timings = _extra(answer)
        return
    stopped = False
    for event in answer:
        if event.type == "message_start":
            usage = event.message.usage
            watch.usage(usage, "output_tokens", usage.cache_read_input_tokens)
        elif event.type == "content_block_delta":
            watch.piece(event.delta.text)
        elif event.type == "message_delta":
            watch.usage(event.usage, "output_tokens", None)
        stopped = stopped or event.type == "message_stop"
    if not stopped:
        raise RuntimeError("the stream was cut")


def _curl(base: str, ask: Ask, watch: Watch) -> None:
    """curl: what the wire says, line by line."""
    body = {"model": MODEL, "temperature": 0, "seed": SEED, "cache_prompt": ask.cache}
    body["stream"] = ask.stream
    if ask.route == "responses":
        body |= {"input": ask.prompt, "max_output_tokens": ask.max_tokens}
    else:
        body |= {"messages": [{"role": "user", "content": ask.prompt}]}
        body |= {"max_tokens": ask.max_tokens}
    command = ["curl", "-q", "-sSNf", "--noproxy", "*", base + PATHS[ask.route]]
    command += ["-H", "Content-Type: application/json", "-H", f"Authorization: Bearer {KEY}"]
    command += ["-w", "%{stderr}%{time_starttransfer}", "--data-binary", json.dumps(body)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as curl:
        assert curl.stdout is not None
        assert curl.stderr is not None
        for line in curl.stdout:
            data = line.removeprefix(b"data:").strip()
            if data.startswith(b"{"):
                _curl_document(json.loads(data), watch)
        said = curl.stderr.read().decode()
    if curl.returncode:
        raise RuntimeError(f"curl ended with {curl.returncode}: {said}")
    watch.first_byte_ms = float(said) * 1000


def _curl_document(document: dict[str, Any], watch: Watch) -> None:
    for choice in document.get("choices", ()):
        watch.piece((choice.get("delta") or choice.get("message") or {}).get("content"))
    for item in document.get("output") or [document]:
        for part in item.get("content") or ():
            watch.piece(part.get("text"))
    delta = document.get("delta")
    if document.get("type") == "response.output_text.delta":
        watch.piece(document["delta"])
    elif document.get("type") == "content_block_delta" and isinstance(delta, dict):
        watch.piece(delta.get("text"))
    watch.timings = document.get("timings") or watch.timings
    for holder in (document, document.get("response"), document.get("message")):
        usage = holder.get("usage") if isinstance(holder, dict) else None
        if isinstance(usage, dict):
            count = usage.get("completion_tokens") or usage.get("output_tokens")
            watch.output_tokens = count or watch.output_tokens
            details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
            cached = usage.get("cache_read_input_tokens", details.get("cached_tokens"))
            watch.cached_tokens = cached if cached is not None else watch.cached_tokens


def make_caller(bases: Mapping[str, str]) -> Callable[[Call], Seen]:
    """A function that makes one call and never raises. Both ways share the SDKs' connections."""
    from anthropic import Anthropic  # type: ignore[import-not-found]  # the clients' environment
    from openai import OpenAI  # type: ignore[import-not-found]  # the clients' environment

    openai = OpenAI(api_key=KEY, base_url=bases[DIRECT], max_retries=0, timeout=TIMEOUT_S)
    anthropic = Anthropic(api_key=KEY, base_url=bases[DIRECT], max_retries=0, timeout=TIMEOUT_S)

    def call_once(call: Call) -> Seen:
        ask = call.ask
        tag = f"/t/{ask.name}" if call.via == PROXY else ""
        base = bases[call.via] + tag
        chosen = anthropic.with_options(base_url=base)
        if ask.client == "openai":
            chosen = openai.with_options(base_url=base + "/v1")
        watch = Watch()
        try:
            if ask.client == "curl":
                _curl(base, ask, watch)
            elif ask.route == "chat":
                _chat(chosen, ask, watch)
            elif ask.route == "responses":
                _responses(chosen, ask, watch)
            else:
                _messages(chosen, ask, watch)
        except Exception as error:  # reported, and judged by the checks
            return Seen(ask.name, call.via, error=f"{type(error).__name__}: {error}")
        return watch.seen(call)

    return call_once


def main() -> None:
    """Make the calls of the plan on stdin."""
    plan = json.load(sys.stdin)
    caller = make_caller(plan)
    for step in plan["steps"]:
        calls = [Call(Ask(**call["ask"]), call["via"]) for call in step]
        with ThreadPoolExecutor(len(calls)) as threads:
            for seen in threads.map(caller, calls):
                print(json.dumps(asdict(seen)), flush=True)


if __name__ == "__main__":
    main()
