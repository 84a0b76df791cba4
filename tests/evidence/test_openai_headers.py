"""openai-processing-ms: one lump."""

from proxy.account import Claim, ClaimKind
from proxy.evidence import OPENAI_HEADERS


def test_milliseconds() -> None:
    """A number of any form; a bad one is kept raw."""
    headers = [(b"OpenAI-Processing-Ms", b"412"), (b"openai-processing-ms", b"soon")]

    assert OPENAI_HEADERS.from_headers(headers) == (
        Claim("openai_headers", "openai-processing-ms", ClaimKind.LUMP, "412", 412_000),
        Claim("openai_headers", "openai-processing-ms", ClaimKind.LUMP, "soon", None),
    )
