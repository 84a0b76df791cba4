"""The fallback knows nothing."""

from proxy.dialects import NOTHING, OPAQUE, RequestFacts


def test_never_a_token() -> None:
    """Not even for what looks like one."""
    document = {"choices": [{"delta": {"content": "Hi"}}], "usage": {"prompt_tokens": 1}}

    assert OPAQUE.read_event(b"", b"{}", document) is NOTHING
    assert OPAQUE.read_response(document) is NOTHING
    assert OPAQUE.read_request({"model": "m", "stream": True}) == RequestFacts()
    assert OPAQUE.read_oversize(b"") is NOTHING
