"""Scripts: what can be written, and what is refused with a reason."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.simulate.script import Base64, Reasoning, Script, ScriptError, ToolCall, read_script


def test_json_and_compact_text_say_the_same() -> None:
    """A compact value is JSON where it can be, dots go into objects, anything else is text."""
    written = {"prefill": 200, "gap": [5, 20], "cut": {"after_tokens": 3, "how": "rst"}}
    compact = "prefill=200 gap=[5,20] cut.after_tokens=3 cut.how=rst"

    assert read_script(written) == read_script(json.dumps(written)) == read_script(compact)
    assert read_script(json.dumps(compact)) == read_script(compact)


def test_an_empty_script_is_the_plain_one() -> None:
    """Every field has a default."""
    assert Script() == read_script("{}") == read_script("") == read_script(b"")


def test_nested_fields() -> None:
    """Objects become values of their own type."""
    script = read_script(
        {
            "reasoning": {"n": 3, "gap": 10, "hidden": True},
            "tool_call": {"name": "f", "arguments": ["{}"]},
            "raw": [[0, "data: x"], [5, {"base64": "AAE="}]],
        }
    )

    assert script.reasoning == Reasoning(n=3, gap=10, hidden=True)
    assert script.tool_call == ToolCall(name="f", arguments=("{}",))
    assert script.raw == ((0, "data: x"), (5, Base64(base64=b"\x00\x01")))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        (b"\xff{", "not JSON"),
        ("gap 20", "not a setting such as gap=20: 'gap'"),
        ("gap=x", "`$.gap`"),
        ("tokens=-1", ">= 0 - at `$.tokens`"),
        ("tokens=1.5", "`$.tokens`"),
        ("gap=1e999", "gap"),
        ("prefil=20", "did you mean 'prefill'?"),
        ("zzzzzz=20", "unknown field `zzzzzz`"),
        ("cut=1 cut.how=fin", "cut has a value already"),
        ('{"cut":{"how":"fin"}}', "cut: give one of"),
        ("cut.after_bytes=1 cut.at_ms=2", "cut: give one of"),
        ("jitter=5", "jitter: give a seed too"),
        ('{"trailers":[["A","b"]],"framing":"eof"}', "only a chunked body"),
        ("http_version=1.0 framing=chunked", "HTTP/1.0 knows no chunks"),
        ('{"informational":[[0,200,[]]]}', "200 is not a 1xx status"),
        ('{"evidence_override":{"vllm":1}}', "'vllm' is not under evidence"),
        ('{"extra_headers":[["A","b\\nC: d"]]}', "a line end would make another header"),
        ('{"informational":[[0,103,[["A\\r","b"]]]]}', "a line end would make another header"),
        ("[1]", "not a setting"),
    ],
)
def test_what_cannot_be_played_is_refused_with_a_reason(text: str | bytes, reason: str) -> None:
    """The text says where and why."""
    with pytest.raises(ScriptError) as caught:
        read_script(text)

    assert reason in str(caught.value)


@given(st.text() | st.binary())
def test_garbage_never_raises_anything_else(text: str | bytes) -> None:
    """Any text is a script or a `ScriptError`."""
    with contextlib.suppress(ScriptError):
        assert isinstance(read_script(text), Script)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(Script.__struct_fields__), JSON))
def test_any_value_of_any_field_is_taken_or_refused(fields: dict[str, object]) -> None:
    """No value of a known field gets further than it should."""
    with contextlib.suppress(ScriptError):
        assert isinstance(read_script(fields), Script)


def test_which_scripts_suit_any_path() -> None:
    """Those that answer something else than a model would."""
    suits = ["echo=true", "status=500", "redirect=/x", 'body="x"', "big=1", '{"raw":[[0,"x"]]}']

    assert all(read_script(text).suits_any_path for text in suits)
    assert not read_script("gap=3 close=true").suits_any_path
