"""The dialects, one small file per wire format. A new one is one file and one line here."""

from proxy.dialects._api import (
    NOTHING,
    Dialect,
    Observation,
    RequestFacts,
    TokenKind,
    Usage,
)
from proxy.dialects._values import error_of
from proxy.dialects.anthropic_messages import ANTHROPIC_MESSAGES
from proxy.dialects.ollama import OLLAMA
from proxy.dialects.opaque import OPAQUE
from proxy.dialects.openai_chat import OPENAI_CHAT
from proxy.dialects.openai_responses import OPENAI_RESPONSES

DIALECTS: tuple[Dialect, ...] = (
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    ANTHROPIC_MESSAGES,
    OLLAMA,
    OPAQUE,
)
"""In the order in which they are asked; the last one matches everything."""


def match(method: str, path: str) -> Dialect:
    """The dialect that a request of `method` to `path` (no query, prefix included) speaks."""
    for dialect in DIALECTS:
        if dialect.matches(method, path):
            return dialect
    return OPAQUE


__all__ = [
    "ANTHROPIC_MESSAGES",
    "DIALECTS",
    "NOTHING",
    "OLLAMA",
    "OPAQUE",
    "OPENAI_CHAT",
    "OPENAI_RESPONSES",
    "Dialect",
    "Observation",
    "RequestFacts",
    "TokenKind",
    "Usage",
    "error_of",
    "match",
]
