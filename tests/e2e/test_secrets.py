"""Secrets pass through to upstream and appear in nothing that the proxy says (B18)."""

import asyncio
import base64
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from tests.serving import Served, environment, serve
from tests.support import Peer, run, upstream

NAMES = """
    bearer xapikey apikey goog cookie session proxyauth query again user pass subprotocol prompt
    answer custom fragment trailer path-user path-pass thinking metadata
"""
SECRETS = {name: f"{name}-s3cr3t-{number}" for number, name in enumerate(NAMES.split())}
S = {name: value.encode() for name, value in SECRETS.items()}
BASIC = base64.b64encode(S["user"] + b":" + S["pass"])
PROXY_BASIC = base64.b64encode(b"me:" + S["proxyauth"])
PERCENT = "".join(f"%{byte:02X}" for byte in S["again"]).encode()
HIDDEN = [*S.values(), BASIC, PROXY_BASIC, PERCENT, *(quote(v).encode() for v in SECRETS.values())]

FIELDS = b"".join(
    b"%b: %b\r\n" % field
    for field in [
        (b"Authorization", b"Bearer " + S["bearer"]),
        (b"x-api-key", S["xapikey"]),
        (b"api-key", S["apikey"]),
        (b"X-Goog-Api-Key", S["goog"]),
        (b"Cookie", b"a=" + S["cookie"] + b"; sid=" + S["session"]),
        (b"Proxy-Authorization", b"Basic " + PROXY_BASIC),
        (b"Sec-WebSocket-Protocol", b"realtime, openai-insecure-api-key." + S["subprotocol"]),
        (b"X-My-Own", S["custom"]),
        (b"X-Codex-Turn-Metadata", b'{"cwd":"' + S["metadata"] + b'"}'),
        (b"X-Request-Id", S["custom"] + b" and more"),
    ]
)
TARGET = b"/v1/chat/completions?key=%b&api_key=%b&x" % (S["query"], PERCENT)
PROMPT = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"%b"}]}' % S["prompt"]
END = b"0\r\n\r\n"


def request(target: bytes = TARGET, method: bytes = b"POST", body: bytes = PROMPT) -> bytes:
    """One request with every kind of secret."""
    head = b"%b %b HTTP/1.1\r\nHost: me\r\n" % (method, target) + FIELDS
    return head + b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


MALFORMED = [
    # A field without a colon, a control character, a key for a method, a broken body.
    b"GET %b HTTP/1.1\r\nAuthorization %b\r\n\r\n" % (TARGET, S["bearer"]),
    b"GET %b\x01 HTTP/1.1\r\n%b\r\n" % (TARGET, FIELDS),
    b"%b %b HTTP/1.1\r\n\r\n" % (S["bearer"], TARGET),
    b"POST %b HTTP/1.1\r\n%bContent-Length: %b\r\n\r\n" % (TARGET, FIELDS, S["bearer"]),
    b"POST %b HTTP/1.1\r\n%bTransfer-Encoding: chunked\r\n\r\n%b\r\n"
    % (TARGET, FIELDS, S["prompt"]),
    b"GET http://%b:%b@h/v1/x?key=%b#%b HTTP/1.1\r\nConnection: close\r\n%b\r\n"
    % (S["path-user"], S["path-pass"], S["query"], S["fragment"], FIELDS),
    b"CONNECT %b:%b@h:443 HTTP/1.1\r\n%b\r\n" % (S["path-user"], S["path-pass"], FIELDS),
    b"GET http://%b:%b" % (S["path-user"], S["path-pass"]),
    b"GET %b HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%b\r\n" % (TARGET, FIELDS),
    b"GET %b HTTP/1.1\r\nX: %b\r\n\r\n" % (TARGET, S["bearer"] * 20_000),
]


def event(data: bytes) -> bytes:
    text = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(text), text)


