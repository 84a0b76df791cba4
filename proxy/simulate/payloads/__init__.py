"""The wire formats that the simulator speaks, in one explicit list."""

from ._api import Payloads
from .anthropic_messages import anthropic_messages
from .ollama import ollama_chat, ollama_generate
from .openai_chat import openai_chat
from .openai_completions import openai_completions
from .openai_responses import openai_responses

__all__ = ["BY_NAME", "PAYLOADS", "Payloads", "for_path"]

PAYLOADS: tuple[Payloads, ...] = (
    openai_chat,
    openai_completions,
    openai_responses,
    anthropic_messages,
    ollama_chat,
    ollama_generate,
)
"""In the order of asking: `/chat/completions` also ends in `/completions`."""

BY_NAME = {payloads.name: payloads for payloads in PAYLOADS}


def for_path(path: str) -> Payloads | None:
    """The format of a path, prefix allowed; None when it is no model path."""
    for payloads in PAYLOADS:
        if path.endswith(payloads.suffixes):
            return payloads
    return None
