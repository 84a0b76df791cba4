"""`openai-processing-ms`: OpenAI, Azure OpenAI, and servers that imitate them.

Milliseconds the server spent until it had the response object or its head (OpenAI API overview,
"Debugging requests"). One lump: queue and prefill are not told apart, and on a stream it cannot
cover anything behind the head.
"""

from proxy.account import Claim, ClaimKind
from proxy.evidence._api import RawHeaders
from proxy.evidence._values import header_texts, microseconds, raw_value


class OpenAiHeaders:
    """One lump in milliseconds."""

    name = "openai_headers"
    markers: tuple[str, ...] = ()
    fields: tuple[bytes, ...] = (b"openai-processing-ms",)

    def from_headers(self, headers: RawHeaders) -> tuple[Claim, ...]:
        """One claim per header line."""
        return tuple(
            Claim(
                source=self.name,
                name="openai-processing-ms",
                kind=ClaimKind.LUMP,
                raw=raw_value(text),
                value_us=microseconds(text, 1000),
            )
            for text in header_texts(headers, b"openai-processing-ms")
        )

    def from_event(self, document: object) -> tuple[Claim, ...]:
        """Nothing."""
        return ()


OPENAI_HEADERS = OpenAiHeaders()
