"""Completions."""

from hypothesis import given, settings

from proxy.simulate.payloads.openai_completions import openai_completions
from proxy.simulate.script import Script

from .answers import SCRIPTS, said, stream


@settings(max_examples=40)
@given(script=SCRIPTS)
def test_everything_is_text(script: Script) -> None:
    """There is no frame before the first token."""
    saying = said(openai_completions, script)
    chunks = [event.data for event in stream(openai_completions, saying)]
    texts = [
        each["choices"][0]["text"] for each in chunks if isinstance(each, dict) and each["choices"]
    ]

    assert "".join(texts) == "".join(token.text for token in saying.tokens)
    whole = openai_completions.whole(saying, {})
    assert whole["choices"][0]["text"] == "".join(texts)
    assert chunks[-1] == "[DONE]"


def test_usage_comes_on_a_chunk_without_a_choice() -> None:
    """As chat completions do it."""
    saying = said(openai_completions, Script(text=("a",), usage=True))
    last = openai_completions.closing(saying, {})[-2].data

    assert isinstance(last, dict)
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 1)
