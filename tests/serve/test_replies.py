"""Responses that the proxy makes itself."""

import json
from typing import Any

import pytest

from proxy.account import Phase
from proxy.serve import replies
from proxy.serve.exchange import Exchange, RequestHead
from proxy.serve.refusal import Refusal
from proxy.upstream.client import Blame, UpstreamFault
from tests.serve.test_exchange import Connection


def asked(method: str = "POST") -> tuple[Exchange, Connection]:
    """A complete request that waits for an answer."""
    connection = Connection()
    head = RequestHead(method, b"/v1/x?key=hidden", "1.1", [], started=0)
    exchange = Exchange(head, connection, keep=True)
    exchange.request_ended(0)
    return exchange, connection


def parsed(connection: Connection) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """Status line, fields and body of what was written."""
    head, _, body = connection.written.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    return status, dict(line.split(b": ", 1) for line in lines), body


@pytest.mark.parametrize(
    ("blame", "status", "line"),
    [
        (Blame.UNREACHABLE, 502, b"HTTP/1.1 502 Bad Gateway"),
        (Blame.ABORTED, 502, b"HTTP/1.1 502 Bad Gateway"),
        (Blame.CONNECT_TIMEOUT, 504, b"HTTP/1.1 504 Gateway Timeout"),
        (Blame.IDLE_TIMEOUT, 504, b"HTTP/1.1 504 Gateway Timeout"),
    ],
)
def test_a_fault_of_upstream(blame: Blame, status: int, line: bytes) -> None:
    """502, or 504 for a limit; JSON as the SDKs print it, with phase and class; marked as ours."""
    exchange, connection = asked()
    fault = UpstreamFault(blame, "ConnectError(OSError)", "Connection refused")

    assert replies.fault_reply(exchange, fault, Phase.TCP) == status
    first, fields, body = parsed(connection)
    assert first == line
    assert fields == {
        b"Content-Type": b"application/json",
        b"Content-Length": b"%d" % len(body),
        b"X-TTFT-Proxy-Error": b"phase=tcp; error=ConnectError(OSError)",
    }
    assert json.loads(body) == {
        "error": {
            "message": "ttft proxy: Connection refused (phase: tcp, error: ConnectError(OSError))",
            "type": "ttft_proxy_error",
            "code": "ConnectError(OSError)",
            "phase": "tcp",
        }
    }
    assert connection.asked == ["keep"]


def test_the_total_limit() -> None:
    """504, and the phase in which it was reached."""
    exchange, connection = asked()
    assert replies.limit_reply(exchange, Phase.WAIT) == 504
    assert parsed(connection)[1][b"X-TTFT-Proxy-Error"] == b"phase=wait; error=TotalLimit"


@pytest.mark.parametrize("status", [400, 426, 431, 501])
def test_a_refusal(status: int) -> None:
    """Its status; with 426 the protocol to use instead, which RFC 9110 asks for."""
    exchange, connection = asked()
    assert replies.refusal_reply(exchange, Refusal(status, b"No", "Class", "so it is")) == status
    first, fields, body = parsed(connection)
    assert first == b"HTTP/1.1 %d No" % status
    assert fields.get(b"Upgrade") == (b"HTTP/1.1" if status == 426 else None)
    assert json.loads(body)["error"]["phase"] == "request_head"


def test_head_gets_the_fields_without_the_body() -> None:
    """The length is that of the body that GET would get."""
    bodies: list[Any] = []
    for method in ("GET", "HEAD"):
        exchange, connection = asked(method)
        replies.limit_reply(exchange, Phase.WAIT)
        bodies.append(parsed(connection))
    (_, of_get, body), (_, of_head, nothing) = bodies
    assert of_get == of_head
    assert (len(body) > 0, nothing) == (True, b"")


def test_text_that_is_not_ascii_stays_out_of_the_field() -> None:
    """Nothing can break the head; the body is UTF-8."""
    exchange, connection = asked()
    fault = UpstreamFault(Blame.UNREACHABLE, "Fehl\u00e9r", "Zeit\u00fcberschreitung")
    replies.fault_reply(exchange, fault, Phase.DNS)
    _, fields, body = parsed(connection)
    assert fields[b"X-TTFT-Proxy-Error"] == b"phase=dns; error=Fehl?r"
    assert json.loads(body)["error"]["code"] == "Fehl\u00e9r"
