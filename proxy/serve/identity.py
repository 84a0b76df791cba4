"""Who sent a request, and which identifiers belong to it. Pure; never required, always bounded.

Identifiers are kept when they look like identifiers (letters, digits, `. _ : -`, at most 128) and
dropped otherwise, so that no free text of a header reaches the log.

Sources: header names as sent by Codex, Claude Code and the Stainless-generated SDKs; W3C Trace
Context for `traceparent`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proxy.serve.headers import first

FAMILIES: tuple[tuple[bytes, str], ...] = (
    (b"codex", "codex"),
    (b"claude-cli", "claude-code"),
    (b"openai/python", "openai-python"),
    (b"asyncopenai/python", "openai-python"),
    (b"openai/js", "openai-js"),
    (b"anthropic/python", "anthropic-python"),
    (b"asyncanthropic/python", "anthropic-python"),
    (b"anthropic/js", "anthropic-js"),
    (b"ai-sdk", "ai-sdk"),
    (b"ai/", "ai-sdk"),
    (b"python-requests", "python-requests"),
    (b"python-httpx", "python-httpx"),
    (b"aiohttp", "aiohttp"),
    (b"python/", "aiohttp"),
    (b"go-http-client", "go"),
    (b"okhttp", "okhttp"),
    (b"node", "node"),
    (b"curl", "curl"),
)
"""Beginnings of User-Agent values (lower case) and the family they mean, first match counts."""

_SESSION = (b"x-claude-code-session-id", b"session-id", b"session_id")
_REQUEST_ID = (b"x-request-id", b"request-id", b"x-amzn-requestid", b"x-oneapi-request-id")
_IDENTIFIER = re.compile(rb"[A-Za-z0-9._:\-]{1,128}\Z")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity group of a record, as far as the request's fields tell it."""

    client: str | None = None
    session_id: str | None = None
    turn_id: str | None = None
    client_attempt: int | None = None
    trace_id: str | None = None


class _TurnMetadata(msgspec.Struct):
    turn_id: str | None = None


_turn_metadata = msgspec.json.Decoder(_TurnMetadata)


def identify(fields: Sequence[tuple[bytes, bytes]]) -> Identity:
    """Who sent a request with these fields."""
    by_name = {name.lower(): value for name, value in reversed(fields)}
    agent = by_name.get(b"user-agent", b"").lower()
    attempt = by_name.get(b"x-stainless-retry-count", b"")
    trace = _TRACEPARENT.match(by_name.get(b"traceparent", b""))
    return Identity(
        client=next((family for start, family in FAMILIES if agent.startswith(start)), None),
        session_id=next(
            (found for name in _SESSION if (found := _identifier(by_name.get(name)))), None
        ),
        turn_id=_turn_id(by_name.get(b"x-codex-turn-metadata")),
        client_attempt=int(attempt) if attempt.isdigit() and len(attempt) <= 6 else None,
        trace_id=trace[1].decode("ascii") if trace else None,
    )


def upstream_request_id(fields: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The identifier under which the upstream knows the request."""
    return next(
        (found for name in _REQUEST_ID if (found := _identifier(first(fields, name)))), None
    )


def _identifier(value: bytes | None) -> str | None:
    if value is None or not _IDENTIFIER.match(value):
        return None
    return value.decode("ascii")


def _turn_id(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        turn = _turn_metadata.decode(value).turn_id
    except (msgspec.DecodeError, ValueError):
        return None
    return _identifier(turn.encode("utf-8", "replace")) if turn else None
