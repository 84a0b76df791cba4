"""Who sent a request, and which identifiers belong to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.serve.identity import Identity, identify, upstream_request_id


@pytest.mark.parametrize(
    ("agent", "family"),
    [
        (b"codex_exec/0.171.0 (Debian)", "codex"),
        (b"claude-cli/2.1.332 (external, sdk-cli)", "claude-code"),
        (b"OpenAI/Python 3.57.0", "openai-python"),
        (b"AsyncOpenAI/Python 3.57.0", "openai-python"),
        (b"Anthropic/JS 1.14.0", "anthropic-js"),
        (b"python-requests/2.32", "python-requests"),
        (b"curl/7.88.1", "curl"),
        (b"something else", None),
    ],
)
def test_families_are_told_by_their_user_agents(agent: bytes, family: str | None) -> None:
    """A closed list; whatever is not on it stays unknown."""
    assert identify([(b"User-Agent", agent)]).client == family


def test_codex_and_claude_code_name_their_sessions_and_turns() -> None:
    """In fields of their own; the SDKs count their attempts."""
    assert identify(
        [
            (b"session-id", b"0199-abc"),
            (b"x-codex-turn-metadata", b'{"turn_id":"t-7","workspaces":{"/home/me":{}}}'),
            (b"X-Stainless-Retry-Count", b"2"),
            (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ]
    ) == Identity(
        session_id="0199-abc",
        turn_id="t-7",
        client_attempt=2,
        trace_id="0af7651916cd43dd8448eb211c80319c",
    )
    assert identify([(b"X-Claude-Code-Session-Id", b"s1")]).session_id == "s1"


def test_what_does_not_look_like_an_identifier_is_not_kept() -> None:
    """Free text of a header never reaches the log."""
    assert identify([(b"session-id", b"my secret text"), (b"x-stainless-retry-count", b"x")]) == (
        Identity()
    )
    assert upstream_request_id([(b"X-Request-Id", b"a b")]) is None
    assert upstream_request_id([(b"X-Request-Id", b"req_1")]) == "req_1"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    b"User-Agent",
                    b"session-id",
                    b"traceparent",
                    b"x-codex-turn-metadata",
                    b"x-stainless-retry-count",
                ]
            ),
            st.binary(max_size=60),
        ),
        max_size=6,
    )
)
def test_no_field_can_break_it(fields: list[tuple[bytes, bytes]]) -> None:
    """Garbage in, no exception out."""
    identify(fields)
