"""What every dialect keeps to, on golden streams and on garbage."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.dialects import DIALECTS, NOTHING, OPAQUE, Dialect, Observation, RequestFacts, match
from proxy.framing import Event
from tests.dialects.goldens import GOLDENS, Golden

FEW = 25
"""Examples per golden stream; there are a dozen streams."""

EACH = pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
EACH_GOLDEN = pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)


def observe(golden: Golden, body: bytes, size: int) -> list[Observation]:
    """The meaning of each data event of a body that is read `size` bytes at a time."""
    framing = golden.framing()
    events: list[Event] = []
    for start in range(0, len(body), size):
        events += framing.feed(body[start : start + size])
    events += framing.close()
    dialect = match("POST", golden.path)
    return [
        dialect.read_event(event.name, event.data, decoded(event.data))
        for event in events
        if not event.comment
    ]


def decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None


def tokens(observations: list[Observation]) -> list[object]:
    """The kind of each, repeats of what was streamed left out."""
    return [None if seen.repeats else seen.token for seen in observations]


@EACH_GOLDEN
def test_golden_stream(golden: Golden) -> None:
    """Every event means what stands beside it; structure, pings and usage are never tokens."""
    observations = observe(golden, golden.body, len(golden.body))

    assert match("POST", golden.path).name == golden.dialect
    assert tokens(observations) == golden.kinds
    usages = [seen.usage for seen in observations if seen.usage is not None]
    merged = usages[0] if usages else None
    for usage in usages[1:]:
        assert merged is not None
        merged = merged.merged(usage)
    assert merged == golden.usage
    models = [seen.model for seen in observations if seen.model is not None]
    assert set(models) == ({golden.model} if golden.model else set())
    assert [seen.error for seen in observations if seen.error] == (
        [golden.error] if golden.error else []
    )
    assert any(seen.finished for seen in observations) == golden.finished
    assert [seen.terminal for seen in observations[:-1]] == [False] * (len(observations) - 1)
    assert observations[-1].terminal == golden.terminal


@EACH_GOLDEN
@settings(max_examples=FEW)
@given(size=st.integers(1, 400))
def test_any_chunking_same_observations(golden: Golden, size: int) -> None:
    """Reads of any size say the same."""
    assert observe(golden, golden.body, size) == observe(golden, golden.body, len(golden.body))


@EACH_GOLDEN
@settings(max_examples=FEW)
@given(
    end=st.integers(0, 5000), flips=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)))
)
def test_truncated_and_damaged_streams_never_raise(
    golden: Golden, end: int, flips: list[tuple[int, int]]
) -> None:
    """Whatever arrives, there is an answer."""
    body = bytearray(golden.body)
    for place, value in flips:
        body[place % len(body)] = value
    observe(golden, bytes(body[:end]), 100)


# JSON of any shape, made of the words that the formats use.
_WORDS = sorted(
    {word for golden in GOLDENS for word in golden.body.decode().split('"') if word.isidentifier()}
    | {"response.completed", "response.output_item.done", "response.created", "error"}
)
_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from(_WORDS),
)
DOCUMENTS = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5)
    ),
    max_leaves=25,
)


@EACH
@settings(max_examples=60)
@given(name=st.sampled_from(_WORDS).map(str.encode) | st.binary(max_size=9), document=DOCUMENTS)
def test_any_document_is_answered(dialect: Dialect, name: bytes, document: object) -> None:
    """Names and values of the right kind, or none; counts that fit a record."""
    assert isinstance(dialect.read_request(document), RequestFacts)
    whole = dialect.read_response(document)
    event = dialect.read_event(name, b"{}", document)
    for seen in (whole, event, dialect.read_oversize(name) or NOTHING):
        assert seen.model is None or (0 < len(seen.model) <= 128 and seen.model.isprintable())
        assert seen.error is None or (seen.error.isascii() and 0 < len(seen.error) <= 64)
        if seen.usage is not None:
            for field in ("input", "cached", "output", "reasoning"):
                count = getattr(seen.usage, field)
                assert count is None or 0 <= count < 2**55


GOLDEN_DOCUMENTS = [
    decoded(event.data)
    for golden in GOLDENS
    for event in golden.framing().feed(golden.body)
    if not event.comment and event.data.startswith(b"{")
]


def damaged(document: Any, path: list[int], value: object) -> Any:
    """A copy of `document` in which the value at the end of `path` is another one."""
    if not path or not isinstance(document, dict | list) or not document:
        return value
    if isinstance(document, list):
        place = path[0] % len(document)
        return [damaged(v, path[1:], value) if n == place else v for n, v in enumerate(document)]
    key = list(document)[path[0] % len(document)]
    return {k: damaged(v, path[1:], value) if k == key else v for k, v in document.items()}


@EACH
@given(
    document=st.sampled_from(GOLDEN_DOCUMENTS),
    path=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    value=_LEAVES | st.sampled_from([[], {}, [[]], [{}], {"type": []}, {"text": {}}]),
)
def test_golden_documents_with_one_wrong_value(
    dialect: Dialect, document: Any, path: list[int], value: object
) -> None:
    """Every field may have every type."""
    wrong = damaged(document, path, value)
    dialect.read_event(b"", b"{}", wrong)
    dialect.read_response(wrong)
    dialect.read_request(wrong)


@EACH
@given(name=st.binary(max_size=9), data=st.binary(max_size=30))
def test_an_event_that_is_not_json_is_no_token(dialect: Dialect, name: bytes, data: bytes) -> None:
    """Its name alone proves nothing when its data can be seen."""
    for known in (name, b"response.output_text.delta", b"content_block_delta", b"error"):
        assert dialect.read_event(known, data, None).token is None


@EACH
@pytest.mark.parametrize(
    "document",
    [
        {"choices": [{"delta": {"content": "Hi"}}]},
        {"type": "response.output_text.delta", "delta": "Hi"},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}},
        {"response": "Hi"},
    ],
)
def test_deep_or_wide_documents_are_answered(dialect: Dialect, document: dict[str, object]) -> None:
    """A value nested deeper than Python would recurse is just not what was looked for."""
    deep: object = "x"
    for _ in range(900):
        deep = {"content": [deep], "delta": deep, "thinking": [deep], "function": deep}
    for key in document:
        dialect.read_event(b"", b"{}", {**document, key: deep})
        dialect.read_response({**document, key: deep})


@EACH
@pytest.mark.parametrize("message", ["key sk-secret is invalid", "sk secret", "x" * 65, ""])
def test_free_text_never_becomes_an_error_name(dialect: Dialect, message: str) -> None:
    """An error message may quote the request; only plain names pass."""
    document = {"error": {"type": message, "code": message, "message": message}, "type": "error"}

    for seen in (dialect.read_event(b"error", b"{}", document), dialect.read_response(document)):
        assert seen.error in (None, "error")


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PATCH", "OPTIONS", "post", ""])
@pytest.mark.parametrize("path", sorted({golden.path for golden in GOLDENS}))
def test_only_post_is_a_model_call(method: str, path: str) -> None:
    """Reading a stored response, or probing with HEAD, generates nothing."""
    assert match(method, path) is OPAQUE


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1/models",
        "/v1/embeddings",
        "/v1/messages/count_tokens",
        "/v1/messages/batches",
        "/v1/threads/t1/messages",
        "/v1/responses/compact",
        "/v1/responses/resp_1/cancel",
        "/v1/chat/completions/c1",
        "/v1/xchat",
        "/api/tags",
        "/api/embed",
    ],
)
def test_other_calls_are_opaque(path: str) -> None:
    """Near the names of model calls, and something else."""
    assert match("POST", path) is OPAQUE


@pytest.mark.parametrize("golden", GOLDENS, ids=lambda golden: golden.name)
@pytest.mark.parametrize("prefix", ["/t/team/", "/api/v1", "/openai/v1"])
def test_a_prefix_does_not_matter(golden: Golden, prefix: str) -> None:
    """Clients join any base with the path; a trailing slash is forgiven."""
    assert match("POST", prefix + golden.path).name == golden.dialect
    assert match("POST", golden.path + "/").name == golden.dialect


def test_opaque_is_last_and_matches_all() -> None:
    """There is an answer for every request, and each dialect has a name of its own."""
    assert DIALECTS[-1] is OPAQUE
    assert OPAQUE.matches("BREW", "*")
    assert len({dialect.name for dialect in DIALECTS}) == len(DIALECTS)


def test_goldens_are_json() -> None:
    """A golden that does not parse would test nothing."""
    for golden in GOLDENS:
        for wire, _ in golden.steps:
            payload = wire.split(b"data: ")[-1].strip()
            if not payload.startswith(b":") and payload != b"[DONE]":
                json.loads(payload)
