"""Reads that differ from a known one only in their generated text need no JSON parser.

Nearly all events of a stream are the same bytes but for the text between two quotes. Once such a
read was parsed and meant "one token, nothing else", another read that has the same bytes before
and after that text, and some plain text in between, means the same. The text may hold printable
ASCII without quotes and backslashes only: such bytes end no JSON string, no line and no event.
"""

import re

_TEXT_KEY = re.compile(
    rb'(?<!\\)"(?:content|text|delta|reasoning_content|reasoning|thinking|partial_json|arguments'
    rb'|response)": ?"'
)
"""Keys whose value is generated text in one of the dialects: only its emptiness has a meaning."""
_PLAIN = re.compile(rb"[ !#-\[\]-~]+")


class Alike:
    """The shape of the last read that was one plain token."""

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = b""
        self._after = b""

    def learn(self, read: bytes) -> None:
        """`read` was parsed: one whole event, with one token and nothing else in it."""
        keys = list(_TEXT_KEY.finditer(read))
        text = _PLAIN.match(read, keys[0].end()) if len(keys) == 1 else None
        if text is not None and read[text.end() : text.end() + 1] == b'"':
            self._before, self._after = read[: text.start()], read[text.end() :]

    def forget(self) -> None:
        """The next read cannot be known: the last one did not end with an event."""
        self._before = self._after = b""

    def __contains__(self, read: bytes) -> bool:
        """Whether `read` is one more event of that shape."""
        before, after = self._before, self._after
        return (
            before != b""
            and read.startswith(before)
            and read.endswith(after)
            and _PLAIN.fullmatch(read, len(before), len(read) - len(after)) is not None
        )