async def model(peer: Peer) -> None:
    """An answer, an error that quotes the key, nothing, or garbage: as the path says."""
    head = await peer.head()
    SEEN.append(head)
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
    SEEN.append(await peer.exactly(length))
    quoted = b"Incorrect API key provided: " + S["bearer"]
    if b"/echo" in head:
        body = b'{"error":{"message":"%b","type":"%b","code":"%b"}}' % ((quoted,) * 3)
        start = b"HTTP/1.1 401 %b\r\nContent-Type: application/json\r\nX-Request-Id: %b\r\n"
        await peer.send(
            start % (quoted, quoted) + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
    elif b"/dies" in head:
        return
    elif b"/garbage" in head:
        await peer.send(b"HTTP/9 " + S["bearer"] + b"\r\nno colon " + S["bearer"] + b"\r\n\r\n")
    else:
        start = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: %b\r\n"
        await peer.send(start % S["cookie"] + b"Transfer-Encoding: chunked\r\n\r\n")
        delta = b'{"choices":[{"index":0,"delta":{"content":"%b","reasoning_content":"%b"}}]}'
        await peer.send(event(delta % (S["answer"], S["thinking"])))
        if b"/hangs" in head:
            await peer.rest()
        await peer.send(event(b'{"error":{"message":"%b","type":"%b"}}' % (quoted, quoted)))
        await peer.send(event(b"{" + S["answer"]) + event(b"[DONE]") + END)


async def plain(peer: Peer) -> None:
    """An upstream that does not speak TLS."""
    await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


SEEN: list[bytes] = []


def said(served: Served) -> dict[str, bytes]:
    """Everything that a proxy has said so far, by where it said it."""
    log = served.log.read_bytes() if served.log.exists() else b""
    tail = [sys.executable, "-m", "proxy", "tail", "--no-follow", "-n", "all", str(served.log)]
    plain, raw = (
        subprocess.run(arguments, capture_output=True, check=True, env=environment(served.folder))
        for arguments in (tail, [*tail, "--json"])
    )
    assert plain.stdout
    return {
        "stdout": bytes(served.stdout),
        "stderr": bytes(served.stderr),
        "log": log,
        "runtime file": served.runtime.read_bytes(),
        "tail": plain.stdout + plain.stderr,
        "tail --json": raw.stdout + raw.stderr,
    }


def find(text: bytes) -> list[bytes]:
    """The secrets in `text`, whatever their case."""
    return [secret for secret in HIDDEN if secret.lower() in text.lower()]


def clean(outputs: dict[str, bytes]) -> None:
    """No secret anywhere."""
    assert {where: find(text) for where, text in outputs.items() if find(text)} == {}


def test_no_secret_appears_in_any_output(tmp_path: Path) -> None:
    """Answered, refused with the key in the error, broken, malformed, hanging: nothing leaks."""
    SEEN.clear()
    credentials = f"http://{SECRETS['user']}:{SECRETS['pass']}@"

    async def story() -> None:
        async with upstream(model) as up:
            url = up.url.replace("http://", credentials)
            async with serve(tmp_path, url, "--max-head-bytes", "65536") as served:
                answer, _ = await served.ask(request())
                assert S["answer"] in answer
                for name in ("bearer", "xapikey", "cookie", "query", "custom", "prompt"):
                    assert any(S[name] in seen for seen in SEEN), f"{name} must be forwarded"
                assert PERCENT in SEEN[0]
                echoed, _ = await served.ask(
                    request(b"/v1/chat/completions/echo?key=" + S["query"])
                )
                assert S["bearer"] in echoed

                own = [await served.ask(request(path + TARGET)) for path in (b"/dies", b"/garbage")]
                own += [await served.ask(bad) for bad in MALFORMED[:-3]]
                own += [await served.ask(bad) for bad in MALFORMED[-2:]]
                half = await served.connect()
                await half.send(MALFORMED[-3])
                half.close()
                for body, _ in own:
                    if b"X-TTFT-Proxy-Error" in body:
                        assert find(body) == []
                assert sum(b"X-TTFT-Proxy-Error" in body for body, _ in own) >= 8

                hanging = await served.connect()
                await hanging.send(request(b"/hangs" + TARGET))
                await hanging.until(b"\n\n")
                served.signal(signal.SIGUSR1)
                await served.says(b"1 open request\n")
                hanging.reset()
                await served.records(len(own) + 3)
                clean(said(served))

    run(story())


def test_no_secret_appears_when_upstream_is_dead(tmp_path: Path) -> None:
    """A refused connection, a name that does not resolve, a TLS failure: texts of exceptions."""

    async def story() -> None:
        async with upstream(plain) as up:
            for number, url in enumerate(
                ("http://{}127.0.0.1:1", "http://{}no-such-host.invalid", "https://{}127.0.0.1:%d")
            ):
                folder = tmp_path / str(number)
                folder.mkdir()
                where = url.replace("%d", str(up.port))
                where = where.format(f"{SECRETS['user']}:{SECRETS['pass']}@")
                async with serve(folder, where) as served:
                    body, _ = await served.ask(request())
                    assert body.startswith(b"HTTP/1.1 502 ")
                    assert find(body) == []
                    await served.records(1)
                    clean(said(served))
                    await served.stop()
                    assert find(bytes(served.stderr + served.stdout)) == []

    run(story())


def test_the_search_finds_what_it_looks_for() -> None:
    """In any case and as it stands in a URL; otherwise the tests above would say nothing."""
    assert find(b"x" + S["bearer"].upper()) == [S["bearer"], S["bearer"]]
    assert BASIC in find(b"Authorization: Basic " + BASIC)
    assert find(b"nothing") == []
    assert len(set(HIDDEN)) >= 24
    assert asyncio.iscoroutinefunction(model)
    assert os.sep not in "".join(SECRETS.values())
